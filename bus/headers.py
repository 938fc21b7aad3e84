"""What precedes every message on the wire: who, which request, how long. Shapes only.

One of them begins each record of a frame (`bus.frames`). Their fields are the wire: see there
how they may change.
"""

from typing import Annotated

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A request. `budget_us` is how long the asker still waits, at the moment `sent_us`."""

    request_id: _Count
    sender: _Name
    incarnation: _Count
    budget_us: _Count
    priority: int
    sent_us: int
    """The sender's own clock: of use only for differences between two of its messages."""
    message: msgspec.Raw


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The answer to the `Ask` of that number."""

    request_id: _Count
    sender: _Name
    incarnation: _Count
    queued_us: _Count
    """How long the request waited for its handler, in queues seen and unseen."""
    message: msgspec.Raw


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The tiny answer to an `Ask` that is not carried out."""

    request_id: _Count
    reason: str
    detail: str
    retry_after_us: int
    """Negative: do not retry."""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """The asker no longer waits for the answer to the `Ask` of that number."""

    request_id: _Count


class News(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Published to whoever listens; `sequence` counts the sender's news in this incarnation."""

    sender: _Name
    incarnation: _Count
    sequence: _Count
    sent_us: int
    message: msgspec.Raw


Header = Ask | Reply | Refusal | Cancel | News
