"""Ask from many greenlets at once, each waiting for its own answer, and measure it.

For contestants with real calls (ours, zerorpc): `in_flight` greenlets each ask in a loop, as
the handlers of a gevent service do. A failed call ends the measurement: figures of a run in
which something failed are not figures.
"""

from collections.abc import Callable

import gevent
from gevent.event import Event

from bus.clock import now
from loadtest import child
from loadtest.meter import Meter, Run
from loadtest.runner import Measured

STOP_S_MAX = 10.0  # For the last answers to come in after the measured time.


def read_line() -> bytes:
    """The benchmark's next line, read in a native thread: the hub goes on meanwhile."""
    line: bytes = gevent.get_hub().threadpool.apply(child.read_line)
    return line


def measure(ask: Callable[[], None], run: Run) -> Measured:
    asking = _Asking(ask)
    loop = asking.timed if run.case.in_flight == 1 else asking.untimed
    greenlets = [gevent.spawn(asking.until_told, loop) for _ in range(run.case.in_flight)]
    try:
        asking.failed.wait(run.warm_up_s)
        before = asking.answered
        asking.latencies_s.clear()
        meter = Meter(run.server_pid)
        asking.failed.wait(run.duration_s)
        measured = meter.read(asking.answered - before, asking.latencies_s)
        asking.stopping = True
        gevent.joinall(greenlets, timeout=STOP_S_MAX, raise_error=True)
        assert all(greenlet.ready() for greenlet in greenlets), "an answer never came"
        return measured
    finally:
        gevent.killall(greenlets)


class _Asking:
    """What all greenlets of one measurement share."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.answered = 0
        self.latencies_s: list[float] = []
        self.stopping = False
        self.failed = Event()

    def until_told(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException:
            self.failed.set()  # No use to wait for the end of the run.
            raise

    def untimed(self) -> None:
        ask = self._ask
        while not self.stopping:
            ask()
            self.answered += 1

    def timed(self) -> None:
        ask, took = self._ask, self.latencies_s
        while not self.stopping:
            asked_at = now()
            ask()
            took.append(now() - asked_at)
            self.answered += 1
