"""The user's event loop as seen from the control thread: is it turning, and calls into it.

Made in the thread whose loop is meant. Upcalls run there in one greenlet, one at a time, in order.

What always holds:
  H1  `turned_at` is never later than the last time that loop ran anything.
  H2  What is posted before `close` is called once, in order; an upcall that raises is logged and
      the next one runs. What is posted later is dropped.
"""

import logging
from collections import deque
from collections.abc import Callable

import gevent
from gevent.event import Event

from bus.clock import now

log = logging.getLogger(__name__)


class HubWatch:
    def __init__(self, every_s: float) -> None:
        self.turned_at = now()
        self._closed = False
        self._calls: deque[Callable[[], None]] = deque()
        self._something = Event()
        loop = gevent.get_hub().loop
        self._arrived = loop.async_(ref=False)
        self._arrived.start(self._something.set)
        self._timer = loop.timer(every_s, every_s, ref=False)
        self._timer.start(self._turned)
        self._running = gevent.spawn(self._run)

    @property
    def waiting(self) -> int:
        """How many calls have not begun."""
        return len(self._calls)

    def post(self, call: Callable[[], None]) -> None:
        """From any thread: have `call` run in that loop. Who posts bounds how much may wait."""
        if not self._closed:
            self._calls.append(call)
            self._arrived.send_ignoring_arg(None)

    def close(self, wait_s: float = 0.0) -> None:
        """Only from the loop's own thread. What waits is called first, while we wait for that for
        at most `wait_s`; not at all if it is an upcall that closes us."""
        if self._closed:
            return
        self._closed = True
        self._something.set()
        if gevent.getcurrent() is not self._running:
            self._running.join(wait_s)
        for watcher in (self._timer, self._arrived):
            watcher.stop()
            watcher.close()

    def _turned(self) -> None:
        self.turned_at = now()  # H1

    def _run(self) -> None:
        while True:
            while self._calls:
                self._call(self._calls.popleft())
            if self._closed:
                return
            self._something.wait()
            self._something.clear()

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (Exception, gevent.Timeout):  # The user's: H2. A `Timeout` is no `Exception`.
            log.exception("an upcall failed")
