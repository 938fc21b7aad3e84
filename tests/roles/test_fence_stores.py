"""The fences in SQLite, PostgreSQL and Redis: real ones, and real writers that race.

Method: every writer appends the number it was admitted under to a history kept by the store
itself, inside the step that was fenced. The history must never go back. The same race without the
fence's condition must be caught going back, or the test would prove nothing.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from roles.fence import NUMBER_END
from roles.fence_redis import ARGUMENTS_MAX, RedisFence, number_key
from roles.fence_sql import SqlFence
from tests.servers import Postgres, Redis, why_not
from tests.waiting import until

if TYPE_CHECKING:
    import psycopg
    import redis

WRITERS = 8
TURNS = 25
WAIT_S_MAX = 60.0

pytestmark = pytest.mark.slow


NUMBERS = [
    [1 + turn + Random(turn * WRITERS + writer).randrange(9) for writer in range(WRITERS)]
    for turn in range(TURNS)
]
"""What the writers try in each turn: growing on the whole, as numbers do, but not one by one."""
SO_FAR = [max(chain(*NUMBERS[: turn + 1])) for turn in range(TURNS)]
"""The greatest up to and with each turn: admitted whoever comes first in its turn."""
TOO_LATE = sum(number < SO_FAR[turn - 1] for turn in range(1, TURNS) for number in NUMBERS[turn])
"""How many must be refused even if each turn happens to come in order."""


def race(attempt: Callable[[int, int], object]) -> None:
    """Eight threads at once, turn by turn: `attempt(writer, number)`."""
    turn_begins = Barrier(WRITERS)

    def write(writer: int) -> None:
        try:
            for numbers in NUMBERS:
                turn_begins.wait(WAIT_S_MAX)
                attempt(writer, numbers[writer])
        except BaseException:
            turn_begins.abort()  # Or the others would wait for us.
            raise

    with ThreadPoolExecutor(WRITERS) as threads:
        for running in [threads.submit(write, writer) for writer in range(WRITERS)]:
            running.result(WAIT_S_MAX)


def assert_fenced(history: list[int]) -> None:
    assert went_back(history) == []
    assert set(SO_FAR) <= set(history), "refused too much"
    assert len(history) <= WRITERS * TURNS - TOO_LATE


def went_back(history: list[int]) -> list[tuple[int, int]]:
    return [(before, after) for before, after in pairwise(history) if after < before]


def without(text: str, part: str) -> str:
    assert part in text, "the sabotage no longer fits the code"
    return text.replace(part, "")


# SQL


@dataclass
class Database:
    """A way to connect, and the fence for it. Connections are the caller's to close."""

    connect: Callable[[], Any]
    fence: SqlFence
    serial: str

    def prepare(self) -> None:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("DROP TABLE IF EXISTS softstate_fence")
            cursor.execute("DROP TABLE IF EXISTS history")
            cursor.execute(f"CREATE TABLE history (id {self.serial} PRIMARY KEY, number BIGINT)")
            self.fence.create(cursor)
            self.fence.create(cursor)  # A second time does nothing.
            connection.commit()

    def write(self, connection: Any, number: int) -> bool:  # noqa: ANN401 (any driver's)
        cursor = connection.cursor()
        if not self.fence.admit(cursor, "carts", "alice", number):
            connection.rollback()
            return False
        cursor.execute(f"INSERT INTO history (number) VALUES ({number})")
        connection.commit()
        return True

    def numbers(self, query: str) -> list[int]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            return [row[0] for row in cursor.fetchall()]

    def history(self) -> list[int]:
        return self.numbers("SELECT number FROM history ORDER BY id")

    def seen(self) -> list[int]:
        return self.numbers("SELECT number FROM softstate_fence")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if reason := why_not("postgres", "postgresql"):
        pytest.skip(reason)
    pytest.importorskip("psycopg", reason="no `psycopg`, or no libpq for it", exc_type=ImportError)
    with Postgres() as server:
        yield server


def connect(server: Postgres) -> "psycopg.Connection[tuple[Any, ...]]":
    import psycopg

    return psycopg.connect(host=str(server.directory), user=server.user, dbname="postgres")


@pytest.fixture(params=["sqlite-qmark", "sqlite-named", "postgres-format", "postgres-pyformat"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    kind, _, paramstyle = request.param.partition("-")
    fence = SqlFence(paramstyle)
    if kind == "sqlite":
        path = tmp_path / "database"
        made = Database(
            lambda: sqlite3.connect(path, timeout=WAIT_S_MAX, check_same_thread=False),
            fence,
            "INTEGER",
        )
    else:
        server = request.getfixturevalue("postgres")
        made = Database(lambda: connect(server), fence, "BIGSERIAL")
    made.prepare()
    return made


def race_in(database: Database) -> list[int]:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(database.connect())) for _ in range(WRITERS)]
        race(lambda writer, number: database.write(connections[writer], number))
    return database.history()


def test_sql_refuses_the_delayed_write_of_a_replaced_owner(database: Database) -> None:  # Q1
    with closing(database.connect()) as old, closing(database.connect()) as new:
        assert database.write(old, 7)
        assert database.write(old, 7), "an owner may write as often as it likes"
        assert database.write(new, 8)
        assert not database.write(old, 7)
        assert database.write(new, 8)
    assert (database.history(), database.seen()) == ([7, 7, 8, 8], [8])


def test_sql_remembers_a_number_only_if_the_write_is_committed(database: Database) -> None:  # Q2
    with closing(database.connect()) as old, closing(database.connect()) as new:
        assert database.fence.admit(new.cursor(), "carts", "alice", 8)
        new.rollback()
        assert database.write(old, 7)
    assert database.seen() == [7]


def test_sql_keys_and_namespaces_do_not_mix(database: Database) -> None:
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        places = [("carts", "alice"), ("carts", "Alice"), ("cart", "salice"), ("cart", "alice")]
        for number, (namespace, key) in enumerate(places, start=2):
            assert database.fence.admit(cursor, namespace, key, number)
        for number, (namespace, key) in enumerate(places, start=2):
            assert database.fence.admit(cursor, namespace, key, number)
            assert not database.fence.admit(cursor, namespace, key, number - 1)
        connection.rollback()


def test_sql_keeps_the_greatest_number_exactly(database: Database) -> None:
    with closing(database.connect()) as connection:
        assert database.write(connection, NUMBER_END - 1)
        assert not database.write(connection, NUMBER_END - 2)
    assert database.seen() == [NUMBER_END - 1]


def test_sql_numbers_never_go_back_under_racing_writers(database: Database) -> None:  # Q1
    history = race_in(database)
    assert_fenced(history)
    assert database.seen() == [max(history)]


def test_sql_race_goes_back_without_the_condition(database: Database) -> None:
    database.fence._admit = without(database.fence._admit, "WHERE seen.number <= excluded.number")
    assert went_back(race_in(database)) != []


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls-back"])
def test_postgres_owner_waits_for_the_one_inside_and_sees_what_became_of_it(
    postgres: Postgres, *, commits: bool
) -> None:
    database = Database(lambda: connect(postgres), SqlFence("format"), "BIGSERIAL")
    database.prepare()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with connect(postgres) as new, connect(postgres) as old, ThreadPoolExecutor(1) as thread:
        assert database.fence.admit(new.cursor(), "carts", "alice", 8)
        late = thread.submit(database.write, old, 7)
        until(lambda: database.numbers(waiting) == [1], WAIT_S_MAX, "the old owner waits")
        new.commit() if commits else new.rollback()
        assert late.result(WAIT_S_MAX) is not commits
    assert database.seen() == ([8] if commits else [7])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_postgres_admits_nothing_by_an_older_snapshot(postgres: Postgres, level: str) -> None:
    import psycopg

    database = Database(lambda: connect(postgres), SqlFence("format"), "BIGSERIAL")
    database.prepare()
    with connect(postgres) as new, connect(postgres) as old:
        old.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        old.execute("SELECT * FROM softstate_fence")  # From here it sees nothing newer.
        assert database.write(new, 8)
        with pytest.raises(psycopg.errors.SerializationFailure):
            database.fence.admit(old.cursor(), "carts", "alice", 7)
        old.rollback()
    assert database.seen() == [8]


@pytest.mark.parametrize(
    ("namespace", "key", "number"),
    [
        ("carts", "alice", 0),
        ("carts", "alice", NUMBER_END),
        ("carts", "nul\0", 1),
        ("carts", "k" * 1025, 1),
        ("carts", b"alice", 1),
        ("n" * 1025, "alice", 1),
        ("carts", "\ud800", 1),
    ],
)
def test_sql_bad_input_is_an_error_before_anything_is_sent(
    namespace: str, key: str, number: int
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ValueError, match=r"."):
        SqlFence("qmark").admit(connection.cursor(), namespace, key, number)


@pytest.mark.parametrize("table", ["fence; DROP TABLE x", "Fence", "a.b.c", "", "f" * 64])
def test_sql_table_name_that_is_more_than_a_name_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="a table is named like"):
        SqlFence("qmark", table=table)


def test_sql_paramstyle_that_we_do_not_speak_is_refused() -> None:
    with pytest.raises(ValueError, match="paramstyle is one of qmark, format, named, pyformat"):
        SqlFence("numeric")


# Redis


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[Redis]:
    if reason := why_not("redis-server", "redis-server"):
        pytest.skip(reason)
    pytest.importorskip("redis")
    with Redis(cluster=request.param) as running:
        yield running


@pytest.fixture
def client(server: Redis) -> Iterator["redis.Redis"]:
    import redis

    with redis.Redis(unix_socket_path=server.socket, decode_responses=True) as connected:
        connected.flushall()
        yield connected


def history_of(client: "redis.Redis") -> list[int]:
    return [int(number) for number in client.lrange("history", 0, -1)]


def race_through(server: Redis, fences: list[RedisFence]) -> None:
    race(lambda writer, number: fences[writer].execute("history", number, "RPUSH", number))


@pytest.fixture
def fences(server: Redis) -> Iterator[list[RedisFence]]:
    import redis

    clients = [redis.Redis(unix_socket_path=server.socket) for _ in range(WRITERS)]
    yield [RedisFence(client, "carts") for client in clients]
    for client in clients:
        client.close()


def test_redis_refuses_the_delayed_write_of_a_replaced_owner(client: "redis.Redis") -> None:  # X1
    fence = RedisFence(client, "carts")
    assert fence.execute("alice", 7, "SET", "old") == ("OK",)
    assert fence.execute("alice", 8, "SET", "new") == ("OK",)
    assert fence.execute("alice", 7, "SET", "late") is None
    assert fence.execute("alice", 7, "DEL") is None
    assert fence.execute("alice", 8, "GET") == ("new",)
    assert fence.execute("bob", 7, "GET") == (None,), "admitted, and there is nothing"


def test_redis_number_is_remembered_before_anything_is_written(client: "redis.Redis") -> None:
    fence = RedisFence(client, "carts")
    assert fence.admit("alice", 8)
    assert fence.admit("alice", 8)
    assert not fence.admit("alice", 7)
    assert fence.execute("alice", 7, "SET", "late") is None
    assert client.get("alice") is None
    assert RedisFence(client, "baskets").admit("alice", 7), "another namespace counts by itself"


def test_redis_command_that_fails_has_been_seen_all_the_same(client: "redis.Redis") -> None:  # X2
    import redis

    fence = RedisFence(client, "carts")
    assert fence.execute("alice", 7, "SET", "no integer")
    with pytest.raises(redis.ResponseError, match="not an integer"):
        fence.execute("alice", 8, "INCR")
    assert not fence.admit("alice", 7)


@pytest.mark.parametrize("number", [2**53 + 1, 10**9 + 1, 10**18, NUMBER_END - 1])
def test_redis_compares_great_numbers_exactly(client: "redis.Redis", number: int) -> None:  # X4
    fence = RedisFence(client, "carts")
    assert fence.admit("alice", number - 1)
    assert fence.admit("alice", number)
    assert not fence.admit("alice", number - 1)
    assert not fence.admit("alice", 9)
    assert client.get(number_key("carts", "alice")) == f"{number:019}"


def test_redis_numbers_never_go_back_under_racing_writers(  # X1 X2
    server: Redis, client: "redis.Redis", fences: list[RedisFence]
) -> None:
    race_through(server, fences)
    history = history_of(client)
    assert_fenced(history)
    assert client.get(number_key("carts", "history")) == f"{max(history):019}"


def test_redis_race_goes_back_without_the_condition(
    server: Redis, client: "redis.Redis", fences: list[RedisFence]
) -> None:
    for fence in fences:
        condition = "if seen and less(ARGV[1], seen) then return {0} end"
        fence._script = without(fence._script, condition)
    race_through(server, fences)
    assert went_back(history_of(client)) != []


@pytest.mark.parametrize(
    "key", ["alice", "user:{42}:cart", "a{b", "{{x}}", "x{y}{z}", "ålice", "{a\nb}", " "]
)
def test_redis_number_is_kept_in_the_slot_of_its_key(  # X3
    server: Redis, client: "redis.Redis", key: str
) -> None:
    assert RedisFence(client, "carts").execute(key, 1, "SET", "value") == ("OK",)
    if server.cluster:
        places = (key, number_key("carts", key))
        assert len({server.told("CLUSTER", "KEYSLOT", place) for place in places}) == 1


def test_redis_forgets_a_number_when_told_to_and_never_otherwise(client: "redis.Redis") -> None:
    brief, lasting = RedisFence(client, "brief", keep_s=0.05), RedisFence(client, "lasting")
    assert brief.admit("alice", 8)
    assert lasting.admit("alice", 8)
    assert 0 < client.pttl(number_key("brief", "alice")) <= 50
    assert client.pttl(number_key("lasting", "alice")) == -1
    until(lambda: brief.admit("alice", 7), WAIT_S_MAX, "it is forgotten")


@pytest.mark.parametrize("key", ["", "a}b", "{}a", "k" * 1025, b"alice", "\ud800"])
def test_redis_key_that_has_no_neighbour_by_name_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        number_key("carts", key)


def test_redis_bad_input_is_an_error(client: "redis.Redis") -> None:
    fence = RedisFence(client, "carts")
    with pytest.raises(ValueError, match="a lease number is"):
        fence.execute("alice", 0, "SET", "value")
    with pytest.raises(ValueError, match="at most 1000 arguments"):
        fence.execute("alice", 1, "RPUSH", *range(ARGUMENTS_MAX + 1))
    assert fence.execute("alice", 1, "RPUSH", *range(ARGUMENTS_MAX)) == (ARGUMENTS_MAX,)
    with pytest.raises(ValueError, match="a namespace has"):
        RedisFence(client, "carts:{x}")
    for keep_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="keep_s is"):
            RedisFence(client, "carts", keep_s=keep_s)


def test_redis_client_that_only_queues_is_an_error(client: "redis.Redis") -> None:
    with client.pipeline() as pipeline, pytest.raises(TypeError, match="no list of ours"):
        RedisFence(pipeline, "carts").admit("alice", 1)
