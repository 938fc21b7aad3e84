"""What a process can be, and what a program that links us uses. Public names only.

Each is imported when it is first used: the watchdog is in this package too, and must not bring in
gevent and ZeroMQ just by being imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import bus  # noqa: F401 (decides whether modules of ours may be compiled ones)

if TYPE_CHECKING:
    from bus.errors import (
        BusError,
        ConfigError,
        CookieCorrupted,
        LeaseLost,
        NotOwner,
        NotReady,
        StateConflict,
        StateCorrupted,
        StateExpired,
        StateLost,
        SystemOverloaded,
    )
    from roles.cluster import Cluster
    from roles.key_range import KeyRange
    from roles.lookup import Lookup
    from roles.lookup_machine import Route
    from roles.owner import Owner
    from roles.owner_machine import Lease
    from roles.stub import Session, Stub

_HOMES = {
    "BusError": "bus.errors",
    "Cluster": "roles.cluster",
    "ConfigError": "bus.errors",
    "CookieCorrupted": "bus.errors",
    "KeyRange": "roles.key_range",
    "Lease": "roles.owner_machine",
    "LeaseLost": "bus.errors",
    "Lookup": "roles.lookup",
    "NotOwner": "bus.errors",
    "NotReady": "bus.errors",
    "Owner": "roles.owner",
    "Route": "roles.lookup_machine",
    "Session": "roles.stub",
    "StateConflict": "bus.errors",
    "StateCorrupted": "bus.errors",
    "StateExpired": "bus.errors",
    "StateLost": "bus.errors",
    "Stub": "roles.stub",
    "SystemOverloaded": "bus.errors",
}

__all__ = [
    "BusError",
    "Cluster",
    "ConfigError",
    "CookieCorrupted",
    "KeyRange",
    "Lease",
    "LeaseLost",
    "Lookup",
    "NotOwner",
    "NotReady",
    "Owner",
    "Route",
    "Session",
    "StateConflict",
    "StateCorrupted",
    "StateExpired",
    "StateLost",
    "Stub",
    "SystemOverloaded",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
