"""How far a value is from those of its peers, by the median absolute deviation. Decides only.

    median   of all values
    MAD      median of |x - median|
    scale    max(1.4826 * b_n * MAD, sqrt(median) of a count, floor, relative * median)
    score    (x - median) / scale; beyond `THRESHOLD` to a side that matters, it is an anomaly

1.4826 makes the MAD an estimate of the standard deviation; `b_n` corrects what it
underestimates in small groups (Croux and Rousseeuw's factors for n < 10, n / (n - 0.8) above).
Up to half of the values may be anything: mean and standard deviation would let one bad value of
six hide itself, as its score cannot exceed sqrt(5). Where more than half are equal the MAD is 0,
and the floors alone say what is different.

What always holds:
  D1  Only finite numbers from 0 to `VALUE_MAX` are compared; any other is left out, and counted.
  D2  Fewer than `GROUP_MIN` values: no judgement. Of two that differ, either may be the sick one.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from pinpoint.catalogue import Judged

THRESHOLD = 3.5  # Iglewicz and Hoaglin's.
GROUP_MIN = 3
VALUE_MAX = 1e18
SCORE_MAX = 1e6  # What is written down stays readable, and finite.

_CONSISTENT = 1.4826
_SMALL = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)


class Reference(NamedTuple):
    """What peers are like in one statistic."""

    median: float
    scale: float
    peers: int

    def score(self, value: float) -> float:
        return min(max((value - self.median) / self.scale, -SCORE_MAX), SCORE_MAX)

    @property
    def high(self) -> float:
        """More than this is an anomaly."""
        return self.median + THRESHOLD * self.scale

    @property
    def low(self) -> float:
        return self.median - THRESHOLD * self.scale


def is_sound(value: float | None) -> bool:
    return value is not None and 0 <= value <= VALUE_MAX  # D1: a NaN is neither.


def factor(count: int) -> float:
    """b_n: how much too small the MAD of so few is, on average."""
    return _SMALL[count] if count < len(_SMALL) else count / (count - 0.8)


def median_of(ordered: Sequence[float]) -> float:
    """Of values in ascending order."""
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return ordered[half - 1] + (ordered[half] - ordered[half - 1]) / 2


def deviation_of(ordered: Sequence[float], median: float) -> float:
    """The standard deviation, as the MAD estimates it."""
    # Falling and then rising, so this sort takes one pass.
    distances = sorted([abs(value - median) for value in ordered])
    return _CONSISTENT * factor(len(ordered)) * median_of(distances)


def reference(judged: Judged, ordered: Sequence[float]) -> Reference | None:
    """Of sound values in ascending order; None if there are too few."""
    if len(ordered) < GROUP_MIN:
        return None  # D2
    median = median_of(ordered)
    scale = max(deviation_of(ordered, median), judged.floor, judged.relative * median)
    if judged.is_count:
        scale = max(scale, sqrt(max(median, 1.0)))
    return Reference(median, scale or 1.0, len(ordered))
