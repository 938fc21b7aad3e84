"""Registers are incremented through leases while hosts are cut off; nothing is lost or doubled.

Method: as in `tests.jepsen.test_faults`, but on network namespaces: a, b and c have a manager and
an owner each, a and b a hub too; etcd has a host, and so have the clients. The registers are in a
file that all reach at all times: an owner that is cut off from the cluster is not cut off from
them, and would go on writing if it did not know better. SOFTSTATE_SOAK=1 has cuts drawn by
chance, for ten minutes or SOFTSTATE_JEPSEN_S seconds.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import gevent
import pytest

from bus.clock import now
from bus.lease_timing import LEASE_PRESETS
from bus.parent import PARENT
from loadtest.etcd_peer import PROGRAM
from roles.hosts import Host, Hosts, why_not
from roles.invoke import environment, softstate
from tests.jepsen.fleet import ROOT, Fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made here"),
    pytest.mark.skipif(PROGRAM is None, reason="no etcd: install Debian's etcd-server"),
]

FAST = LEASE_PRESETS["fast"]
BUSY_S = 5.0  # What a machine with other things to do may take beyond a bound.
# With the leader gone too, the next one waits once more: it cannot know what the last had heard.
OWNED_AGAIN_S_MAX = 2 * FAST.manager_ttl_s + FAST.takeover_s + 1 + BUSY_S
SOAK = "SOFTSTATE_SOAK" in os.environ
SOAK_S = float(os.environ.get("SOFTSTATE_JEPSEN_S", "600"))
MEMBERS = ("a", "b", "c")
STORE, CLIENTS = "store", "clients"

CONFIG = """\
hubs = ["tcp://10.77.0.1:7000", "tcp://10.77.0.2:7000"]
preset = "fast"
allow_plain = true  # The wire leads nowhere else.
[store]
kind = "etcd"
endpoints = ["http://10.77.0.4:2379"]
[nodes.n1]
address = "10.77.0.1"
run = {hub = 1, manager = 1}
[nodes.n2]
address = "10.77.0.2"
run = {hub = 1, manager = 1}
[nodes.n3]
address = "10.77.0.3"
run = {manager = 1}
"""


def start_at(host: Host, command: Sequence[str], output: Path) -> "subprocess.Popen[str]":
    environ = {**environment(), PARENT: str(os.getpid())}
    return host.popen(command, output=output, environ=environ, directory=ROOT)


def start_etcd(host: Host, directory: Path) -> None:
    clients, peers = f"http://{host.address}:2379", f"http://{host.address}:2380"
    command = [
        *(str(PROGRAM), "--name", "m0", "--data-dir", str(directory / "etcd")),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"m0={peers}"),
    ]
    environ = {"PATH": os.environ["PATH"]}
    host.popen(command, output=directory / "etcd.log", environ=environ)


@contextmanager
def running(directory: Path) -> Iterator[tuple[Hosts, Fleet]]:
    """The hosts, with managers, owners and clients at work."""
    config = directory / "cluster.toml"
    config.write_text(CONFIG)
    with (
        Hosts([*MEMBERS, STORE, CLIENTS]) as hosts,
        Fleet(directory, str(config), "whole,split") as fleet,
    ):
        start_etcd(hosts[STORE], directory)
        for number, name in enumerate(MEMBERS, start=1):
            command = softstate("node", f"n{number}", "--config", str(config))
            hosts[name].popen(command, output=directory / f"node-{name}.log", environ=environment())
        for name in MEMBERS:
            fleet.add_owner(name, hosts[name].address, partial(start_at, hosts[name]))
        fleet.start_clients(partial(start_at, hosts[CLIENTS]))
        fleet.wait_for_all(40, "at first")
        yield hosts, fleet


def cut_off(hosts: Hosts, name: str, *, both: bool = True) -> None:
    """From the rest of the cluster and its store, but not from the clients."""
    for other in (*MEMBERS, STORE):
        if other != name:
            hosts.cut(name, other, both=both)


@pytest.mark.skipif(SOAK, reason="the long one has all of it")
def test_nothing_is_lost_or_doubled_while_one_host_is_cut_off_and_another_is_not_heard(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as (hosts, fleet):
        cut_off(hosts, "a")
        cut_off(hosts, "b", both=False)
        fleet.wait_for_all(OWNED_AGAIN_S_MAX, "of all registers, by c", by="c")
        hosts.heal()
        fleet.wait_for_all(OWNED_AGAIN_S_MAX, "after all was healed")
        for name in ("a", "b"):
            fleet.wait_for_any(OWNED_AGAIN_S_MAX, f"by {name} again", by=name)
        fleet.finish()
        assert fleet.problems("whole", "split") == []
        assert sum(fleet.done().values()) > 50, "there was something to lose"


@pytest.mark.skipif(not SOAK, reason="ten minutes: SOFTSTATE_SOAK=1, or `make jepsen`")
@pytest.mark.timeout(SOAK_S + 300)
def test_nothing_is_lost_or_doubled_by_cuts_drawn_by_chance(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    log: list[str] = []
    with running(tmp_path) as (hosts, fleet):
        over_at = now() + SOAK_S
        while now() < over_at:
            paused = ""
            for name in chance.sample(MEMBERS, k=chance.randint(1, 3)):
                both = chance.random() < 0.5
                cut_off(hosts, name, both=both)
                log.append(f"{name} {'cut off' if both else 'not heard'}")
                if not paused and chance.random() < 0.3:
                    paused = name
                    fleet.pause(name)
                    log.append(f"{name} stopped")
            gevent.sleep(chance.uniform(0.5, 2 * FAST.manager_ttl_s))
            hosts.heal()
            if paused:
                fleet.resume(paused)
            took_s = fleet.wait_for_all(3 * OWNED_AGAIN_S_MAX, f"after {log[-5:]}")
            log.append(f"all registers after {took_s:.1f} s")
        fleet.finish()
        wrong = fleet.problems("whole", "split")
    assert wrong == [], f"seed {seed}: {log}"
    shutil.rmtree(tmp_path / "etcd", ignore_errors=True)
