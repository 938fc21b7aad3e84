"""When requests begin, whatever becomes of them: an open loop's timetable. Decides only.

A *shape* says how many requests a second are to begin at each moment. Arrivals are made of it by
one rule: the integral of the rate is cut at every whole unit (*constant*), or at random distances
with a mean of one unit (*Poisson*). So both follow any shape exactly, and only `trace` needs none.

What always holds:
  A1  Times never fall, and lie within the duration of the shape.
  A2  So many arrivals come of a shape as its integral says: for `constant` to within one.
  A3  The same shape and the same seed give the same times.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite, sqrt
from random import Random

import msgspec

PER_S_MAX = 1e6
DURATION_S_MAX = 86_400.0


class Stretch(msgspec.Struct, frozen=True):
    """Part of a shape: the rate goes in a straight line from one value to another."""

    duration_s: float
    from_per_s: float
    to_per_s: float

    @property
    def count(self) -> float:
        return self.duration_s * (self.from_per_s + self.to_per_s) / 2


Shape = tuple[Stretch, ...]


def steady(per_s: float, duration_s: float) -> Shape:
    return steps([(per_s, duration_s)])


def steps(levels: Iterable[tuple[float, float]]) -> Shape:
    """One level after the other: (requests a second, seconds)."""
    return checked(Stretch(duration_s, per_s, per_s) for per_s, duration_s in levels)


def ramp(from_per_s: float, to_per_s: float, duration_s: float) -> Shape:
    return checked([Stretch(duration_s, from_per_s, to_per_s)])


def spike(
    base_per_s: float, peak_per_s: float, *, before_s: float, storm_s: float, after_s: float
) -> Shape:
    """A base load with a storm in the middle."""
    return steps([(base_per_s, before_s), (peak_per_s, storm_s), (base_per_s, after_s)])


def part_of(shape: Shape, parts: int) -> Shape:
    """What one of several generators has to do, so that all together make the shape."""
    return tuple(
        Stretch(each.duration_s, each.from_per_s / parts, each.to_per_s / parts) for each in shape
    )


def checked(stretches: Iterable[Stretch]) -> Shape:
    """A shape, or ValueError for what is none."""
    shape = tuple(stretches)
    for each in shape:
        if not all(0 <= rate <= PER_S_MAX for rate in (each.from_per_s, each.to_per_s)):
            raise ValueError(f"{each}: a rate is between 0 and {PER_S_MAX:g} a second")
    if not 0 < duration_s(shape) <= DURATION_S_MAX or any(each.duration_s < 0 for each in shape):
        raise ValueError(f"a shape lasts up to {DURATION_S_MAX:g} s")
    return shape


def duration_s(shape: Shape) -> float:
    return sum(each.duration_s for each in shape)


def rate_at(shape: Shape, at_s: float) -> float:
    """Of that moment; 0 after the end."""
    for each in shape:
        if at_s < each.duration_s:
            return each.from_per_s + (each.to_per_s - each.from_per_s) * at_s / each.duration_s
        at_s -= each.duration_s
    return 0.0


def constant(shape: Shape) -> Iterator[float]:
    """Evenly spaced, by the rate of the moment."""
    return _cut(shape, _units())


def poisson(shape: Shape, random: Random) -> Iterator[float]:
    """As independent people come."""
    return _cut(shape, _lots(random))  # A3


def trace(times_s: Sequence[float], *, speed: float = 1.0) -> Iterator[float]:
    """As it was once seen: seconds since the beginning, in order. Twice the speed, half of them."""
    if not isfinite(speed) or speed <= 0:
        raise ValueError(f"a speed of {speed}: above 0")
    before = 0.0
    for at in times_s:
        if not before <= at < inf:
            raise ValueError(f"{at} after {before}: the times of a trace never fall")
        before = at
    return (at / speed for at in times_s)


def _units() -> Iterator[float]:
    place = 0.5  # So that n arrivals lie symmetrically in their time.
    while True:
        yield place
        place += 1.0


def _lots(random: Random) -> Iterator[float]:
    place = 0.0
    while True:
        place += random.expovariate(1.0)
        yield place


def _cut(shape: Shape, places: Iterator[float]) -> Iterator[float]:
    """The moments at which the integral of the rate reaches each place."""
    began_at = counted = 0.0
    place = next(places)
    for stretch in shape:
        count = stretch.count
        while place < counted + count:  # A2
            yield began_at + _within(stretch, place - counted)  # A1
            place = next(places)
        began_at += stretch.duration_s
        counted += count


def _within(stretch: Stretch, count: float) -> float:
    """How far into the stretch so many have come."""
    first = stretch.from_per_s
    slope = (stretch.to_per_s - first) / stretch.duration_s
    # first * t + slope * t^2 / 2 = count, in the form that does not lose digits for a small slope.
    root = sqrt(max(first * first + 2 * slope * count, 0.0))
    return min(2 * count / (first + root), stretch.duration_s)
