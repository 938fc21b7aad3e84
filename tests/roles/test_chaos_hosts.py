"""Chaos where each node is a host of its own: packets are lost where they should be, only there.

Method: `softstate up --hosts` as a process, commands run inside one host by `softstate hosts exec`.
Who reaches whom is asked with a packet each way, so a cut is seen without waiting for
anybody's silence; that a cluster notices is in tests/sockets/test_two_hosts.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.hosts import why_not
from roles.invoke import environment, softstate
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made here"),
]

PATIENCE_S = 30.0
CONFIG = """\
hubs = ["tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"]
preset = "fast"
heal = false
chaos = true
[nodes.a]
run = {hub = 1}
[nodes.b]
run = {hub = 1}
"""
KNOCK = """
import socket, sys
heard = 0
for _ in range(int(sys.argv[2])):
    with socket.socket() as one:
        one.settimeout(0.05)
        try:
            one.connect((sys.argv[1], 9))
        except ConnectionRefusedError:
            heard += 1  # Nobody listens; but the knock came there, and the refusal here.
        except TimeoutError:
            pass
print(heard)
"""


class Town:
    """A cluster on hosts, and what is run in it."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "cluster.toml"
        self.config.write_text(CONFIG)
        self.output = directory / "output"
        with self.output.open("w") as stream:
            self.up = subprocess.Popen(
                softstate("up", "--hosts", "--config", str(self.config)),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )

    def inside(self, node: str, *words: str) -> "subprocess.CompletedProcess[str]":
        command = softstate("hosts", "--config", str(self.config), "exec", node, "--", *words)
        return self.run(*command)

    def reaches(self, node: str, address: str, times: int = 3) -> int:
        """Out of so many, how many packets come there and back."""
        return int(self.inside(node, sys.executable, "-c", KNOCK, address, str(times)).stdout)

    def states(self, node: str) -> dict[str, str]:
        done = self.inside(node, *softstate("status", "--json"))
        if done.returncode != 0:
            return {}
        return {each["id"]: each["state"] for each in json.loads(done.stdout)["components"]}

    def tables(self, node: str) -> list[str]:
        return self.inside(node, "nft", "list", "tables").stdout.splitlines()

    def close(self) -> None:
        self.up.terminate()
        assert self.up.wait(PATIENCE_S) == 0, self.output.read_text()[-3000:]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory = tmp_path_factory.mktemp("town")
    made = Town(directory)
    try:
        whole = dict.fromkeys(["hub-1", "hub-2", "node-1", "node-2"], "live")
        until(lambda: made.states("a") == whole, PATIENCE_S, "all live")
        yield made
    finally:
        made.close()
    left = {each.name for each in (directory / ".softstate").iterdir()}
    assert left & {"hosts.toml", "hosts.json"} == set()


def test_hosts_are_shown_and_have_addresses_of_their_own(town: Town) -> None:
    done = town.run(*softstate("hosts", "--config", str(town.config), "--json"))
    shown = json.loads(done.stdout)["hosts"]
    assert [(each["node"], each["address"]) for each in shown] == [
        ("a", "10.77.0.1"),
        ("b", "10.77.0.2"),
    ]
    ours = os.stat("/proc/self/ns/net").st_ino
    assert all(os.stat(f"/proc/{each['pid']}/ns/net").st_ino != ours for each in shown)


def chaos(town: Town, *words: str) -> "subprocess.Popen[str]":
    """In host a, begun: returns when it says so."""
    command = softstate("hosts", "--config", str(town.config), "exec", "a", "--")
    process = subprocess.Popen(
        [*command, *softstate("chaos", *words)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("seed ")
    assert " began " in process.stdout.readline()
    return process


def end(process: "subprocess.Popen[str]") -> None:
    """It is killed before its time; its guard heals at once."""
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_partition_one_way_lets_the_other_way_through_and_heals(town: Town) -> None:
    before = town.tables("b")
    cut = chaos(town, "partition", "a", "b", "--one-way", "--for", "1000")
    try:
        # A packet from a is lost at b; one from b comes, and its refusal too is lost: from a.
        assert [town.reaches("a", "10.77.0.2"), town.reaches("b", "10.77.0.1")] == [0, 0]
        assert len(town.tables("b")) == len(before) + 1
        assert town.tables("a") == before, "nothing that b sends is lost"
    finally:
        end(cut)
    until(lambda: town.tables("b") == before, PATIENCE_S, "no filter left")
    assert [town.reaches("a", "10.77.0.2"), town.reaches("b", "10.77.0.1")] == [3, 3]


def test_partition_is_over_at_its_time(town: Town) -> None:
    before = town.tables("a"), town.tables("b")
    cut = chaos(town, "partition", "a", "b", "--for", "2")
    assert [town.reaches("a", "10.77.0.2"), town.reaches("b", "10.77.0.1")] == [0, 0]
    said, _ = cut.communicate(timeout=PATIENCE_S)
    assert (cut.returncode, said.split()[1:4]) == (0, ["healed", "partition", "a"])
    assert (town.tables("a"), town.tables("b")) == before


def test_share_of_packets_is_lost_on_the_wire_and_none_within_the_host(town: Town) -> None:
    sick = chaos(town, "packets", "b", "--amount=50", "--for", "1000")
    try:
        # Half of them there and half of those back: 12 of 50, six standard deviations around.
        assert 1 <= town.reaches("a", "10.77.0.2", 50) <= 31
        assert town.reaches("b", "10.77.0.2", 20) == 20
    finally:
        end(sick)
    until(lambda: town.reaches("a", "10.77.0.2") == 3, PATIENCE_S, "healed")


def test_node_without_a_host_of_its_own_is_not_entered(town: Town) -> None:
    done = town.inside("c", "true")
    assert done.returncode == 1
    assert done.stderr == "softstate: no node c; there are a, b\n"
