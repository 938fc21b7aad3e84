"""Sessions through real bricks: what is written is read, whoever dies; every way to fail.

Method: one cluster of four bricks on two nodes for the whole file, and clusters of their own for
tests that break it. Bricks are killed and stopped for real.
"""

import secrets
import subprocess
import sys
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from functools import partial

import gevent
import msgspec
import pytest

from bus.clock import now, wall_s
from bus.config import Config
from bus.errors import (
    BusError,
    ConfigError,
    CookieCorrupted,
    LinkError,
    NotReady,
    StateConflict,
    StateCorrupted,
    StateExpired,
    StateLost,
    SystemOverloaded,
)
from bus.messages import Refused
from roles import Cluster, Session, Stub
from roles.admission import LEVELS, Admission
from roles.brick_view import Brick
from roles.chaos import Chaos
from roles.cookie import UNSURE, Cookie, encode
from roles.key_ring_file import KeyRingFile, rotate_file
from roles.session_keeper import Keeper
from roles.session_messages import HandedOver, HandOver, StoreSession, checksum_of
from roles.session_web import Format, Terms, WebSession
from roles.testing import LocalCluster
from tests.roles.lying_bricks import lying_brick
from tests.roles.raw_bricks import RawBricks
from tests.waiting import until

pytestmark = pytest.mark.slow

VALUE = b"a cart with three books"
TTL_S = 60.0


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(hubs=2, nodes=2, bricks=4, preset="fast") as cluster:
        yield cluster


@pytest.fixture
def stub(local: LocalCluster) -> Iterator[Stub]:
    # A patient stub: these tests ask for what must hold on a busy machine.
    made = Stub(local.cluster, timeout_ms=2000)
    yield made
    made.close()


def copies(cookie: str, config: Config) -> list[int]:
    return [number for number, _ in decoded(cookie, config).copies]


def ring_of(config: Config) -> KeyRingFile:
    return KeyRingFile(config.key_ring_path, config.sessions.application)


def decoded(cookie: str, config: Config) -> Cookie:
    return ring_of(config).decode(cookie)


def succeeds(call: Callable[[], object]) -> bool:
    """Whether it is not refused for overload; what else it raises is raised."""
    try:
        call()
    except SystemOverloaded:
        return False
    return True


def test_what_is_written_is_read(stub: Stub) -> None:
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    assert len(cookie) < 200
    assert stub.read(cookie) == VALUE
    assert stub.load(cookie) == Session(VALUE, cookie, 1)


@pytest.mark.parametrize("value", [b"", b"x" * 100_000, bytearray(b"abc"), memoryview(b"abc")])
def test_any_bytes_are_a_value(stub: Stub, value: bytes) -> None:
    assert stub.read(stub.write(b"key", value, ttl_s=TTL_S)) == bytes(value)


def test_each_write_is_the_next_version_and_old_cookies_find_the_newest(stub: Stub) -> None:
    first = stub.write("alice", b"1", ttl_s=TTL_S)
    second = stub.write("alice", b"2", ttl_s=TTL_S, cookie=first)
    assert stub.load(second).version == 2
    found = stub.load(first)
    assert (found.value, found.version) == (b"2", 2)
    assert stub.read(found.cookie) == b"2"


def test_a_slow_request_does_not_overwrite_a_newer_session(stub: Stub) -> None:
    first = stub.write("alice", b"1", ttl_s=TTL_S)
    stub.write("alice", b"2", ttl_s=TTL_S, cookie=first)
    with pytest.raises(StateConflict) as raised:
        stub.write("alice", b"slow", ttl_s=TTL_S, cookie=first)
    current = stub.load(raised.value.cookie)
    assert (current.value, current.version) == (b"2", 2)
    assert stub.read(stub.write("alice", b"3", ttl_s=TTL_S, cookie=current.cookie)) == b"3"


def test_a_cookie_names_the_bricks_of_the_one_before_first_and_in_its_order(  # U1
    stub: Stub, local: LocalCluster
) -> None:
    config = local.cluster.config
    cookie = stub.write("alice", b"0", ttl_s=TTL_S)
    for number in range(1, 30):
        before = copies(cookie, config)
        cookie = stub.write("alice", b"%d" % number, ttl_s=TTL_S, cookie=cookie)
        assert copies(cookie, config)[:2] == before[:2]
        cookie = stub.touch(cookie, ttl_s=TTL_S + number)
        assert copies(cookie, config)[:2] == before[:2]


def test_of_two_writes_on_one_version_under_different_cookies_one_conflicts(stub: Stub) -> None:
    for _ in range(30):
        first = stub.write("alice", b"1", ttl_s=TTL_S)
        written = stub.write("alice", b"2", ttl_s=TTL_S, cookie=first)
        loaded = stub.load(first).cookie
        stub.write("alice", b"3", ttl_s=TTL_S, cookie=loaded)
        with pytest.raises(StateConflict):
            stub.write("alice", b"lost", ttl_s=TTL_S, cookie=written)


def test_a_slow_request_conflicts_though_the_first_brick_missed_the_newer_one() -> None:
    """It hung when that was written, and is there again; then the newer one's first brick dies."""
    with LocalCluster(hubs=1, nodes=2, bricks=5, preset="lan", heal=False) as local:
        config = local.cluster.config
        stub = Stub(local.cluster, timeout_ms=600)
        for _ in range(4):
            first = stub.write("alice", b"1", ttl_s=TTL_S)
            hung = f"brick-{copies(first, config)[0]}"
            local.pause(hung)
            stub.write("alice", b"2", ttl_s=TTL_S, cookie=first)
            local.resume(hung)
            with pytest.raises(StateConflict):
                stub.write("alice", b"slow", ttl_s=TTL_S, cookie=first)
        first = stub.write("alice", b"1", ttl_s=TTL_S)
        stub.write("alice", b"2", ttl_s=TTL_S, cookie=first)
        local.kill(f"brick-{copies(first, config)[0]}")
        with pytest.raises(StateConflict):
            stub.write("alice", b"slow", ttl_s=TTL_S, cookie=first)
        stub.close()


def test_a_session_of_which_two_writes_that_failed_left_two_versions_can_be_used_again(
    stub: Stub, local: LocalCluster
) -> None:
    """Each came to one of the bricks, as when all but one hang; the cookie names both."""
    cookie = stub.write("alice", b"one", ttl_s=TTL_S)
    found = decoded(cookie, local.cluster.config)
    raw = RawBricks(local.cluster)
    for (number, _), value in zip(found.copies[:2], (b"failed", b"failed, too"), strict=True):
        ask = StoreSession(
            found.sid,
            2,
            TTL_S,
            checksum_of(found.sid, 2, value),
            1,
            base_checksum=found.checksum,
        )
        answer, _ = raw.answer(f"brick-{number}", ask, value)
        assert answer.outcome == "stored"
    raw.close()
    with pytest.raises(StateConflict) as conflict:
        stub.write("alice", b"mine", ttl_s=TTL_S, cookie=cookie)
    loaded = stub.load(conflict.value.cookie)
    # A refresh may have given one of them another copy before it met the conflict; that one then
    # goes on. Of as many copies it is the first arbiter's: tests/roles/test_session_census.py.
    assert loaded.value in (b"failed", b"failed, too")
    after = stub.write("alice", b"mine", ttl_s=TTL_S, cookie=loaded.cookie)
    assert len(copies(after, local.cluster.config)) >= 2
    for each in (after, loaded.cookie, conflict.value.cookie, cookie):
        assert stub.read(each) == b"mine"


def test_of_many_writers_on_one_version_one_wins(stub: Stub) -> None:
    first = stub.write("alice", b"1", ttl_s=TTL_S)

    def attempt(number: int) -> str | None:
        try:
            return stub.write("alice", b"%d" % number, ttl_s=TTL_S, cookie=first)
        except StateConflict:
            return None

    racing = [gevent.spawn(attempt, number) for number in range(20)]
    gevent.joinall(racing, timeout=20)
    assert sum(each.value is not None for each in racing) <= 1


def test_a_deleted_session_stays_deleted_for_every_older_cookie(stub: Stub) -> None:  # U4
    cookies = [stub.write("alice", b"0", ttl_s=TTL_S)]
    for number in range(1, 4):
        cookies.append(stub.write("alice", b"%d" % number, ttl_s=TTL_S, cookie=cookies[-1]))
    stub.delete(cookies[-1])
    for cookie in cookies:
        with pytest.raises(StateExpired):
            stub.read(cookie)
        with pytest.raises(StateExpired):
            stub.write("alice", b"back", ttl_s=TTL_S, cookie=cookie)
        with pytest.raises(StateExpired):
            stub.touch(cookie, ttl_s=TTL_S)
    stub.delete(cookies[0])


def test_a_session_ends_with_its_time_unless_it_is_touched(stub: Stub) -> None:
    short = stub.write("alice", VALUE, ttl_s=1)
    longer = stub.touch(stub.write("bob", VALUE, ttl_s=1), ttl_s=TTL_S)

    def has_ended() -> bool:
        try:
            stub.read(short)
        except StateExpired:
            return True
        return False

    until(has_ended, 15.0, "the end of a session of one second, with its slack")
    assert stub.read(longer) == VALUE


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), 100 * 365 * 86_400])
def test_impossible_lengths_of_life_are_refused(stub: Stub, ttl_s: float) -> None:
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    with pytest.raises(ValueError, match="ttl_s"):
        stub.write("alice", VALUE, ttl_s=ttl_s)
    with pytest.raises(ValueError, match="ttl_s"):
        stub.touch(cookie, ttl_s=ttl_s)


def test_too_long_values_are_refused(stub: Stub) -> None:
    with pytest.raises(ValueError, match="value_bytes_max"):
        stub.write("alice", b"x" * (1 << 21), ttl_s=TTL_S)
    with pytest.raises(TypeError, match="bytes"):
        stub.write("alice", "text", ttl_s=TTL_S)  # type: ignore[arg-type]


def test_cookies_that_are_not_ours_are_refused_and_touch_nothing(
    stub: Stub, local: LocalCluster
) -> None:
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    forged = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
    for bad in (forged, cookie[:50], "", "x" * 500, "\N{SNOWMAN}", cookie + "A"):
        with pytest.raises(CookieCorrupted):
            stub.read(bad)
    other = Stub(local.cluster, application="another")
    with pytest.raises(CookieCorrupted):
        other.read(cookie)
    other.close()
    with pytest.raises(CookieCorrupted, match="another key"):
        stub.write("bob", VALUE, ttl_s=TTL_S, cookie=cookie)
    assert stub.read(cookie) == VALUE


def test_cookies_of_another_time_are_refused_and_touch_nothing(
    stub: Stub, local: LocalCluster
) -> None:
    config = local.cluster.config
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)

    def ending_in(seconds: float) -> str:
        known = decoded(cookie, config)
        changed = msgspec.structs.replace(known, expires_wall_s=int(wall_s() + seconds))
        return encode(changed, ring_of(config).current())

    calls: list[Callable[[str], object]] = [
        stub.read,
        stub.load,
        stub.delete,
        lambda bad: stub.touch(bad, ttl_s=TTL_S),
        lambda bad: stub.write("alice", b"bad", ttl_s=TTL_S, cookie=bad),
        lambda bad: stub.write("alice", b"bad", ttl_s=TTL_S, instead_of=bad),
    ]
    for call in calls:
        with pytest.raises(StateExpired):
            call(ending_in(-60))
        with pytest.raises(CookieCorrupted, match="future"):
            call(ending_in(config.sessions.ttl_s_max + 3600))
    assert stub.load(cookie) == Session(VALUE, cookie, 1)


def test_keys_are_rotated_under_a_running_stub_and_old_cookies_stay_good(
    stub: Stub, local: LocalCluster
) -> None:
    def key_of(cookie: str) -> bytes:
        return a2b_base64(cookie[:8].replace("-", "+").replace("_", "/"))[1:5]

    config = local.cluster.config
    cookie = old = stub.write("alice", VALUE, ttl_s=TTL_S)
    rotate_file(config.key_ring_path, config.sessions.ttl_s_max)

    def is_new_key_used() -> bool:
        nonlocal cookie
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S, cookie=cookie)
        return key_of(cookie) != key_of(old)

    until(is_new_key_used, 10.0, "a cookie under the new key")
    assert stub.read(old) == VALUE
    assert stub.read(cookie) == VALUE
    later = Stub(local.cluster, timeout_ms=2000)
    assert later.read(old) == VALUE
    later.close()


def test_what_is_refused_is_not_sent(local: LocalCluster) -> None:  # U3
    stub = Stub(local.cluster, timeout_ms=2000)
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    held = list(stub._bricks.live.values())
    for brick in held:
        brick.unheard_since = now() + TTL_S  # As if each just answered: busy, and not hanging.
        while brick.limiter.acquire():
            pass
    client = stub._member.client
    sent = client._request_id
    for call in (
        lambda: stub.read(cookie),
        lambda: stub.write("alice", VALUE, ttl_s=TTL_S, cookie=cookie),
        lambda: stub.write("bob", VALUE, ttl_s=TTL_S),
        lambda: stub.touch(cookie, ttl_s=TTL_S),
    ):
        assert not succeeds(call)
    assert client._request_id == sent
    for brick in held:
        while brick.limiter.in_flight:
            brick.limiter.release("answered", 0.0, now())
    assert stub.read(cookie) == VALUE
    stub.close()


def fill(brick: Brick, unheard_since: float) -> None:
    """As if it had all it may have, and had said nothing since then."""
    while brick.limiter.acquire():
        pass
    brick.unheard_since = unheard_since


def test_without_room_at_its_arbiters_nothing_is_written_past_them(local: LocalCluster) -> None:
    for first_s, second_s, is_done in (
        (0.0, 0.0, False),  # Both are busy.
        (9.0, 0.0, False),  # One hangs, and the other is busy.
        (9.0, 9.0, False),  # Both seem to hang.
        (0.4, 0.0, True),  # The first may hang: it is asked all the same.
        (0.4, 0.4, True),
        (9.0, None, True),  # It hangs, and the second decides.
        (None, 0.0, True),
    ):
        stub = Stub(local.cluster, timeout_ms=3000)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        held = [stub._bricks.live[number] for number in copies(cookie, local.cluster.config)]
        until(lambda: not any(b.limiter.in_flight for b in held), 5.0, "rest")  # noqa: B023
        for brick, unheard_s in zip(held, (first_s, second_s), strict=False):
            if unheard_s is not None:
                fill(brick, now() - unheard_s)
        write = partial(stub.write, "alice", VALUE, ttl_s=TTL_S, cookie=cookie)
        assert succeeds(write) == is_done, (first_s, second_s)
        if is_done:
            with pytest.raises(StateConflict):
                Stub(local.cluster).write("alice", b"lost", ttl_s=TTL_S, cookie=cookie)
        stub.close()


def test_a_load_that_cannot_refresh_is_no_refusal(local: LocalCluster) -> None:
    stub = Stub(local.cluster, timeout_ms=2000)
    config = local.cluster.config
    known = decoded(stub.write("alice", VALUE, ttl_s=TTL_S), config)
    unsure = encode(msgspec.structs.replace(known, flags=UNSURE), ring_of(config).current())
    bricks = stub._bricks.live.values()
    until(lambda: not any(b.limiter.in_flight for b in bricks), 5.0, "all answers")
    for number, brick in stub._bricks.live.items():
        if number != known.copies[0][0]:
            fill(brick, now() + TTL_S)
    refused = stub._count.refusals.value
    assert stub.load(unsure) == Session(VALUE, unsure, 1)
    assert stub._count.refusals.value == refused
    assert stub._admission._uncarried == 0
    stub.close()


def test_what_cannot_be_sent_leaves_nothing_in_flight(local: LocalCluster) -> None:
    stub = Stub(Cluster(local.cluster.config), timeout_ms=500)
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    bricks = stub._bricks.live.values()
    until(lambda: not any(b.limiter.in_flight for b in bricks), 5.0, "all answers")
    stub._member.client.close()
    for call in (stub.read, stub.delete, lambda cookie: stub.touch(cookie, ttl_s=TTL_S)):
        with pytest.raises(LinkError):
            call(cookie)
    assert not any(brick.limiter.in_flight for brick in bricks)
    stub.close()


def test_two_bricks_under_one_address_leave_nothing_in_flight(local: LocalCluster) -> None:
    stub = Stub(local.cluster, timeout_ms=500)
    one, two, *_ = bricks = list(stub._bricks.live.values())
    two.endpoint = one.endpoint  # As if it had died, and the other had its port now.
    for _ in range(20):
        stub.write("alice", VALUE, ttl_s=TTL_S)
    until(lambda: not any(b.limiter.in_flight for b in bricks), 5.0, "all answers")
    stub.close()


def test_a_stub_that_is_closed_ends_the_calls_that_wait() -> None:
    with LocalCluster(hubs=1, nodes=1, bricks=2, preset="lan", heal=False) as local:
        stub = Stub(Cluster(local.cluster.config), W=2, timeout_ms=30_000)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        local.pause("brick-1")
        local.pause("brick-2")
        outcomes: list[object] = []

        def call() -> None:
            try:
                outcomes.append(stub.read(cookie))
            except BusError as error:
                outcomes.append(type(error))

        waiting = gevent.spawn(call)
        until(lambda: stub._member.client.in_flight > 0, 5.0, "the request")
        stub.close()
        waiting.join(5.0)
        assert outcomes == [LinkError]
        local.resume("brick-1")
        local.resume("brick-2")


def test_a_stub_whose_making_is_interrupted_leaves_nothing(local: LocalCluster) -> None:
    cluster = Cluster(local.cluster.config)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.3):
        Stub(cluster, W=8, WQ=8, ready_s=30)
    assert cluster._member is None


def test_a_stub_may_have_a_key_ring_of_its_own(stub: Stub, local: LocalCluster) -> None:
    path = f"{local.cluster.config.run_directory}/other.keys"
    rotate_file(path, TTL_S)
    other = Stub(local.cluster, key_ring=path, timeout_ms=2000)
    cookie = other.write("alice", VALUE, ttl_s=TTL_S)
    assert other.read(cookie) == VALUE
    with pytest.raises(CookieCorrupted):
        stub.read(cookie)
    other.close()


def test_a_key_that_may_not_ask_is_no_overload() -> None:
    with LocalCluster(hubs=1, nodes=1, preset="fast") as local:
        rotate_file(local.cluster.config.key_ring_path, TTL_S)
        bricks = [lying_brick(local.cluster.config, number) for number in (1, 2)]
        stub = Stub(local.cluster, W=2, timeout_ms=2000)
        with pytest.raises(LinkError, match="permission"):
            stub.write("alice", b"denied", ttl_s=TTL_S)
        stub.close()
        for brick in bricks:
            brick.close()


def only_existing() -> Admission:
    """As when there is so much to do that only existing sessions are served."""
    admission = Admission()
    admission.cursor = LEVELS // 2
    admission._trickle = -1e9
    admission._period_began_at = now() + 3600
    return admission


def test_a_session_under_a_new_id_is_no_newcomer(local: LocalCluster) -> None:  # U3
    stub = Stub(local.cluster, timeout_ms=2000)
    cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
    stub._admission = only_existing()
    assert not succeeds(lambda: stub.write("alice", VALUE, ttl_s=TTL_S))
    fresh = stub.write("alice", VALUE * 2, ttl_s=TTL_S, instead_of=cookie)
    stub.delete(cookie)
    assert stub.load(fresh) == Session(VALUE * 2, fresh, 1)
    with pytest.raises(CookieCorrupted):
        stub.write("alice", VALUE, ttl_s=TTL_S, instead_of=fresh[:-1])
    with pytest.raises(ValueError, match="instead_of"):
        stub.write("alice", VALUE, ttl_s=TTL_S, cookie=fresh, instead_of=fresh)
    stub.close()


def test_copies_are_on_two_nodes(stub: Stub, local: LocalCluster) -> None:
    nodes = {each.id: each.node for each in local.components()}
    for _ in range(20):
        named = copies(stub.write("alice", VALUE, ttl_s=TTL_S), local.cluster.config)
        assert len({nodes[f"brick-{number}"] for number in named}) == 2


def test_settings_that_contradict_themselves_are_refused(local: LocalCluster) -> None:
    for settings in (
        {"W": 2, "WQ": 3},
        {"W": 1, "R": 2},
        {"W": "three"},
        {"limiter": "fast"},
        {"W_local": 2, "WQ_local": 0},
        {"encrypt": True, "value_bytes_max": 16 << 20},
        {"key_ring": "no-such-file"},
    ):
        with pytest.raises(ConfigError):
            Stub(local.cluster, **settings)


def test_a_closed_stub_says_so(local: LocalCluster) -> None:
    closed = Stub(local.cluster)
    cookie = closed.write("alice", VALUE, ttl_s=TTL_S)
    closed.close()
    with pytest.raises(LinkError):
        closed.read(cookie)


def test_a_stub_knows_all_bricks_from_the_first(local: LocalCluster) -> None:
    for _ in range(5):
        stub = Stub(Cluster(local.cluster.config))
        assert sorted(stub._bricks.live) == [1, 2, 3, 4]
        stub.close()


def test_without_bricks_a_stub_is_not_ready() -> None:
    with (
        LocalCluster(hubs=1, nodes=1, bricks=1, preset="fast") as small,
        pytest.raises(NotReady, match="WQ"),
    ):
        Stub(small.cluster, ready_s=0.5)


def test_a_login_that_gives_a_new_id_is_no_newcomer(local: LocalCluster) -> None:
    stub = Stub(local.cluster, timeout_ms=2000)
    keeper, form = Keeper(stub=stub), Format("session")
    made = keeper.create(form, {"cart": 3}, TTL_S, 0)
    stub._admission = only_existing()
    session = WebSession(made.cookie, lambda: keeper.load(form, made.cookie, 0))
    session.regenerate()
    told = keeper.end(session, form, Terms(TTL_S)).cookie
    assert told not in (None, "", made.cookie)
    assert keeper.load(form, str(told), 0).data == {"cart": 3}
    assert keeper.load(form, made.cookie, 0).reason == "expired"
    stub.close()


class Users:
    """Sessions that are read and written in turn, all the time, and what failed."""

    def __init__(self, stub: Stub, count: int) -> None:
        self._stub = stub
        self._cookies = {
            f"user-{number}": stub.write(f"user-{number}", b"%d" % number, ttl_s=TTL_S)
            for number in range(count)
        }
        self.failures: list[str] = []
        self._rounds = 0
        self._busy = gevent.spawn(self._use)

    def _use(self) -> None:
        while True:
            for number, key in enumerate(self._cookies):
                try:
                    found = self._stub.load(self._cookies[key])
                    assert found.value == b"%d" % number
                    self._cookies[key] = self._stub.write(
                        key, found.value, ttl_s=TTL_S, cookie=found.cookie
                    )
                except (AssertionError, BusError) as error:
                    self.failures.append(repr(error))
            self._rounds += 1

    def go_on(self, rounds: int) -> None:
        """Returns when each session was used so often."""
        enough = self._rounds + rounds
        until(lambda: self._rounds >= enough, 30.0, f"{rounds} rounds of all users")

    def end(self) -> None:
        self._busy.kill()


def test_bricks_may_be_killed_one_after_the_other_and_no_request_fails() -> None:
    """With a restart in between, every brick dies once; sessions are read and written all along."""
    with LocalCluster(hubs=2, nodes=2, bricks=5, preset="fast") as local:
        stub = Stub(local.cluster, timeout_ms=1000)
        users = Users(stub, 50)
        for number in range(1, 6):
            local.kill(f"brick-{number}")
            users.go_on(3)
            local.start(f"brick-{number}")
            local.wait_live(f"brick-{number}", timeout_s=10)
            users.go_on(2)
        users.end()
        assert users.failures == []
        stub.close()


def test_one_brick_may_hang_and_no_request_fails() -> None:
    """Its limiter is full of requests that come to nothing; the others have room."""
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="lan", heal=False) as local:
        stub = Stub(local.cluster, timeout_ms=600)
        cookies = {
            f"user-{number}": stub.write(f"user-{number}", VALUE, ttl_s=TTL_S)
            for number in range(40)
        }
        hung = stub._bricks.live[1]
        until(lambda: not hung.limiter.in_flight, 5.0, "all answers")
        local.pause("brick-1")
        paused_at = now()
        hung.limiter.limit = 1.0  # What comes of it, after a few timeouts.
        hung.limiter.acquire()
        hung.asked(paused_at)
        until(lambda: now() > paused_at + 0.6, 5.0, "the end of what it was asked before")
        for key, cookie in cookies.items():
            found = stub.load(cookie)
            assert found.value == VALUE
            stub.write(key, VALUE * 2, ttl_s=TTL_S, cookie=found.cookie)
        local.resume("brick-1")
        stub.close()


def test_one_brick_may_lose_most_of_what_it_says_and_no_request_fails() -> None:
    """It answers others all the time, so it is neither dead nor hung; yet nobody waits for it."""
    settings = {"chaos": True}
    with LocalCluster(nodes=2, bricks=4, preset="lan", heal=False, settings=settings) as local:
        stub = Stub(local.cluster, timeout_ms=400)
        crowd = [Users(stub, 10) for _ in range(4)]
        crowd[0].go_on(2)
        with Chaos(local.cluster, seed=1) as chaos:
            drop = chaos.drop("brick-1", for_s=20.0)
            for users in crowd:
                users.go_on(15)
            drop.heal()
        for users in crowd:
            users.end()
        failures = [failure for users in crowd for failure in users.failures]
        assert failures == []
        stub.close()


def test_a_brick_that_hands_over_makes_no_request_fail() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=3, preset="lan", heal=False) as local:
        stub = Stub(local.cluster, timeout_ms=2000)
        raw = RawBricks(local.cluster)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        first = copies(cookie, local.cluster.config)[0]
        endpoint = raw.peer(f"brick-{first}").endpoint
        users = Users(stub, 1)
        handed = raw.member.client.ask(endpoint, HandOver(), expect=HandedOver, timeout_s=5.0)
        assert not isinstance(handed, Refused)
        cookie = stub.write("alice", VALUE * 2, ttl_s=TTL_S, cookie=cookie)
        assert first not in copies(cookie, local.cluster.config)
        users.go_on(3)
        users.end()
        assert users.failures == []
        raw.close()
        stub.close()


def test_bricks_without_memory_refuse_new_sessions_and_carry_old_ones() -> None:
    small = {"sessions": {"memory_bytes_max": 1 << 20}}
    value = b"x" * 100_000
    with LocalCluster(hubs=1, nodes=1, bricks=3, preset="fast", settings=small) as local:
        stub = Stub(local.cluster, timeout_ms=2000)
        # Nine make 900 kB with their costs; a sixteenth of a mebibyte is not for new sessions.
        cookies = [stub.write(f"user-{number}", value, ttl_s=TTL_S) for number in range(9)]
        with pytest.raises(SystemOverloaded, match="no memory left"):
            stub.write("user-9", value, ttl_s=TTL_S)
        assert stub._admission._uncarried == 0, "fewer requests would be no help"
        again = stub.write("user-0", value[::-1], ttl_s=TTL_S, cookie=cookies[0])
        assert stub.read(again) == value[::-1]
        assert all(stub.read(cookie) == value for cookie in cookies[1:])
        stub.delete(again)
        assert stub.read(stub.write("new", value, ttl_s=TTL_S)) == value
        stub.close()


def test_bricks_that_have_memory_are_used_when_others_have_none() -> None:
    small = {"sessions": {"memory_bytes_max": 1 << 20}}
    with LocalCluster(hubs=1, nodes=1, bricks=5, preset="fast", settings=small) as local:
        raw = RawBricks(local.cluster)
        for brick_id in ("brick-1", "brick-2", "brick-3"):
            number = 0
            while not isinstance(raw.store(brick_id, number, b"x" * 40_000), Refused):
                number += 1
        stub = Stub(local.cluster, timeout_ms=2000)
        for _ in range(15):
            cookie = stub.write("alice", b"x" * 40_000, ttl_s=TTL_S)
            assert sorted(copies(cookie, local.cluster.config)) == [4, 5]
        raw.close()
        stub.close()


def sited(local: LocalCluster) -> Cluster:
    """The same cluster, with its two nodes at two sites."""
    config = local.cluster.config
    nodes = {
        name: msgspec.structs.replace(node, site=f"site-{name}")
        for name, node in config.nodes.items()
    }
    return Cluster(msgspec.structs.replace(config, nodes=nodes))


def test_a_site_may_be_lost_and_its_sessions_live_on_at_the_other() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=6, preset="fast") as local:
        config = local.cluster.config
        node_of = {each.id: each.node for each in local.components()}
        terms = {"W_local": 2, "WQ_local": 2, "W_remote": 1, "timeout_ms": 1500}
        here = Stub(sited(local), site="site-n1", **terms)
        there = Stub(sited(local), site="site-n2", **terms)
        cookies = [here.write("alice", VALUE, ttl_s=TTL_S) for _ in range(10)]
        for number, cookie in enumerate(cookies):
            nodes = [node_of[f"brick-{copy}"] for copy in copies(cookie, config)]
            assert sorted(nodes) == ["n1", "n1", "n2"]
            cookies[number] = here.write("alice", VALUE * 2, ttl_s=TTL_S, cookie=cookie)
            assert copies(cookies[number], config)[:2] == copies(cookie, config)[:2]
        visiting = there.write("alice", VALUE, ttl_s=TTL_S, cookie=cookies[0])
        assert copies(visiting, config)[:2] == copies(cookies.pop(0), config)[:2]  # U1
        for brick_id, node in node_of.items():
            if node == "n1" and brick_id.startswith("brick-"):
                local.kill(brick_id)
        for cookie in cookies:
            until(partial(succeeds, partial(there.read, cookie)), 10.0, "the other site")
            assert there.read(cookie) == VALUE * 2
            moved = there.write("alice", b"moved", ttl_s=TTL_S, cookie=cookie)
            nodes = [node_of[f"brick-{copy}"] for copy in copies(moved, config)]
            assert nodes.count("n2") >= 2
            assert there.read(moved) == b"moved"
        here.close()
        there.close()


def test_a_write_is_done_here_though_the_other_site_is_silent() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="lan", heal=False) as local:
        node_of = {each.id: each.node for each in local.components()}
        stub = Stub(sited(local), site="site-n1", W_local=2, WQ_local=2, W_remote=1, timeout_ms=500)
        far = [each for each in node_of if node_of[each] == "n2" and each.startswith("brick-")]
        for brick_id in far:
            local.pause(brick_id)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        named = [node_of[f"brick-{copy}"] for copy in copies(cookie, local.cluster.config)]
        assert named == ["n1", "n1"]
        for brick_id in far:
            local.resume(brick_id)
        stub.close()


def test_another_brick_of_the_site_is_asked_for_one_that_refuses() -> None:
    small = {"sessions": {"memory_bytes_max": 1 << 20}}
    with LocalCluster(hubs=1, nodes=2, bricks=6, preset="fast", settings=small) as local:
        raw = RawBricks(local.cluster)
        number = 0
        while not isinstance(raw.store("brick-1", number, b"x" * 40_000), Refused):
            number += 1
        site = f"site-{raw.peer('brick-1').node}"
        stub = Stub(sited(local), site=site, W_local=2, WQ_local=2, W_remote=1, timeout_ms=2000)
        for _ in range(8):
            stub._bricks.forgive(now() + TTL_S)
            stub._bricks._forgive_at = 0.0
            cookie = stub.write("alice", b"x" * 40_000, ttl_s=TTL_S)
            assert 1 not in copies(cookie, local.cluster.config)
        raw.close()
        stub.close()


LIES = [b"garbage", b"cut short", b"wrong key", b"older", b"other message"]


def test_answers_that_are_lies_are_never_a_value() -> None:
    with LocalCluster(hubs=1, nodes=1, preset="fast") as local:
        rotate_file(local.cluster.config.key_ring_path, TTL_S)
        bricks = [lying_brick(local.cluster.config, number) for number in (1, 2)]
        stub = Stub(local.cluster, W=2, timeout_ms=2000)
        honest = stub.write("honest", VALUE, ttl_s=TTL_S)
        for lie in LIES:
            value = b"one lies: " + lie
            assert stub.read(stub.write("alice", value, ttl_s=TTL_S)) == value
            cookie = stub.write("alice", b"all lie: " + lie, ttl_s=TTL_S)
            if lie == b"other message":
                with pytest.raises(SystemOverloaded, match="not the answer expected"):
                    stub.read(cookie)
            else:
                with pytest.raises(StateCorrupted):
                    stub.read(cookie)
            assert stub.read(honest) == VALUE
        stub.close()
        for brick in bricks:
            brick.close()


def test_when_every_copy_is_gone_that_is_said_and_other_sessions_live_on() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=5, preset="fast") as local:
        stub = Stub(local.cluster, timeout_ms=1000)
        lost = stub.write("lost", VALUE, ttl_s=TTL_S)
        dead = copies(lost, local.cluster.config)
        for number in dead:
            local.kill(f"brick-{number}")

        def is_known() -> bool:
            try:
                stub.read(lost)
            except StateLost:
                return True
            except SystemOverloaded:
                return False
            return False

        until(is_known, 10.0, "the loss to be known")
        # A brick that comes back empty under the same id has not got it either.
        local.start(f"brick-{dead[0]}")
        local.wait_live(f"brick-{dead[0]}", timeout_s=10)
        with pytest.raises(StateLost):
            stub.read(lost)
        assert stub.read(stub.write("other", VALUE, ttl_s=TTL_S)) == VALUE
        stub.close()


def test_too_few_answers_in_time_are_an_overload_with_a_time_to_wait() -> None:  # U2
    with LocalCluster(hubs=1, nodes=1, bricks=2, preset="lan", heal=False) as local:
        stub = Stub(local.cluster, W=2, timeout_ms=200)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        for number in (1, 2):
            local.pause(f"brick-{number}")
        began_at = now()
        with pytest.raises(SystemOverloaded) as raised:
            stub.read(cookie)
        assert raised.value.retry_after_s > 0
        assert now() - began_at < 2.0
        with pytest.raises(SystemOverloaded):
            stub.write("bob", VALUE, ttl_s=TTL_S)
        for number in (1, 2):
            local.resume(f"brick-{number}")

        def is_back() -> bool:
            try:
                return stub.read(cookie) == VALUE
            except SystemOverloaded:
                return False

        until(is_back, 15.0, "the session after the pause")
        stub.close()


def test_a_load_replaces_copies_that_were_lost() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="fast", heal=False) as local:
        config = local.cluster.config
        stub = Stub(local.cluster, W=2, timeout_ms=1000)
        cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
        first, second = copies(cookie, config)
        local.kill(f"brick-{first}")

        def refreshed() -> bool:
            return first not in copies(stub.load(cookie).cookie, config)

        until(refreshed, 10.0, "a cookie that names another brick")
        again = stub.load(cookie).cookie
        assert len(copies(again, config)) >= 2
        local.kill(f"brick-{second}")
        assert stub.read(again) == VALUE
        stub.close()


def test_a_new_brick_is_used_soon() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="fast", heal=False) as local:
        local.kill("brick-4")
        stub = Stub(local.cluster, timeout_ms=1000)
        local.start("brick-4")
        local.wait_live("brick-4", timeout_s=10)

        def is_used() -> bool:
            cookie = stub.write("alice", VALUE, ttl_s=TTL_S)
            return 4 in copies(cookie, local.cluster.config)

        until(is_used, 5.0, "a write to the new brick")
        stub.close()


def test_values_can_be_encrypted_and_only_the_stubs_can_read_them() -> None:
    with LocalCluster(hubs=1, nodes=1, bricks=3, preset="fast") as local:
        stub = Stub(local.cluster, timeout_ms=1000, encrypt=True)
        first = stub.write("alice", VALUE, ttl_s=TTL_S)
        second = stub.write("alice", VALUE * 2, ttl_s=TTL_S, cookie=first)
        assert stub.read(second) == VALUE * 2
        assert stub.load(first).value == VALUE * 2
        plain = Stub(local.cluster, timeout_ms=1000)
        with pytest.raises(ConfigError, match="encrypt"):
            plain.read(second)
        plain.close()
        stub.close()


def test_a_cookie_whose_session_nobody_has_is_lost(stub: Stub, local: LocalCluster) -> None:
    config = local.cluster.config
    ring = KeyRingFile(config.key_ring_path, config.sessions.application)
    known = ring.decode(stub.write("alice", VALUE, ttl_s=TTL_S))
    unknown = Cookie(
        known.key_hash,
        secrets.token_bytes(16),
        1,
        known.expires_wall_s,
        known.checksum,
        known.copies,
    )
    with pytest.raises(StateLost):
        stub.read(encode(unknown, ring.current()))


def test_a_patched_program_uses_it_all_the_same(local: LocalCluster) -> None:
    program = """
from gevent import monkey; monkey.patch_all()
import sys
from roles import Cluster, Stub
stub = Stub(Cluster.load(sys.argv[1]), timeout_ms=2000)
print(stub.read(stub.write("alice", b"patched", ttl_s=60)).decode())
stub.close()
"""
    source = local.cluster.config.source
    run = subprocess.run(
        [sys.executable, "-c", program, source], capture_output=True, text=True, timeout=30
    )
    assert run.stdout == "patched\n", run.stderr
