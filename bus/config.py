"""Where the configuration comes from: a file, the environment, or free ports of this machine.

Reads once, at start, and hands out a frozen `Config`; nothing else reads the file or a
`SOFTSTATE_*` variable. What is right and wrong is decided in `bus.config_rules`.
"""

import os
import secrets
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from bus.config_rules import FILE, Places, Tables, build, read_tables
from bus.config_shape import (
    BRICK,
    BUILT_IN_ROLES,
    HUB,
    LOOPBACK,
    MANAGER,
    NODE,
    PERIOD_S,
    PUBLISH_PORT_OFFSET,
    BeaconConfig,
    Config,
    KeysConfig,
    LeasesConfig,
    Limits,
    MetricsConfig,
    NamespaceConfig,
    NodeConfig,
    Planned,
    Preset,
    RoleConfig,
    SessionsConfig,
    StoreConfig,
    dump,
    publish_address,
)
from bus.errors import ConfigError
from bus.toml_lines import Path as KeyPath

__all__ = [
    "BRICK",
    "BUILT_IN_ROLES",
    "HUB",
    "MANAGER",
    "NODE",
    "PERIOD_S",
    "BeaconConfig",
    "Config",
    "KeysConfig",
    "LeasesConfig",
    "Limits",
    "MetricsConfig",
    "NamespaceConfig",
    "NodeConfig",
    "Planned",
    "Preset",
    "RoleConfig",
    "SessionsConfig",
    "StoreConfig",
    "dump",
    "find",
    "find_file",
    "free_hubs",
    "installed_roles",
    "keys_directory",
    "load",
    "local",
    "parse",
    "publish_address",
    "remember",
]

FILE_BYTES_MAX = 1 << 20

# Below Linux's ephemeral ports (from 32768), so that no outgoing connection takes one first.
_PORT_MIN, _PORT_MAX = 10_000, 32_000
_PORT_ATTEMPTS_MAX = 1000


def load(path: str | Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in the file at `path`, with `environ`'s overrides, its paths absolute."""
    text = _read(path)
    tables, lines = read_tables(text, str(path))
    variables = _override(tables, environ)
    places = Places(str(path), lines, variables)
    config = build(tables, places, installed_roles())
    config = _absolute(config, Path(path).absolute(), environ)
    if config.keys is not None and not Path(config.keys.directory).is_dir():
        places.refuse(
            ("keys", "directory"),
            f"no directory {config.keys.directory}; make it with "
            f"`softstate keys new --directory {config.keys.directory}`",
        )
    return config


def parse(text: str, source: str = "", known_roles: Collection[str] | None = None) -> Config:
    """The configuration in `text`. Looks at no file; paths stay as they are written."""
    tables, lines = read_tables(text, source)
    known = installed_roles() if known_roles is None else known_roles
    return msgspec.structs.replace(build(tables, Places(source, lines, {}), known), source=source)


def local(  # noqa: PLR0913 (all but three are keywords)
    directory: str | Path,
    nodes: int = 2,
    run: Mapping[str, int] | None = None,
    *,
    preset: Preset = "lan",
    heal: bool = True,
    roles: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Config:
    """A cluster on free loopback ports, with what it leaves behind in `directory`.

    `run` has the total of each role, dealt out to the nodes in turn; two hubs unless it says
    otherwise. `roles` adds roles of your own: name to `package.module:function`. `settings` are
    further keys and tables of a configuration: `{"store": {"kind": "etcd", …}}`.
    """
    totals = {HUB: 2, **(run or {})}
    tables: Tables = {
        **(settings or {}),
        "hubs": free_hubs(max(totals[HUB], 0), _draw_port),
        "preset": preset,
        "heal": heal,
        "run_directory": str(Path(directory).absolute()),
        "nodes": {f"n{index + 1}": {"run": _share(totals, index, nodes)} for index in range(nodes)},
        "roles": {name: {"main": main} for name, main in (roles or {}).items()},
    }
    return build(tables, Places("local cluster", None, {}), installed_roles())


def find(argument: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Which file to load: `--config`, SOFTSTATE_CONFIG, ./cluster.toml, the last `softstate up`."""
    path = find_file(argument, environ)
    if path is not None:
        return path
    try:
        last = _last_up(environ).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        last = ""
    if last and Path(last).is_file():
        return last
    raise ConfigError(
        f"no cluster found: there is no ./{FILE}, and no `softstate up` of yours is known; start "
        "one with `softstate up`, or name a file with --config or SOFTSTATE_CONFIG"
    )


def find_file(argument: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The file that was named, or the one that lies here; None for neither."""
    named = argument or environ.get("SOFTSTATE_CONFIG")
    if named:
        return named
    return FILE if Path(FILE).is_file() else None


def keys_directory(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the file that lies here says the keys are, though they may not be there yet."""
    path = find_file(None, environ)
    if path is None:
        return None
    keys = read_tables(_read(path), path)[0].get("keys")
    directory = keys.get("directory") if isinstance(keys, dict) else None
    return str(Path(path).parent / directory) if isinstance(directory, str) else None


def remember(path: str | Path, environ: Mapping[str, str] = os.environ) -> None:
    """Note the file at `path` as this user's last `softstate up`, for `find`."""
    note = _last_up(environ)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_name(f"{note.name}.{os.getpid()}")
        temporary.write_text(f"{Path(path).absolute()}\n", encoding="utf-8")
        temporary.replace(note)
    except OSError as error:
        raise ConfigError(f"cannot write {note}: {error.strerror}; set XDG_STATE_HOME") from error


def installed_roles() -> frozenset[str]:
    """Names of the roles that installed packages offer."""
    return BUILT_IN_ROLES | {role.name for role in entry_points(group="softstate.roles")}


def _last_up(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or os.path.expanduser("~")
    state = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
    return Path(state) / "softstate" / "last-up"


def _read(path: str | Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name another file with --config") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: longer than {FILE_BYTES_MAX} bytes; is it the right file?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8; save the file as UTF-8") from error


def _override(tables: Tables, environ: Mapping[str, str]) -> dict[KeyPath, str]:
    """Put the environment's values in; return which variable each changed key came from."""
    variables: dict[KeyPath, str] = {}
    if hubs := environ.get("SOFTSTATE_HUBS"):
        tables["hubs"] = [hub.strip() for hub in hubs.split(",") if hub.strip()]
        variables["hubs",] = "SOFTSTATE_HUBS"
    if directory := environ.get("SOFTSTATE_KEYS"):
        keys = tables.get("keys", {})
        if isinstance(keys, dict):
            tables["keys"] = {**keys, "directory": directory}
            variables["keys", "directory"] = "SOFTSTATE_KEYS"
    if address := environ.get("SOFTSTATE_ADDRESS"):
        tables["address"] = address
        variables["address",] = "SOFTSTATE_ADDRESS"
    return variables | _override_store(tables, environ)


def _override_store(tables: Tables, environ: Mapping[str, str]) -> dict[KeyPath, str]:
    store = tables.get("store", {})
    if not isinstance(store, dict) or store.get("kind") != "etcd":
        return {}  # They speak of etcd: a file that does not use it need not hear of them.
    given: Tables = {}
    if endpoints := environ.get("SOFTSTATE_STORE_ENDPOINTS"):
        given["endpoints"] = [each.strip() for each in endpoints.split(",") if each.strip()]
    for key in ("user", "password"):
        if value := environ.get(f"SOFTSTATE_STORE_{key.upper()}"):
            given[key] = value
    tables["store"] = {**store, **given}
    return {("store", key): f"SOFTSTATE_STORE_{key.upper()}" for key in given}


def _absolute(config: Config, path: Path, environ: Mapping[str, str]) -> Config:
    """Paths in the file are relative to the file; a path in the environment, to where we are."""
    keys = config.keys
    if keys is not None:
        base = Path.cwd() if environ.get("SOFTSTATE_KEYS") else path.parent
        keys = msgspec.structs.replace(keys, directory=str(base / keys.directory))
    store = config.store
    if store.path:
        store = msgspec.structs.replace(store, path=str(path.parent / store.path))
    sessions = config.sessions
    if sessions.key_ring:
        ring = str(path.parent / sessions.key_ring)
        sessions = msgspec.structs.replace(sessions, key_ring=ring)
    return msgspec.structs.replace(
        config,
        source=str(path),
        keys=keys,
        store=store,
        sessions=sessions,
        run_directory=str(path.parent / config.run_directory),
    )


def _share(totals: Mapping[str, int], index: int, nodes: int) -> dict[str, int]:
    """What node `index` of `nodes` runs when every role is dealt out in turn."""
    shares = {role: (total - index + nodes - 1) // nodes for role, total in totals.items()}
    return {role: share for role, share in shares.items() if share > 0}


def free_hubs(count: int, draw_port: Callable[[], int]) -> list[str]:
    """Addresses for `count` hubs, both ports of each free at this moment; `draw_port` proposes."""
    hubs: list[str] = []
    with ExitStack() as held:  # Held until all are found, so that no port is found twice.
        for _ in range(_PORT_ATTEMPTS_MAX):
            if len(hubs) == count:
                return hubs
            port = draw_port()
            if all(_hold(p, held) for p in (port, port + PUBLISH_PORT_OFFSET)):
                hubs.append(f"tcp://{LOOPBACK}:{port}")
    raise ConfigError(f"no free ports for {count} hubs between {_PORT_MIN} and {_PORT_MAX}")


def _draw_port() -> int:
    return _PORT_MIN + secrets.randbelow(_PORT_MAX - _PORT_MIN)


def _hold(port: int, held: ExitStack) -> bool:
    probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        # As ZeroMQ does: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        probe.listen(1)
    except OSError:
        return False
    return True
