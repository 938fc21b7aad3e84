"""A brick as stubs see it: every outcome, full memory, garbage, a value that rots, overload.

Method: real bricks in a local cluster, asked one request at a time without a stub. What the tables
and the inbox decide is tested in their own files; here, that a process does it.
"""

from collections.abc import Iterator

import gevent
import pytest

from bus.clock import now
from bus.errors import RequestTimeoutError
from bus.frames import raw
from bus.headers import Ask
from bus.messages import Message, Ping, Pong, Refused
from bus.replies import Reply
from bus.server import Call
from roles.brick import DAMAGED, RANKS, rank_of
from roles.inquiry import event_rows
from roles.messages import DescribeLeases
from roles.session_messages import (
    CorruptSession,
    DeleteSession,
    HandOver,
    ReadSession,
    SessionAnswer,
    StoreSession,
    TouchSession,
    checksum_of,
    data_incarnation_of,
    is_full,
)
from roles.testing import LocalCluster
from tests.roles.raw_bricks import RawBricks, sid_of, storing
from tests.waiting import until

PATIENCE_S = 10.0
MEMORY = 1 << 20
SETTINGS = {"sessions": {"memory_bytes_max": MEMORY, "value_bytes_max": 300_000}}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(hubs=1, nodes=1, bricks=3, preset="fast", settings=SETTINGS) as local:
        yield local


@pytest.fixture(scope="module")
def bricks(local: LocalCluster) -> Iterator[RawBricks]:
    bricks = RawBricks(local.cluster)
    yield bricks
    bricks.close()


# Outcomes.


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"", b"a value", bytes(100_000)], ids=["empty", "short", "long"])
def test_what_was_stored_is_read_with_all_that_is_known_of_it(
    bricks: RawBricks, value: bytes
) -> None:
    number = len(value) + 1
    brick = bricks.peer("brick-1")
    bricks.stored("brick-1", number, value, version=4)
    answer, body = bricks.read("brick-1", number, version=4)
    assert body == value
    assert (answer.outcome, answer.version) == ("value", 4)
    assert answer.checksum == checksum_of(sid_of(number), 4, value)
    assert 50 < answer.ttl_s < 60
    assert answer.data_incarnation == data_incarnation_of(brick.incarnation)
    assert bricks.read("brick-1", number, version=5)[0].outcome == "missing"
    assert bricks.delete("brick-1", number) == "deleted"


@pytest.mark.slow
def test_older_version_is_a_conflict_with_what_is_held(bricks: RawBricks) -> None:
    bricks.stored("brick-1", 10, b"two", version=2)
    reply = bricks.store("brick-1", 10, b"one", version=1)
    assert isinstance(reply, Reply)
    assert (reply.message.outcome, reply.message.version) == ("conflict", 2)
    assert reply.message.checksum == checksum_of(sid_of(10), 2, b"two")
    bricks.stored("brick-1", 10, b"two", version=2)
    assert bricks.read("brick-1", 10)[1] == b"two"


@pytest.mark.slow
def test_touched_lives_longer_and_deleted_stays_so(bricks: RawBricks) -> None:
    bricks.stored("brick-1", 11, b"value")
    assert bricks.touch("brick-1", 11, 600.0) == "touched"
    assert bricks.read("brick-1", 11)[0].ttl_s > 590
    assert bricks.delete("brick-1", 11) == "deleted"
    assert bricks.read("brick-1", 11)[0].outcome == "deleted"
    assert bricks.touch("brick-1", 11, 600.0) == "deleted"
    reply = bricks.store("brick-1", 11, b"late", version=2)
    assert isinstance(reply, Reply)
    assert reply.message.outcome == "deleted"
    assert bricks.touch("brick-1", 12, 600.0) == "missing"


@pytest.mark.slow
def test_what_expires_is_missing_at_once_and_swept_soon(bricks: RawBricks) -> None:
    def items() -> float:
        return bricks.peer("brick-2").statistics["items"]

    for number in range(20, 25):
        reply = bricks.store("brick-2", number, b"short", ttl_s=1.0)
        assert isinstance(reply, Reply)
    stored_at = now()
    until(lambda: items() == 5, PATIENCE_S, "five sessions told of")
    until(lambda: bricks.read("brick-2", 20)[0].outcome == "missing", PATIENCE_S, "expired")
    assert now() - stored_at < 1.5
    until(lambda: items() == 0, PATIENCE_S, "swept")


# Limits and garbage.


@pytest.mark.slow
def test_full_brick_refuses_new_sessions_and_nothing_else(bricks: RawBricks) -> None:
    value = bytes(8192)
    number, refused = 1000, None
    while refused is None:
        number += 1
        reply = bricks.store("brick-2", number, value)
        refused = reply if isinstance(reply, Refused) else None
    assert is_full(refused)
    assert refused.retry_after_s == 1.0
    assert 0.8 * MEMORY / 8192 < number - 1000 < MEMORY / 8192
    bricks.stored("brick-2", 1001, value, version=2)
    assert bricks.touch("brick-2", 1002, 100.0) == "touched"
    assert bricks.read("brick-2", 1003)[1] == value
    assert bricks.delete("brick-2", 1004) == "deleted"
    bricks.stored("brick-2", number, value)  # There is room again.
    memory = bricks.peer("brick-2").statistics["memory_bytes"]
    until(lambda: bricks.peer("brick-2").statistics["memory_bytes"] > memory, PATIENCE_S, "told of")
    assert bricks.peer("brick-2").statistics["memory_bytes"] <= MEMORY


@pytest.mark.slow
def test_value_beyond_the_limit_is_refused_with_the_limit(bricks: RawBricks) -> None:
    refused = bricks.store("brick-1", 30, bytes(302_000))
    assert refused == Refused("failed", "a value of 302000 bytes: at most 301024")


@pytest.mark.slow
def test_value_damaged_on_its_way_is_not_stored(bricks: RawBricks) -> None:
    refused = bricks.ask("brick-1", storing(31, b"value"), b"valve")
    assert refused == Refused("failed", "the value does not match its checksum")
    assert bricks.read("brick-1", 31)[0].outcome == "missing"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (ReadSession(b"short", 1), "length >= 16"),
        (ReadSession(bytes(17), 1), "length <= 16"),
        (ReadSession(sid_of(1), -1), "`int` >= 0"),
        (ReadSession(sid_of(1), 1 << 63), "`int` <="),
        (StoreSession(sid_of(1), 0, 60.0, bytes(16), 0), "`int` >= 1"),
        (StoreSession(sid_of(1), 1, 60.0, b"", 0), "length >= 16"),
        (TouchSession(sid_of(1), 1, 0.0), "`float` > 0"),
        (DeleteSession(sid_of(1), 1e10), "`float` <="),
        (DescribeLeases(), "Invalid value 'describe-leases'"),
    ],
    ids=str,
)
def test_garbage_is_refused_in_words(
    bricks: RawBricks, message: ReadSession, complaint: str
) -> None:
    refused = bricks.ask("brick-1", message)
    assert isinstance(refused, Refused)
    assert refused.reason == "unknown"
    assert complaint in refused.detail


@pytest.mark.slow
def test_time_to_live_beyond_the_configured_is_refused(bricks: RawBricks) -> None:
    refused = bricks.store("brick-1", 32, b"value", ttl_s=31 * 86_400.0)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.detail[:6]) == ("failed", "ttl_s ")


# Statistics.


@pytest.mark.slow
def test_what_a_brick_does_and_holds_is_in_its_beacon(bricks: RawBricks) -> None:
    seen: dict[str, float] = {}

    def all_seen() -> bool:
        bricks.stored("brick-1", 40, bytes(100), version=1 + round(now() * 1000))
        bricks.read("brick-1", 40)
        bricks.read("brick-1", 41)
        bricks.touch("brick-1", 40, 60.0)
        bricks.delete("brick-1", 42)
        for name, value in bricks.peer("brick-1").statistics.items():
            seen[name] = max(seen.get(name, 0.0), value)
        wanted = """reads_per_s writes_per_s touches_per_s deletes_per_s misses_per_s bytes_in_per_s
            bytes_out_per_s items marks memory_bytes tables table_oldest_s service_s queue_s
            busy_ratio data_incarnation minor_faults_per_s allocated_blocks"""
        return all(seen.get(name) for name in wanted.split())

    until(all_seen, PATIENCE_S, "all of them above 0")
    assert seen["bytes_in_per_s"] > 50 * seen["writes_per_s"]
    also = """inbox_length loop_lag_s refused_per_s expired_per_s overloaded unswept
        table_youngest_s turned_away_full_per_s turned_away_hopeless_per_s turned_away_late_per_s
        marks_forgotten"""
    assert set(also.split()) <= seen.keys()


# A value that rots.


@pytest.mark.slow
def test_damaged_value_ends_the_brick_and_is_never_served(  # K1
    local: LocalCluster, bricks: RawBricks
) -> None:
    before = bricks.peer("brick-3")
    for number in (50, 51):
        bricks.stored("brick-3", number, b"value")
    spoilt = bricks.answer("brick-3", CorruptSession(sid_of(50)))[0]
    assert spoilt.outcome == "value"
    assert bricks.answer("brick-3", CorruptSession(sid_of(99)))[0].outcome == "missing"
    refused = bricks.ask("brick-3", ReadSession(sid_of(50), 1))
    assert refused == Refused("failed", "brick-3 is ending: its memory is damaged")
    refused = bricks.ask("brick-3", ReadSession(sid_of(51), 1))  # Sound, but who knows.
    assert isinstance(refused, Refused)

    def told() -> set[tuple[str, str]]:
        rows = event_rows(bricks.member, 100, 5.0)
        return {(each.kind, each.reason) for each in rows.events if each.subject == "brick-3"}

    until(lambda: ("exited", f"exit code {DAMAGED}") in told(), PATIENCE_S, "its end")
    [reason] = [reason for kind, reason in told() if kind == "damaged"]
    assert sid_of(50).hex() in reason
    local.start("brick-3")
    after = bricks.peer("brick-3", after=before.incarnation)
    assert after.statistics["data_incarnation"] != before.statistics["data_incarnation"]
    assert bricks.read("brick-3", 51)[0].outcome == "missing"


# Overload.


def goodput(bricks: RawBricks, brick_id: str, count: int, timeout_s: float) -> tuple[int, float]:
    """How many of so many reads at once are answered in time; and how long a ping takes then."""
    endpoint = bricks.peer(brick_id).endpoint
    client = bricks.member.client
    answered = 0

    def read() -> None:
        nonlocal answered
        try:
            reply = client.ask(
                endpoint, ReadSession(sid_of(1), 1), expect=SessionAnswer, timeout_s=timeout_s
            )
        except RequestTimeoutError:
            return
        answered += isinstance(reply, Reply)

    asking = [gevent.spawn(read) for _ in range(count)]
    gevent.joinall(asking)
    began_at = now()
    assert isinstance(client.ask(endpoint, Ping(), expect=Pong, timeout_s=30.0), Reply)
    return answered, now() - began_at


@pytest.mark.slow
@pytest.mark.parametrize("protection", [True, False])
def test_brick_discards_what_comes_too_late_unless_it_is_told_not_to(*, protection: bool) -> None:
    settings = {"sessions": {"extra_cost_ms": 5.0, "protection": protection}}
    with LocalCluster(hubs=1, nodes=1, bricks=1, preset="fast", settings=settings) as local:
        bricks = RawBricks(local.cluster)
        bricks.stored("brick-1", 1, b"value")
        goodput(bricks, "brick-1", 20, 1.0)  # It learns how long one takes.
        answered, ping_s = goodput(bricks, "brick-1", 300, 0.2)
        assert 10 <= answered <= 41  # 0.2 s / 5 ms, at most.
        if protection:
            assert ping_s < 0.2
        else:
            assert ping_s > 0.9  # It still does what nobody waits for: 1.5 s of it.
        bricks.close()


# Ranks.


def asked(message: Message, priority: int = 0) -> Call[Message]:
    return Call(b"", "", Ask(1, "stub-1", 1, 1000, priority, 0, raw(message)), b"", message)


def test_orders_come_before_existing_sessions_before_new_ones_then_priority() -> None:
    read, new = ReadSession(sid_of(1), 1), storing(1, b"", version=1)
    old = storing(1, b"", version=2)
    order = [
        asked(HandOver()),
        asked(read, 99),
        asked(old, 2),
        asked(read, 0),
        asked(TouchSession(sid_of(1), 1, 1.0), -2),
        asked(DeleteSession(sid_of(1), 1.0), -99),
        asked(new, 3),
        asked(new, -4),
    ]
    ranks = [rank_of(each) for each in order]
    assert ranks == sorted(set(ranks))
    assert rank_of(asked(Ping())) == 0
    assert ranks[-1] == RANKS - 1
