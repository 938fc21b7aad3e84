"""Whether the hubs of a configuration can bind here, asked before anything is started.

A hub whose port is taken would be started again and again; and a cluster that is up already would
give way, process by process, to its own double.
"""

import errno
import select
import socket
from collections.abc import Collection
from pathlib import Path

from bus.clock import now
from bus.config import HUB, Config, publish_address
from bus.config_rules import host_of, port_of
from bus.errors import ConfigError

WAIT_S_MAX = 2.0  # What was killed a moment ago may hold its ports for another.
_STEP_S = 0.05

_TROUBLE = {
    errno.EADDRINUSE: "is taken: this cluster is already up (`softstate status` shows it), or "
    "another program has the port",
    errno.EADDRNOTAVAIL: "is not an address of this machine: correct `hubs`",
    errno.EACCES: "is not permitted: choose a port above 1023",
}


def check_hub_ports(
    config: Config, nodes: Collection[str], *, wait_s_max: float = WAIT_S_MAX
) -> None:
    """ConfigError if a hub that one of these nodes runs could not bind here."""
    deadline = now() + wait_s_max
    for planned in config.components():
        if planned.role == HUB and planned.node in nodes:
            hub = config.hub_address(planned.id)
            for address in (hub, publish_address(hub)):
                _check(address, deadline)


def _check(address: str, deadline: float) -> None:
    while trouble := _TROUBLE.get(_bind(address), ""):
        if now() >= deadline:
            raise ConfigError(f"{address} {trouble}")
        select.select([], [], [], _STEP_S)  # No event loop runs here yet.


def _bind(address: str) -> int:
    """What the kernel says to binding there: an error number, or 0."""
    if address.startswith("ipc://"):
        return _bind_ipc(address.removeprefix("ipc://"))
    host = host_of(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            # As ZeroMQ does: a port in TIME_WAIT is free, one that is listened on is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port_of(address)))
            probe.listen(1)
        except OSError as error:
            return error.errno or 0
    return 0


def _bind_ipc(path: str) -> int:
    """ZeroMQ replaces what a dead hub left behind; whoever lives there answers."""
    if not Path(path).exists():
        return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return 0 if probe.connect_ex(path) else errno.EADDRINUSE
