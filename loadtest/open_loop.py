"""Begin requests at their times, whatever became of those before. Waits, calls and counts.

A closed loop asks again when it was answered, so a slow server slows its own test. Here the
timetable (`loadtest.arrivals`) decides, and latency counts from the time it names. Requests are
carried out by reusable greenlets that are switched to from the event loop itself, as those of
`bus.server`: one that is refused at once costs hardly more than the call.

What always holds:
  O1  At most `in_flight_max` are being carried out; what should begin then is counted as failed.
  O2  No request waits for another. If the loop was held up they begin late, and that counts.
"""

import gc
from collections.abc import Callable, Iterator

import gevent
from gevent.event import Event
from greenlet import getcurrent, greenlet

from bus.clock import now
from bus.errors import SystemOverloaded
from loadtest.goodput import Outcome
from loadtest.meter import own_cpu_s

IN_FLIGHT_MAX = 4000
TICK_S_MIN = 0.001  # Arrivals closer than that begin in one turn of the loop.
LAST_S_MAX = 10.0


class NoRoomError(Exception):
    """Whoever carries requests out has nothing to do them with: counts as not started."""


class OpenLoop:
    """One run: `carry_out()` does the next request, or raises what became of it."""

    def __init__(
        self,
        carry_out: Callable[[], object],
        arrivals: Iterator[float],
        outcome: Outcome,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._carry_out = carry_out
        self._arrivals = arrivals
        self._outcome = outcome
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._idle: list[greenlet] = []
        self._workers: list[gevent.Greenlet[..., None]] = []
        self._next_s: float | None = None
        self._began_at = 0.0
        self._over = Event()
        self._loop = gevent.get_hub().loop
        self._timer = self._loop.timer(0)

    def run(self, begin_at: float) -> Outcome:
        """Begin then; return when all that was begun has ended."""
        gc.collect()
        self._began_at = begin_at
        self._next_s = next(self._arrivals, None)
        if self._next_s is not None:
            gevent.sleep(max(begin_at - now(), 0.0))
            cpu_s, measured_from = own_cpu_s(), now()
            self._plan()
            self._over.wait()
            elapsed_s = max(now() - measured_from, 1e-9)
            self._outcome.cpu_share = (own_cpu_s() - cpu_s) / elapsed_s
        deadline = now() + LAST_S_MAX
        while self._in_flight and now() < deadline:
            gevent.sleep(TICK_S_MIN)
        gevent.killall(self._workers)
        return self._outcome

    def _plan(self) -> None:
        assert self._next_s is not None
        self._timer.close()
        wait_s = self._began_at + self._next_s - now()
        self._timer = self._loop.timer(max(wait_s, TICK_S_MIN))
        self._timer.start(self._tick)

    def _tick(self) -> None:
        """In the event loop: begin what is due."""
        due_s = now() - self._began_at
        while self._next_s is not None and self._next_s <= due_s:
            self._begin(self._next_s)  # O2
            self._next_s = next(self._arrivals, None)
        if self._next_s is None:
            self._over.set()
        else:
            self._plan()

    def _begin(self, meant_s: float) -> None:
        if self._in_flight >= self._in_flight_max:
            self._outcome.add(meant_s, "unstarted")  # O1
        elif self._idle:
            self._idle.pop().switch(meant_s)
        else:
            worker = gevent.Greenlet(self._work, meant_s)
            self._workers.append(worker)
            worker.switch()

    def _work(self, meant_s: float) -> None:
        hub, me = gevent.get_hub(), getcurrent()
        while True:
            self._in_flight += 1
            try:
                self._carry_out_one(meant_s)
            finally:
                self._in_flight -= 1
            self._idle.append(me)
            meant_s = hub.switch()

    def _carry_out_one(self, meant_s: float) -> None:
        try:
            self._carry_out()
        except SystemOverloaded:
            self._outcome.refused(meant_s, now() - self._began_at - meant_s)
        except NoRoomError:
            self._outcome.add(meant_s, "unstarted")
        except Exception as error:  # noqa: BLE001 (whatever it is, it is what became of it)
            self._outcome.failed(meant_s, type(error).__name__)
        else:
            self._outcome.done(meant_s, now() - self._began_at - meant_s)
