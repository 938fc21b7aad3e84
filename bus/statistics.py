"""What a process counts about itself: one line declares a statistic, one plain addition bumps it.

    reads = statistics.rate("reads", "Reads answered")
    reads.add()

Three kinds. A *counter* only grows and is seen on `/metrics` alone. A *rate* is a counter that also
rides in the beacon, as its growth per second under the name `reads_per_s`: activity. A *size* is
what something measures now, either `set` or read by a function that must not wait: state; a
*share* is one over the time since the last beacon, a mean or a part. In a beacon a name ends in
`_per_s` exactly if it is a rate; whoever compares peers needs no other hint.

Prometheus names are made here and nowhere else, by its conventions: `softstate_` in front,
`_total` behind what only grows, and base units, so that `wait_s` becomes `softstate_wait_seconds`.

What always holds:
  S1  A sample holds finite numbers only. A reading that raises, or is no finite number, is left
      out and counted in `statistics_failed`; so is a counter found to have gone down.
  S2  A rate, or a share, is taken over at least `INTERVAL_S_MIN`; a sample sooner than that repeats
      the last one: an extra beacon makes no spike. Every addition counts in exactly one interval.
  S3  Names are valid, unique and at most `STATISTICS_MAX`: a beacon cannot grow without bound.
"""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

STATISTICS_MAX = 64  # Of one process. Each rides in a beacon a second, to every other process.
NAME_LENGTH_MAX = 48
INTERVAL_S_MIN = 0.1  # Half the period of the fastest preset; shorter, one event looks like many.

RATE_SUFFIX = "_per_s"
PROMETHEUS_PREFIX = "softstate_"

_NAME = re.compile(r"[a-z]+(_[a-z]+)*")
_UNITS_NOT_BASE = {  # What a name may not end in, and what to write instead.
    "ms": "s",
    "us": "s",
    "ns": "s",
    "minutes": "s",
    "hours": "s",
    "seconds": "s",
    "kb": "bytes",
    "mb": "bytes",
    "gb": "bytes",
    "kib": "bytes",
    "mib": "bytes",
    "percent": "ratio",
}


class Counter:
    """How often something happened since this process began. It only grows."""

    __slots__ = ("_read", "help", "name", "value")

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 (Prometheus' own word)
        read: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        self.help = help
        self.value = 0
        self._read = read

    def add(self, count: int = 1) -> None:
        self.value += count

    def read(self) -> float:
        """The count; brought up to date first, if somebody else keeps it."""
        if self._read is not None:
            self.value = self._read()
        return self.value


class Rate(Counter):
    """A counter whose growth per second rides in the beacon."""

    __slots__ = ("_per_s", "_sampled")

    def __init__(self, name: str, help: str, read: Callable[[], int] | None = None) -> None:  # noqa: A002
        super().__init__(name, help, read)
        self._sampled = 0
        self._per_s = 0.0

    def sample(self, elapsed_s: float) -> float:
        """The rate since the last sample, or NaN if the counter went down meanwhile."""
        self.read()
        grown, self._sampled = self.value - self._sampled, self.value
        self._per_s = grown / elapsed_s if grown >= 0 else math.nan
        return self._per_s

    def repeated(self) -> float:
        """The same as last time."""
        return self._per_s


class Size:
    """How much there is of something now: a length, an age, a share."""

    __slots__ = ("_read", "help", "name", "value")

    def __init__(self, name: str, help: str, read: Callable[[], float] | None) -> None:  # noqa: A002
        self.name = name
        self.help = help
        self.value: float = 0.0
        self._read = read

    def set(self, value: float) -> None:
        self.value = value

    def read(self) -> float:
        return self.value if self._read is None else self._read()


class Share(Size):
    """By how much one thing grew for each that another did, between two samples: a mean, or a part
    of the time. 0 if the other did not grow."""

    __slots__ = ("_both", "_sampled")

    def __init__(self, name: str, help: str, both: Callable[[], tuple[float, float]]) -> None:  # noqa: A002
        super().__init__(name, help, None)
        self._both = both
        self._sampled: tuple[float, float] | None = None

    def sample(self) -> float:
        """One interval ends, and the next begins."""
        part, whole = self._both()
        part_before, whole_before = self._sampled or (part, whole)
        self._sampled = part, whole
        grown = whole - whole_before
        self.value = (part - part_before) / grown if grown > 0 else 0.0
        return self.value


class Family(NamedTuple):
    """One statistic as Prometheus is to see it."""

    name: str
    """Without `_total`, which the exposition format puts behind a counter by itself."""
    kind: Literal["counter", "gauge"]
    help: str
    value: float


class Statistics:
    """Every statistic of one process. Declare at the start, bump anywhere, sample once a period."""

    def __init__(self) -> None:
        self._declared: dict[str, Counter | Rate | Size] = {}
        self._sampled_at: float | None = None
        self._failed = self.counter(
            "statistics_failed", "Readings of a statistic that raised or were no finite number"
        )

    def counter(self, name: str, help: str, read: Callable[[], int] | None = None) -> Counter:  # noqa: A002
        """Declare what only grows, for `/metrics` alone. With `read` somebody else counts."""
        counter = Counter(name, help, read)
        self._declare(counter)
        return counter

    def rate(self, name: str, help: str, read: Callable[[], int] | None = None) -> Rate:  # noqa: A002
        """Declare an activity: counted for `/metrics`, per second in the beacon. With `read`
        somebody else counts."""
        rate = Rate(name, help, read)
        self._declare(rate)
        return rate

    def size(self, name: str, help: str, read: Callable[[], float] | None = None) -> Size:  # noqa: A002
        """Declare a state. With `read` it is asked at each sample; without, `set` it."""
        size = Size(name, help, read)
        self._declare(size)
        return size

    def share(self, name: str, help: str, both: Callable[[], tuple[float, float]]) -> Share:  # noqa: A002
        """Declare a size that is the growth of the first of `both` for each that the second grew,
        since the last sample: what they all waited and how many they were give the mean wait."""
        share = Share(name, help, both)
        self._declare(share)
        return share

    def sample(self, now: float) -> dict[str, float]:
        """For the beacon: rates per second since the last sample, sizes as they are.

        The first sample has no interval behind it and leaves the rates out.
        """
        elapsed_s = self._elapsed_s(now)
        sample: dict[str, float] = {}
        for name, statistic in self._declared.items():
            read = _reader(statistic, elapsed_s)
            value = None if read is None else self._reading(read)
            if value is not None:
                sample[name + RATE_SUFFIX if isinstance(statistic, Rate) else name] = value
        return sample

    def families(self) -> list[Family]:
        """For `/metrics`: everything declared, under the names Prometheus expects."""
        families: list[Family] = []
        for name, statistic in self._declared.items():
            value = self._reading(statistic.read)
            if value is not None:
                # A rate is a counter here: Prometheus takes rates itself.
                kind: Literal["counter", "gauge"] = (
                    "gauge" if isinstance(statistic, Size) else "counter"
                )
                families.append(Family(_exposed(name), kind, statistic.help, value))
        return families

    def _declare(self, statistic: Counter | Size) -> None:
        name = statistic.name
        problem = _problem(name, statistic.help)
        if name in self._declared:
            problem = "it is declared already; names are unique in a process"
        elif len(self._declared) >= STATISTICS_MAX:
            problem = f"a process may have {STATISTICS_MAX} statistics; leave out the least useful"
        if problem:
            raise ValueError(f"statistic {name!r}: {problem}")  # S3
        self._declared[name] = statistic

    def _elapsed_s(self, now: float) -> float | None:
        """How long the interval that ends now has lasted; one that is long enough is closed."""
        before = self._sampled_at
        if before is None or now - before >= INTERVAL_S_MIN:
            self._sampled_at = now
        return None if before is None else now - before

    def _reading(self, read: Callable[[], float]) -> float | None:
        try:
            value = read()
            if isinstance(value, int | float) and math.isfinite(value):
                return float(value)
        except Exception:  # noqa: BLE001 (a role's function: whatever it raises, the beacon goes on)
            pass
        self._failed.add()  # S1
        return None


def _reader(statistic: Counter | Size, elapsed_s: float | None) -> Callable[[], float] | None:
    """What to read for a beacon; None if it has no place there."""
    too_soon = elapsed_s is not None and elapsed_s < INTERVAL_S_MIN
    match statistic:
        case Share():
            return statistic.read if too_soon else statistic.sample  # S2
        case Rate() if elapsed_s is not None:
            return statistic.repeated if too_soon else partial(statistic.sample, elapsed_s)  # S2
        case Size():
            return statistic.read
        case _:
            return None


def _exposed(name: str) -> str:
    """`wait_s` -> `softstate_wait_seconds`."""
    stem, _, unit = name.rpartition("_")
    return PROMETHEUS_PREFIX + (f"{stem}_seconds" if unit == "s" and stem else name)


def _problem(name: str, help: str) -> str:  # noqa: A002
    """Why this may not be declared; empty if it may."""
    last = name.rpartition("_")[2]
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        return f"a name is words of a-z joined by '_', at most {NAME_LENGTH_MAX} characters"
    if name.endswith((RATE_SUFFIX, "_total")):
        return "leave out the ending; '_per_s' and '_total' are put there where they belong"
    if last in _UNITS_NOT_BASE:
        return f"use base units: end the name in '_{_UNITS_NOT_BASE[last]}', not '_{last}'"
    if not help.strip() or "\n" in help:
        return "say in one line what it counts"
    return ""
