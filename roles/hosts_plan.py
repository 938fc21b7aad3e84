"""The configuration of a cluster whose nodes get network namespaces of their own. Decides only.

Addresses that several machines could have are kept. Any others, as the loopback of a cluster that
was written for one machine, are replaced, and those of the hubs with them.

What always holds:
  H1  What comes out is what came in, but for addresses, what follows from them, and where lease
      managers run: with SQLite they share one file, so one node has them all.
  H2  Nothing leaves in the clear: without keys `allow_plain` is set for a wire that no machine but
      these is on.
"""

from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network

import msgspec

from bus.config_shape import HUB, MANAGER, Config, NodeConfig
from bus.errors import ConfigError

NETWORK = "10.77.0"
NODES_MAX = 100


def in_hosts(config: Config) -> Config:
    """What the agents of such a cluster are to go by."""
    if not 0 < len(config.nodes) <= NODES_MAX:
        raise ConfigError(f"{config.source} has {len(config.nodes)} nodes; 1 to {NODES_MAX} fit")
    if config.store.kind == "etcd":
        raise ConfigError(
            f'{config.source} has [store] kind = "etcd", which hosts of their own do not reach; '
            'use "sqlite" there'
        )
    nodes = _one_store(config.nodes)
    hubs = config.hubs
    if not _may_stay(nodes):
        nodes = {
            name: msgspec.structs.replace(node, address=f"{NETWORK}.{number}")
            for number, (name, node) in enumerate(nodes.items(), start=1)
        }
        hubs = _moved(config, nodes)
    return msgspec.structs.replace(
        config,
        hubs=hubs,
        nodes=nodes,
        address="",
        allow_plain=config.allow_plain or config.keys is None,  # H2
    )


def _may_stay(nodes: Mapping[str, NodeConfig]) -> bool:
    """Whether each has an address of its own, all on one wire."""
    try:
        addresses = [IPv4Address(node.address) for node in nodes.values()]
    except AddressValueError:
        return False
    wires = {IPv4Network((int(address), 24), strict=False) for address in addresses}
    distinct = len(set(addresses)) == len(addresses)
    return distinct and len(wires) == 1 and not addresses[0].is_loopback


def _moved(config: Config, nodes: Mapping[str, NodeConfig]) -> tuple[str, ...]:
    """Each hub at the address of the node that runs it, with the port it had."""
    hubs = list(config.hubs)
    for planned in config.components():
        if planned.role == HUB:
            place = int(planned.id.rpartition("-")[2]) - 1
            if not hubs[place].startswith("tcp://"):
                raise ConfigError(f"{hubs[place]}: no wire leads there; give that hub a tcp:// one")
            port = hubs[place].rpartition(":")[2]
            hubs[place] = f"tcp://{nodes[planned.node].address}:{port}"
    return tuple(hubs)


def _one_store(nodes: Mapping[str, NodeConfig]) -> dict[str, NodeConfig]:
    """All lease managers on the first node that has any (H1)."""
    managers = sum(node.run.get(MANAGER, 0) for node in nodes.values())
    first = next((name for name, node in nodes.items() if node.run.get(MANAGER)), "")
    moved: dict[str, NodeConfig] = {}
    for name, node in nodes.items():
        run = {role: count for role, count in node.run.items() if role != MANAGER}
        if name == first:
            run = {role: managers if role == MANAGER else n for role, n in node.run.items()}
        moved[name] = msgspec.structs.replace(node, run=run)
    return moved
