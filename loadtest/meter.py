"""Time and CPU between two moments, of this process and of the server it talks to."""

import resource

import msgspec
import psutil

from bus.clock import now
from loadtest.runner import Case, Measured, percentile


class Run(msgspec.Struct, frozen=True):
    """The benchmark to a client: measure this case for so long, after a warm-up."""

    case: Case
    endpoint: str
    server_pid: int
    warm_up_s: float
    duration_s: float


class Meter:
    """Starts counting when it is made; `read` says what happened since."""

    def __init__(self, server_pid: int) -> None:
        self._server = psutil.Process(server_pid)
        self._server_cpu_s = cpu_s(self._server)
        self._own_cpu_s = own_cpu_s()
        self._since = now()

    def read(self, messages: int, latencies_s: list[float] | None = None) -> Measured:
        elapsed_s = now() - self._since
        return Measured(
            messages=messages,
            elapsed_s=elapsed_s,
            client_cpu_s=own_cpu_s() - self._own_cpu_s,
            server_cpu_s=cpu_s(self._server) - self._server_cpu_s,
            p50_us=1e6 * percentile(latencies_s, 0.5) if latencies_s else None,
        )


def own_cpu_s() -> float:
    """User and system time of all threads of this process, ZeroMQ's among them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_s(process: psutil.Process) -> float:
    """The same of another process, in steps of 10 ms: the kernel tells no finer."""
    times = process.cpu_times()
    return float(times.user + times.system)
