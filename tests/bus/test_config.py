"""A sound configuration is read whole; any other is refused with the place and what to do.

Method: texts in, structs or the exact sentence out. The set of known roles is handed in, so that
no test depends on what is installed. Files and ports are real, in a temporary directory.
"""

import datetime
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config import (
    BeaconConfig,
    Config,
    KeysConfig,
    Limits,
    NodeConfig,
    Planned,
    Preset,
    RoleConfig,
    StoreConfig,
    dump,
    find,
    find_file,
    free_hubs,
    keys_directory,
    load,
    local,
    parse,
    publish_address,
    remember,
)
from bus.config_rules import Places, build, is_loopback
from bus.errors import ConfigError
from bus.lease_timing import LEASE_PRESETS, LeaseTiming, timing_of

KNOWN = {"hub", "node", "brick", "manager"}
HUB = 'hubs = ["tcp://127.0.0.1:7000"]\n'
HUBS = 'hubs = ["tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"]\n'


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "cluster.toml", KNOWN)
    return str(caught.value)


def test_whole_file_becomes_one_frozen_config() -> None:
    text = """
hubs = ["tcp://127.0.0.1:7000", "ipc:///run/hub"]
preset = "fast"
heal = false
run_directory = "run"
[nodes.n1]
run = {hub = 1, brick = 2}
[nodes.n2]
address = "10.0.0.2"
run = {hub = 1, greeter = 1}
[nodes.o1]
overflow = true
[roles.greeter]
main = "examples.hello_role:main"
[beacons]
suspect_after = 4
[keys]
directory = "keys"
[limits]
workers_max = 8
"""
    config = parse(text, "cluster.toml", KNOWN)
    assert config == Config(
        hubs=("tcp://127.0.0.1:7000", "ipc:///run/hub"),
        preset="fast",
        heal=False,
        run_directory="run",
        nodes={
            "n1": NodeConfig(run={"hub": 1, "brick": 2}),
            "n2": NodeConfig(address="10.0.0.2", run={"hub": 1, "greeter": 1}),
            "o1": NodeConfig(overflow=True),
        },
        roles={"greeter": RoleConfig(main="examples.hello_role:main")},
        beacons=BeaconConfig(period_s=0.2, suspect_after=4),
        keys=KeysConfig(directory="keys"),
        limits=Limits(workers_max=8),
        source="cluster.toml",
    )
    with pytest.raises(AttributeError):
        config.heal = True  # type: ignore[misc]


def test_components_are_numbered_across_nodes_in_file_order() -> None:
    text = HUBS + "[nodes.b]\nrun = {hub = 1, brick = 2}\n[nodes.a]\nrun = {brick = 1, hub = 1}\n"
    config = parse(text, "", KNOWN)
    assert config.components() == [
        Planned("node-1", "node", "b"),
        Planned("hub-1", "hub", "b"),
        Planned("brick-1", "brick", "b"),
        Planned("brick-2", "brick", "b"),
        Planned("node-2", "node", "a"),
        Planned("brick-3", "brick", "a"),
        Planned("hub-2", "hub", "a"),
    ]
    assert [config.hub_address(hub) for hub in ("hub-1", "hub-2")] == list(config.hubs)


def test_explicit_beacon_period_wins_over_the_preset() -> None:
    periods = [
        parse(HUB + text, "", KNOWN).beacons.period_s
        for text in ("", 'preset = "fast"', 'preset = "fast"\n[beacons]\nperiod_s = 5')
    ]
    assert periods == [1.0, 0.2, 5.0]


def test_publishers_connect_100_ports_higher_or_beside_the_path() -> None:
    hubs = ["tcp://127.0.0.1:7000", "tcp://[::1]:7000", "ipc:///run/hub"]
    assert [publish_address(hub) for hub in hubs] == [
        "tcp://127.0.0.1:7100",
        "tcp://[::1]:7100",
        "ipc:///run/hub.publish",
    ]


def test_machine_address_wins_over_that_of_the_node() -> None:
    text = HUB + "allow_plain = true\n[nodes.n1]\nrun = {hub = 1}\naddress = '10.0.0.1'\n"
    config = parse(text, "", KNOWN)
    moved = msgspec.structs.replace(config, address="10.0.0.9")
    assert [config.address_of("n1"), config.address_of("web")] == ["10.0.0.1", "127.0.0.1"]
    assert [moved.address_of("n1"), moved.address_of("web")] == ["10.0.0.9", "10.0.0.9"]


PLAIN = (
    "is not of this machine alone, and there are no keys; make them with `softstate keys new` and "
    "name their directory under [keys], or set allow_plain = true to send everything in the clear"
)
REFUSALS = {
    "no hubs": ("preset = 'lan'", "1: hubs: missing; this key has no default"),
    "empty hubs": ("hubs = []", "1: hubs: list 1 to 16 hubs, better two or more; not 0"),
    "misspelt key": ("hub = []", '1: hub: unknown key; did you mean "hubs"?'),
    "source": (
        HUB + "source = 'x'",
        '2: source: unknown key; did you mean "store"?',
    ),
    "unheard-of key": (
        HUB + "zzz = 'x'",
        "2: zzz: unknown key; known are hubs, preset, heal, chaos, allow_plain, address, "
        "run_directory, nodes, roles, beacons, keys, limits, metrics, store, namespaces, leases, "
        "sessions, restarts, pinpoint",
    ),
    "misspelt inner key": (
        HUB + "[beacons]\nperiod = 1",
        '3: beacons.period: unknown key; did you mean "period_s"?',
    ),
    "misspelt node key": (
        HUB + "[nodes.n1]\nrunn = {hub = 1}",
        '3: nodes.n1.runn: unknown key; did you mean "run"?',
    ),
    "wrong type": (HUB + "heal = 1", "2: heal: must be true or false, not a whole number"),
    "wrong element": (
        'hubs = ["tcp://127.0.0.1:7000",\n 7001]',
        "2: hubs[1]: must be text, not a whole number",
    ),
    "wrong count": (
        HUB + "[nodes.n1]\nrun = {hub = 1,\n brick = '2'}".replace(",\n", ", "),
        "3: nodes.n1.run.brick: must be a whole number, not text",
    ),
    "value for a table": (HUB + "limits = 3", "2: limits: must be a table, as in [limits]"),
    "value for a node": (HUB + "[nodes]\nn1 = 3", "3: nodes.n1: must be a table, as in [nodes.n1]"),
    "value for nodes": (
        HUB + "nodes = 3",
        "2: nodes: must be a table of tables, as in [nodes.NAME]",
    ),
    "no preset": (
        HUB + "preset = 'lam'",
        '2: preset: "lam" is none of "lan", "paper", "fast"; did you mean "lan"?',
    ),
    "short period": (
        HUB + "[beacons]\nperiod_s = 0.01",
        "3: beacons.period_s: must be a number >= 0.05",
    ),
    "no number": (
        HUB + "[beacons]\nperiod_s = nan",
        "3: beacons.period_s: must be a number >= 0.05",
    ),
    "hasty suspicion": (
        HUB + "[beacons]\nsuspect_after = 1",
        "3: beacons.suspect_after: must be a number >= 2.0",
    ),
    "misspelt role": (
        HUB + "[nodes.n1]\nrun = {hub = 1, brik = 1}",
        '3: nodes.n1.run.brik: no role "brik"; did you mean "brick"?',
    ),
    "unknown role": (
        HUB + "[nodes.n1.run]\nhub = 1\nzzz = 1",
        '4: nodes.n1.run.zzz: no role "zzz"; known are brick, hub, manager, and what you add as '
        "[roles.NAME] with its main",
    ),
    "agent": (
        HUB + "[nodes.n1]\nrun = {hub = 1, node = 1}",
        "3: nodes.n1.run.node: a node's agent is always there; remove this",
    ),
    "negative count": (
        HUB + "[nodes.n1]\nrun = {hub = 1, brick = -1}",
        "3: nodes.n1.run.brick: a number of processes, not -1",
    ),
    "too many processes": (
        HUB + "[nodes.n1]\nrun = {hub = 1, brick = 10_000}",
        "2: nodes: 10001 processes in all; at most 10000",
    ),
    "more hubs run": (
        HUB + "[nodes.n1]\nrun = {hub = 2}",
        "1: hubs: 1 listed, but the nodes run 2; list one address for each hub = 1 under [nodes]",
    ),
    "fewer hubs run": (
        HUBS + "[nodes.n1]\nrun = {hub = 1}",
        "1: hubs: 2 listed, but the nodes run 1; list one address for each hub = 1 under [nodes]",
    ),
    "one hub twice": (
        'hubs = ["tcp://127.0.0.1:7000", "tcp://localhost:07000"]',
        "1: hubs[1]: tcp://localhost:07000 and tcp://127.0.0.1:7000 would meet at "
        "tcp://localhost:07000: a hub takes its port and that + 100; choose another port",
    ),
    "port of another's publishers": (
        'hubs = [\n"tcp://127.0.0.1:7100",\n"tcp://127.0.0.1:7000"]',
        "3: hubs[1]: tcp://127.0.0.1:7000 and tcp://127.0.0.1:7100 would meet at "
        "tcp://127.0.0.1:7100: a hub takes its port and that + 100; choose another port",
    ),
    "no address": (
        'hubs = ["127.0.0.1:7000"]',
        '1: hubs[0]: "127.0.0.1:7000" is no address; write it as "tcp://127.0.0.1:7000"',
    ),
    "every address": (
        'hubs = ["tcp://0.0.0.0:7000"]',
        "1: hubs[0]: 0.0.0.0 is every address; give the one others connect to",
    ),
    "wildcard": (
        'hubs = ["tcp://*:7000"]',
        '1: hubs[0]: "*" is no host name or address (no scheme, no port)',
    ),
    "high port": (
        'hubs = ["tcp://127.0.0.1:65436"]',
        "1: hubs[0]: the port must be 1 to 65435, as the hub also takes + 100",
    ),
    "relative ipc path": (
        'hubs = ["ipc://hub"]',
        "1: hubs[0]: an absolute path, 99 bytes at most, follows ipc://",
    ),
    "plain hub": ('hubs = ["tcp://10.0.0.1:7000"]', f"1: hubs[0]: tcp://10.0.0.1:7000 {PLAIN}"),
    "plain node": (
        HUB + "[nodes.n1]\nrun = {hub = 1}\naddress = 'web1.example'",
        f"4: nodes.n1.address: web1.example {PLAIN}",
    ),
    "plain machine": (HUB + "address = '10.0.0.1'", f"2: address: 10.0.0.1 {PLAIN}"),
    "node address with port": (
        HUB + "[nodes.n1]\nrun = {hub = 1}\naddress = '10.0.0.1:80'",
        '4: nodes.n1.address: "10.0.0.1:80" is no host name or address (no scheme, no port)',
    ),
    "mistyped address": (
        HUB + "[nodes.n1]\nrun = {hub = 1}\naddress = '10.0.0.256'",
        '4: nodes.n1.address: "10.0.0.256" is no host name or address (no scheme, no port)',
    ),
    "busy overflow": (
        HUB + "[nodes.o1]\noverflow = true\nrun = {hub = 1}",
        "4: nodes.o1.run: an overflow node runs nothing at first; remove run or overflow",
    ),
    "node name": (
        HUB + "[nodes.N_1]\nrun = {hub = 1}",
        "2: nodes.N_1: a name has small letters, digits and hyphens only",
    ),
    "built-in role": (
        HUB + "[roles.hub]\nmain = 'a:b'",
        "2: roles.hub: hub is built in; choose another name",
    ),
    "no main": (HUB + "[roles.x]", "2: roles.x: main is missing, and has no default"),
    "bad main": (
        HUB + "[roles.x]\nmain = 'a.b'",
        '3: roles.x.main: write it as "package.module:function"',
    ),
    "queue below body": (
        HUB + "[limits]\nsend_queue_bytes_max = 70_000",
        "3: limits.send_queue_bytes_max: must be a whole number >= 17825792",
    ),
    "no store": (
        HUB + "[store]\nkind = 'etc'",
        '3: store.kind: "etc" is none of "sqlite", "etcd"; did you mean "etcd"?',
    ),
    "etcd without members": (
        HUB + "[store]\nkind = 'etcd'",
        '2: store.endpoints: list 1 to 16 members of etcd, as in ["http://127.0.0.1:2379"]; not 0',
    ),
    "member without scheme": (
        HUB + "[store]\nkind = 'etcd'\nendpoints = ['127.0.0.1:2379']",
        '4: store.endpoints[0]: "127.0.0.1:2379" is no member; write it as '
        '"http://127.0.0.1:2379" (TLS is not supported yet)',
    ),
    "member with a high port": (
        HUB + "[store]\nkind = 'etcd'\nendpoints = ['http://127.0.0.1:70000']",
        "4: store.endpoints[0]: the port must be 1 to 65535",
    ),
    "plain etcd": (
        HUB + "[store]\nkind = 'etcd'\nendpoints = ['http://10.0.0.1:2379']\n[keys]\ndirectory='k'",
        "4: store.endpoints[0]: http://10.0.0.1:2379 is not of this machine alone, and would be "
        "asked in the clear; set allow_plain = true if that network is yours alone, or tunnel it "
        "to a local port",
    ),
    "prefix of others' keys too": (
        HUB + "[store]\nkind = 'etcd'\nendpoints = ['http://[::1]:2379']\nprefix = 'a'",
        "5: store.prefix: end it in '/', within 128 bytes",
    ),
    "setting of the other store": (
        HUB + "[store]\nendpoints = ['http://127.0.0.1:2379']",
        '3: store.endpoints: means nothing to kind = "sqlite"; remove it',
    ),
    "path for etcd": (
        HUB + "[store]\nkind = 'etcd'\nendpoints = ['http://127.0.0.1:2379']\npath = 'x'",
        '5: store.path: means nothing to kind = "etcd"; remove it',
    ),
    "secret in the file": (
        HUB + "[store]\npassword = 'x'",
        "3: store.password: a secret is kept out of this file; set SOFTSTATE_STORE_PASSWORD",
    ),
    "policy of later": (
        HUB + "[namespaces.presence]\npolicy = 'weighted'",
        '3: namespaces.presence.policy: the policy "weighted" comes with a later version; '
        'use "vnodes"',
    ),
    "no policy": (
        HUB + "[namespaces.presence]\npolicy = 'fxed'",
        '3: namespaces.presence.policy: "fxed" is none of "vnodes", "fixed"; did you mean "fixed"?',
    ),
    "namespace name": (
        HUB + '[namespaces."a\\u0000"]',
        "2: namespaces.a\0: a name is 1 to 200 characters, no control characters",
    ),
    "lease kept too short": (
        HUB + "[leases]\nowner_ttl_s = 10",
        "2: leases.manager_ttl_s: 9 is not safe: with owner_ttl_s = 10, a skew of 0.05 and a slack "
        "of 0.25 s it must be at least 10.75, or two owners may hold one key",
    ),
    "failover that costs leases": (
        HUB + "[leases]\nleader_ttl_s = 4",
        "2: leases.owner_ttl_s: 8, less renew_s = 1.5, is too short: a failover with leader_ttl_s "
        "= 4 may take 7.45 s, and would cost leases",
    ),
    "absurd skew": (HUB + "[leases]\nskew = 2", "3: leases.skew: must be a number <= 0.5"),
    "a file for each manager": (
        HUB + "allow_plain = true\n[nodes.n1]\nrun = {hub = 1, manager = 1}\naddress = '10.0.0.1'\n"
        "[nodes.n2]\nrun = {manager = 1}\naddress = '10.0.0.2'",
        "7: nodes.n2.run.manager: n1 and n2 are different machines, and managers there would each "
        "have a file of their own; run all managers on one machine, or use [store] "
        'kind = "etcd"',
    ),
    "not TOML": (HUB + "preset lan", "2: not TOML: Expected '=' after a key in a key/value pair"),
    "cut off": (HUB + "\nnodes = {", "3: not TOML: Invalid initial character for a key part"),
    "twice": (HUB + HUB, "2: not TOML: Cannot overwrite a value"),
    "endless nesting": ("a = " + "[" * 100_000, "1: not TOML: nested too deeply"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusal_names_line_and_key_and_says_what_to_do(text: str, sentence: str) -> None:
    assert refusal(text) == f"cluster.toml:{sentence}"


def test_addresses_beyond_this_machine_are_fine_with_keys_or_when_allowed() -> None:
    text = 'hubs = ["tcp://10.0.0.1:7000"]\n'
    for extra in ("allow_plain = true", "[keys]\ndirectory = 'k'"):
        assert parse(text + extra, "", KNOWN).hubs == ("tcp://10.0.0.1:7000",)


def test_cluster_of_somebody_else_needs_only_its_hubs() -> None:
    assert parse(HUBS, "", KNOWN).components() == []


def test_only_names_that_can_mean_nothing_else_are_loopback() -> None:
    loopback = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "tcp://[::1]:1", "ipc:///x"]
    others = ["10.0.0.1", "localhost.example", "127.0.0.1.example", "tcp://1.2.3.4:5", "::2"]
    assert [is_loopback(address) for address in loopback + others] == [True] * 6 + [False] * 5


NAMES = st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    nodes=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    counts=st.dictionaries(st.sampled_from(["brick", "manager", "own"]), st.integers(0, 3)),
    run_directory=TEXTS,
    keys=st.none() | st.builds(KeysConfig, directory=TEXTS, name=NAMES),
    period_s=st.floats(0.05, 60),
)
def test_dumped_text_parses_to_the_same_config(
    nodes: list[str],
    counts: dict[str, int],
    run_directory: str,
    keys: KeysConfig | None,
    period_s: float,
) -> None:
    config = Config(
        hubs=tuple(f"tcp://127.0.0.1:{7000 + index}" for index in range(len(nodes))),
        run_directory=run_directory,
        nodes={name: NodeConfig(run={"hub": 1, **counts}) for name in nodes},
        roles={"own": RoleConfig(main="own:main")},
        keys=keys,
        beacons=BeaconConfig(period_s=period_s),
        source="x.toml",
    )
    assert parse(dump(config), "x.toml", KNOWN) == config


ANYTHING = st.recursive(
    st.sampled_from([0, -1, 2.5, "", "tcp://127.0.0.1:7000", "hub", True, datetime.date.min]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["n1", "run", "hub", "address", "directory"]), inner)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(Config.__struct_fields__), ANYTHING))
def test_any_values_under_known_keys_give_a_config_or_a_place(tables: dict[str, object]) -> None:
    outcome: Config | str
    try:
        outcome = build(tables, Places("", {}, {}), KNOWN)
    except ConfigError as error:
        outcome = str(error)
    assert isinstance(outcome, Config) or re.match(r"cluster\.toml:1: [a-z]", outcome)


# Files, the environment and ports.


def test_loading_makes_paths_absolute_from_where_the_file_is(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    (tmp_path / "k").mkdir()
    file.write_text(HUB + "[keys]\ndirectory = 'k'\n")
    config = load(file, {})
    assert config == Config(
        hubs=("tcp://127.0.0.1:7000",),
        run_directory=str(tmp_path / ".softstate"),
        keys=KeysConfig(directory=str(tmp_path / "k")),
        source=str(file),
    )


def test_environment_overrides_hubs_keys_and_address(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(HUB)
    environ = {
        "SOFTSTATE_HUBS": "tcp://10.0.0.1:7000, tcp://10.0.0.2:7000",
        "SOFTSTATE_KEYS": str(tmp_path),
        "SOFTSTATE_ADDRESS": "10.0.0.3",
    }
    config = load(file, environ)
    assert config.hubs == ("tcp://10.0.0.1:7000", "tcp://10.0.0.2:7000")
    assert config.keys == KeysConfig(directory=str(tmp_path))
    assert config.address == "10.0.0.3"


ETCD = HUB + "[store]\nkind = 'etcd'\n"


def test_environment_overrides_members_of_etcd_and_brings_its_password(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    environ = {
        "SOFTSTATE_STORE_ENDPOINTS": "http://127.0.0.1:1, http://127.0.0.1:2",
        "SOFTSTATE_STORE_USER": "leases",
        "SOFTSTATE_STORE_PASSWORD": "hidden",
    }
    file.write_text(ETCD)
    config = load(file, environ)
    assert config.store.endpoints == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert (config.store.user, config.store.password) == ("leases", "hidden")
    assert "hidden" not in repr(config)
    assert "hidden" not in dump(config)

    file.write_text(HUB)
    assert load(file, environ).store == StoreConfig()  # It speaks of etcd, which is not used here.


def test_refused_member_of_etcd_from_the_environment_names_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(ETCD)
    with pytest.raises(ConfigError, match=r"^SOFTSTATE_STORE_ENDPOINTS: \"x\" is no member"):
        load(file, {"SOFTSTATE_STORE_ENDPOINTS": "x"})


def test_store_is_in_the_run_directory_unless_it_has_a_path_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(HUB)
    assert load(file, {}).store_path == f"{tmp_path}/.softstate/leases.sqlite"
    file.write_text(HUB + "[store]\npath = 'data/l.sqlite'")
    assert load(file, {}).store_path == f"{tmp_path}/data/l.sqlite"


def test_lengths_of_leases_are_the_presets_but_for_those_given() -> None:
    text = HUB + "preset = 'fast'\n[leases]\npoll_s = 2\n"
    assert timing_of(parse(text, "", KNOWN)) == LeaseTiming(
        owner_ttl_s=4.6, manager_ttl_s=5.2, renew_s=0.5, poll_s=2, leader_ttl_s=0.6
    )


@pytest.mark.parametrize("preset", LEASE_PRESETS)
def test_every_preset_is_safe(preset: Preset) -> None:
    assert LEASE_PRESETS[preset].check() is LEASE_PRESETS[preset]


def test_managers_on_several_names_of_this_machine_share_its_file() -> None:
    text = HUB + "[nodes.n1]\nrun = {hub = 1, manager = 1}\n[nodes.n2]\nrun = {manager = 2}\n"
    parse(text + "address = 'localhost'\n", "", KNOWN)


def test_managers_on_two_machines_may_share_an_etcd() -> None:
    text = (
        HUB + "allow_plain = true\n[nodes.n1]\nrun = {hub = 1, manager = 1}\naddress = '10.0.0.1'\n"
        "[nodes.n2]\nrun = {manager = 1}\naddress = '10.0.0.2'\n"
        "[store]\nkind = 'etcd'\nendpoints = ['http://10.0.0.1:2379']\n"
    )
    assert parse(text, "", KNOWN).store.kind == "etcd"


def test_refusal_of_an_overridden_value_names_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(HUB)
    refused = {
        "SOFTSTATE_HUBS": ("7000", '"7000" is no address; write it as "tcp://127.0.0.1:7000"'),
        "SOFTSTATE_ADDRESS": ("10.0.0.1", f"10.0.0.1 {PLAIN}"),
        "SOFTSTATE_KEYS": (
            "/no/where",
            "no directory /no/where; make it with `softstate keys new --directory /no/where`",
        ),
    }
    for variable, (value, sentence) in refused.items():
        with pytest.raises(ConfigError) as caught:
            load(file, {variable: value})
        assert str(caught.value) == f"{variable}: {sentence}"


def test_missing_keys_directory_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(HUB + "[keys]\nname = 'web'\ndirectory = 'k'\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value) == (
        f"{file}:4: keys.directory: no directory {tmp_path}/k; make it with "
        f"`softstate keys new --directory {tmp_path}/k`"
    )


def test_unreadable_files_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# one\n# \xe9\n")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    expected = {
        "none.toml": ": No such file or directory; name another file with --config",
        "latin.toml": ":2: not UTF-8; save the file as UTF-8",
        "large.toml": ": longer than 1048576 bytes; is it the right file?",
    }
    for name, sentence in expected.items():
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, {})
        assert str(caught.value) == f"{tmp_path / name}{sentence}"


def test_file_is_found_by_argument_then_variable_then_here_then_last_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with pytest.raises(ConfigError, match=r"no cluster found: .* start one with `softstate up`"):
        find(None, state)

    (tmp_path / "up.toml").write_text(HUB)
    remember("up.toml", state)
    assert (find_file(None, state), find(None, state)) == (None, str(tmp_path / "up.toml"))

    (tmp_path / "cluster.toml").write_text(HUB)
    named = {**state, "SOFTSTATE_CONFIG": "named.toml"}
    assert [find(None, state), find(None, named), find("given.toml", named)] == [
        "cluster.toml",
        "named.toml",
        "given.toml",
    ]

    (tmp_path / "cluster.toml").unlink()
    (tmp_path / "up.toml").unlink()
    with pytest.raises(ConfigError, match="no cluster found"):
        find(None, state)  # The cluster that was last up has been cleared away.


def test_keys_directory_is_known_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert keys_directory({}) is None
    (tmp_path / "cluster.toml").write_text(HUB + "[keys]\ndirectory = 'k'\n")
    assert keys_directory({}) == "k"


def test_local_cluster_deals_roles_out_in_turn(tmp_path: Path) -> None:
    config = local(tmp_path, nodes=2, run={"own": 3}, roles={"own": "own:main"}, preset="fast")
    assert {name: node.run for name, node in config.nodes.items()} == {
        "n1": {"hub": 1, "own": 2},
        "n2": {"hub": 1, "own": 1},
    }
    assert config.run_directory == str(tmp_path)
    assert config.beacons.period_s == 0.2
    assert parse(dump(config), "", KNOWN) == config


@pytest.fixture
def bound() -> Iterator[ExitStack]:
    with ExitStack() as sockets:
        yield sockets


def test_both_ports_of_every_local_hub_are_free(tmp_path: Path, bound: ExitStack) -> None:
    config = local(tmp_path, nodes=4, run={"hub": 4})
    ends = [end for hub in config.hubs for end in (hub, publish_address(hub))]
    for end in ends:
        port = int(end.rpartition(":")[2])
        bound.enter_context(socket.create_server(("127.0.0.1", port)))
    assert len(set(ends)) == 8


def test_port_whose_second_is_taken_and_port_drawn_twice_are_passed_over(
    tmp_path: Path, bound: ExitStack
) -> None:
    first, second = (int(hub.rpartition(":")[2]) for hub in local(tmp_path).hubs)
    taken = bound.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    draws = iter([taken, taken - 100, first, first, second])
    assert free_hubs(2, lambda: next(draws)) == [
        f"tcp://127.0.0.1:{first}",
        f"tcp://127.0.0.1:{second}",
    ]


def test_local_cluster_with_a_role_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'^local cluster: nodes.n1.run.zzz: no role "zzz"; known'
    ):
        local(tmp_path, run={"zzz": 1})
