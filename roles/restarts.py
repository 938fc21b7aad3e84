"""How long to wait before a process that ended is started again. Decides only.

A process that ends once comes back at once. One that keeps ending is started less and
less often, so that it costs little while somebody looks, but it is never given up: the
cause may be somewhere else (a full disk, a taken port) and may go away.

What always holds:
  R1  Up to `free` ends within any `window_s` cost no wait.
  R2  No wait is longer than `delay_s_max`: nothing is given up for ever.
  R3  What ended longer ago than `window_s` no longer counts.
"""

from collections import deque

ENDS_MAX = 64  # More than it takes to reach the longest wait; older ones change nothing.


class Restarts:
    def __init__(
        self,
        *,
        free: int = 5,
        window_s: float = 30.0,
        delay_s_first: float = 0.25,
        delay_s_max: float = 5.0,
    ) -> None:
        self._free = free
        self._window_s = window_s
        self._delay_s_first = delay_s_first
        self._delay_s_max = delay_s_max
        self._ends: deque[float] = deque(maxlen=ENDS_MAX)

    def ended(self, now: float) -> float:
        """It ended, unasked. Returns when it may be started again."""
        self._ends.append(now)
        return now + self.delay_s(now)

    def delay_s(self, now: float) -> float:
        """How long a start at `now` has to wait for what ended lately."""
        while self._ends and self._ends[0] <= now - self._window_s:  # R3
            self._ends.popleft()
        beyond = len(self._ends) - self._free
        if beyond <= 0:  # R1
            return 0.0
        return min(self._delay_s_first * 2.0 ** (beyond - 1), self._delay_s_max)  # R2
