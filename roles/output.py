"""Write lines to one descriptor without ever keeping the process from its other work.

Standard output may be a terminal that somebody has stopped, or a pipe that nobody reads. The
writing happens in a native thread; who has lines to write waits when too many are waiting, which
slows a child down to what the reader takes. If the reader takes nothing at all, lines are dropped
and counted rather than have every child stand still for ever.

What always holds:
  O1  Lines come out in the order they were put in, whole, in writes of at most PIPE_BUF bytes.
  O2  At most `waiting_bytes_max` and one batch are in memory.
  O3  Nothing is dropped unless the reader took nothing for `patience_s`; then it is said how much.
"""

import os
from collections import deque
from collections.abc import Callable

import gevent
from gevent.event import Event
from gevent.threadpool import ThreadPool

from bus.clock import now
from roles.lines import LINE_BYTES_MAX

TURN_S = 0.01


class Output:
    def __init__(
        self,
        descriptor: int,
        *,
        waiting_bytes_max: int = 1 << 20,
        patience_s: float = 2.0,
        clock: Callable[[], float] = now,
    ) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self._waiting_bytes_max = waiting_bytes_max
        self._patience_s = patience_s
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._written_at = clock()
        self._closing = False
        self._something = Event()
        self._room = Event()
        self._thread = ThreadPool(1)  # Of our own: a stuck write must not hold up name lookups.
        self._writer = gevent.spawn(self._run)

    def write(self, lines: list[bytes]) -> None:
        """Put whole lines in; waits for room, but not beyond the reader's last sign of life."""
        may_wait = gevent.getcurrent() is not gevent.get_hub()
        if self._is_full(LINE_BYTES_MAX) and may_wait:
            # Whatever the clock says, the loop must turn before anyone is called stuck.
            self._room.clear()
            self._room.wait(TURN_S)
        for line in lines:
            if self._waiting_bytes == 0:
                self._written_at = self._clock()  # O3: nobody could read what was not there.
            if not self._wait_for_room(len(line), may_wait=may_wait):
                self._dropped += 1
                continue
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._something.set()

    def say(self, sentence: str) -> None:
        """One line of our own."""
        self.write([sentence.encode() + b"\n"])

    def close(self, wait_s: float = 1.0) -> None:
        """Write what is waiting, for at most `wait_s`."""
        self._closing = True
        self._something.set()
        self._writer.join(wait_s)
        self._writer.kill(block=False)

    def _wait_for_room(self, size: int, *, may_wait: bool) -> bool:
        while self._is_full(size):
            left_s = self._written_at + self._patience_s - self._clock()
            if left_s <= 0 or not may_wait:  # O3
                return False
            self._room.clear()
            self._room.wait(left_s)
        return True

    def _is_full(self, size: int) -> bool:
        return self._waiting_bytes + size > self._waiting_bytes_max  # O2

    def _run(self) -> None:
        while self._lines or not self._closing:
            if not self._lines:
                self._something.clear()
                self._something.wait()
                continue
            batch = self._batch()
            self._put(batch)
            self._waiting_bytes -= len(batch)
            self._room.set()
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._put(b"(%d lines were dropped here: nobody read them)\n" % dropped)

    def _batch(self) -> bytes:
        batch = [self._lines.popleft()]
        size = len(batch[0])
        while self._lines and size + len(self._lines[0]) <= LINE_BYTES_MAX:  # O1
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        return b"".join(batch)

    def _put(self, batch: bytes) -> None:
        left = memoryview(batch)
        try:
            while left:
                left = left[self._thread.apply(os.write, (self._descriptor, left)) :]
                self._written_at = self._clock()
        except OSError:
            pass  # The reader is gone, or the disk is full: what cannot be shown is not shown.
