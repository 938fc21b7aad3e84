"""What a process can be, and what a program that links us uses. Public names only.

Each is imported when it is first used: the watchdog is in this package too, and must not bring in
gevent and ZeroMQ just by being imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bus.errors import BusError, ConfigError, NotReady
    from roles.cluster import Cluster

_HOMES = {
    "BusError": "bus.errors",
    "Cluster": "roles.cluster",
    "ConfigError": "bus.errors",
    "NotReady": "bus.errors",
}

__all__ = ["BusError", "Cluster", "ConfigError", "NotReady"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
