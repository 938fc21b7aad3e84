"""Every message of the bus layer, and the values that answers are made of.

To add one: subclass `Message` with a tag of its own, and add its bytes to
`tests/test_golden_bytes.py`. To change one: add a field at the end, with a default.
Never rename a tag, reorder, retype or remove a field: old peers still speak it, and
an old decoder ignores fields at the end that it does not know.
Messages carry durations (`_s`), never instants: clocks of two processes do not compare.
"""

from typing import Literal

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of everything typed on the wire: immutable, compact, told apart by tag."""


class Ping(Message, frozen=True, tag="ping"):
    """Anyone to anyone: are you there? Every server answers with `Pong`."""


class Pong(Message, frozen=True, tag="pong"):
    """The answer to `Ping`: this is who answers at this endpoint now."""

    id: str
    incarnation: int


State = Literal["starting", "live", "suspect", "draining", "disabled", "offline", "dead"]


class Beacon(Message, frozen=True, tag="beacon"):
    """Published by every process once a period: I am here, and this is how I am.

    Who speaks (id and incarnation) is in the header of the frame. Only the newest counts.
    """

    role: str
    node: str
    pid: int
    endpoint: str
    """Where this process answers requests, `Ping` among them; empty if it answers none."""
    state: State
    age_s: float
    restarts: int
    linked: bool
    """A program that merely links `roles`: it is seen, never killed, restarted or judged."""
    period_s: float
    metrics_url: str
    statistics: dict[str, float]


class Exited(Message, frozen=True, tag="exited"):
    """Published by a node agent on topic `exit` the moment it has reaped a process: that life
    is over for certain, and nobody has to wait for silence to tell."""

    id: str
    incarnation: int
    pid: int
    code: int
    """As the operating system says: the exit status, or minus the signal that ended it."""
    reason: str
    asked: bool = False
    """Somebody had asked its agent for this end: whoever watches has nothing to bring back."""


class PeerSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one process fared with another that it asked, since it last told."""

    id: str
    incarnation: int
    asked: int
    answered: int
    refused: int
    silent: int
    """Left unanswered until nobody waited any more."""
    wait_s: float
    """The median of how long its answers took, from here; 0 without any."""
    room: float
    """How many requests it may have in flight from here, as the asker has found out."""


class PeersSeen(Message, frozen=True, tag="peers-seen"):
    """Published about once a second on topic `seen` by whoever asks many peers of one role (stubs:
    bricks): what they look like from outside. What a process says of itself may be beautiful."""

    role: str
    period_s: float
    """What this is about: so long a time, up to now."""
    seen: list[PeerSeen]
    """Those asked in that time; at most `PEERS_SEEN_MAX`."""


PEERS_SEEN_MAX = 256


class Drain(Message, frozen=True, tag="drain"):
    """To a role that knows how: take on nothing new, and end when nothing is left here. The answer
    is `Pong`: it has begun. Permission: control."""


class InjectFault(Message, frozen=True, tag="inject-fault"):
    """To any process of a cluster whose configuration says `chaos = true`: be sick on purpose. The
    answer is `Pong`. One of each kind at a time: the later takes the place of the earlier, and an
    `amount` of 0 heals it at once. Permission: control."""

    fault: Literal["slow", "drop", "leak", "flip", "clock"]
    """slow: `amount` seconds of standing still before each message that comes in. drop: that share
    of what goes out is lost. leak: so many bytes of memory a second. flip: one bit in so many
    values of those held (a brick). clock: the wall clock is so many seconds ahead."""
    amount: float
    duration_s: float
    """Heals by itself after so long."""


class Happening(Message, frozen=True, tag="event"):
    """Published when something notable happened, with its reason, for people and the monitor."""

    kind: str
    """started, exited, suspected, died, returned, refused, …: one word."""
    subject: str
    """The component it happened to."""
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """A no, as a value and not an exception. Retry only if `retry_after_s` is not None."""

    reason: Literal["busy", "late", "denied", "unknown", "failed", "unreachable"]
    """busy: no room; late: cannot finish in time; denied: this key may not ask that; unknown:
    no such request here; failed: the handler broke; unreachable: it could not even be sent."""
    detail: str = ""
    retry_after_s: float | None = None
