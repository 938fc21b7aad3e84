"""What a node agent tells of its machine, in its beacons: how busy it is, and how much memory is
left. Reads and declares only. Everything on it counts, ours or not."""

import psutil

from bus.statistics import Statistics


def declare(statistics: Statistics) -> None:
    statistics.share("machine_busy_ratio", "Share of all cores used by anything", _busy_and_all)
    statistics.size(
        "memory_available_bytes",
        "Memory that programs could still have",
        lambda: psutil.virtual_memory().available,
    )


def _busy_and_all() -> tuple[float, float]:
    """Seconds of all cores since the machine began: in use, and all."""
    times = psutil.cpu_times()
    # Time of guests is in that of their hosts already.
    everything = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return everything - times.idle - getattr(times, "iowait", 0.0), everything
