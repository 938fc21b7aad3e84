"""Which statistics of which role are compared, and how great a difference is none. Data only.

A statistic is of use if a healthy process cannot help being like its peers in it: how long one
request takes, how much memory it has beyond what it holds. What depends on its share of the load
is not: a brick that began a minute ago holds less, is read less, and is in good health. It may
be judged towards one side only (`low`, `high`), or while there is enough to tell (`least`).

Statistics that show the same thing share a *group*, and count once. The floors say which
difference is too small to matter, however alike the peers are: idle peers are exactly alike.

What is normal for a role that is not named here we do not know: its members may do different
things. It is compared, and what is odd is said; ended is nobody (`ended_of`).
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from bus.config_shape import MANAGER, RoleConfig

Kind = Literal["activity", "level", "state", "outside"]
"""activity: a pause of a moment is in it, so one second proves nothing; level: no pause is, so it
counts at once (both: `pinpoint.deviation`); state: its history (`pinpoint.patterns`);
outside: as those see it who ask (`pinpoint.outside`)."""

BEACONS_MISSED = "beacons_missed"
OVERHEAD_BYTES = "overhead_bytes"
RSS_GROWTH = "rss_growth"
DERIVED = frozenset({BEACONS_MISSED, OVERHEAD_BYTES, RSS_GROWTH})
"""What no beacon says: `pinpoint.lives` works it out."""

MB = float(1 << 20)


class Judged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One statistic of one role."""

    name: str
    group: str
    kind: Kind
    low: bool = False
    """Whether less than the peers is a bad sign."""
    high: bool = False
    """Whether more than the peers is."""
    floor: float = 0.0
    """The scale is never less than this, in the statistic's own unit."""
    relative: float = 0.0
    """Nor less than this share of the median."""
    least: float = 0.0
    """With a median below this it says nothing."""
    decisive_ratio: float = 0.0
    """More than so many medians, and `decisive_floor` more than it, is enough by itself; 0: is not
    ever."""
    decisive_floor: float = 0.0

    def decides(self, value: float, median: float) -> bool:
        return self.decisive_ratio > 0 and value > max(
            self.decisive_ratio * median, median + self.decisive_floor
        )

    @property
    def is_count(self) -> bool:
        """Events of a second: their chance alone scatters by the square root of their number."""
        return self.name.endswith("_per_s") and not self.name.startswith("bytes_")


def _high(name: str, group: str, floor: float, relative: float, kind: Kind = "activity") -> Judged:
    return Judged(name=name, group=group, kind=kind, high=True, floor=floor, relative=relative)


def _low(name: str, group: str, relative: float, least: float, kind: Kind = "activity") -> Judged:
    return Judged(name=name, group=group, kind=kind, low=True, relative=relative, least=least)


def _pattern(name: str, group: str, floor: float) -> Judged:
    """`floor`: a change of less in a second is none."""
    return Judged(name=name, group=group, kind="state", low=True, high=True, floor=floor)


BRICK = (
    # Slow: how long one request takes, of whatever kind; what it does to those that wait.
    _high("service_s", "service", 0.000_03, 0.25),
    _high("busy_ratio", "busy", 0.03, 0.3),
    _high("loop_busy_ratio", "busy", 0.03, 0.3),
    _high("cpu", "busy", 0.1, 0.3),
    _high("queue_s", "queue", 0.000_03, 0.25),
    _high("loop_lag_s", "queue", 0.05, 0.5),
    _high("inbox_length", "queue", 20.0, 0.5),
    # Too late, or broken.
    _high("expired_per_s", "late", 5.0, 0.5),
    _high("refused_per_s", "late", 5.0, 0.5),
    _high("failed_per_s", "failed", 1.0, 0.5),
    # Left alone: bricks of a small node get more writes than others, never fewer.
    Judged(name="writes_per_s", group="work", kind="activity", low=True, relative=0.15, least=20.0),
    # Memory: a leak is what neither its sessions explain nor the peers have.
    _high("minor_faults_per_s", "faults", 200.0, 0.5, "level"),
    _high(RSS_GROWTH, "growth", 0.5 * MB, 0.5, "level"),
    Judged(
        name=OVERHEAD_BYTES,
        group="memory",
        kind="level",
        high=True,
        floor=6 * MB,
        relative=0.1,
        # A slow leak shows in nothing else, before it hurts.
        decisive_ratio=4.0,
        decisive_floor=200 * MB,
    ),
    # Histories. They rise and fall with the sessions, all together; and those come with the work.
    _pattern("items", "work", 2.0),
    _pattern("memory_bytes", "work", 16_384.0),
    _pattern("allocated_blocks", "work", 64.0),
    # From here, and from the stubs.
    _high(BEACONS_MISSED, "beacons", 0.04, 0.5, "level"),
    _high("stub_silent_share", "silent", 0.05, 0.5, "outside"),
    _high("stub_refused_share", "refused", 0.05, 0.5, "outside"),
    _high("stub_wait_s", "wait", 0.000_1, 0.2, "outside"),
    _high("stub_tightness", "room", 0.01, 0.4, "outside"),
    _low("stub_asked_per_s", "work", 0.15, 20.0, "outside"),
)

VITALS = (
    # A loop that is blocked: all of them tell that.
    _high("loop_lag_s", "loop", 0.05, 0.5),
    _high("queue_s", "loop", 0.005, 0.5),
    _high(BEACONS_MISSED, "loop", 0.04, 0.5, "level"),
    _high("service_s", "service", 0.005, 0.5),
    _high("expired_per_s", "late", 5.0, 0.5),
    _high("failed_per_s", "failed", 5.0, 0.5),
    # Memory that grew: once more.
    _high("minor_faults_per_s", "memory", 1000.0, 0.5, "level"),
    _high(RSS_GROWTH, "memory", 3 * MB, 0.5, "level"),
    _high(OVERHEAD_BYTES, "memory", 48 * MB, 0.5, "level"),
)
"""Of managers, of which one leads and does all the work, and of roles we know nothing about: so
what a task of their own brings about, which others have not, is in one group."""

CATALOGUE: dict[str, tuple[Judged, ...]] = {"brick": BRICK, MANAGER: VITALS}


def ended_of(roles: Mapping[str, RoleConfig]) -> Iterable[str]:
    """The roles whose members may be ended: those we know, and those that say so themselves."""
    return [*CATALOGUE, *(name for name, role in roles.items() if role.judge)]


def judged_of(role: str) -> tuple[Judged, ...]:
    return CATALOGUE.get(role, VITALS)
