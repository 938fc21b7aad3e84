"""How many requests one stub may have in flight at one brick. Decides only.

Nothing here queues: there is room, or the caller refuses at once. Every brick has a limiter of
its own in every stub; nobody adds them up, each finds its part of what the brick can carry.

What always holds:
  L1  Never more in flight than the limit, rounded up, but what is `forced`; always room for one.
  L2  A burst of failures counts as one: the limit is cut at most once in `cut_s`.
  L3  A limit that is not made use of does not grow.
"""

from math import inf
from typing import Literal, Protocol

from bus.config_shape import LimiterKind

Outcome = Literal["answered", "refused", "silent"]

LIMIT_FIRST = 32.0  # Of a stub that knows nothing yet; the bricks refuse what is too much.
LIMIT_MAX = 1000.0

SAMPLES = 10
PERIOD_S = 0.05
TARGET_S_MAX = 0.008  # Half of it wastes 3 % of the bricks, twice as much gains nothing.
GROWTH = 0.02
CUT_GAIN = 0.1
CUT_MOST = 0.5


class Limiter(Protocol):
    in_flight: int
    limit: float

    def acquire(self) -> bool:
        """Whether there is room for one more; if so, it is in flight from now on."""
        ...

    def forced(self) -> None:
        """One more is in flight, room or not: what is rare and must not be refused."""
        ...

    def release(self, outcome: Outcome, queued_s: float, now: float) -> None:
        """One is in flight no longer. `queued_s`: how long it waited at the brick, by an answer."""
        ...


class Unlimited:
    """No limit at all: what stubs were before the paper, and what shows the cliff."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.limit = inf

    def forced(self) -> None:
        self.in_flight += 1

    def acquire(self) -> bool:
        self.in_flight += 1
        return True

    def release(self, outcome: Outcome, queued_s: float, now: float) -> None:
        self.in_flight -= 1


class _Window:
    """What the two limits have in common: counting, and cutting once for a burst."""

    def __init__(self, cut_s: float) -> None:
        self.in_flight = 0
        self.limit = LIMIT_FIRST
        self._cut_s = cut_s
        self._uncut_until = 0.0

    def acquire(self) -> bool:
        if self.in_flight >= self.limit:  # L1
            return False
        self.in_flight += 1
        return True

    def forced(self) -> None:
        self.in_flight += 1

    def _cut(self, factor: float, now: float) -> None:
        if now >= self._uncut_until:  # L2
            self.limit = max(1.0, self.limit * factor)
            self._uncut_until = now + self._cut_s


class Aimd(_Window):
    """The paper's: one more for each limit's worth of answers, half for a failure."""

    def release(self, outcome: Outcome, queued_s: float, now: float) -> None:
        if outcome != "answered":
            self._cut(CUT_MOST, now)
        elif self.in_flight * 2 >= self.limit:  # L3
            self.limit = min(LIMIT_MAX, self.limit + 1 / self.limit)
        self.in_flight -= 1


class QueueDelay(_Window):
    """By how long requests wait at the brick: its own measure of being full, free of our lag.

    Of all that are answered in a period the one that waited least tells: a burst, or a brick that
    had no processor for a moment, makes some wait, a standing queue makes all. Above a target the
    limit shrinks by how far above it is; below it, it grows with every `SAMPLES` answers, at first
    doubling.
    """

    def __init__(self, cut_s: float, target_s: float) -> None:
        super().__init__(cut_s)
        self._target_s = target_s
        self._is_doubling = True
        self._period_until = 0.0
        self._period_least_s = inf
        self._samples = 0
        self._least_s = inf
        self._most = 0

    def release(self, outcome: Outcome, queued_s: float, now: float) -> None:
        if self.in_flight > self._most:
            self._most = self.in_flight
        self.in_flight -= 1
        if outcome != "answered":
            self._is_doubling = False
            self._cut(CUT_MOST, now)
            return
        self._samples += 1
        if queued_s < self._least_s:
            self._least_s = queued_s
        if self._samples >= SAMPLES or now >= self._period_until:
            self._adjust(now)

    def _adjust(self, now: float) -> None:
        if self._least_s < self._period_least_s:
            self._period_least_s = self._least_s
        if self._least_s <= self._target_s and self._most * 2 >= self.limit:  # L3
            step = self.limit if self._is_doubling else max(1.0, GROWTH * self.limit)
            self.limit = min(LIMIT_MAX, self.limit + step)
        if now >= self._period_until:
            above = self._period_least_s / self._target_s - 1
            if above > 0:
                self._is_doubling = False
                self._cut(max(CUT_MOST, 1 - CUT_GAIN * above), now)
            self._period_least_s = inf
            self._period_until = now + PERIOD_S
        self._samples = 0
        self._least_s = inf
        self._most = self.in_flight


def limiter_of(kind: LimiterKind, timeout_s: float) -> Limiter:
    """A new limiter for one brick, of which answers are expected within `timeout_s`."""
    match kind:
        case "aimd":
            return Aimd(timeout_s)
        case "qdelay":
            return QueueDelay(PERIOD_S, min(TARGET_S_MAX, timeout_s / 8))
        case "none":
            return Unlimited()
