"""Tables and text in, a `Config` without contradictions out. Decides only: reads no file.

Every refusal is a `ConfigError` that begins with the place, `cluster.toml:7: nodes.n1.address:`,
and says what to change. Values are converted section by section, as msgspec's own error paths
leave out the names of tables (`$.nodes[...]`).

What always holds:
  C1  A `Config` that comes out of here runs: each hub has one address and both its ports, each
      role exists, no two hubs meet on one port.
  C2  Nothing leaves the machine in the clear unless `allow_plain` says so.
  C3  A key nobody knows is refused, never ignored: a misspelt setting would silently not hold.
  C4  Leases are safe: their lengths fit together, and all managers share one store.
  C5  Sessions can be written and read: no more acknowledgements are asked for than bricks.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any, NoReturn, TypeVar

import msgspec

from bus.config_shape import (
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
    PinpointConfig,
    RestartsConfig,
    RoleConfig,
    SessionsConfig,
    StoreConfig,
    publish_address,
)
from bus.errors import ConfigError
from bus.lease_timing import timing_of
from bus.toml_lines import Path, key_lines, line_of

S = TypeVar("S", bound=msgspec.Struct)

Tables = dict[str, Any]
"""What `tomllib` makes of a file: any value may stand under any key."""

FILE = "cluster.toml"
HUBS_MAX = 16
ENDPOINTS_MAX = 16
PREFIX_BYTES_MAX = 128
COPIES_MAX = 8
ENCRYPTED_BYTES_MAX = (16 << 20) - 64  # A body has 16 MiB, and what encrypts a value is with it.
PROCESSES_MAX = 10_000
IPC_BYTES_MAX = 107 - len(".publish")  # A Unix socket's path has 108 bytes, one of them NUL.

_STORE = StoreConfig()
"""The default, to tell what was set."""

_SPOKEN = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""msgspec's words for types, as people say them."""

_NAME = re.compile(r"[a-z0-9-]{1,64}")
_NAMESPACE = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_MAIN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_HTTP = re.compile(r"http://(?P<host>\[[^\]]+\]|[^:/\[\]@]+)(:(?P<port>[0-9]{1,5}))?/?")
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})")
_MSGSPEC_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_TOML_PLACE = re.compile(r" \(at (line (?P<line>\d+), column \d+|end of document)\)$")


class Places:
    """Where each key was set: a line of the file, or an environment variable."""

    def __init__(
        self, source: str, lines: dict[Path, int] | None, variables: Mapping[Path, str]
    ) -> None:
        self._source = source or FILE
        self._lines = lines
        """None for a configuration that is not from a text."""
        self._variables = variables

    def in_text(self, path: Path) -> bool:
        """Whether what stands there is not from an environment variable."""
        return path not in self._variables

    def refuse(self, path: Path, sentence: str) -> NoReturn:
        for length in range(len(path), 0, -1):
            if path[:length] in self._variables:
                raise ConfigError(f"{self._variables[path[:length]]}: {sentence}")
        line = "" if self._lines is None else f":{line_of(self._lines, path)}"
        raise ConfigError(f"{self._source}{line}: {dotted(path)}: {sentence}")


def dotted(path: Path) -> str:
    """`("hubs", 1)` as people write it: `hubs[1]`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def read_tables(text: str, source: str) -> tuple[Tables, dict[Path, int]]:
    """The values of a TOML text and their lines; ConfigError where it is not TOML."""
    try:
        return tomllib.loads(text), key_lines(text)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = place["line"] if place else None
        what = _TOML_PLACE.sub("", str(error))
        where = line or str(text.rstrip("\n").count("\n") + 1)  # At the end of the document.
        raise ConfigError(f"{source or FILE}:{where}: not TOML: {what}") from error
    except RecursionError as error:
        raise ConfigError(f"{source or FILE}:1: not TOML: nested too deeply") from error


def build(tables: Tables, places: Places, known_roles: Collection[str]) -> Config:
    """The one way to a `Config`: convert each section, then check how they fit together."""
    unknown_keys(tables, Config, (), places, leave_out={"source"})
    preset = _value(tables, "preset", Config, places)
    beacons = tables.get("beacons", {})
    if isinstance(beacons, dict):
        beacons = {"period_s": PERIOD_S[preset], **beacons}

    sections: Tables = {
        "hubs": _hubs(tables, places),
        "preset": preset,
        "beacons": convert(beacons, BeaconConfig, ("beacons",), places),
        "limits": convert(tables.get("limits", {}), Limits, ("limits",), places),
        "metrics": convert(tables.get("metrics", {}), MetricsConfig, ("metrics",), places),
        "nodes": _each(tables, "nodes", NodeConfig, places),
        "roles": _each(tables, "roles", RoleConfig, places),
        "store": _store(tables, places),
        "namespaces": _namespaces(tables, places),
        "leases": convert(tables.get("leases", {}), LeasesConfig, ("leases",), places),
        "sessions": convert(tables.get("sessions", {}), SessionsConfig, ("sessions",), places),
        "restarts": convert(tables.get("restarts", {}), RestartsConfig, ("restarts",), places),
        "pinpoint": convert(tables.get("pinpoint", {}), PinpointConfig, ("pinpoint",), places),
    }
    if "keys" in tables:
        sections["keys"] = convert(tables["keys"], KeysConfig, ("keys",), places)
    for name in ("heal", "chaos", "allow_plain", "address", "run_directory"):
        sections[name] = _value(tables, name, Config, places)

    config = Config(**sections)
    _check_roles(config, places)
    _check_nodes(config, places, {*known_roles, *BUILT_IN_ROLES, *config.roles})
    _check_hubs(config, places)
    _check_plain(config, places)
    _check_leases(config, places)
    _check_sessions(config, places)
    if config.pinpoint.persist > config.pinpoint.window:
        window = config.pinpoint.window
        places.refuse(("pinpoint", "persist"), f"at most window, which is {window}")
    return config


# Conversion: from any value to the right type, or a refusal that names the key.


def convert(table: object, kind: type[S], path: Path, places: Places) -> S:
    """One table as the struct `kind`."""
    if not isinstance(table, dict):
        places.refuse(path, f"must be a table, as in [{dotted(path)}]")
    unknown_keys(table, kind, path, places)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        inner = _inner_path(str(error))
        key = inner[0] if inner else ""
        wanted = {field.name: field.type for field in msgspec.structs.fields(kind)}
        sentence = _sentence(error, table.get(key), wanted.get(str(key)))
        places.refuse((*path, *inner, *_hidden_key(table, inner)), sentence)


def unknown_keys(
    table: Mapping[str, object],
    kind: type[msgspec.Struct],
    path: Path,
    places: Places,
    leave_out: Collection[str] = (),
) -> None:
    """Refuse the first key that `kind` has no field for."""
    fields = [name for name in kind.__struct_fields__ if name not in leave_out]
    for key in table:
        if key not in fields:
            hint = did_you_mean(key, fields) or f"; known are {', '.join(fields)}"
            places.refuse((*path, key), f"unknown key{hint}")  # C3


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean "brick"?`, or nothing if no known word is near."""
    near = get_close_matches(word, sorted(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _value(tables: Tables, name: str, kind: type[msgspec.Struct], places: Places) -> Any:  # noqa: ANN401
    field = next(field for field in msgspec.structs.fields(kind) if field.name == name)
    if name not in tables:
        if field.required:
            places.refuse((name,), "missing; this key has no default")
        return field.default
    try:
        return msgspec.convert(tables[name], field.type)
    except msgspec.ValidationError as error:
        places.refuse((name, *_inner_path(str(error))), _sentence(error, tables[name], field.type))


def _each(tables: Tables, name: str, kind: type[S], places: Places) -> dict[str, S]:
    """A table of tables, such as [nodes.n1] and [nodes.n2]."""
    table = _tables_below(tables, name, places)
    for key in table:
        if not _NAME.fullmatch(key):
            places.refuse((name, key), "a name has small letters, digits and hyphens only")
    return {key: convert(value, kind, (name, key), places) for key, value in table.items()}


def _tables_below(tables: Tables, name: str, places: Places) -> Tables:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        places.refuse((name,), f"must be a table of tables, as in [{name}.NAME]")
    return table


def _inner_path(sentence: str) -> Path:
    """msgspec's `$.hubs[1].x` as a path of ours, up to where it hides a name (`[...]`)."""
    place = _MSGSPEC_PLACE.search(sentence)
    path: list[str | int] = []
    for word in re.findall(r"[^.\[\]]+|\[\.\.\.\]", place["path"] if place else ""):
        if word == "[...]":
            break
        path.append(int(word) if word.isdigit() else word)
    return tuple(path)


def _hidden_key(table: Mapping[str, object], inner: Path) -> Path:
    """The name msgspec hid: `run` is the only table of numbers, so the first that is none."""
    numbers = table.get("run")
    if inner != ("run",) or not isinstance(numbers, dict):
        return ()
    return next(((key,) for key, value in numbers.items() if type(value) is not int), ())


def _sentence(error: msgspec.ValidationError, value: object = None, kind: object = None) -> str:
    """msgspec's words in ours: `Expected ...` becomes `must be ...`."""
    choices = getattr(kind, "__args__", ())
    if isinstance(value, str) and all(isinstance(choice, str) for choice in choices) and choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        return f'"{value}" is none of {listed}{did_you_mean(value, choices)}'
    what = _MSGSPEC_PLACE.sub("", str(error))
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    if missing:
        return f"{missing[1]} is missing, and has no default"
    what = re.sub(r"`(\w+)`", lambda word: _SPOKEN.get(word[1], word[1]), what)
    return re.sub(r"^Expected ", "must be ", what).replace(", got ", ", not ")


# Rules: how the sections fit together.


def _hubs(tables: Tables, places: Places) -> tuple[str, ...]:
    hubs: tuple[str, ...] = _value(tables, "hubs", Config, places)
    if not 1 <= len(hubs) <= HUBS_MAX:
        places.refuse(("hubs",), f"list 1 to {HUBS_MAX} hubs, better two or more; not {len(hubs)}")
    taken: dict[tuple[str, int], str] = {}
    for index, hub in enumerate(hubs):
        path: Path = ("hubs", index)
        _check_hub_address(hub, path, places)
        for address in (hub, publish_address(hub)):
            key = _same(address)
            if key in taken:
                places.refuse(
                    path,
                    f"{hub} and {taken[key]} would meet at {address}: a hub takes its port and "
                    f"that + {PUBLISH_PORT_OFFSET}; choose another port",
                )
            taken[key] = hub
    return hubs


def _check_hub_address(hub: str, path: Path, places: Places) -> None:
    if hub.startswith("ipc://"):
        name = hub.removeprefix("ipc://")
        if not name.startswith("/") or len(name.encode()) > IPC_BYTES_MAX:
            places.refuse(path, f"an absolute path, {IPC_BYTES_MAX} bytes at most, follows ipc://")
        return
    tcp = _TCP.fullmatch(hub)
    if not tcp:
        places.refuse(path, f'"{hub}" is no address; write it as "tcp://127.0.0.1:7000"')
    _check_host(tcp["host"].strip("[]"), path, places)
    port_max = 65535 - PUBLISH_PORT_OFFSET
    if not 1 <= int(tcp["port"]) <= port_max:
        places.refuse(path, f"the port must be 1 to {port_max}, as the hub also takes + 100")


def _check_host(host: str, path: Path, places: Places) -> None:
    """A host that others can connect to: no wildcard, no scheme, no port."""
    try:
        if ip_address(host).is_unspecified:
            places.refuse(path, f"{host} is every address; give the one others connect to")
    except ValueError:
        if not _HOST.fullmatch(host) or host.replace(".", "").isdigit():
            places.refuse(path, f'"{host}" is no host name or address (no scheme, no port)')


def _check_roles(config: Config, places: Places) -> None:
    for name, role in config.roles.items():
        if name in BUILT_IN_ROLES:
            places.refuse(("roles", name), f"{name} is built in; choose another name")
        if not _MAIN.fullmatch(role.main):
            places.refuse(("roles", name, "main"), 'write it as "package.module:function"')


def _check_nodes(config: Config, places: Places, known_roles: Collection[str]) -> None:
    for name, node in config.nodes.items():
        path: Path = ("nodes", name)
        _check_host(node.address, (*path, "address"), places)
        if node.overflow and any(node.run.values()):
            places.refuse(
                (*path, "run"), "an overflow node runs nothing at first; remove run or overflow"
            )
        for role, count in node.run.items():
            _check_run(role, count, (*path, "run", role), places, known_roles)
    if config.address:
        _check_host(config.address, ("address",), places)
    total = sum(sum(node.run.values()) for node in config.nodes.values())
    if total > PROCESSES_MAX:
        places.refuse(("nodes",), f"{total} processes in all; at most {PROCESSES_MAX}")


def _check_run(role: str, count: int, path: Path, places: Places, known: Collection[str]) -> None:
    if role == NODE:
        places.refuse(path, "a node's agent is always there; remove this")
    if role not in known:
        hint = did_you_mean(role, known) or (
            f"; known are {', '.join(sorted(set(known) - {NODE}))}, "
            "and what you add as [roles.NAME] with its main"
        )
        places.refuse(path, f'no role "{role}"{hint}')  # C1
    if count < 0:
        places.refuse(path, f"a number of processes, not {count}")


def _check_hubs(config: Config, places: Places) -> None:
    if not config.nodes:
        return  # Somebody else's cluster: its own configuration says who runs the hubs.
    run = sum(node.run.get(HUB, 0) for node in config.nodes.values())
    if run != len(config.hubs):  # C1
        places.refuse(
            ("hubs",),
            f"{len(config.hubs)} listed, but the nodes run {run}; list one address for each "
            "hub = 1 under [nodes]",
        )


def _check_plain(config: Config, places: Places) -> None:
    if config.keys is not None or config.allow_plain:
        return
    addresses: list[tuple[Path, str]] = [
        *((("hubs", index), hub) for index, hub in enumerate(config.hubs)),
        *((("nodes", name, "address"), node.address) for name, node in config.nodes.items()),
    ]
    if config.address:
        addresses.append((("address",), config.address))
    for path, address in addresses:
        if not is_loopback(address):  # C2
            places.refuse(
                path,
                f"{address} is not of this machine alone, and there are no keys; make them with "
                "`softstate keys new` and name their directory under [keys], or set "
                "allow_plain = true to send everything in the clear",
            )


# Rules: leases.


def _store(tables: Tables, places: Places) -> StoreConfig:
    table = tables.get("store", {})
    secret: Path = ("store", "password")
    if isinstance(table, dict) and "password" in table and places.in_text(secret):
        places.refuse(secret, "a secret is kept out of this file; set SOFTSTATE_STORE_PASSWORD")
    store = convert(table, StoreConfig, ("store",), places)
    foreign = ("path",) if store.kind == "etcd" else ("endpoints", "prefix", "user", "password")
    for key in foreign:
        if getattr(store, key) != getattr(_STORE, key):
            places.refuse(("store", key), f'means nothing to kind = "{store.kind}"; remove it')
    if store.kind == "etcd":
        _check_etcd(store, places)
    return store


def _check_etcd(store: StoreConfig, places: Places) -> None:
    if not 1 <= len(store.endpoints) <= ENDPOINTS_MAX:
        places.refuse(
            ("store", "endpoints"),
            f"list 1 to {ENDPOINTS_MAX} members of etcd, as in "
            f'["http://127.0.0.1:2379"]; not {len(store.endpoints)}',
        )
    for index, endpoint in enumerate(store.endpoints):
        path: Path = ("store", "endpoints", index)
        http = _HTTP.fullmatch(endpoint)
        if not http:
            sentence = f'"{endpoint}" is no member; write it as "http://127.0.0.1:2379"'
            places.refuse(path, f"{sentence} (TLS is not supported yet)")
        _check_host(http["host"].strip("[]"), path, places)
        if not 1 <= int(http["port"] or 2379) <= 65535:
            places.refuse(path, "the port must be 1 to 65535")
    if not store.prefix.endswith("/") or len(store.prefix.encode()) > PREFIX_BYTES_MAX:
        places.refuse(("store", "prefix"), f"end it in '/', within {PREFIX_BYTES_MAX} bytes")
    if store.password and not store.user:
        places.refuse(("store", "user"), "there is a password, but no user")


def _namespaces(tables: Tables, places: Places) -> dict[str, NamespaceConfig]:
    namespaces: dict[str, NamespaceConfig] = {}
    for name, table in _tables_below(tables, "namespaces", places).items():
        path = ("namespaces", name)
        if not _NAMESPACE.fullmatch(name):
            places.refuse(path, "a name is 1 to 200 characters, no control characters")
        if isinstance(table, dict) and table.get("policy") == "weighted":
            sentence = 'the policy "weighted" comes with a later version; use "vnodes"'
            places.refuse((*path, "policy"), sentence)
        namespaces[name] = convert(table, NamespaceConfig, path, places)
    return namespaces


def _check_leases(config: Config, places: Places) -> None:
    """C4."""
    problem = timing_of(config).problem()
    if problem is not None:
        places.refuse(("leases", problem[0]), problem[1])
    if config.store.kind == "etcd":
        _check_plain_store(config, places)
        return
    hosts: dict[str, str] = {}
    for name, node in config.nodes.items():
        if node.run.get(MANAGER, 0):
            host = LOOPBACK if is_loopback(node.address) else node.address.lower()
            hosts.setdefault(host, name)
    if len(hosts) > 1:
        first, second, *_ = hosts.values()
        places.refuse(
            ("nodes", second, "run", MANAGER),
            f"{first} and {second} are different machines, and managers there would each have a "
            'file of their own; run all managers on one machine, or use [store] kind = "etcd"',
        )


def _check_plain_store(config: Config, places: Places) -> None:
    for index, endpoint in enumerate(config.store.endpoints):
        http = _HTTP.fullmatch(endpoint)
        if http and not is_loopback(http["host"].strip("[]")) and not config.allow_plain:  # C2
            places.refuse(
                ("store", "endpoints", index),
                f"{endpoint} is not of this machine alone, and would be asked in the clear; set "
                "allow_plain = true if that network is yours alone, or tunnel it to a local port",
            )


# Rules: sessions.


def _check_sessions(config: Config, places: Places) -> None:
    """C5."""
    trouble = sessions_trouble(config.sessions)
    if trouble is not None:
        key, sentence = trouble
        places.refuse(("sessions", key), sentence)


def sessions_trouble(  # noqa: PLR0911 (a rule each)
    sessions: SessionsConfig,
) -> tuple[str, str] | None:
    """The first key of [sessions] that does not go with the others, and why (C5)."""
    local, remote = sessions.W_local, sessions.W_remote
    if sessions.WQ > sessions.W:
        return "WQ", f"at most W, which is {sessions.W}"
    if sessions.R > sessions.W:
        return "R", f"at most W, which is {sessions.W}"
    if (local == 0) != (sessions.WQ_local == 0) or (remote and not local):
        return "W_local", "with sites, give W_local and WQ_local"
    if sessions.WQ_local > local:
        return "WQ_local", f"at most W_local, which is {local}"
    if local + remote > COPIES_MAX:
        return "W_remote", f"a cookie names at most {COPIES_MAX} bricks"
    if sessions.encrypt and sessions.value_bytes_max > ENCRYPTED_BYTES_MAX:
        return "value_bytes_max", f"with encrypt at most {ENCRYPTED_BYTES_MAX}"
    return None


def host_of(address: str) -> str:
    """The host of a hub's `tcp://` address; what is no such address is taken for a host."""
    tcp = _TCP.fullmatch(address)
    return tcp["host"].strip("[]") if tcp else address


def port_of(address: str) -> int:
    """The port of a hub's `tcp://` address."""
    tcp = _TCP.fullmatch(address)
    assert tcp, f"no tcp address: {address}"
    return int(tcp["port"])


def is_loopback(address: str) -> bool:
    """Whether nobody outside this machine can reach `address`: a host, or a hub's address."""
    if address.startswith("ipc://"):
        return True
    host = host_of(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"  # Any other name may mean any machine.


def _same(address: str) -> tuple[str, int]:
    """One value for all spellings of a port: `localhost` is 127.0.0.1, and 07000 is 7000."""
    tcp = _TCP.fullmatch(address)
    if not tcp:
        return address, 0
    host = tcp["host"].lower()
    return (LOOPBACK if host == "localhost" else host), int(tcp["port"])
