"""Check this machine and a configuration: versions, limits, clocks, ports, keys, reachability."""

import argparse
import ctypes
import json
import os
import platform
import resource
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import gevent
import psutil
from gevent import socket
from gevent.pool import Pool

from bus.clock import now, wall_s
from bus.config import Config, find, load, publish_address
from bus.config_rules import host_of, port_of
from bus.errors import ConfigError
from bus.keys import load_security
from bus.pump import zmq_features
from roles.diagnosis import Facts, Finding, PortState, judge, split_requirement

DISTRIBUTION = "softstate"
CONNECT_S_MAX = 1.0
RESOLVE_S_MAX = 2.0
AT_ONCE_MAX = 32

_GREETING_BYTES = 10  # ZMTP: every ZeroMQ socket opens with 0xFF, eight bytes, 0x7F.
_TIME_ERROR = 5  # What adjtimex(2) returns for a clock that is not synchronised.


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="softstate doctor", description=__doc__)
    parser.add_argument("--config", metavar="F", help="the configuration to check")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)

    first, config = _configuration(options.config)
    findings = [first, *judge(gather(config), config)]
    if options.json:
        json.dump({"findings": [_row(finding) for finding in findings]}, sys.stdout)
        print()
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            print(f"{finding.level:<4}  {finding.name:<{width}}  {finding.sentence}")
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def _row(finding: Finding) -> dict[str, str]:
    return {"level": finding.level, "name": finding.name, "sentence": finding.sentence}


def _configuration(argument: str | None) -> tuple[Finding, Config | None]:
    """The configuration, if there is a sound one, and what to say of it."""
    try:
        path = find(argument)
    except ConfigError as error:
        return Finding("warn", "config", f"only the machine is checked: {error}"), None
    try:
        config = load(path)
    except ConfigError as error:
        return Finding("fail", "config", str(error)), None
    processes = len(config.components())
    return Finding("ok", "config", f"{path}: {processes} processes, agents among them"), config


def gather(config: Config | None) -> Facts:
    """Look at the machine, and at what the configuration names. Judges nothing."""
    requires_python, requirements = _requirements()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = _own_addresses()
    resolved = _resolve(config)
    directory = _nearest(Path(config.run_directory if config else "."))
    return Facts(
        python=platform.python_version(),
        requires_python=requires_python,
        requirements=requirements,
        installed=_installed(requirements),
        zmq=zmq_features(),
        open_files_max=_unlimited(hard),
        boottime_s=(now(), now()),
        wall_s=wall_s(),
        clock_is_synchronised=_clock_is_synchronised(),
        own_addresses=own,
        resolved=resolved,
        ports=_ports(config, own, resolved),
        keys_trouble=_keys_trouble(config),
        keys_directory_mode=_keys_directory_mode(config),
        run_directory_writable=os.access(directory, os.W_OK | os.X_OK),
        run_directory_free_bytes=shutil.disk_usage(directory).free,
        honcho_is_installed=find_spec("honcho") is not None,
    )


def _requirements() -> tuple[str, list[str]]:
    try:
        requires_python = metadata.metadata(DISTRIBUTION)["Requires-Python"]
        everything = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return "", []
    return requires_python or ">=3", [line for line in everything if "extra ==" not in line]


def _installed(requirements: list[str]) -> dict[str, str]:
    names = {split_requirement(line)[0] for line in requirements}
    return {name: version for name in names if (version := _version(name)) is not None}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _unlimited(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _clock_is_synchronised() -> bool | None:
    """Ask the kernel, changing nothing (`modes` is 0); None where it will not say."""
    timex = ctypes.create_string_buffer(512)  # struct timex is 208 bytes on 64-bit Linux.
    try:
        state = int(ctypes.CDLL(None).adjtimex(timex))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _own_addresses() -> frozenset[str]:
    return frozenset(
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    )


def _resolve(config: Config | None) -> dict[str, str]:
    if config is None:
        return {}
    hosts = {host_of(hub) for hub in config.hubs if not hub.startswith("ipc://")}
    hosts |= {config.address_of(node) for node in config.nodes}
    names = sorted(hosts)
    return dict(zip(names, Pool(AT_ONCE_MAX).map(_address_in_time, names), strict=True))


def _address_in_time(host: str) -> str:
    return str(gevent.with_timeout(RESOLVE_S_MAX, _address, host, timeout_value=""))


def _address(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):  # UnicodeError: no name in DNS can be that long.
        return ""


def _ports(
    config: Config | None, own: frozenset[str], resolved: dict[str, str]
) -> dict[str, PortState]:
    if config is None:
        return {}
    addresses = [end for hub in config.hubs for end in (hub, publish_address(hub))]

    def look(address: str) -> PortState:
        if address.startswith("ipc://"):
            return _look_ipc(address.removeprefix("ipc://"))
        host = resolved[host_of(address)]
        return _look_tcp(host, port_of(address), ours=host in own)

    return dict(zip(addresses, Pool(AT_ONCE_MAX).map(look, addresses), strict=True))


def _look_tcp(host: str, port: int, *, ours: bool) -> PortState:
    if not host:
        return "unreachable"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    state = _greeting(family, (host, port))
    if state == "refused" and ours:
        return "free" if _can_bind(family, host, port) else "taken"
    return state


def _look_ipc(path: str) -> PortState:
    if not Path(path).exists():
        return "free" if os.access(_nearest(Path(path).parent), os.W_OK) else "taken"
    state = _greeting(socket.AF_UNIX, path)
    return "free" if state == "refused" else state  # What a dead hub left behind is replaced.


def _greeting(family: int, address: tuple[str, int] | str) -> PortState:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S_MAX)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return "refused"
        except OSError:
            return "unreachable"
        try:
            greeting = probe.recv(_GREETING_BYTES)
        except OSError:
            return "silent"
    return "hub" if greeting[:1] == b"\xff" and greeting[9:10] == b"\x7f" else "silent"


def _can_bind(family: int, host: str, port: int) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _keys_trouble(config: Config | None) -> str:
    if config is None or config.keys is None:
        return ""
    try:
        load_security(config.keys.directory, config.keys.name, connects_only=not config.nodes)
    except ConfigError as error:
        return str(error)
    return ""


def _keys_directory_mode(config: Config | None) -> int:
    if config is None or config.keys is None:
        return 0
    return Path(config.keys.directory).stat().st_mode & 0o777


def _nearest(path: Path) -> Path:
    """`path`, or the nearest directory above it that exists: where it would be made."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.is_dir())
