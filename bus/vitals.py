"""The statistics every process has, whatever its role: how it is, and what the bus does in it.

The bus counts in plain integers, as it must be fast; here they become statistics, once a
beacon. Which of them says what: docs/statistics.md.
"""

import os
from collections.abc import Callable

import psutil

from bus.client import Client
from bus.clock import now
from bus.liveness import Liveness
from bus.pump import Pump
from bus.server import Server
from bus.statistics import Counter, Statistics


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
        self._cpu = statistics.size("cpu", "Cores used since the last beacon")
        process = psutil.Process()
        # Read when sampled: that may fail for a moment, for want of a descriptor, and is counted.
        statistics.size("rss_bytes", "Resident memory", lambda: process.memory_info().rss)
        statistics.size("loop_lag_s", "How late the last timer was", lambda: self.loop_lag_s)
        statistics.size(
            "connections", "Peers connected to us", lambda: sum(pump.connections.values())
        )
        statistics.size("asking", "Requests of ours in flight", lambda: client.in_flight)
        traffic = pump.traffic
        self._copied: list[tuple[Counter, Callable[[], int]]] = [
            (
                statistics.rate("records_received", "Records received"),
                lambda: traffic.records_in,
            ),
            (statistics.rate("records_sent", "Records sent"), lambda: traffic.records_out),
            (
                statistics.counter("records_malformed", "Received, but no message of ours"),
                lambda: traffic.malformed,
            ),
            (
                statistics.counter("records_failed", "Raised by those who hear records: a bug"),
                lambda: traffic.failed,
            ),
            (
                statistics.counter("frames_denied", "From keys that are not on the allow-list"),
                lambda: traffic.denied,
            ),
            (
                statistics.counter("connections_crowded", "Turned away: too many connections"),
                lambda: traffic.crowded,
            ),
            (
                statistics.counter("records_overflowed", "Not sent: the peer's queue was full"),
                lambda: traffic.overflowed,
            ),
            (
                statistics.counter("frames_unreachable", "Not sent: the peer had gone"),
                lambda: traffic.unreachable,
            ),
            (
                statistics.counter("frames_rescued", "Found by the safety check; must stay 0"),
                lambda: traffic.rescued,
            ),
            (
                statistics.counter("answers_late", "Came when nobody waited any more"),
                lambda: client.late_answers,
            ),
            (
                statistics.counter("beacons_unsound", "With numbers that cannot be"),
                lambda: liveness.unsound,
            ),
        ]
        if server is not None:
            statistics.size("inbox_length", "Requests not begun", lambda: server.inbox_length)
            self._copied += [
                (statistics.rate("answered", "Requests answered"), lambda: server.answered),
                (statistics.rate("refused", "Requests refused"), lambda: server.refused),
                (
                    statistics.rate("expired", "Requests dropped: out of budget"),
                    lambda: server.expired,
                ),
                (statistics.rate("failed", "Handlers that raised"), lambda: server.failed),
            ]

    def refresh(self, refreshed_at: float) -> None:
        """Bring the statistics up to date; called before each beacon."""
        for counter, count in self._copied:
            counter.value = count()
        elapsed_s, cpu_s = refreshed_at - self._refreshed_at, _cpu_s()
        if elapsed_s > 0.05:  # Twice in a moment (`live`, `close`) would measure noise.
            self._cpu.set((cpu_s - self._cpu_s) / elapsed_s)
            self._refreshed_at, self._cpu_s = refreshed_at, cpu_s


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system
