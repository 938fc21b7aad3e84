"""What a handler gives, and what the asker gets. Shapes only."""

from typing import Generic, TypeVar

import msgspec

from bus.frames import Body
from bus.messages import Message, Refused

R = TypeVar("R", bound=Message)


class Answer(msgspec.Struct, frozen=True):
    """An answer with a raw body beside its message."""

    message: Message
    body: Body = b""


class Reply(msgspec.Struct, Generic[R], frozen=True):
    """An answer that came in time."""

    message: R
    body: Body
    queued_s: float
    """How long the request waited for its handler at the server, as far as that can tell."""


class Gathered(msgspec.Struct, Generic[R]):
    """What a fan-out came to: every server asked is in exactly one of the three."""

    answers: dict[str, Reply[R]]
    refused: dict[str, Refused]
    silent: set[str]
