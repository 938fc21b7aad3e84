"""What a server asks of an inbox that is not the plain queue: which request next, and which not.

A server has its own queue, first in and first out. A role with an opinion about order and about
what is worth beginning brings an `Inbox` (`Server.use_inbox`), which decides and never waits.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from bus.messages import Message, Refused


class Waiting(Protocol):
    """What an inbox may know of a request: a `bus.server.Call`."""

    @property
    def message(self) -> Message: ...

    @property
    def priority(self) -> int:
        """As the asker says; 0 as a rule."""

    @property
    def until(self) -> float:
        """When the asker stops waiting, on our clock."""


C = TypeVar("C", bound=Waiting)

TurnedAway = Sequence[tuple[C, Refused]]
"""Requests that are not carried out, and what to tell who asked, if they still wait."""


class Inbox(Protocol[C]):
    def __len__(self) -> int:
        """How many wait."""

    def add(self, call: C, now: float) -> TurnedAway[C]:
        """One has come. Who is turned away because of it: itself, or others for its sake."""

    def take(self, now: float) -> tuple[C | None, TurnedAway[C]]:
        """The one to carry out next, if any, and who is turned away on the way to it."""

    def served(self, now: float) -> None:
        """One that was taken is done."""
