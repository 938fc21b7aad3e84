"""Keep so many sessions busy with one kind of request for a while, and measure it. A closed loop.

For every contestant of `softstate bench session` alike: `in_flight` greenlets, each with a session
of its own, ask again as soon as they were answered.
"""

import gc
from collections.abc import Callable

import gevent
import psutil
from gevent.event import Event

from bus.clock import now
from loadtest.meter import cpu_s, own_cpu_s
from loadtest.runner import percentile
from loadtest.session_requests import Phase, Phased

STOP_S_MAX = 10.0
FAILED_PAUSE_S = 0.01  # A contestant that fails at once must not be measured by how fast it fails.

Request = Callable[[int], object]
"""One request of the session of that number; raises if it fails."""


def measure(request: Request, phase: Phase) -> Phased:
    busy = _Busy(request)
    greenlets = [gevent.spawn(busy.run, number) for number in range(phase.in_flight)]
    servers = [psutil.Process(pid) for pid in phase.servers]
    try:
        gevent.sleep(phase.warm_up_s)
        gc.collect()
        before_s = sum(map(cpu_s, servers))
        busy.latencies_s.clear()
        busy.failed = 0
        own_s, began_at = own_cpu_s(), now()
        gevent.sleep(phase.duration_s)
        elapsed_s, used_s = now() - began_at, own_cpu_s() - own_s
        took_s, failed = list(busy.latencies_s), busy.failed
        servers_s = sum(map(cpu_s, servers)) - before_s
    finally:
        busy.stopping.set()
        gevent.joinall(greenlets, timeout=STOP_S_MAX)
        gevent.killall(greenlets)
    done = len(took_s)
    return Phased(
        done=done,
        good=sum(each <= phase.timeout_s for each in took_s),
        failed=failed,
        elapsed_s=elapsed_s,
        p50_ms=1e3 * percentile(took_s, 0.5) if took_s else None,
        p99_ms=1e3 * percentile(took_s, 0.99) if took_s else None,
        client_cpu_us=1e6 * used_s / done if done else None,
        server_cpu_us=1e6 * servers_s / done if done else None,
    )


class _Busy:
    """What all sessions of one measurement share."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.latencies_s: list[float] = []
        self.failed = 0
        self.stopping = Event()

    def run(self, number: int) -> None:
        request, took_s = self._request, self.latencies_s
        while not self.stopping.is_set():
            asked_at = now()
            try:
                request(number)
            except Exception:  # noqa: BLE001 (whatever it is, it was not carried out)
                self.failed += 1
                gevent.sleep(FAILED_PAUSE_S)
            else:
                took_s.append(now() - asked_at)
