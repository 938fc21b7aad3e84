"""A brick that drains: it gets nothing new, its sessions move as they are used, and then it ends.

Method: one cluster of four bricks on two nodes; `brick-1` drains, by message and by command, and
what cookies name is looked at. A stub that has not heard of it is one whose view is told otherwise.
"""

import json
import subprocess
from collections.abc import Iterator

import gevent
import msgspec
import pytest

from bus.errors import StateConflict
from bus.headers import News
from bus.member import BEACON_TOPIC
from bus.messages import Beacon, Drain, Pong, Refused, State
from bus.replies import Reply
from roles import Stub
from roles.brick_view import Brick
from roles.cookie import encode
from roles.invoke import environment, softstate
from roles.testing import LocalCluster
from tests.roles.raw_bricks import RawBricks
from tests.roles.test_bricks_command import run, told
from tests.roles.test_stub import copies, decoded, ring_of
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 10.0
TTL_S = 60.0
DRAINING = 1
"""The number of the brick that drains."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    settings = {"sessions": {"timeout_ms": 2000}}  # What is slow here is not what is tested.
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="fast", settings=settings) as made:
        yield made


@pytest.fixture(scope="module")
def stub(local: LocalCluster) -> Iterator[Stub]:
    made = Stub(local.cluster)
    yield made
    made.close()


@pytest.fixture(scope="module")
def before(local: LocalCluster, stub: Stub) -> list[str]:
    """Cookies of sessions that were written before it drained."""
    cookies = [stub.write(f"user-{number}", b"first", ttl_s=TTL_S) for number in range(60)]
    drain(stub)
    until(lambda: brick_of(stub).is_draining, PATIENCE_S, "news of it")
    return cookies


def brick_of(stub: Stub) -> Brick:
    return stub._bricks.live[DRAINING]


def drain(stub: Stub) -> Reply[Pong] | Refused:
    client = stub._member.client
    return client.ask(brick_of(stub).endpoint, Drain(), expect=Pong, timeout_s=5.0)


def unaware(local: LocalCluster) -> Stub:
    made = Stub(local.cluster, W=1, WQ=1, R=1)  # So that nobody but arbiters is asked.
    brick_of(made).is_draining = False
    made._bricks._sort()
    return made


def named(local: LocalCluster, cookie: str) -> list[int]:
    return copies(cookie, local.cluster.config)


def key_of(number: int) -> str:
    return f"user-{number}"


def test_it_gets_nothing_new(local: LocalCluster, stub: Stub, before: list[str]) -> None:
    for number in range(60):
        cookie = stub.write(f"newcomer-{number}", b"value", ttl_s=TTL_S)
        assert DRAINING not in named(local, cookie)
        stub.delete(cookie)


def test_its_sessions_are_read_there_and_move_when_written_or_touched(
    local: LocalCluster, stub: Stub, before: list[str]
) -> None:
    with_copy = [number for number in range(20) if DRAINING in named(local, before[number])]
    assert with_copy
    for number in with_copy:
        cookie = before[number]
        assert stub.read(cookie) == b"first"
        for moved in (
            stub.touch(cookie, ttl_s=TTL_S),
            stub.write(key_of(number), b"second", ttl_s=TTL_S, cookie=cookie),
        ):
            assert DRAINING not in named(local, moved)
            assert len(named(local, moved)) >= 2
            stayed = [each for each in named(local, cookie) if each != DRAINING][:2]
            assert named(local, moved)[: len(stayed)] == stayed  # U1
        found = stub.load(moved)
        assert (found.value, found.version, found.cookie) == (b"second", 2, moved)
        assert stub.load(cookie).value == b"second"


def test_load_makes_the_copies_that_will_be_missing(
    local: LocalCluster, stub: Stub, before: list[str]
) -> None:
    cookie = next(
        each
        for each in before[20:40]
        if DRAINING in named(local, each) and stub.load(each).cookie == each
    )
    stayed = [number for number in named(local, cookie) if number != DRAINING]
    short = Stub(local.cluster, W=3, WQ=3)  # Those that stay are too few for it.
    found = short.load(cookie)
    short.close()
    assert DRAINING not in named(local, found.cookie)
    assert named(local, found.cookie)[: len(stayed)] == stayed
    assert len(named(local, found.cookie)) == 3


@pytest.mark.parametrize("is_first_aware", [True, False], ids=["aware", "unaware"])
def test_of_two_writes_one_conflicts_also_if_only_one_stub_knows(  # T2 of the tally
    local: LocalCluster, stub: Stub, before: list[str], *, is_first_aware: bool
) -> None:
    other = unaware(local)
    writers = [stub, other] if is_first_aware else [other, stub]
    everyone = other._bricks.live
    tried = 0
    for number in range(20, 40) if is_first_aware else range(40, 60):
        cookie = decoded(before[number], local.cluster.config)
        two = cookie.copies[:2]
        if DRAINING in dict(two):  # And the stub that does not know takes the other for dead.
            other._bricks.live = {
                each: everyone[each] for each in everyone if each not in dict(two)
            }
            other._bricks.live[DRAINING] = everyone[DRAINING]
            other._bricks._sort()
            cookie = msgspec.structs.replace(cookie, copies=two)
            tried += 1
        text = encode(cookie, ring_of(local.cluster.config).current())
        writers[0].write(key_of(number), b"second", ttl_s=TTL_S, cookie=text)
        with pytest.raises(StateConflict):
            writers[1].write(key_of(number), b"lost", ttl_s=TTL_S, cookie=text)
    assert tried
    other.close()


def test_it_ends_when_nothing_is_left_and_stays_so_until_it_is_asked_for(  # K5
    local: LocalCluster, stub: Stub, before: list[str]
) -> None:
    bricks = RawBricks(local.cluster)
    states: set[tuple[State, float]] = set()

    def heard(header: News, beacon: Beacon) -> None:
        if header.sender == "brick-1":
            states.add((beacon.state, beacon.statistics["draining"]))

    bricks.member.subscribe(BEACON_TOPIC, Beacon, heard)
    config = local.cluster.config.source
    incarnation = brick_of(stub).incarnation
    assert isinstance(drain(stub), Reply)  # Once more, which changes nothing.
    code, _, complaint = run("drain", "brick-2", "--config", config)
    assert code == 1
    assert "brick-1 drains already" in complaint
    code, said, _ = run("drain", "brick-1", "--json", "--config", config)
    assert code == 0
    [row] = json.loads(said)["draining"]
    assert (row["id"], row["items"] > 0, row["ended"]) == ("brick-1", True, False)
    words = softstate("drain", "brick-1", "--wait", "--config", config)
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        in_thread = gevent.get_hub().threadpool.apply
        assert in_thread(process.stdout.readline) == f"brick-1: {row['items']} sessions left\n"
        for cookie in before:
            stub.delete(cookie)
        rest, _ = in_thread(process.communicate)
    assert "brick-1: empty, ended after " in rest
    assert process.returncode == 0
    assert told(bricks, "brick-1", "drained") == ["no session is left in it"]
    until(lambda: told(bricks, "brick-1", "exited"), PATIENCE_S, "its end")
    assert told(bricks, "brick-1", "exited") == ["ended by itself, as asked"]
    # A change of its state is news to stubs; one of its statistics alone is not.
    assert states == {("draining", 1.0), ("offline", 0.0)}
    assert stub.write("alice", b"value", ttl_s=TTL_S)
    local.start("brick-1")
    peer = bricks.peer("brick-1", after=incarnation)
    assert peer.statistics["draining"] == 0
    bricks.stored("brick-1", 1, b"value")
    bricks.close()
