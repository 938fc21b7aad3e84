"""Facts about a machine and its configuration in, findings out. Decides only.

`softstate doctor` gathers the facts and prints the findings. `fail` means that the cluster would
not work here; `warn`, that it works less well than it could. Each sentence says what was found
and, unless it is good, what to do.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from bus.config_rules import is_loopback
from bus.config_shape import CONNECTIONS_SHARE, HUB, NODE, Config, publish_address

Level = Literal["ok", "warn", "fail"]
PortState = Literal["free", "hub", "taken", "silent", "refused", "unreachable"]
"""free: nobody listens and we may bind; hub: a ZeroMQ socket answers; taken: something else does,
or we may not bind; silent: accepts and says nothing; refused: machine there, no listener;
unreachable: no machine there, or a packet filter in between."""

_PORTS: dict[PortState, tuple[Level, str]] = {
    "free": ("ok", "free"),
    "hub": ("ok", "a hub answers"),
    "taken": ("fail", "taken, or not ours to bind: end what has it, or choose another port"),
    "silent": ("fail", "something listens there that is no hub: choose another port"),
    "refused": ("warn", "nobody listens there yet: start that node"),
    "unreachable": ("fail", "cannot be reached: check the address, the network, the firewall"),
}

WALL_S_MIN = 1_704_067_200  # The start of 2024: any clock before that was never set.
FREE_BYTES_FAIL = 100 << 20
FREE_BYTES_WARN = 1 << 30

DESCRIPTORS_BASE = 64  # The interpreter, event loop, logs and the metrics server, with room.
DESCRIPTORS_A_SOCKET = 2  # Measured: a ZeroMQ socket's own two, connections apart.


class Finding(msgspec.Struct, frozen=True):
    """The outcome of one check."""

    level: Level
    name: str
    sentence: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered: plain values, so that judging needs no machine."""

    python: str
    requires_python: str
    """As in the package's metadata; empty if the package is not installed."""
    requirements: list[str]
    """As in the package's metadata: `gevent<27,>=26.9`, without the extras."""
    installed: dict[str, str]
    """Version of each required library that is installed."""
    zmq: dict[str, object]
    open_files_max: int
    """The hard limit: our processes raise their own to it when they start."""
    boottime_s: tuple[float, float]
    """Two readings of the clock that `bus.clock.now` uses; empty-handed, (0, 0)."""
    wall_s: float
    clock_is_synchronised: bool | None
    """As the kernel says; None if it would not."""
    own_addresses: frozenset[str]
    resolved: dict[str, str]
    """Each host of the configuration and its address; empty if it has none."""
    ports: dict[str, PortState]
    """Each hub's two addresses, and what is there."""
    keys_trouble: str
    """Why the keys cannot be used; empty if they can."""
    keys_directory_mode: int
    run_directory_writable: bool
    run_directory_free_bytes: int
    honcho_is_installed: bool


def judge(facts: Facts, config: Config | None) -> list[Finding]:
    """All findings on the machine, then those on the configuration if there is one."""
    findings = [
        _python(facts),
        *_libraries(facts),
        _curve(facts, config),
        _boottime(facts),
        _wall_clock(facts),
        _honcho(facts),
    ]
    if config is None:
        return findings
    return [
        *findings,
        _open_files(facts, config),
        _sockets(facts, config),
        *_hubs(facts, config),
        *_nodes(facts, config),
        _keys(facts, config),
        _run_directory(facts, config),
    ]


# The machine.


def _python(facts: Facts) -> Finding:
    if not facts.requires_python:
        return Finding(
            "warn", "python", f"{facts.python}; softstate is not installed: pip install ."
        )
    if satisfies(facts.python, facts.requires_python):
        return Finding("ok", "python", facts.python)
    return Finding("fail", "python", f"{facts.python}; install one that is {facts.requires_python}")


def _libraries(facts: Facts) -> list[Finding]:
    return [
        _library(name, wanted, facts) for name, wanted in map(split_requirement, facts.requirements)
    ]


def _library(name: str, wanted: str, facts: Facts) -> Finding:
    order = f"pip install '{name}{wanted}'"
    version = facts.installed.get(name)
    if version is None:
        return Finding("fail", name, f"not installed: {order}")
    if not satisfies(version, wanted):
        return Finding("fail", name, f"{version} is not {wanted}: {order}")
    return Finding("ok", name, version)


def _curve(facts: Facts, config: Config | None) -> Finding:
    version = facts.zmq.get("version")
    if facts.zmq.get("curve"):
        return Finding("ok", "libzmq", f"{version}, with CURVE")
    level: Level = "warn" if config is None or config.keys is None else "fail"
    return Finding(
        level, "libzmq", f"{version} has no CURVE, so keys cannot work: use pyzmq's own wheel"
    )


def _boottime(facts: Facts) -> Finding:
    before, after = facts.boottime_s
    if 0 < before <= after:
        return Finding("ok", "boottime", f"up for {after / 3600:.1f} h")
    return Finding("fail", "boottime", "CLOCK_BOOTTIME does not run: use Linux 2.6.39 or later")


def _wall_clock(facts: Facts) -> Finding:
    if facts.wall_s < WALL_S_MIN:
        return Finding("fail", "wall clock", "stands before 2024: set it, and run an NTP client")
    if facts.clock_is_synchronised:
        return Finding("ok", "wall clock", "synchronised")
    if facts.clock_is_synchronised is None:
        sentence = "cannot tell whether it is synchronised: see that an NTP client runs"
    else:
        sentence = "not synchronised, so sessions may expire early or late: run an NTP client"
    return Finding("warn", "wall clock", sentence)


def _honcho(facts: Facts) -> Finding:
    if facts.honcho_is_installed:
        return Finding("ok", "honcho", "installed")
    return Finding("warn", "honcho", "not installed; `make up` needs it: pip install honcho")


# The machine against the configuration.


def descriptors_needed(config: Config) -> int:
    """How many files the busiest process may have open, if every process talks with every other.

    A base; a server and, for each hub, a publishing and a listening socket with a connection
    each; for each peer a socket with its connection, and one connection that the peer opened;
    for an agent, three pipes a child.
    """
    hubs, processes = len(config.hubs), len(config.components())
    children = max((sum(node.run.values()) for node in config.nodes.values()), default=0)
    return (
        DESCRIPTORS_BASE
        + DESCRIPTORS_A_SOCKET * (1 + 2 * hubs)
        + 2 * hubs
        + processes * (DESCRIPTORS_A_SOCKET + 2)
        + 3 * children
    )


def _open_files(facts: Facts, config: Config) -> Finding:
    need, allowed = descriptors_needed(config), facts.open_files_max
    sentence = f"{allowed} allowed, {need} needed"
    order = "raise the hard limit (limits.conf, or LimitNOFILE= of the systemd unit)"
    if allowed < need:
        return Finding("fail", "open files", f"{sentence}: {order}")
    wanted = config.limits.connections_max
    if allowed // CONNECTIONS_SHARE < wanted:
        return Finding(
            "warn",
            "open files",
            f"{sentence}; that is {allowed // CONNECTIONS_SHARE} connections to a process, not the "
            f"{wanted} of limits.connections_max: {order}",
        )
    return Finding("ok", "open files", sentence)


def _sockets(facts: Facts, config: Config) -> Finding:
    need = len(config.components()) + 2 * len(config.hubs) + 8
    limit = facts.zmq.get("max_sockets")
    if isinstance(limit, int) and limit < need:
        return Finding("fail", "sockets", f"{limit} a process, {need} needed: run fewer processes")
    return Finding("ok", "sockets", f"{limit} a process, {need} needed")


def _hubs(facts: Facts, config: Config) -> list[Finding]:
    return [
        _hub_port(facts, f"{HUB}-{number} {end}", address)
        for number, hub in enumerate(config.hubs, start=1)
        for end, address in (("listen", hub), ("publish", publish_address(hub)))
    ]


def _hub_port(facts: Facts, name: str, address: str) -> Finding:
    level, what = _PORTS[facts.ports.get(address, "unreachable")]
    return Finding(level, name, f"{address}: {what}")


def _nodes(facts: Facts, config: Config) -> list[Finding]:
    spread = not all(map(is_loopback, config.hubs))
    return [_node(facts, name, config.address_of(name), spread=spread) for name in config.nodes]


def _node(facts: Facts, node: str, host: str, *, spread: bool) -> Finding:
    name = f"{NODE} {node}"
    if is_loopback(host):
        if spread:
            return Finding(
                "warn",
                name,
                f"{host} cannot be reached from the machines of the hubs: set nodes.{node}.address",
            )
        return Finding("ok", name, f"{host}: this machine")
    address = facts.resolved.get(host, "")
    if not address:
        return Finding("fail", name, f"{host} has no address: correct the name, or add it to DNS")
    where = "this machine" if address in facts.own_addresses else "another machine"
    return Finding("ok", name, f"{host}: {where}")


def _keys(facts: Facts, config: Config) -> Finding:
    if config.keys is None:
        if config.allow_plain:
            return Finding(
                "warn", "keys", "none, and allow_plain: anyone may listen; see `softstate keys new`"
            )
        return Finding("ok", "keys", "none: loopback only")
    if facts.keys_trouble:
        return Finding("fail", "keys", facts.keys_trouble)
    if facts.keys_directory_mode & 0o022:
        directory = config.keys.directory
        return Finding(
            "fail", "keys", f"others may write to {directory}: run `chmod go-w {directory}`"
        )
    return Finding("ok", "keys", f"{config.keys.name} of {config.keys.directory}")


def _run_directory(facts: Facts, config: Config) -> Finding:
    name, where = "run directory", config.run_directory
    if not facts.run_directory_writable:
        return Finding("fail", name, f"cannot write to {where}: set run_directory")
    free = facts.run_directory_free_bytes
    sentence = f"{where}: {free / (1 << 30):.1f} GiB free"
    if free >= FREE_BYTES_WARN:
        return Finding("ok", name, sentence)
    level: Level = "fail" if free < FREE_BYTES_FAIL else "warn"
    return Finding(level, name, f"{sentence}: make room, or set run_directory")


# Versions, as far as our own requirements go.


def split_requirement(requirement: str) -> tuple[str, str]:
    """`gevent<27,>=26.9; python_version > "3"` as `gevent` and `<27,>=26.9`."""
    match = re.match(r"\s*([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)", requirement)
    assert match, f"no requirement: {requirement}"
    return match[1], match[2].strip(" ()")


def satisfies(version: str, wanted: str) -> bool:
    """Whether `26.9.1` is `>=26.9,<27`. Knows numbers with dots, which is all we ask for."""
    have = _numbers(version)
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([\d.]+)", clause)
        assert match, f"no such version clause: {clause}"
        if not _holds(have, match[1], _numbers(match[2])):
            return False
    return True


def _holds(have: tuple[int, ...], operator: str, limit: tuple[int, ...]) -> bool:
    width = max(len(have), len(limit))
    left, right = (part + (0,) * (width - len(part)) for part in (have, limit))
    outcomes: Mapping[str, bool] = {
        ">=": left >= right,
        "<=": left <= right,
        "==": left == right,
        "!=": left != right,
        ">": left > right,
        "<": left < right,
    }
    return outcomes[operator]


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers: `26.9rc1` is (26, 9)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
