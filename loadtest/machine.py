"""What a benchmark ran on: the machine, how busy it was, and the versions of what was measured."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import zmq

PACKAGES = ("softstate", "pyzmq", "gevent", "greenlet", "msgspec", "zerorpc")


def machine() -> dict[str, Any]:
    """Cores, processor and load average: read ratios on a busy machine with care."""
    return {
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str | None]:
    """Of each package that has a part in the figures; None for one that is not installed."""
    found = {name: installed(name) for name in PACKAGES}
    return {"python": platform.python_version(), "libzmq": zmq.zmq_version(), **found}


def installed(package: str) -> str | None:
    """Its version, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # Not Linux: the platform module knows less, but something.
    return platform.processor() or platform.machine()
