"""A cluster on two hosts with CURVE on: processes find each other by the addresses they advertise.

Method: two network namespaces, a node agent in each, keys made by the real command. What a host
sees is what `softstate status` says when it is run there. Host b has the greater part of the
cluster, so that it goes on judging when it hears no more of a (who misses more than half of its
peers condemns nobody). Beacons come every 0.2 s.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.hosts import Host, Hosts, why_not
from roles.invoke import environment, softstate
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made here"),
]

CONFIG = """\
hubs = ["tcp://10.77.0.1:7000", "tcp://10.77.0.2:7000"]
preset = "fast"
heal = false  # What is cut off is looked at here, and not brought back.
[keys]
directory = "keys"
[nodes.n1]
address = "10.77.0.1"
run = {hub = 1, greeter = 1}
[nodes.n2]
address = "10.77.0.2"
run = {hub = 1, greeter = 4}
[roles.greeter]
main = "examples.hello_role:main"
"""

ON_A = {"node-1", "hub-1", "greeter-1"}
ON_B = {"node-2", "hub-2", "greeter-2", "greeter-3", "greeter-4", "greeter-5"}

Rows = dict[str, dict[str, object]]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    config = tmp_path / "cluster.toml"
    config.write_text(CONFIG)
    subprocess.run(
        softstate("keys", "new", "--directory", str(tmp_path / "keys")),
        check=True,
        env=environment(),
        capture_output=True,
    )
    with Hosts(["a", "b"]) as made:
        for host, node in ((made["a"], "n1"), (made["b"], "n2")):
            host.popen(
                softstate("node", node, "--config", str(config)),
                output=tmp_path / f"{node}.log",
                environ=environment(),
            )
        yield made


def seen_from(host: Host, directory: Path) -> Rows:
    """Every process as the agent of this host sees it; nothing while it does not answer."""
    done = command(host, directory, "status", "--json")
    if done.returncode != 0:
        return {}
    return {row["id"]: row for row in json.loads(done.stdout)["components"]}


def command(host: Host, directory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    config = str(directory / "cluster.toml")
    return host.run(softstate(*words, "--config", config), environ=environment())


def told_of(host: Host, directory: Path, kind: str) -> set[str]:
    """The subjects of all events of that kind that the agents remember."""
    lines = command(host, directory, "events", "--count", "100").stdout.splitlines()
    return {line.split()[2] for line in lines if f" {kind} " in line}


def states(rows: Rows, ids: set[str]) -> set[object]:
    return {rows[component_id]["state"] if component_id in rows else "?" for component_id in ids}


def wait_until_all_live(hosts: Hosts, directory: Path, timeout_s: float) -> None:
    """Until each host sees every process live; a failure tells what the processes said."""

    def all_live() -> bool:
        seen = [seen_from(hosts[name], directory) for name in ("a", "b")]
        return all(states(rows, ON_A | ON_B) == {"live"} for rows in seen)

    try:
        until(all_live, timeout_s, "all live, as seen from both hosts")
    except AssertionError as error:
        for path in sorted(directory.glob("*.log")):
            error.add_note(f"--- {path.name}\n{path.read_text()[-4000:]}")
        raise


def test_hosts_see_each_other_suspect_the_other_when_cut_and_recover_when_healed(
    hosts: Hosts, tmp_path: Path
) -> None:
    b = hosts["b"]
    wait_until_all_live(hosts, tmp_path, 30)
    before = seen_from(b, tmp_path)
    assert {row["node"] for row in before.values()} == {"n1", "n2"}
    # Only through the address that greeter-2 advertises could the other host be greeted by it.
    heard = "hello greeter-1, this is greeter-2"
    until(lambda: heard in (tmp_path / "n1.log").read_text(), 20, "a greeting from b, at a")

    hosts.cut("a", "b", both=False)
    gone: set[object] = {"suspect", "dead"}
    until(lambda: states(seen_from(b, tmp_path), ON_A) <= gone, 20, "a's processes missing at b")
    assert states(seen_from(b, tmp_path), ON_B) == {"live"}
    until(lambda: told_of(b, tmp_path, "suspected") >= ON_A, 20, "events that tell of it")

    hosts.heal()
    wait_until_all_live(hosts, tmp_path, 45)
    after = seen_from(b, tmp_path)
    assert {each: row["pid"] for each, row in after.items()} == {
        each: row["pid"] for each, row in before.items()
    }, "nobody was restarted"
