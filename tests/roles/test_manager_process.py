"""Lease managers as real processes: who leads, what a failover costs, and what a bad store does.

Method: local clusters with three managers, on SQLite and on a real etcd; owners are raw messages
sent by this test, so that what a manager says is seen as it is. Faults are real: SIGKILL, SIGSTOP,
a store that is moved away, paused, full, or locked by another process. Times are bounds of the
preset `fast`: a leader trusts its term for 0.6 s, a standby takes over after 0.88 s.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import gevent
import msgspec
import pytest

from bus.agents import order
from bus.client import Client
from bus.clock import now
from bus.config import KeysConfig
from bus.errors import RequestTimeoutError
from bus.identity import Identity
from bus.keys import create_key
from bus.lease_timing import LEASE_PRESETS
from bus.member import Member
from bus.messages import Refused
from bus.peers import Peer
from bus.process_orders import EndProcess
from bus.pump import Pump, new_keypair
from bus.replies import Reply
from loadtest.etcd_peer import PROGRAM, Etcd
from roles.key_range import KEYS_END
from roles.lease_messages import (
    NUDGE_TOPIC,
    TIP_TOPIC,
    LeaseNudge,
    LeasesAnswered,
    MapDelta,
    MapTip,
    Span,
    decode_part,
    delta_topic,
)
from roles.lease_rows import LEADER, LeaderRow, decode
from roles.store_sqlite import SqliteStore
from roles.testing import LocalCluster
from tests.roles.raw_leases import ASK_S, Managers, RawOwner
from tests.waiting import until

pytestmark = pytest.mark.slow

FAST = LEASE_PRESETS["fast"]
EVERYTHING = Span(0, KEYS_END - 1, 1, 0)
BUSY_S = 3.0  # What a machine with other things to do may take beyond a bound.

needs_etcd = pytest.mark.skipif(PROGRAM is None, reason="no etcd: install Debian's etcd-server")
needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


class Place:
    """A store that can be out of reach."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.settings = {"store": settings}

    def hide(self) -> None:
        raise NotImplementedError

    def show(self) -> None:
        raise NotImplementedError


class SqlitePlace(Place):
    def __init__(self, directory: Path) -> None:
        self._directory, self._away = directory / "store", directory / "away"
        self._directory.mkdir()
        super().__init__({"path": str(self._directory / "leases.sqlite")})

    def hide(self) -> None:
        self._directory.rename(self._away)

    def show(self) -> None:
        self._away.rename(self._directory)


class EtcdPlace(Place):
    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        super().__init__({"kind": "etcd", "endpoints": etcd.endpoints})

    def hide(self) -> None:
        self._etcd.pause(0)

    def show(self) -> None:
        self._etcd.resume(0)


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=needs_etcd)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield SqlitePlace(tmp_path)
        return
    with Etcd(members=1, directory=tmp_path) as etcd:
        yield EtcdPlace(etcd)


@contextmanager
def three_managers(settings: Mapping[str, object]) -> Iterator[Managers]:
    with LocalCluster(
        hubs=2, nodes=2, managers=3, preset="fast", heal=False, settings=settings
    ) as local:
        managers = Managers(local)
        try:
            yield managers
        finally:
            local.cluster.release()


def test_one_leads_and_answers_and_the_others_say_that_they_do_not(place: Place) -> None:
    with three_managers(place.settings) as managers:
        leader = managers.leader()
        owner = RawOwner(managers, "u1")
        owner.renew()
        assert owner.ranges == [EVERYTHING]
        for peer in managers.peers():
            answered = owner.ask(peer)
            assert answered is not None
            assert answered.leading == (peer.id == leader.id)
        message, part = managers.map()
        assert (message.leading, message.whole, part.owners) == (True, True, [("u1", "tcp://u1")])
        assert managers.map("nobody's")[1].spans[0].owner == -1


def test_a_killed_leader_is_followed_by_another_and_nothing_moves(place: Place) -> None:
    with three_managers(place.settings) as managers:
        owner = RawOwner(managers, "u1")
        owner.renew()
        before, part = managers.map()
        old = managers.leader()
        managers.local.kill(old.id)
        killed_at = now()
        new = managers.leader(FAST.takeover_s + BUSY_S)
        took_s = now() - killed_at
        print(f"another led {took_s:.3f} s after the leader was reaped")
        assert new.id != old.id
        answered = owner.ask(new)
        assert answered is not None
        assert (answered.leading, answered.term) == (True, 2)
        assert owner.ranges == [EVERYTHING]
        after, same = managers.map()
        assert (same, after.version_lsn) == (part, before.version_lsn)


def test_a_stopped_leader_is_replaced_and_does_no_harm_when_it_goes_on(place: Place) -> None:
    with three_managers(place.settings) as managers:
        owner = RawOwner(managers, "u1")
        owner.renew()
        old = managers.leader()
        managers.local.pause(old.id)
        # These wait in its sockets, and are the first thing it sees. Not by our member: that hangs
        # up on who is silent.
        pump = Pump(None)
        client = Client(pump, Identity("early-1", "early", "", 1))
        early = RawOwner(managers, "early")
        waiting = [gevent.spawn(early.ask, old, 10.0, client) for _ in range(5)]
        new = managers.leader(FAST.takeover_s + BUSY_S)
        owner.ask(new)
        managers.local.resume(old.id)
        until(
            lambda: managers.told("stepped-down", old.id),
            FAST.takeover_s + BUSY_S,
            "the old leader steps down",
        )
        gevent.joinall(waiting)
        client.close()
        pump.close()
        answers = [each.value for each in waiting if each.value is not None]
        assert answers, "it answered nobody"
        assert not any(answer.leading for answer in answers)
        assert [peer.id for peer in managers.leaders()] == [new.id]
        assert [owner_id for owner_id, _ in managers.map()[1].owners] == ["u1"]
        assert owner.ranges == [EVERYTHING]


def test_a_store_out_of_reach_is_told_ends_the_lead_and_loses_nothing(place: Place) -> None:
    with three_managers(place.settings) as managers:
        owner = RawOwner(managers, "u1")
        owner.renew()
        leader = managers.leader()
        place.hide()
        until(lambda: not managers.leaders(), FAST.takeover_s + BUSY_S, "nobody leads")
        until(lambda: managers.told("degraded", leader.id), BUSY_S, "trouble is told")
        place.show()
        managers.leader(5 + BUSY_S)
        owner.renew()
        assert owner.ranges == [EVERYTHING]
        assert len(managers.peers()) == 3
        assert all(row.restarts == 0 for row in managers.local.components())


def test_a_manager_whose_store_is_missing_stands_by_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "later" / "leases.sqlite"
    with three_managers({"store": {"path": str(path)}}) as managers:
        until(lambda: managers.told("degraded", "manager-1"), BUSY_S, "trouble is told")
        assert f"{path.parent} is not there" in managers.local.output("manager-1")
        assert managers.leaders() == []
        path.parent.mkdir()
        managers.leader()
        assert all(row.restarts == 0 for row in managers.local.components())


def test_a_leaders_row_that_makes_no_sense_is_told_and_obeyed_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "leases.sqlite"
    store = SqliteStore(path, 1.0)
    try:
        assert store.commit({}, {LEADER: b"garbage"})
        with three_managers({"store": {"path": str(path)}}) as managers:
            said = "degraded manager-1: row 'leader' of the store: "
            until(lambda: said in managers.local.output("manager-1"), 3, "it is told")
            assert managers.leaders() == []
            assert store.commit({LEADER: b"garbage"}, {}, [LEADER])
            managers.leader()
            assert all(row.restarts == 0 for row in managers.local.components())
    finally:
        store.close()


@needs_mount
def test_a_full_disk_is_told_and_ends_the_lead_until_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
    try:
        with three_managers({"store": {"path": str(disk / "leases.sqlite")}}) as managers:
            owner = RawOwner(managers, "u1")
            owner.renew()
            leader = managers.leader()
            fill(disk / "ballast")
            until(lambda: not managers.leaders(), FAST.takeover_s + BUSY_S, "nobody leads")
            until(lambda: "the disk is full" in managers.local.output(leader.id), BUSY_S, "is told")
            (disk / "ballast").unlink()
            managers.leader(5 + BUSY_S)
            owner.renew()
            assert owner.ranges == [EVERYTHING]
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):  # Until there is no space left.
        while True:
            file.write(bytes(4096))


LOCK = """
import os, sqlite3, sys, time
path, pid = sys.argv[1], int(sys.argv[2])
store = sqlite3.connect(path, timeout=30, isolation_level=None)
sys.stdin.readline()
store.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
while os.path.exists(f"/proc/{pid}"):
    time.sleep(0.01)
"""
"""Has the lock from when it is told to until that process is gone: as if it were its lock."""


def test_a_manager_stopped_with_the_store_locked_is_killed_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "leases.sqlite"
    with three_managers({"store": {"path": str(path)}}) as managers:
        owner = RawOwner(managers, "u1")
        owner.renew()
        old = managers.leader()
        lock = subprocess.Popen(
            [sys.executable, "-c", LOCK, str(path), str(old.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert lock.stdin is not None
            assert lock.stdout is not None
            managers.local.pause(old.id)
            lock.stdin.write("\n")
            lock.stdin.flush()
            assert lock.stdout.readline() == "locked\n"
            new = managers.leader(FAST.takeover_s + 3 * FAST.leader_ttl_s + 2 * BUSY_S)
            assert new.id != old.id
            assert lock.wait(5) == 0  # So the old leader is gone.
        finally:
            lock.kill()
            lock.communicate()
        outputs = [managers.local.output(f"manager-{n}") for n in (1, 2, 3)]
        assert any(f": killed {old.id}: it has kept the store locked" in each for each in outputs)
        owner.renew()
        assert owner.ranges == [EVERYTHING]

        def is_back() -> bool:
            return any(peer.id == old.id and peer.pid != old.pid for peer in managers.peers())

        until(is_back, 2 * BUSY_S, "it was started again, too")


def test_a_leader_told_to_end_gives_the_lead_away(tmp_path: Path) -> None:
    path = tmp_path / "leases.sqlite"
    settings = {"store": {"path": str(path)}}
    with LocalCluster(hubs=2, nodes=2, managers=1, preset="fast", settings=settings) as local:
        managers = Managers(local)
        leader = managers.leader()
        order(managers.member, leader.node, EndProcess(leader.id), 5)
        until(lambda: managers.peers() == [], 3, "it ended")
        store = SqliteStore(path, 1.0)
        try:
            row = store.read(LEADER)
        finally:
            store.close()
        local.cluster.release()
    assert row is not None
    assert decode(LeaderRow, LEADER, row).holder == ""


def test_an_owner_whose_process_was_reaped_loses_its_ranges_at_once() -> None:
    roles = {"sleeper": "tests.roles.sleeper_role:main"}
    with LocalCluster(
        hubs=2, nodes=2, managers=2, preset="fast", heal=False, roles=roles, sleeper=1
    ) as local:
        managers = Managers(local)
        until(lambda: managers.member.peers("sleeper"), 5, "the process of the first owner")
        process = managers.member.peers("sleeper")[0]
        first = RawOwner(managers, "u1", (process.id, process.incarnation))
        second = RawOwner(managers, "u2")
        first.renew()
        second.renew()
        managers.leader()
        local.kill(process.id)
        killed_at = now()

        def freed() -> bool:
            second.renew()
            return managers.map()[1].owners == [("u2", "tcp://u2")]

        until(freed, 0.5 + BUSY_S, "its ranges are another's")
        print(f"its ranges were another's {now() - killed_at:.3f} s after it was reaped")
        assert now() - killed_at < FAST.owner_ttl_s
        local.cluster.release()


def test_changes_are_broadcast_and_owners_nudged() -> None:
    with three_managers({}) as managers:
        tips: list[MapTip] = []
        deltas: list[MapDelta] = []
        nudges: list[LeaseNudge] = []
        managers.member.subscribe(TIP_TOPIC, MapTip, lambda _, tip: tips.append(tip))
        managers.member.subscribe(NUDGE_TOPIC, LeaseNudge, lambda _, nudge: nudges.append(nudge))
        managers.member.subscribe(
            delta_topic("presence"), MapDelta, lambda _, delta: deltas.append(delta)
        )
        until(lambda: tips, 3, "a tip, though there is nothing yet")
        first, second = RawOwner(managers, "u1"), RawOwner(managers, "u2")
        first.renew()
        until(lambda: deltas, 3, "a change")
        second.renew()
        until(
            lambda: any("u1" in nudge.owners for nudge in nudges), 3, "u1 is to give something up"
        )
        until(lambda: any(tip.versions for tip in tips), 3, "a tip with a version")
        assert {tip.term for tip in tips} == {1}
        assert decode_part(deltas[0].part).owners == [("u1", "tcp://u1")]


def test_a_namespace_that_cannot_be_a_topic_is_ignored_and_harms_nobody() -> None:
    with three_managers({}) as managers:
        leader = managers.leader()
        owner, odd = RawOwner(managers, "u1"), RawOwner(managers, "u2", namespace="a\0b")
        reply = managers.member.client.ask(
            leader.endpoint, odd.next_ask(), expect=LeasesAnswered, timeout_s=ASK_S
        )
        assert isinstance(reply, Reply)
        assert reply.message.answers == []
        owner.renew()
        assert managers.leader().incarnation == leader.incarnation


def test_only_a_key_with_the_permission_may_ask_for_leases() -> None:
    with LocalCluster(hubs=2, nodes=1, managers=1, preset="fast", keys=True) as local:
        managers = Managers(local)
        leader = managers.leader()
        config = local.cluster.config
        assert config.keys is not None
        directory = config.keys.directory
        outcomes: dict[str, bool] = {}
        for name, may in {"watcher": ["publish", "listen"], "shop": ["listen", "lease"]}.items():
            create_key(directory, name, may, new_keypair)
            keys = KeysConfig(directory=directory, name=name)
            linked = msgspec.structs.replace(config, keys=keys)
            member = Member.join(linked, Identity(f"{name}-1", name, "web", 1), linked=True)
            try:
                outcomes[name] = may_ask(member, leader, RawOwner(managers, name))
            finally:
                member.close()
        local.cluster.release()
    assert outcomes == {"watcher": False, "shop": True}


def may_ask(member: Member, leader: Peer, owner: RawOwner) -> bool:
    """A new key is known to all within 2 s; until then its frames are dropped."""
    deadline = now() + 10
    while now() < deadline:
        try:
            reply = member.client.ask(
                leader.endpoint, owner.next_ask(), expect=LeasesAnswered, timeout_s=ASK_S
            )
        except RequestTimeoutError:
            continue
        if isinstance(reply, Refused) and reply.reason != "denied":
            gevent.sleep(0.05)
            continue
        return isinstance(reply, Reply)
    raise AssertionError("nobody answered")
