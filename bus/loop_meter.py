"""How much of the time the event loop is at work, and not waiting. Measures only.

A loop that stands still in a callback is at work here, whoever makes it wait: a slow disk, a lock,
a computation. So this sees what the time spent in handlers does not, nor processor time. It costs
two short callbacks a turn of the loop, one just before the loop waits and one just after.
"""

import gevent

from bus.clock import now

_LAST, _FIRST = -2, 2  # Priorities: after all else before the wait, before all else after it.


class LoopMeter:
    """Belongs to the event loop of the thread that made it."""

    def __init__(self) -> None:
        self._busy_s = 0.0  # Up to the last wait.
        self._awake_since: float | None = now()
        loop = gevent.get_hub().loop
        self._before_wait = loop.prepare(ref=False, priority=_LAST)
        self._after_wait = loop.check(ref=False, priority=_FIRST)
        self._before_wait.start(self._waits)
        self._after_wait.start(self._wakes)

    @property
    def busy_s(self) -> float:
        """Since it was made."""
        if self._awake_since is None:
            return self._busy_s
        return self._busy_s + now() - self._awake_since

    def close(self) -> None:
        self._waits()
        for watcher in (self._before_wait, self._after_wait):
            watcher.stop()
            watcher.close()

    def _waits(self) -> None:
        if self._awake_since is not None:
            self._busy_s += now() - self._awake_since
            self._awake_since = None

    def _wakes(self) -> None:
        self._awake_since = now()
