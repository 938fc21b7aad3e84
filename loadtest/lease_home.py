"""An owner of the lease benchmark: a real machine in a real session, its instants written down.

What is measured is what `roles.Owner` does, less its upcalls: those are the user's.

What always holds:
  H1  A gap is never made shorter by us: what is given up counts from before the machine looked
      at the answer, what is taken on from after.
"""

import secrets
from random import Random

from bus.clock import now, wall_s
from bus.lease_timing import LeaseTiming
from loadtest.lease_requests import NAMESPACE
from roles.key_range import KeyRange
from roles.lease_messages import OwnerAnswer
from roles.lease_session import LeaseSession
from roles.owner_machine import Changed, Ignored, OwnerAction, OwnerMachine, OwnerName

Instants = list[tuple[float, KeyRange]]


class TimedMachine(OwnerMachine):
    def __init__(self, name: OwnerName, timing: LeaseTiming, chance: Random, now: float) -> None:
        super().__init__(name, timing, chance, now)
        self.renewed_at: dict[int, float] = {}
        """When each term's leader first answered this owner."""
        self.taken: Instants = []
        self.given: Instants = []

    def answered(self, term: int, answer: OwnerAnswer, now: float) -> list[OwnerAction]:
        actions = super().answered(term, answer, now)
        if not any(isinstance(action, Ignored) for action in actions):
            self.renewed_at.setdefault(term, now)
        self._note(actions, now)
        return actions

    def advance(self, now: float, *, may_renew: bool = True) -> list[OwnerAction]:
        actions = super().advance(now, may_renew=may_renew)
        self._note(actions, now)  # What runs out.
        return actions

    def _note(self, actions: list[OwnerAction], before: float) -> None:
        for action in actions:
            if isinstance(action, Changed):
                after = now()
                self.given += [(before, each) for each in action.revoked]  # H1
                self.taken += [(after, each) for each in action.granted]


class Home:
    """What the session wants of an owner."""

    def __init__(self, session: LeaseSession, name: str) -> None:
        self._session = session
        self.timed = TimedMachine(
            OwnerName(
                namespace=NAMESPACE,
                owner=name,
                url=f"tcp://{name}",
                process=session.process.id,
                process_incarnation=session.process.incarnation,
                incarnation=int(wall_s() * 1000),
                nonce=secrets.randbits(62),
            ),
            session.timing,
            session.chance,
            now(),
        )
        self.machine: OwnerMachine = self.timed

    def may_renew(self, now: float) -> bool:
        return True

    def perform(self, actions: list[OwnerAction]) -> None:
        pass  # The machine has noted what counts.

    def start(self) -> None:
        self._session.add_owner(self)

    def leave(self) -> None:
        """In good order: `machine.released` says when that is done."""
        self._session.post(lambda: self.machine.leave(now()))

    def stop(self) -> None:
        self._session.remove_owner(self)

    def leases(self) -> set[tuple[int, int, int]]:
        """Start, end and number of each piece; none once its time has run out."""
        held = self.machine.held
        if now() >= held.until:
            return set()
        return {(each.range.start, each.range.end, each.number) for each in held.pieces()}
