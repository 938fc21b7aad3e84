"""What became of the requests of an open loop: goodput next to offered load. Decides only.

A request is good if it was carried out within the timeout, counted from when it was *meant* to
begin: a generator or a server that lags cannot hide it. Everything else is a failure of some kind,
and offered load is the sum of all. Requests are counted in the interval in which they were meant to
begin, so that an interval's goodput never exceeds its offered load.

What always holds:
  G1  Every request offered is in exactly one count.
  G2  A request that was done, but late, is not good.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from loadtest.histogram import Histogram

Fate = Literal["good", "late", "refused", "failed", "unstarted"]
"""Late: done too late, or given up when the time was over. Refused: by the stub or the bricks, and
told so in time. Unstarted: the generator had no room for it."""

FATES: tuple[Fate, ...] = ("good", "late", "refused", "failed", "unstarted")


class Interval(msgspec.Struct):
    """What became of the requests that were meant to begin in it."""

    good: int = 0
    late: int = 0
    refused: int = 0
    failed: int = 0
    unstarted: int = 0
    latencies: Histogram = msgspec.field(default_factory=Histogram)
    """Of those that were carried out, late or not."""

    @property
    def offered(self) -> int:
        return self.good + self.late + self.refused + self.failed + self.unstarted

    def merge(self, other: "Interval") -> None:
        self.latencies.merge(other.latencies)
        for fate in FATES:
            setattr(self, fate, getattr(self, fate) + getattr(other, fate))


class Outcome(msgspec.Struct):
    """One run, of one generator or of several."""

    interval_s: float
    timeout_s: float
    intervals: list[Interval]
    errors: dict[str, int]
    """What the failed ones raised."""
    cpu_share: float = 0.0
    """Of one core, that the generator used; of several, the busiest."""

    @classmethod
    def of(cls, duration_s: float, interval_s: float, timeout_s: float) -> "Outcome":
        length = max(1, -int(-duration_s / interval_s // 1))
        return cls(interval_s, timeout_s, [Interval() for _ in range(length)], {})

    def add(self, meant_s: float, fate: Fate) -> Interval:
        """One that was meant to begin so long after the start."""
        place = min(int(meant_s / self.interval_s), len(self.intervals) - 1)
        interval = self.intervals[place]
        setattr(interval, fate, getattr(interval, fate) + 1)  # G1
        return interval

    def done(self, meant_s: float, latency_s: float) -> None:
        fate: Fate = "good" if latency_s <= self.timeout_s else "late"  # G2
        self.add(meant_s, fate).latencies.add(latency_s)

    def refused(self, meant_s: float, took_s: float) -> None:
        """The stub gave it up, at once or when its time was over."""
        self.add(meant_s, "refused" if took_s < self.timeout_s else "late")

    def failed(self, meant_s: float, error: str) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1
        self.add(meant_s, "failed")

    def total(self, from_s: float = 0.0, until_s: float | None = None) -> Interval:
        """All counts of the intervals that lie between; from the start to the end, as a rule."""
        first = round(from_s / self.interval_s)
        last = None if until_s is None else round(until_s / self.interval_s)
        whole = Interval()
        for each in self.intervals[first:last]:
            whole.merge(each)
        return whole

    @property
    def latencies(self) -> Histogram:
        """Of all that were carried out."""
        return self.total().latencies


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """What several generators saw of the same stretch of time."""
    first = outcomes[0]
    whole = Outcome(
        first.interval_s,
        first.timeout_s,
        [Interval() for _ in first.intervals],
        {},
        max(each.cpu_share for each in outcomes),
    )
    for outcome in outcomes:
        for error, count in outcome.errors.items():
            whole.errors[error] = whole.errors.get(error, 0) + count
        for mine, theirs in zip(whole.intervals, outcome.intervals, strict=True):
            mine.merge(theirs)
    return whole


def recovery_s(
    outcome: Outcome, *, before_s: float, storm_s: float, share: float, window_s: float
) -> float | None:
    """How long after a storm its goodput is again `share` of what it was before it, in the mean of
    a window; None if it is not before the end. `before_s` of it were before the storm."""
    calm = outcome.total(outcome.interval_s, before_s)
    if not calm.offered or not calm.good:
        return None
    wanted = share * calm.good / calm.offered
    ended_s = before_s + storm_s
    length_s = len(outcome.intervals) * outcome.interval_s
    from_s = ended_s
    while from_s + window_s <= length_s + outcome.interval_s / 2:
        seen = outcome.total(from_s, from_s + window_s)
        if seen.offered and seen.good / seen.offered >= wanted:
            return round(from_s - ended_s, 6)
        from_s += outcome.interval_s
    return None
