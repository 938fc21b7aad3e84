"""The inbox of a brick: who is served next, and who is told at once that it would be in vain.
Decides only; `bus.server` waits, calls and sends.

A brick does one thing at a time, so all that a request has to wait for is known when it comes:
those before it, and how long one takes (an average of late, with everything between two of
them). Who cannot be served before the asker gives up is refused while that still helps: it costs
a few bytes, and the asker can ask another brick.

What always holds:
  I1  At most `length_max` wait. Who comes then is refused, unless one of lesser rank waits: that
      one makes room.
  I2  The earliest deadline first; of equal ones, who came first.
  I3  Overloaded, the lesser rank waits for the greater; within a rank, as in I2. Overloaded: for a
      whole `INTERVAL_S` nobody was taken who had waited less than `TARGET_S`.
  I4  Refused on arrival: whom those before it would keep waiting longer than its asker waits.
  I5  Refused when its turn comes: who has less time left than one takes, unless it is the last.
      So whatever the average says, there is always one that is tried, and corrects it.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Generic

from bus.inbox import C, TurnedAway
from bus.messages import Refused

INTERVAL_S = 0.1
TARGET_S = 0.005

WEIGHT = 1 / 32  # Of one request in the average: about the last fifty count.
LEAP = 8.0  # One pause of the machine must not look like a slow brick: see `served`.
LEAP_S_MIN = 0.02

RETRY_S_MIN, RETRY_S_MAX = 0.02, 1.0

PLAIN_LENGTH_MAX = 1_000_000

_NOBODY: tuple[()] = ()


class DeadlineInbox(Generic[C]):
    def __init__(self, length_max: int, rank_of: Callable[[C], int], ranks: int) -> None:
        """`rank_of`: from 0, which comes first, up to `ranks` - 1."""
        assert length_max > 0
        self._length_max = length_max
        self._rank_of = rank_of
        self._heaps: list[list[tuple[float, int, float, C]]] = [[] for _ in range(ranks)]
        self._busy_ranks: list[int] = []
        """Those of whom somebody waits, in order: one or two, as a rule."""
        self._length = 0
        self._numbers = count()
        self._busy_since: float | None = None
        self._interval_until = 0.0
        self._waited_s_min = 0.0
        self._taken_at = 0.0
        self.taken = 0
        """How many were taken to be served,"""
        self.waited_s = 0.0
        """how long all of those had waited,"""
        self.busy_s = 0.0
        """and how long it took to serve them."""
        self.service_s = 0.0
        """How long one takes, of late; 0 while that is not known."""
        self.is_overloaded = False
        self.refused_full = 0
        """On arrival, or to make room (I1)."""
        self.refused_hopeless = 0
        """On arrival: too many before it (I4)."""
        self.refused_late = 0
        """When its turn came (I5)."""

    def __len__(self) -> int:
        return self._length

    def add(self, call: C, now: float) -> TurnedAway[C]:
        rank = self._rank_of(call)
        if self._ahead(rank) * self.service_s > call.until - now:  # I4
            self.refused_hopeless += 1
            return [(call, self._busy("not in time"))]
        turned_away: TurnedAway[C] = _NOBODY
        if self._length >= self._length_max:  # I1
            self.refused_full += 1
            lesser = self._drop_lesser(rank)
            if lesser is None:
                return [(call, self._busy("the inbox is full"))]
            turned_away = [(lesser, self._busy("the inbox is full"))]
        heap = self._heaps[rank]
        if not heap:
            insort(self._busy_ranks, rank)
        heappush(heap, (call.until, next(self._numbers), now, call))
        self._length += 1
        if self._busy_since is None:
            self._busy_since = now
        return turned_away

    def take(self, now: float) -> tuple[C | None, TurnedAway[C]]:
        turned_away: list[tuple[C, Refused]] = []
        while self._length:
            rank = self._next_rank()
            heap = self._heaps[rank]
            until, _, added_at, call = heappop(heap)
            self._length -= 1
            if not heap:
                self._busy_ranks.remove(rank)
            waited_s = now - added_at
            self._watch(waited_s, now)
            if until - now < self.service_s and self._length:  # I5
                self.refused_late += 1
                turned_away.append((call, Refused("late", "its turn came too late", RETRY_S_MIN)))
                continue
            self.taken += 1
            self.waited_s += waited_s
            self._taken_at = now
            return call, turned_away
        return None, turned_away

    def served(self, now: float) -> None:
        """One took from when the one before was done, or from when it found nobody waiting."""
        self.busy_s += now - self._taken_at
        if self._busy_since is None:
            return
        took_s = max(now - self._busy_since, 0.0)
        if self.service_s:
            took_s = min(took_s, max(LEAP * self.service_s, LEAP_S_MIN))
            self.service_s += (took_s - self.service_s) * WEIGHT
        else:
            self.service_s = min(took_s, LEAP_S_MIN)
        self._busy_since = now if self._length else None

    def _ahead(self, rank: int) -> int:
        """How many would be served before one of that rank; they may well ask for less time."""
        if not self.is_overloaded:
            return self._length
        return sum(len(self._heaps[each]) for each in self._busy_ranks if each <= rank)

    def _next_rank(self) -> int:
        ranks, heaps = self._busy_ranks, self._heaps
        if self.is_overloaded or len(ranks) == 1:
            return ranks[0]  # I3
        return min(ranks, key=lambda rank: heaps[rank][0][:2])  # I2

    def _watch(self, waited_s: float, now: float) -> None:
        """Folly's form of CoDel: a queue that is never short is not a burst."""
        if now >= self._interval_until:
            # Nobody taken for another interval: what was seen before that tells nothing.
            is_recent = now < self._interval_until + INTERVAL_S
            self.is_overloaded = is_recent and self._waited_s_min > TARGET_S  # I3
            self._interval_until = now + INTERVAL_S
            self._waited_s_min = waited_s
        elif waited_s < self._waited_s_min:
            self._waited_s_min = waited_s

    def _drop_lesser(self, rank: int) -> C | None:
        least = self._busy_ranks[-1]
        if least <= rank:
            return None
        heap = self._heaps[least]
        self._length -= 1
        call = heap.pop()[3]  # A leaf: the rest is a heap still.
        if not heap:
            self._busy_ranks.pop()
        return call

    def _busy(self, why: str) -> Refused:
        wait_s = self._length * self.service_s
        return Refused("busy", why, retry_after_s=min(max(wait_s, RETRY_S_MIN), RETRY_S_MAX))


class PlainInbox(Generic[C]):
    """First in, first out, and everything is served, however late: to show what that does."""

    def __init__(self, length_max: int = PLAIN_LENGTH_MAX) -> None:
        self._length_max = length_max
        self._calls: deque[tuple[float, C]] = deque()
        self._taken_at = 0.0
        self.taken = 0
        self.waited_s = 0.0
        self.busy_s = 0.0
        self.service_s = 0.0
        self.is_overloaded = False
        self.refused_full = self.refused_hopeless = self.refused_late = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: C, now: float) -> TurnedAway[C]:
        if len(self._calls) >= self._length_max:
            self.refused_full += 1
            return [(call, Refused("busy", "the inbox is full", retry_after_s=RETRY_S_MAX))]
        self._calls.append((now, call))
        return _NOBODY

    def take(self, now: float) -> tuple[C | None, TurnedAway[C]]:
        if not self._calls:
            return None, _NOBODY
        added_at, call = self._calls.popleft()
        self.taken += 1
        self.waited_s += now - added_at
        self._taken_at = now
        return call, _NOBODY

    def served(self, now: float) -> None:
        self.busy_s += now - self._taken_at
