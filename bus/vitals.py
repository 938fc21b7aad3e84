"""The statistics every process has, whatever its role: how it is, and what the bus does in it.

The bus counts in plain integers, as it must be fast; here they are declared as statistics, read
once a beacon. Which of them says what: docs/statistics.md.
"""

import os
import resource
import sys
from collections.abc import Callable

import psutil

from bus.client import Client
from bus.clock import now
from bus.liveness import Liveness
from bus.loop_meter import LoopMeter
from bus.pump import Pump
from bus.server import Server
from bus.statistics import Statistics


class Vitals:
    def __init__(
        self,
        statistics: Statistics,
        pump: Pump,
        client: Client,
        server: Server | None,
        liveness: Liveness,
    ) -> None:
        self._cpu_s = _cpu_s()
        self._refreshed_at = now()
        self.loop_lag_s = 0.0
        """How late the event loop woke the last beacon: above all, the sign of a blocked loop."""
        rate, size, counter = statistics.rate, statistics.size, statistics.counter
        self._cpu = size("cpu", "Cores used since the last beacon")
        process = psutil.Process()
        # Read when sampled: that may fail for a moment, for want of a descriptor, and is counted.
        size("rss_bytes", "Resident memory", lambda: process.memory_info().rss)
        size("allocated_blocks", "Blocks of memory Python has in use", sys.getallocatedblocks)
        before = _minor_faults()  # To load our modules: no activity.
        rate(
            "minor_faults",
            "Pages of memory touched for the first time",
            lambda: _minor_faults() - before,
        )
        size("loop_lag_s", "How late the last timer was", lambda: self.loop_lag_s)
        self._meter = meter = LoopMeter()
        statistics.share(
            "loop_busy_ratio",
            "Share of the time the event loop was at work",
            lambda: (meter.busy_s, now()),
        )
        size("connections", "Peers connected to us", lambda: sum(pump.connections.values()))
        size("asking", "Requests of ours in flight", lambda: client.in_flight)
        traffic = pump.traffic
        rate("records_received", "Records received", lambda: traffic.records_in)
        rate("records_sent", "Records sent", lambda: traffic.records_out)
        counts: list[tuple[str, str, Callable[[], int]]] = [
            ("records_malformed", "Received, but no message of ours", lambda: traffic.malformed),
            ("records_failed", "Raised by those who hear records: a bug", lambda: traffic.failed),
            ("frames_denied", "From keys that are not on the allow-list", lambda: traffic.denied),
            (
                "connections_crowded",
                "Turned away: too many connections",
                lambda: traffic.crowded,
            ),
            (
                "records_overflowed",
                "Not sent: the peer's queue was full",
                lambda: traffic.overflowed,
            ),
            ("frames_unreachable", "Not sent: the peer had gone", lambda: traffic.unreachable),
            ("frames_rescued", "Found by the safety check; must stay 0", lambda: traffic.rescued),
            ("answers_late", "Came when nobody waited any more", lambda: client.late_answers),
            ("beacons_unsound", "With numbers that cannot be", lambda: liveness.unsound),
        ]
        for name, meaning, read in counts:
            counter(name, meaning, read)
        if server is not None:
            size("inbox_length", "Requests not begun", lambda: server.inbox_length)
            rate("answered", "Requests answered", lambda: server.answered)
            rate("refused", "Requests refused", lambda: server.refused)
            rate("expired", "Requests dropped: out of budget", lambda: server.expired)
            rate("failed", "Handlers that raised", lambda: server.failed)

    def close(self) -> None:
        self._meter.close()

    def refresh(self, refreshed_at: float) -> None:
        """Bring up to date what is measured over time; called before each beacon."""
        elapsed_s, cpu_s = refreshed_at - self._refreshed_at, _cpu_s()
        if elapsed_s > 0.05:  # Twice in a moment (`live`, `close`) would measure noise.
            self._cpu.set((cpu_s - self._cpu_s) / elapsed_s)
            self._refreshed_at, self._cpu_s = refreshed_at, cpu_s


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
