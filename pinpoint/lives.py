"""What was seen of each component's present life: its last few beacons, and what follows from
them. Decides only.

Derived here, as no beacon says it:

    overhead_bytes   rss_bytes - memory_bytes: memory that what it holds does not explain
    rss_growth       how fast that grew over the last `RECENT` beacons, bytes a second; not below 0
    beacons_missed   share of the last `MISSED_TICKS` in which the newest beacon was old, or came
                     `LATE_PERIODS` or more after the one before

What always holds:
  H1  A new incarnation begins anew: nothing of the life before is held against it.
  H2  A beacon that is seen in several ticks is one beacon: what it says does not persist by that.
  H3  Bounded: `LIVES_MAX` components, of each `RECENT` beacons, of each what is judged.
  H4  What is not in the tick is forgotten.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from pinpoint.catalogue import BEACONS_MISSED, DERIVED, OVERHEAD_BYTES, RSS_GROWTH, judged_of
from pinpoint.deviation import is_sound
from pinpoint.samples import Sample

LIVES_MAX = 10_000
RECENT = 3
MISSED_TICKS = 6
LATE_PERIODS = 1.5
SAME_S = 0.001  # Instants that differ by less are one: they were subtracted and added again.

_SOURCES = ("rss_bytes", "memory_bytes")

Values = dict[str, float]


class Life:
    """One component, from its first beacon on. The newest of `recent` is last."""

    __slots__ = ("heard_at", "incarnation", "is_new", "missed", "recent", "role", "values")

    def __init__(self, sample: Sample) -> None:
        self.incarnation = sample.incarnation
        self.role = sample.role
        self.heard_at = float("-inf")
        self.is_new = False
        """Whether the tick at hand brought a beacon."""
        self.recent: list[tuple[float, Values]] = []
        self.values: Values = {}
        """What the newest says."""
        self.missed = 0
        """A bit a tick, the newest lowest: whether a beacon was missing."""

    def before(self, name: str) -> list[float]:
        """What the beacons before the newest said."""
        return [values[name] for _, values in self.recent[:-1] if name in values]

    def see(self, sample: Sample, at: float, period_s: float, unsaid: Counter[str]) -> None:
        heard_at = at - sample.beacon_age_s
        self.is_new = not self.recent or abs(heard_at - self.heard_at) > SAME_S
        silent_s = sample.beacon_age_s
        if self.is_new and self.recent:
            silent_s = max(silent_s, heard_at - self.heard_at)
        late = silent_s > LATE_PERIODS * period_s
        self.missed = (self.missed << 1 | late) & ((1 << MISSED_TICKS) - 1)
        if self.is_new:  # H2
            self.heard_at = heard_at
            self.values = _sound(sample, unsaid)
            self.recent.append((heard_at, self.values))
            del self.recent[:-RECENT]  # H3
            growth = self.slope(OVERHEAD_BYTES)
            if growth is not None:
                self.values[RSS_GROWTH] = max(growth, 0.0)
        self.values[BEACONS_MISSED] = self.missed.bit_count() / MISSED_TICKS

    def slope(self, name: str) -> float | None:
        """By how much it grows a second, over the beacons that are kept."""
        heard_at, values = self.recent[-1]
        for before_at, before in self.recent[:-1]:
            if name in before and name in values and heard_at > before_at:
                return (values[name] - before[name]) / (heard_at - before_at)
        return None


def _sound(sample: Sample, unsaid: Counter[str]) -> Values:
    """What is judged, and what that is worked out from, as far as it can be true."""
    statistics = sample.statistics
    values = {name: statistics[name] for name in _wanted(sample.role) if name in statistics}
    if not all(map(is_sound, values.values())):
        sound = {name: value for name, value in values.items() if is_sound(value)}
        unsaid["not finite"] += len(values) - len(sound)
        values = sound
    if "rss_bytes" in values:
        overhead_bytes = values["rss_bytes"] - values.get("memory_bytes", 0.0)
        values[OVERHEAD_BYTES] = max(overhead_bytes, 0.0)
    return values


class Lives:
    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._lives: dict[str, Life] = {}

    def see(self, samples: Iterable[Sample], at: float, unsaid: Counter[str]) -> dict[str, Life]:
        """All that are there now, by id."""
        seen: dict[str, Life] = {}
        for sample in samples:
            if len(seen) >= LIVES_MAX:
                unsaid["too many components"] += 1  # H3
                continue
            life = self._lives.get(sample.id)
            if life is None or life.incarnation != sample.incarnation or life.role != sample.role:
                life = Life(sample)  # H1
            life.see(sample, at, self._period_s, unsaid)
            seen[sample.id] = life
        self._lives = seen  # H4
        return seen


@cache
def _wanted(role: str) -> tuple[str, ...]:
    judged = {each.name for each in judged_of(role)}
    return tuple(sorted(judged - DERIVED | set(_SOURCES)))
