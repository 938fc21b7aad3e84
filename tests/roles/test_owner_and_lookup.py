"""`Owner` and `Lookup` as a program links them, against managers, hubs and nodes that are real.

Method: one local cluster for each store, with the preset `fast` (an owner may believe for 4.6 s, a
manager waits 5.2 s); every test has a namespace of its own. Owners live in this process, and in
others where they are to die. "Nothing is lost" means: no upcall, and renewed since. What takes
as long as a lease lasts is done at both clusters together.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import gevent
import pytest
from gevent.event import Event

from bus.clock import now
from bus.lease_timing import LEASE_PRESETS
from loadtest.etcd_peer import PROGRAM, Etcd
from roles import Cluster, KeyRange, LeaseLost, Lookup, NotOwner, NotReady, Owner, Route
from roles.key_range import EVERYTHING, joined, position
from roles.testing import LocalCluster
from tests.managers import go_on, leader
from tests.roles.owner_process import OwnerProcess
from tests.waiting import until

pytestmark = pytest.mark.slow

FAST = LEASE_PRESETS["fast"]
BUSY_S = 1.5  # What a machine with other things to do may take beyond a bound.
KEYS = [f"key-{number}" for number in range(500)]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def on_sqlite() -> Iterator[LocalCluster]:
    with LocalCluster(preset="fast", managers=3, hubs=2, nodes=2) as made:
        yield made


@pytest.fixture(scope="module")
def on_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if PROGRAM is None:
        pytest.skip("no etcd: install Debian's etcd-server")
    with Etcd(members=1, directory=tmp_path_factory.mktemp("etcd")) as etcd:
        settings = {"store": {"kind": "etcd", "endpoints": etcd.endpoints}}
        with LocalCluster(preset="fast", managers=3, hubs=2, nodes=2, settings=settings) as made:
            yield made


@pytest.fixture(params=["sqlite", "etcd"])
def local(request: pytest.FixtureRequest) -> LocalCluster:
    made: LocalCluster = request.getfixturevalue(f"on_{request.param}")
    return made


only_once = pytest.mark.parametrize("local", ["sqlite"], indirect=True)
"""For what has nothing to do with the store."""


@pytest.fixture
def namespace() -> str:
    return f"test-{next(_numbers)}"


def together(*calls: Callable[[], object]) -> None:
    """All of them at once: each is mostly a wait."""
    gevent.joinall([gevent.spawn(call) for call in calls], raise_error=True)


class Owned:
    """An owner in this process, and what it was told."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.changes: list[tuple[list[KeyRange], list[KeyRange]]] = []
        self.busy = False
        self.overlapped = False
        self.pause_s = 0.0
        self.url = f"tcp://{name}"
        self.owner = Owner(cluster, namespace=namespace, url=self.url, on_change=self._changed)

    def _changed(self, granted: list[KeyRange], revoked: list[KeyRange]) -> None:
        self.overlapped |= self.busy
        self.busy = True
        self.changes.append((granted, revoked))
        gevent.sleep(self.pause_s)
        self.busy = False

    def replayed(self) -> list[KeyRange]:
        """What it holds by what it was told; every difference has to be exact."""
        held: set[KeyRange] = set()
        for granted, revoked in self.changes:
            assert granted == joined(granted)
            assert revoked == joined(revoked)
            for each in revoked:
                held = without(held, each)
            for each in granted:
                assert not any(each.start < had.end and had.start < each.end for had in held)
                held.add(each)
        return joined(held)


def without(held: set[KeyRange], revoked: KeyRange) -> set[KeyRange]:
    """What is left; all of `revoked` must have been there."""
    rest: set[KeyRange] = set()
    found = 0
    for each in held:
        start, end = max(each.start, revoked.start), min(each.end, revoked.end)
        if start >= end:
            rest.add(each)
            continue
        found += end - start
        rest |= {KeyRange(each.start, start)} if each.start < start else set()
        rest |= {KeyRange(end, each.end)} if end < each.end else set()
    assert found == revoked.end - revoked.start, f"{revoked} was revoked, but not all of it held"
    return rest


class Party:
    """Owners and lookups of one test; all closed at its end."""

    def __init__(self, cluster: Cluster, namespace: str, stack: ExitStack) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._stack = stack

    def owner(self, name: str) -> Owned:
        owned = Owned(self.cluster, self.namespace, name)
        self._stack.callback(owned.owner.close)
        owned.owner.start()
        owned.owner.ready(20)
        return owned

    def lookup(self, on_loss: Callable[[list[KeyRange]], None] | None = None) -> Lookup:
        lookup = Lookup(self.cluster, namespace=self.namespace, on_loss=on_loss)
        self._stack.callback(lookup.close)
        lookup.start()
        lookup.ready(20)
        return lookup

    def process(self, name: str, *, patched: bool = False) -> OwnerProcess:
        process = OwnerProcess(
            self.cluster.config.source,
            namespace=self.namespace,
            url=f"tcp://{name}",
            patched=patched,
        )
        self._stack.enter_context(process)
        process.ask("ready")
        return process


@pytest.fixture
def party(local: LocalCluster, namespace: str) -> Iterator[Party]:
    with ExitStack() as stack:
        yield Party(local.cluster, namespace, stack)


def at_both(
    request: pytest.FixtureRequest, scenario: Callable[[LocalCluster, Party], None]
) -> None:
    """Play it on SQLite and, where there is one, on etcd, at the same time."""
    names = ["on_sqlite", *(["on_etcd"] if PROGRAM else [])]
    locals_: list[LocalCluster] = [request.getfixturevalue(name) for name in names]
    with ExitStack() as stack:
        parties = [Party(each.cluster, f"test-{next(_numbers)}", stack) for each in locals_]
        scenes = zip(locals_, parties, strict=True)
        together(*[partial(scenario, local, party) for local, party in scenes])


def settled(lookup: Lookup, *owners: Owned) -> bool:
    """Whether each key is held by exactly the owner that the lookup names."""
    for key in KEYS:
        holders = [each.url for each in owners if each.owner.check_lease_now(key)]
        route = lookup.find(key)
        if route is None or holders != [route.url]:
            return False
    return True


# Checks, finds, and what is shared.


def test_first_owner_gets_every_key_of_any_kind_and_is_found(party: Party) -> None:  # F1
    a, lookup = party.owner("a"), party.lookup()
    assert a.owner.ranges() == [EVERYTHING]
    assert a.changes == [([EVERYTHING], [])]
    lease = a.owner.check_lease_now("alice")
    assert lease is not None
    assert lease.range == EVERYTHING
    assert lease.number >= 1
    until(lambda: lookup.find("alice"), 5, "the map")
    for key in ("alice", b"alice", 0, 2**64 - 1, 2**63):
        assert a.owner.check_lease_now(key) is not None
        assert a.owner.check_lease_continuous(key, lease)
        assert lookup.find(key) == Route("tcp://a", lease.number)
    bad: Any
    for bad in (True, -1, 2**64, 1.5, None):
        for call in (a.owner.check_lease_now, lookup.find, a.owner.route, a.owner.report_load):
            with pytest.raises(ValueError, match="a key is"):
                call(bad)


def test_owners_share_the_space_and_find_names_who_checks_true(party: Party) -> None:
    a, lookup = party.owner("a"), party.lookup()
    b, c = party.owner("b"), party.owner("c")
    until(lambda: settled(lookup, a, b, c), 10, "every key with the one that find names")
    shares = [sum(1 for key in KEYS if each.owner.check_lease_now(key)) for each in (a, b, c)]
    assert min(shares) > len(KEYS) / 10, shares
    whole = joined(each for owned in (a, b, c) for each in owned.owner.ranges())
    assert whole == [EVERYTHING]


def test_changes_are_exact_in_order_and_one_at_a_time(party: Party) -> None:
    a = party.owner("a")
    a.pause_s = 0.05  # Long enough for changes to pile up behind an upcall.
    lookup = party.lookup()
    for round_number in range(3):
        others = [party.owner(f"b-{round_number}"), party.owner(f"c-{round_number}")]
        until(lambda: settled(lookup, a, *others), 10, "the keys shared")  # noqa: B023
        others[0].owner.close(drain_s=2)
        others[1].owner.close()
        until(lambda: settled(lookup, a), 10, "the keys back")
        for each in others:
            assert each.replayed() == []
    until(lambda: a.replayed() == joined(a.owner.ranges()), 5, "the last upcall")
    assert a.replayed() == [EVERYTHING]
    a.owner.close()
    assert a.replayed() == []
    assert not a.overlapped


def test_lease_once_lost_is_never_continuous_again(party: Party) -> None:
    a, lookup = party.owner("a"), party.lookup()
    leases = {key: a.owner.check_lease_now(key) for key in KEYS}
    b = party.owner("b")
    until(lambda: settled(lookup, a, b), 10, "the keys shared")
    moved = [key for key in KEYS if a.owner.check_lease_now(key) is None]
    assert 0 < len(moved) < len(KEYS)

    def continuous() -> list[str]:
        return [
            key
            for key, lease in leases.items()
            if lease is not None and a.owner.check_lease_continuous(key, lease)
        ]

    stayed = [key for key in KEYS if key not in moved]
    assert continuous() == stayed
    b.owner.close(drain_s=2)
    until(lambda: settled(lookup, a), 10, "the keys back")
    assert continuous() == stayed
    for key in moved:
        before, after = leases[key], a.owner.check_lease_now(key)
        assert before is not None
        assert after is not None
        assert after.number > before.number
        assert after.born > before.number, "nothing carried the state over"


def test_guard_raises_before_with_a_route_and_after_a_loss_but_keeps_what_the_body_raises(
    party: Party,
) -> None:
    a, lookup = party.owner("a"), party.lookup()
    with a.owner.guard("alice") as lease:
        assert lease == a.owner.check_lease_now("alice")
    b = party.owner("b")
    until(lambda: settled(lookup, a, b), 10, "the keys shared")
    theirs = next(key for key in KEYS if b.owner.check_lease_now(key))
    until(lambda: a.owner.route(theirs) == lookup.find(theirs), 5, "a knows who has it")
    with pytest.raises(NotOwner) as refused, a.owner.guard(theirs):
        pytest.fail("the body must not run")
    assert refused.value.route == lookup.find(theirs)
    ours = [key for key in KEYS if a.owner.check_lease_now(key)]
    with pytest.raises(LeaseLost), a.owner.guard(ours[0]):
        a.owner.close()
    c = party.owner("c")
    ours = [key for key in KEYS if c.owner.check_lease_now(key)]
    with pytest.raises(ZeroDivisionError), c.owner.guard(ours[0]):
        close_and_fail(c.owner)
    assert c.owner.check_lease_now(ours[0]) is None, "closed: it holds nothing, and says so"
    with pytest.raises(NotOwner), c.owner.guard(ours[0]):
        pytest.fail("the body must not run")


def close_and_fail(owner: Owner) -> None:
    owner.close()
    raise ZeroDivisionError


@pytest.mark.parametrize("drain_s", [5.0, 0.0])
def test_closed_owners_keys_move_within_a_second_and_lookups_hear_it(
    party: Party, drain_s: float
) -> None:
    lost: list[KeyRange] = []
    a, b = party.owner("a"), party.owner("b")
    lookup = party.lookup(on_loss=lost.extend)
    until(lambda: settled(lookup, a, b), 10, "the keys shared")
    theirs = [key for key in KEYS if b.owner.check_lease_now(key)]
    began_at = now()
    b.owner.close(drain_s=drain_s)
    until(lambda: settled(lookup, a), 5, "all keys at a, found there")
    assert now() - began_at < 1.0
    until(lambda: all(heard(lost, key) for key in theirs), 1, "word of every loss")
    assert not any(heard(lost, key) for key in KEYS if key not in theirs)


def heard(lost: list[KeyRange], key: str) -> bool:
    return any(position(key) in each for each in lost)


def test_last_owner_to_close_does_so_at_once_and_leaves_nobody(party: Party) -> None:
    a, lookup = party.owner("a"), party.lookup()
    until(lambda: lookup.find("alice"), 5, "the map")
    began_at = now()
    a.owner.close(drain_s=5)
    assert now() - began_at < 1.0
    until(lambda: lookup.find("alice") is None, 1, "nobody")
    with pytest.raises(NotOwner, match="nobody owns"):
        lookup.call("alice", lambda route: route, timeout_s=0.1)


# Faults.


def test_killed_owner_is_reported_lost_and_its_keys_come_back_elsewhere(
    request: pytest.FixtureRequest,
) -> None:
    at_both(request, kill_an_owner)


def kill_an_owner(_: LocalCluster, party: Party) -> None:
    lost: list[KeyRange] = []
    a = party.owner("a")
    lookup = party.lookup(on_loss=lost.extend)
    dying = party.process("b")
    until(lambda: dying.ask("held", *KEYS) and covered(lookup), 10, "shared")
    theirs = dying.ask("held", *KEYS)
    until(lambda: not any(a.owner.check_lease_now(key) for key in theirs), 5, "they are apart")
    until(lambda: all(heard(lost, key) for key in theirs), 5, "word of the move")
    lost.clear()
    dying.kill()
    killed_at = now()
    until(lambda: all(heard(lost, key) for key in theirs), 10, "word of every loss")
    until(lambda: settled(lookup, a), 5, "all keys at a, found there")
    assert now() - killed_at < FAST.manager_ttl_s + 1 + BUSY_S
    assert not any(heard(lost, key) for key in KEYS if key not in theirs)


def covered(lookup: Lookup) -> bool:
    return all(lookup.find(key) for key in KEYS)


def test_restart_under_the_same_id_holds_nothing_until_the_former_life_is_over(
    request: pytest.FixtureRequest,
) -> None:
    at_both(request, restart_an_owner)


def restart_an_owner(_: LocalCluster, party: Party) -> None:
    first = party.process("same")
    (whole,) = first.ask("ranges")
    killed_at = now()
    first.kill()
    second = party.process("same")
    took_s = now() - killed_at
    assert second.ask("ranges") == [whole]
    # The first renewed at most `renew_s` before it died.
    assert FAST.manager_ttl_s - FAST.renew_s - 0.1 < took_s < FAST.manager_ttl_s + 1 + BUSY_S


def test_later_process_of_two_under_one_id_is_served_and_never_both(party: Party) -> None:
    first = party.process("same")
    second = party.process("same")
    assert first.ask("held", *KEYS) == []
    assert len(second.ask("held", *KEYS)) == len(KEYS)


def test_failover_moves_nothing_and_nobody_hears_of_a_loss(
    request: pytest.FixtureRequest,
) -> None:
    at_both(request, fail_over)


def fail_over(local: LocalCluster, party: Party) -> None:
    lost: list[KeyRange] = []
    a, b = party.owner("a"), party.owner("b")
    lookup = party.lookup(on_loss=lost.extend)
    other = party.process("c")
    until(lambda: other.ask("ranges") and covered(lookup), 10, "the keys shared")
    quiet(lookup, a, b)
    before = a.owner.ranges(), b.owner.ranges(), other.ask("ranges")
    told = len(a.changes), len(b.changes), len(other.ask("told"))
    leases = {key: a.owner.check_lease_now(key) for key in KEYS}
    lost.clear()

    killed = leader(local)
    local.kill(killed)
    paused = leader(local, after=killed)
    local.start(killed)
    local.pause(paused)
    leader(local, after=paused)
    renewed(a, b)
    go_on(local, paused)
    local.wait_live(killed)
    for_longer_than_a_lease(a, b)

    assert (a.owner.ranges(), b.owner.ranges(), other.ask("ranges")) == before
    assert (len(a.changes), len(b.changes), len(other.ask("told"))) == told
    assert lost == []
    for key, lease in leases.items():
        assert lease is None or a.owner.check_lease_continuous(key, lease)


def quiet(lookup: Lookup, *owners: Owned) -> None:
    """Wait until the map has stopped changing."""
    last: list[object] = []

    def same() -> bool:
        seen = [lookup.find(key) for key in KEYS], [each.owner.ranges() for each in owners]
        unchanged = last == [seen]
        last[:] = [seen]
        gevent.sleep(0.3)
        return unchanged and covered(lookup)

    until(same, 10, "a map that no longer changes")


def for_longer_than_a_lease(*owners: Owned) -> None:
    """Every owner holds something at each look, for as long as a lease not renewed would last."""
    over_at = now() + FAST.owner_ttl_s + 0.5
    while now() < over_at:
        assert all(each.owner.holds_any() for each in owners)
        gevent.sleep(0.02)


def renewed(*owners: Owned) -> None:
    """Wait until every owner has been renewed twice from now on; the first may be on its way."""
    for _ in range(2):
        before = [each.owner.machine.held.until for each in owners]
        until(
            lambda: all(
                each.owner.machine.held.until > was
                for each, was in zip(owners, before, strict=True)  # noqa: B023
            ),
            5,
            "every owner is renewed",
        )


@only_once
def test_loss_of_both_hubs_and_of_the_leader_costs_no_lease(
    local: LocalCluster, party: Party
) -> None:
    lost: list[KeyRange] = []
    a, b = party.owner("a"), party.owner("b")
    lookup = party.lookup(on_loss=lost.extend)
    until(lambda: settled(lookup, a, b), 10, "the keys shared")
    quiet(lookup, a, b)
    told = len(a.changes), len(b.changes)
    lost.clear()
    for hub in ("hub-1", "hub-2"):
        local.kill(hub)
    for hub in ("hub-1", "hub-2"):
        local.wait_live(hub)
    renewed(a, b)
    leading = leader(local)
    for hub in ("hub-1", "hub-2"):
        local.pause(hub)
    local.kill(leading)  # Who leads now, only asking can tell.
    for_longer_than_a_lease(a, b)
    for hub in ("hub-1", "hub-2"):
        local.resume(hub)
    assert (len(a.changes), len(b.changes)) == told
    assert lost == []
    c = party.owner("c")
    until(lambda: settled(lookup, a, b, c), 10, "and changes arrive again")


# The program around it.


@only_once
def test_blocked_or_stopped_process_keeps_its_leases_for_a_while_and_no_longer(
    local: LocalCluster, namespace: str
) -> None:
    with ExitStack() as stack:
        parties = [Party(local.cluster, f"{namespace}-{word}", stack) for word in ("b", "s")]
        together(partial(block_a_loop, parties[0]), partial(stop_a_process, parties[1]))


def block_a_loop(party: Party) -> None:
    blocked = party.process("a")
    spare = party.owner("b")
    theirs = [key for key in blocked.ask("held", *KEYS) if spare.owner.check_lease_now(key) is None]
    assert theirs
    block_s = FAST.owner_ttl_s + FAST.manager_ttl_s + BUSY_S
    blocked.tell("block", theirs[0], block_s)
    blocked_at = now()
    until(lambda: spare.owner.check_lease_now(theirs[0]), block_s, "its keys go elsewhere")
    gone_s = now() - blocked_at
    held_s, false_s = blocked.answer()
    # Renewed until the loop had not turned for `owner_ttl_s`; then that runs out.
    assert 1.5 * FAST.owner_ttl_s < held_s < 2 * FAST.owner_ttl_s + 0.1
    assert held_s < gone_s
    assert false_s > block_s - held_s - 0.5
    until(lambda: blocked.ask("held", *KEYS), 10, "it gets keys again")


def stop_a_process(party: Party) -> None:
    """It believes nothing of before, from its first check on."""
    stopped = party.process("a")
    stop_s = FAST.owner_ttl_s + 0.3
    stopped.tell("spin", "alice", stop_s + 2)
    # Well into it, so that the check that follows is by the thread that was checking before.
    gevent.sleep(0.5)
    stopped.pause()
    gevent.sleep(stop_s)
    stopped.resume()
    gap_s, after = stopped.answer()
    assert gap_s > FAST.owner_ttl_s
    assert after == 0


@only_once
def test_fork_leaves_the_child_with_nothing_and_the_parent_as_it_was(party: Party) -> None:
    a, lookup = party.owner("a"), party.lookup()
    lease = a.owner.check_lease_now("alice")
    assert lease is not None
    calls: list[Callable[[], object]] = [
        lambda: a.owner.check_lease_now("alice"),
        lambda: a.owner.check_lease_continuous("alice", lease),
        lambda: a.owner.guard("alice").__enter__(),
        lambda: a.owner.ranges(),
        lambda: a.owner.ready(1),
        lambda: a.owner.route("alice"),
        lambda: a.owner.report_load("alice"),
        lambda: a.owner.close(),
        lambda: lookup.find("alice"),
        lambda: lookup.call("alice", lambda route: route),
        lambda: lookup.ready(1),
        lambda: lookup.close(),
        lambda: Owner(party.cluster, namespace="n", url="u").start(),
        lambda: Lookup(party.cluster, namespace="n").start(),
    ]
    assert in_child(calls) == ["LinkError"] * len(calls)
    renewed(a)
    assert a.owner.check_lease_continuous("alice", lease)
    assert len(a.changes) == 1


def in_child(calls: list[Callable[[], object]]) -> list[str]:
    """The kind of error that each of the calls raises in a forked child."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        met = []
        for call in calls:
            try:
                call()
                met.append("nothing")
            except BaseException as error:  # noqa: BLE001 (whatever it is, the parent is told)
                met.append(type(error).__name__)
        os.write(theirs, " ".join(met).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        word = pipe.read().decode()
    return word.split()


@only_once
def test_process_patched_or_not_owns_and_may_block_for_two_seconds(
    local: LocalCluster, namespace: str
) -> None:
    def live(party: Party, *, patched: bool) -> None:
        process = party.process("a", patched=patched)
        lookup = party.lookup()
        until(lambda: lookup.find("alice"), 5, "the map")
        assert process.ask("held", "alice") == ["alice"]
        held_s, false_s = process.ask("block", "alice", 2.0)
        assert held_s > 1.8
        assert false_s == 0
        assert len(process.ask("told")) == 1, "nothing was lost"
        assert process.ask("close", 5) < 1.0
        assert process.ended() == 0

    with ExitStack() as stack:
        one, other = (Party(local.cluster, f"{namespace}-{word}", stack) for word in ("p", "n"))
        together(partial(live, one, patched=True), partial(live, other, patched=False))


@only_once
def test_process_that_ends_without_closing_ends(party: Party) -> None:
    assert party.process("a").ended() == 0


@only_once
def test_many_namespaces_share_one_thread_one_member_and_keep_their_leases(
    local: LocalCluster, namespace: str
) -> None:  # S1
    def linked() -> set[str]:
        return {row.id for row in local.components() if row.linked and row.state == "live"}

    threads, members = native_threads(), linked()
    with ExitStack() as stack:
        parties = [Party(local.cluster, f"{namespace}-{i}", stack) for i in range(20)]
        pairs = [[party.owner("a"), party.owner("b")] for party in parties]
        lookups = [party.lookup() for party in parties]
        for pair, lookup in zip(pairs, lookups, strict=True):
            until(lambda: settled(lookup, *pair), 10, "shared")  # noqa: B023
        assert native_threads() - threads <= THREADS_OF_A_SESSION
        until(lambda: len(linked() - members) == 1, 5, "one more that is linked")
        owners = [each for pair in pairs for each in pair]
        told = [len(each.changes) for each in owners]
        renewed(*owners)
        assert [len(each.changes) for each in owners] == told
        assert len(linked() - members) == 1
    until(lambda: native_threads() == threads, 5, "no thread left")
    until(lambda: not linked() - members, 5, "nobody left")


THREADS_OF_A_SESSION = 4  # Ours, and those of ZeroMQ and of its resolver.


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@only_once
def test_owner_closed_beside_another_does_it_no_harm(party: Party) -> None:
    kept = party.owner("kept")
    for number in range(30):
        beside = Owner(party.cluster, namespace=f"{party.namespace}-{number}", url="tcp://x")
        beside.start()
        beside.ready()
        closing = [gevent.spawn(beside.close, 0.1 * (number % 2)) for _ in range(2)]
        gevent.joinall(closing, timeout=10, raise_error=True)
    renewed(kept)
    assert len(kept.changes) == 1


@only_once
def test_owners_started_at_once_share_a_session_and_may_start_again(party: Party) -> None:
    cluster = Cluster(party.cluster.config)  # Nobody has a session of this one yet.
    owners = [Owner(cluster, namespace=party.namespace, url=f"tcp://{i}") for i in range(4)]
    threads = native_threads()
    for _ in range(2):
        gevent.joinall([gevent.spawn(each.start) for each in owners], raise_error=True)
        for each in owners:
            each.ready()
        assert native_threads() - threads <= THREADS_OF_A_SESSION
        gevent.joinall([gevent.spawn(each.close) for each in owners], raise_error=True)
        until(lambda: native_threads() == threads, 5, "no thread left")


@only_once
def test_upcall_that_raises_hangs_or_closes_spoils_nothing(party: Party) -> None:
    told: list[str] = []
    hang = Event()

    def changed(granted: list[KeyRange], revoked: list[KeyRange]) -> None:
        told.append("granted" if granted else "revoked")
        if len(told) == 1:
            raise gevent.Timeout  # Which is no `Exception`.
        if len(told) == 2:
            hang.wait(0.5)
            told.append("hung")
        if len(told) == 4:
            a.close()

    a = Owner(party.cluster, namespace=party.namespace, url="tcp://a", on_change=changed)
    a.start()
    a.ready()
    b = party.owner("b")
    until(lambda: told == ["granted", "revoked"], 5, "it hangs")
    b.owner.close()
    until(lambda: len(told) == 5, 5, "the rest, the last by close")
    assert told == ["granted", "revoked", "hung", "granted", "revoked"]
    until(lambda: a._session is None, 5, "closed")


@only_once
def test_call_follows_the_route_it_is_given_and_ends_in_its_time(party: Party) -> None:
    party.owner("a")
    lookup = party.lookup()
    until(lambda: lookup.find("alice"), 5, "the map")
    asked: list[Route] = []
    ahead = Route("tcp://ahead", 1 << 40)  # An owner knows of a later grant than we do.

    def refuse_once(route: Route) -> str:
        asked.append(route)
        if route != ahead:
            raise NotOwner("elsewhere", ahead)
        return "done"

    assert lookup.call("alice", refuse_once) == "done"
    assert asked == [lookup.find("alice"), ahead]

    def refuse(route: Route) -> None:
        asked.append(route)
        raise NotOwner("never", Route("tcp://further", route.number + 1))

    for function in (refuse, lambda route: refuse_without_route(asked, route)):
        asked.clear()
        began_at = now()
        with pytest.raises(NotOwner):
            lookup.call("alice", function, timeout_s=0.5)
        assert 0.4 < now() - began_at < 0.5 + BUSY_S
        assert 3 < len(asked) < 100, "with back-off"
    with pytest.raises(ZeroDivisionError):
        lookup.call("alice", lambda route: 1 // (route.number - route.number))


def refuse_without_route(asked: list[Route], route: Route) -> None:
    asked.append(route)
    raise NotOwner("never")


@only_once
def test_names_that_could_not_be_sent_are_refused_at_once(local: LocalCluster) -> None:
    cluster = local.cluster
    for bad in ("", "a\0b", "x" * 201, "two\nlines"):
        with pytest.raises(ValueError, match="characters"):
            Owner(cluster, namespace=bad, url="u")
        with pytest.raises(ValueError, match="characters"):
            Owner(cluster, namespace="n", url=bad)
        with pytest.raises(ValueError, match="characters"):
            Lookup(cluster, namespace=bad)


def test_without_a_manager_nobody_is_ready_and_the_sentence_says_so() -> None:
    with LocalCluster(preset="fast", nodes=1, hubs=1) as bare, ExitStack() as stack:
        owner = Owner(bare.cluster, namespace="n", url="tcp://a")
        lookup = Lookup(bare.cluster, namespace="n")
        for each in (owner, lookup):
            stack.callback(each.close)
            each.start()
        with pytest.raises(NotReady, match=r"holds nothing of 'n' after 0\.3 s"):
            owner.ready(timeout_s=0.3)
        with pytest.raises(TimeoutError, match="is there a manager"):
            lookup.ready(timeout_s=0.3)
        assert owner.check_lease_now("alice") is None
        assert lookup.find("alice") is None
