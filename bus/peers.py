"""What the liveness table shows of a peer, what it tells about it, and what it orders done.

Changes are facts (past tense), orders are verbs. Each names the incarnation it is about, so
a change read late is not taken for news of the peer's next life.
"""

from typing import Literal

import msgspec

from bus.messages import State


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One component as seen from here. All but the first three are as of its last beacon."""

    id: str
    incarnation: int
    state: State
    """What it says of itself, unless it is suspect or dead as seen from here."""
    heard_at: float
    """When its last beacon came, by the clock of this process."""
    role: str
    node: str
    pid: int
    endpoint: str
    linked: bool
    restarts: int
    age_s: float
    metrics_url: str
    statistics: dict[str, float]


class Appeared(msgspec.Struct, frozen=True):
    """Heard for the first time, or for the first time since it was forgotten."""

    id: str
    incarnation: int


class Replaced(msgspec.Struct, frozen=True):
    """A later life of a known id is there: whatever was known of the former is void."""

    id: str
    incarnation: int
    former: int


class Suspected(msgspec.Struct, frozen=True):
    """Silent for too long. It is being pinged; rely on another one if you can."""

    id: str
    incarnation: int


class Returned(msgspec.Struct, frozen=True):
    """No longer suspect, or not dead after all: this same life was heard, or answered a ping."""

    id: str
    incarnation: int
    by: Literal["beacon", "ping"]


class Died(msgspec.Struct, frozen=True):
    """`vouched`: its node agent reaped the process, so it is gone for certain. Else it was
    silent and left pings unanswered: it may yet come back. Told again if vouched for later."""

    id: str
    incarnation: int
    reason: str
    vouched: bool


class Left(msgspec.Struct, frozen=True):
    """Its last beacon said goodbye (state "offline"): it ends in good order. Nothing to heal."""

    id: str
    incarnation: int


class StateChanged(msgspec.Struct, frozen=True):
    """What it says of itself is new: starting to live, live to draining, …"""

    id: str
    incarnation: int
    before: State
    after: State


class Forgotten(msgspec.Struct, frozen=True):
    """Dead, left or lost from sight for so long that nothing more is known of it."""

    id: str
    incarnation: int


class HubsSuspected(msgspec.Struct, frozen=True):
    """More than half of the peers are missing at once: it is the hubs, or it is us."""

    missing: int
    known: int


class HubsTrusted(msgspec.Struct, frozen=True):
    """Enough beacons come through again; who is silent from now on is judged again."""


class PingPeer(msgspec.Struct, frozen=True):
    """Order: send `Ping` to this endpoint; tell `Liveness.answered` who answered, if anyone."""

    id: str
    endpoint: str


class ResignTo(msgspec.Struct, frozen=True):
    """Order: a later life of our own id is live. End this process in good order."""

    incarnation: int


Change = (
    Appeared
    | Replaced
    | Suspected
    | Returned
    | Died
    | Left
    | StateChanged
    | Forgotten
    | HubsSuspected
    | HubsTrusted
)
Order = PingPeer | ResignTo
Output = Change | Order
