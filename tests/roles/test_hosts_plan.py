"""The configuration for nodes in namespaces of their own: what changes, and what does not.

Method: small configurations in, the whole of what comes out compared.
"""

import msgspec
import pytest

from bus.config import Config, NodeConfig, dump, parse
from bus.errors import ConfigError
from roles.hosts_plan import in_hosts

ROLES = {"hub", "brick", "manager"}
ON_LOOPBACK = """\
hubs = ["tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"]
chaos = true
[nodes.a]
run = {hub = 1, brick = 1}
[nodes.b]
run = {hub = 1, manager = 1}
[nodes.c]
run = {manager = 2, brick = 1}
"""


def config(text: str) -> Config:
    return parse(text, "cluster.toml", ROLES)


def test_loopback_becomes_addresses_hubs_move_and_managers_share_a_node() -> None:
    before = config(ON_LOOPBACK)
    assert in_hosts(before) == msgspec.structs.replace(
        before,
        allow_plain=True,
        hubs=("tcp://10.77.0.1:7000", "tcp://10.77.0.2:7001"),
        nodes={
            "a": NodeConfig(run={"hub": 1, "brick": 1}, address="10.77.0.1"),
            "b": NodeConfig(run={"hub": 1, "manager": 3}, address="10.77.0.2"),
            "c": NodeConfig(run={"brick": 1}, address="10.77.0.3"),
        },
    )


def test_what_comes_out_is_a_configuration_that_runs() -> None:
    after = in_hosts(config(ON_LOOPBACK))
    assert parse(dump(after), "cluster.toml", ROLES) == after


def test_addresses_that_machines_could_have_stay() -> None:
    before = config(
        'hubs = ["tcp://10.1.2.3:7000"]\nallow_plain = true\n'
        '[nodes.a]\naddress = "10.1.2.3"\nrun = {hub = 1}\n[nodes.b]\naddress = "10.1.2.9"\n'
    )
    assert in_hosts(before) == before


def test_one_address_for_two_nodes_is_none_of_their_own() -> None:
    text = 'hubs = ["tcp://10.1.2.3:7000"]\nallow_plain = true\n'
    text += "".join(f'[nodes.{name}]\naddress = "10.1.2.3"\n' for name in "ab")
    after = in_hosts(config(text + "[nodes.a.run]\nhub = 1\n"))
    assert [node.address for node in after.nodes.values()] == ["10.77.0.1", "10.77.0.2"]
    assert after.hubs == ("tcp://10.77.0.1:7000",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('hubs = ["tcp://127.0.0.1:7000"]\n', "0 nodes"),
        (
            'hubs = ["ipc:///tmp/hub"]\n[nodes.a]\nrun = {hub = 1}\n',
            "ipc:///tmp/hub: no wire leads there",
        ),
        (
            'hubs = ["tcp://127.0.0.1:7000"]\n[nodes.a]\nrun = {hub = 1}\n'
            '[store]\nkind = "etcd"\nendpoints = ["http://127.0.0.1:2379"]\n',
            'use "sqlite" there',
        ),
    ],
)
def test_what_no_hosts_could_run_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        in_hosts(config(text))
