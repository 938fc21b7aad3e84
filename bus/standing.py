"""How one peer stands in the liveness table, and what is remembered of it.

Instants here are seconds of the table's own clock (see `bus.liveness`), but for `heard_at` and
`at`, which are the process's `now`.
"""

import math

import msgspec

from bus.identity import INCARNATION_MAX
from bus.messages import Beacon, State
from bus.peers import Peer

PERIOD_S_MIN = 0.05  # A peer that promises more, or a beacon a week, is not taken at its word.
PERIOD_S_MAX = 60.0
NUMBER_MAX = 1e18  # No honest statistic comes near it; it fits 64 bits, and so do sums of a few.
TRANSPORTS = ("tcp://", "ipc://")


def is_sound(beacon: Beacon, incarnation: int) -> bool:
    """Whether its numbers can be, and its endpoint is one to connect to. No NaN compares so."""
    return (
        0 <= incarnation <= INCARNATION_MAX
        and 0 <= beacon.age_s < NUMBER_MAX
        and 0 < beacon.period_s < NUMBER_MAX
        and sum(map(abs, beacon.statistics.values())) < NUMBER_MAX
        and (not beacon.endpoint or beacon.endpoint.startswith(TRANSPORTS))
    )


class Trusted(msgspec.Struct, frozen=True):
    """Heard of late."""


class Suspect(msgspec.Struct, frozen=True):
    """Silent for too long; dead at `judged_at` if no ping is answered till then."""

    judged_at: float = math.inf
    """Not before the first ping is out."""


class Answering(msgspec.Struct, frozen=True):
    """Silent, but answers pings."""

    answered_at: float


class Dead(msgspec.Struct, frozen=True):
    at: float
    vouched: bool


class Gone(msgspec.Struct, frozen=True):
    """It said goodbye."""

    at: float


Standing = Trusted | Suspect | Answering | Dead | Gone
TRUSTED = Trusted()


class Entry:
    """One peer. Mutable and slotted: this is touched for every beacon."""

    __slots__ = (
        "beacon",
        "heard_at",
        "id",
        "incarnation",
        "missing_s",
        "period_s",
        "pinged_at",
        "silent_from",
        "standing",
        "suspect_s",
    )

    def __init__(self, peer_id: str, incarnation: int, beacon: Beacon) -> None:
        self.id = peer_id
        self.incarnation = incarnation
        self.beacon = beacon
        self.standing: Standing = TRUSTED
        self.heard_at = self.silent_from = 0.0
        self.pinged_at = -math.inf
        self.period_s = self.suspect_s = self.missing_s = 0.0

    def expect(self, suspect_after: float, missing_after: float) -> None:
        """Await its beacons at the pace it promises, within reason."""
        self.period_s = min(max(self.beacon.period_s, PERIOD_S_MIN), PERIOD_S_MAX)
        self.suspect_s = suspect_after * self.period_s
        self.missing_s = missing_after * self.period_s

    def begin_anew(self, clock: float) -> None:
        """Count its silence from now, and judge it by nothing that was before."""
        self.silent_from = clock
        if isinstance(self.standing, Suspect):
            self.standing = Suspect()
            self.pinged_at = -math.inf

    @property
    def ended(self) -> bool:
        """For certain: this life will not come back."""
        return isinstance(self.standing, Gone) or (
            isinstance(self.standing, Dead) and self.standing.vouched
        )

    @property
    def state(self) -> State:
        match self.standing:
            case Suspect():
                return "suspect"
            case Dead():
                return "dead"
            case _:
                return self.beacon.state

    def peer(self) -> Peer:
        beacon = self.beacon
        return Peer(
            id=self.id,
            incarnation=self.incarnation,
            state=self.state,
            heard_at=self.heard_at,
            role=beacon.role,
            node=beacon.node,
            pid=beacon.pid,
            endpoint=beacon.endpoint,
            linked=beacon.linked,
            restarts=beacon.restarts,
            age_s=beacon.age_s,
            metrics_url=beacon.metrics_url,
            statistics=beacon.statistics,
        )
