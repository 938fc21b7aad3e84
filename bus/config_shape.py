"""What a cluster's configuration is: frozen structs, and their text form. Checks nothing.

`bus.config` is the door: it reads a file, an environment or nothing at all, and hands out a
`Config` that `bus.config_rules` has found free of contradictions.
"""

import json
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bus.errors import ConfigError

Preset = Literal["lan", "paper", "fast"]
StoreKind = Literal["sqlite", "etcd"]
Policy = Literal["vnodes", "fixed"]
LimiterKind = Literal["qdelay", "aimd", "none"]
JudgeMode = Literal["act", "shadow", "off"]

HUB = "hub"
NODE = "node"
MANAGER = "manager"
BRICK = "brick"
PINPOINT = "pinpoint"
BUILT_IN_ROLES = frozenset({HUB, NODE})
"""The two roles a configuration itself speaks of: relays, and the agents that start the rest."""

PERIOD_S: dict[Preset, float] = {"lan": 1.0, "paper": 1.0, "fast": 0.2}
"""Each preset's time between beacons. `fast` is for tests."""

LOOPBACK = "127.0.0.1"

PUBLISH_PORT_OFFSET = 100

WORKERS_MAX = 256

CONNECTIONS_SHARE = 4
"""One in so many descriptors may be a connection at one door. A hub has three doors (requests,
news in, news out); the last quarter stays for the process itself."""


class Planned(msgspec.Struct, frozen=True):
    """One process that the configuration asks for."""

    id: str
    role: str
    node: str


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine, or on a laptop one process that stands for a machine."""

    run: dict[str, int] = {}
    """How many processes of each role its agent starts, in this order."""

    address: str = LOOPBACK
    """Where its processes listen, and where others reach them: a host name or address, no port."""

    overflow: bool = False
    """Runs nothing at first; used when all other nodes are full, and given back first."""

    site: str = ""
    """Where it stands, if there are several places: see `W_remote` of [sessions]."""


class RoleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role of your own, which no installed package offers."""

    main: str
    """`package.module:function`; the function takes a `Member` and returns when it is done."""

    judge: bool = False
    """Whether Pinpoint may end one that behaves unlike the others. Only if all do the same work."""


class BeaconConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a process says that it is there, and how much silence counts as death."""

    period_s: Annotated[float, Meta(ge=0.05, le=60)] = PERIOD_S["lan"]
    """Seconds between two beacons; the preset's unless given. Half of it finds the dead in half
    the time, and doubles the hubs' traffic (processes squared / period)."""

    suspect_after: Annotated[float, Meta(ge=2, le=100)] = 3.0
    """Silent periods until a process is suspect and is pinged. Under 2, one lost beacon is one."""

    dead_after: Annotated[float, Meta(ge=0.5, le=100)] = 1.0
    """Further periods, without an answer to the ping, until a suspect is dead."""


class KeysConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys encrypt and admit. Made by `softstate keys new`."""

    directory: str
    """Where the keys are; relative to the configuration file, absolute once loaded."""

    name: str = "component"
    """The key pair that this process uses as its own; a linked service names its own here."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process takes before it refuses. Each bounds memory, or the harm of one peer."""

    send_queue_bytes_max: Annotated[int, Meta(ge=17 << 20, le=1 << 34)] = 32 << 20
    """Bytes waiting for one peer; then sending fails. At least one body (16 MiB) must fit."""

    inbox_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    """Requests waiting for a free worker; then `Refused("busy")`."""

    workers_max: Annotated[int, Meta(ge=1, le=100_000)] = WORKERS_MAX
    """Requests worked on at once, one greenlet each."""

    connections_max: Annotated[int, Meta(ge=8, le=1_000_000)] = 4096
    """Peers connected to one server; each costs a descriptor and about 30 KiB. Never more than
    a quarter of the descriptors that the process may have."""


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process shows to Prometheus."""

    enabled: bool = True
    """Serve `/metrics` on a free port of the node's address; the beacon says which."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where lease managers keep what the next leader must find."""

    kind: StoreKind = "sqlite"
    """`sqlite`: one file, for managers on one machine. `etcd`: an etcd cluster that you run."""

    path: str = ""
    """The file of `sqlite`; relative to the configuration file, absolute once loaded. Empty:
    `leases.sqlite` in `run_directory`. It must be on a local disk."""

    endpoints: tuple[str, ...] = ()
    """The members of `etcd`, as `http://host:port`; any of them will do, so name all."""

    prefix: str = "softstate/leases/"
    """What every key in `etcd` begins with. Two clusters on one etcd must not share it."""

    user: str = ""
    """For an `etcd` that asks who we are. The password comes from SOFTSTATE_STORE_PASSWORD only."""

    password: str = ""
    """Not a key of the file."""

    def __repr__(self) -> str:
        return f"StoreConfig(kind={self.kind!r})"  # Secrets stay out of logs and tracebacks.


class NamespaceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pool of keys, and how they are spread over its owners."""

    policy: Policy = "vnodes"
    """`vnodes`: 64 points of a ring an owner, so that few keys move when one comes or goes.
    `fixed`: equal parts in the order of their names; for tests."""


Seconds = Annotated[float, Meta(ge=0.05, le=86_400)]


class LeasesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths that differ from the preset's. `bus.lease_timing` says which are safe together."""

    owner_ttl_s: Seconds | None = None
    """How long an owner relies on an answer, from when it asked. More: longer waits after a
    crash that nobody vouched for. Less: a slow manager costs leases."""

    manager_ttl_s: Seconds | None = None
    """How long the manager keeps the lease of a silent owner; above `owner_ttl_s`, by the skew."""

    renew_s: Seconds | None = None
    """How often owners ask."""

    poll_s: Seconds | None = None
    """How often lookups ask for the map when no change comes by itself."""

    leader_ttl_s: Annotated[float, Meta(ge=0.2, le=3600)] | None = None
    """How long a leading manager trusts its term. Less: a quicker failover, more commits (three
    in that time), and a store that is slow for that long costs the lead."""

    skew: Annotated[float, Meta(ge=0, le=0.5)] | None = None
    """How much faster one machine's clock may run than another's: 0.05 is 5 %."""

    slack_s: Annotated[float, Meta(ge=0, le=60)] | None = None
    """Added to every wait for somebody else's clock."""


class RestartsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a process that ended is brought back, and when it is given up for a while."""

    offline_after: Annotated[int, Meta(ge=1, le=100)] = 3
    """So many restarts in a row that did not help: then it is offline, and a person is told."""

    crash_s: Annotated[float, Meta(ge=0, le=86_400)] = 5.0
    """A restart did not help if the process ended by itself, or was killed, within so long after
    it was live. More: what is killed now and then by somebody goes offline."""

    sick_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    """The same for a process that was found hung or sick, which takes a while to find out."""

    probation_s: Annotated[float, Meta(ge=1, le=604_800)] = 600.0
    """What is offline is tried once more after so long; nothing is given up for ever."""

    node_gone_s: Annotated[float, Meta(ge=0, le=86_400)] = 4.0
    """So long after a node's agent died its processes are started on other nodes. Its watchdog
    needs about 2 s to bring it back, if there is still a machine."""


class PinpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Pinpoint judges the living."""

    mode: JudgeMode = "act"
    """`act`: order restarts. `shadow`: only say what would have been ordered. `off`: nothing."""

    anomalies: Annotated[int, Meta(ge=1, le=100)] = 3
    """So many statistics of one process, each from another group, must be anomalous at once."""

    persist: Annotated[int, Meta(ge=1, le=60)] = 3
    """In so many of the last `window` looks. More: fewer false alarms, later true ones."""

    window: Annotated[int, Meta(ge=1, le=60)] = 5
    """Pinpoint looks once a beacon period, but not more often than every 0.2 s."""

    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 15.0
    """A process younger than this is not judged, and nobody is compared with it."""

    spare_bricks: Annotated[int, Meta(ge=0, le=100)] = 2
    """So many bricks more than planned may be started while stubs keep refusing."""

    refused_share: Annotated[float, Meta(gt=0, le=1)] = 0.05
    """Stubs keep refusing if this share of requests is refused, for `refused_s`."""

    refused_s: Annotated[float, Meta(ge=1, le=3600)] = 5.0

    give_back_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """A spare brick is given back when hardly anything was refused for so long."""

    record_bytes_max: Annotated[int, Meta(ge=0, le=1 << 34)] = 16 << 20
    """What Pinpoint keeps of all it saw, in `run_directory`, to replay a verdict. 0: nothing."""


Copies = Annotated[int, Meta(ge=0, le=8)]


class SessionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How sessions are kept: by the stubs of web servers, and by the bricks."""

    W: Annotated[int, Meta(ge=1, le=8)] = 3
    """Bricks that a write is sent to."""

    WQ: Annotated[int, Meta(ge=1, le=8)] = 2
    """Bricks that must have it before the write is done; one fewer may crash."""

    R: Annotated[int, Meta(ge=1, le=8)] = 2
    """Bricks that a read asks; the first good answer counts."""

    W_local: Copies = 0
    """With sites: bricks of this site that a write is sent to. 0: `W`, wherever they are."""

    WQ_local: Copies = 0
    """With sites: how many of those must have it; and one at another site, if `W_remote`."""

    W_remote: Copies = 0
    """With sites: bricks of other sites that a write is sent to."""

    timeout_ms: Annotated[float, Meta(ge=1, le=60_000)] = 60.0
    """How long a stub waits. What comes later is as good as lost."""

    limiter: LimiterKind = "qdelay"
    """How a stub finds out what a brick can carry: by how long requests queue there, by the
    paper's additive increase and multiplicative decrease, or not at all."""

    protection: bool = True
    """Stubs limit and bricks discard what comes too late; off only to see the cliff."""

    value_bytes_max: Annotated[int, Meta(ge=1, le=16 << 20)] = 1 << 20
    """The longest value."""

    ttl_s_max: Annotated[float, Meta(ge=1, le=366 * 86_400.0)] = 30 * 86_400.0
    """The longest life of a session after its last write or touch."""

    memory_bytes_max: Annotated[int, Meta(ge=1 << 20, le=1 << 44)] = 1 << 30
    """What one brick stores, with its own costs; then it refuses new sessions."""

    inbox_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 512
    """Requests waiting at one brick; then it refuses."""

    application: Annotated[str, Meta(min_length=1, max_length=64)] = "softstate"
    """Cookies of one application mean nothing to another."""

    key_ring: str = ""
    """The file of keys that sign cookies; relative to the configuration file, absolute once
    loaded. Empty: `sessions.keys` in `run_directory`. Made by `softstate keys rotate`."""

    encrypt: bool = False
    """Bricks get values encrypted; the key stays with the stubs."""

    extra_cost_ms: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    """A cost added to each operation of a brick, for experiments."""

    rejuvenate_s: Annotated[float, Meta(ge=0, le=366 * 86_400.0)] = 0.0
    """Every brick is restarted once in so long, one by one, and loses nothing. 0: never."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster, as `cluster.toml` describes it. Fields are in the order of `dump`'s text."""

    hubs: tuple[str, ...]
    """Where the hubs are: hub-1 binds the first, and so on. Everyone connects to all of them."""

    preset: Preset = "lan"
    """Timings that fit together: `lan`, `paper` (the papers' own), or `fast` (for tests)."""

    heal: bool = True
    """What dies is brought back: hubs by their agents, all else by its peers. Off to look at a
    corpse."""

    chaos: bool = False
    """Let `softstate chaos` make these processes sick on purpose. Never where it matters."""

    allow_plain: bool = False
    """Speak without encryption beyond this machine, though there are no keys. Anyone may listen."""

    address: str = ""
    """Where the processes of this machine listen, whatever their node's `address` says; empty for
    that one. Mostly set by the environment variable SOFTSTATE_ADDRESS."""

    run_directory: str = ".softstate"
    """For logs and what processes leave behind; relative to the file, absolute once loaded."""

    nodes: dict[str, NodeConfig] = {}
    """The machines, in order. None at all: somebody else's cluster, which we only join."""

    roles: dict[str, RoleConfig] = {}
    """Roles of your own, by name."""

    beacons: BeaconConfig = BeaconConfig()
    """Liveness."""

    keys: KeysConfig | None = None
    """Without keys, only loopback addresses are allowed (but see `allow_plain`)."""

    limits: Limits = Limits()
    """What a process takes before it refuses."""

    metrics: MetricsConfig = MetricsConfig()
    """What a process shows to Prometheus."""

    store: StoreConfig = StoreConfig()
    """Where lease managers keep what the next leader must find."""

    namespaces: dict[str, NamespaceConfig] = {}
    """Pools of keys that differ from the default; any other begins with its first owner."""

    leases: LeasesConfig = LeasesConfig()
    """Lengths that differ from the preset's."""

    sessions: SessionsConfig = SessionsConfig()
    """How sessions are kept."""

    restarts: RestartsConfig = RestartsConfig()
    """When a process that ended is brought back."""

    pinpoint: PinpointConfig = PinpointConfig()
    """How the living are judged."""

    source: str = ""
    """The file this came from, absolute once loaded; empty for none. Not a key of the file."""

    def components(self) -> list[Planned]:
        """Every process asked for, node by node, each node's agent first.

        A role's numbers run on across nodes: n1 has brick-1 and brick-2, n2 begins with brick-3.
        """
        planned: list[Planned] = []
        numbers: dict[str, int] = {}
        for node_name, node in self.nodes.items():
            for role, count in {NODE: 1, **node.run}.items():
                for _ in range(count):
                    numbers[role] = numbers.get(role, 0) + 1
                    planned.append(Planned(f"{role}-{numbers[role]}", role, node_name))
        return planned

    def hub_address(self, hub_id: str) -> str:
        """What `hub-2`, for one, binds for subscribers: the second of `hubs`."""
        number = int(hub_id.removeprefix(f"{HUB}-"))
        if not 1 <= number <= len(self.hubs):
            raise ConfigError(f"{hub_id} has no address: {self.source} lists {len(self.hubs)} hubs")
        return self.hubs[number - 1]

    @property
    def store_path(self) -> str:
        """The file of a `sqlite` store."""
        return self.store.path or f"{self.run_directory}/leases.sqlite"

    @property
    def key_ring_path(self) -> str:
        """The file of the keys that sign cookies."""
        return self.sessions.key_ring or f"{self.run_directory}/sessions.keys"

    def address_of(self, node: str) -> str:
        """The host where processes of `node` listen; loopback for a node that is not listed."""
        if self.address:
            return self.address
        return self.nodes[node].address if node in self.nodes else LOOPBACK


def publish_address(hub: str) -> str:
    """Where publishers connect to the hub whose subscribers connect to `hub`: its second port."""
    if hub.startswith("ipc://"):
        return f"{hub}.publish"
    host, _, port = hub.rpartition(":")
    return f"{host}:{int(port) + PUBLISH_PORT_OFFSET}"


def dump(config: Config) -> str:
    """The configuration as TOML text. `parse(dump(config), config.source) == config`, but for
    a password, which is in no text."""
    tables = msgspec.to_builtins(config)
    del tables["source"]
    del tables["store"]["password"]
    return "\n".join(_table_lines((), tables)) + "\n"


def _table_lines(path: tuple[str, ...], table: dict[str, object]) -> list[str]:
    """Plain values first: in TOML, what follows a `[header]` belongs to that header."""
    lines = [
        f"{_key(key)} = {_value(value)}"
        for key, value in table.items()
        if value is not None and not isinstance(value, dict)
    ]
    if path and lines:
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _table_lines((*path, key), value)
    return lines


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if plain else _text(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            raise TypeError(f"no TOML form for {value!r}")


def _text(text: str) -> str:
    """JSON's string is TOML's, but that TOML wants DEL escaped and knows no surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
