"""Both stores keep the promises of `roles.store`, on a real file and a real etcd, faults included.

Method: one suite for both; then each store's own faults, brought about for real: processes stopped
and killed, disks filled, files replaced, members killed. Only peers that break HTTP are scripted.
"""

import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from bus.clock import now
from bus.errors import ConfigError
from loadtest.etcd_peer import PROGRAM, Etcd, free_ports
from roles.store import COMMIT_BYTES_MAX, Store, StoreError, StoreInDoubt, StoreLocked
from roles.store_etcd import ANSWER_BYTES_MAX, PAGE_ROWS, EtcdStore
from roles.store_sqlite import SqliteStore
from tests.waiting import until

WAIT_S_MAX = 30.0
TIMEOUT_S = 10.0

needs_etcd = pytest.mark.skipif(PROGRAM is None, reason="no etcd: install Debian's etcd-server")
needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
ETCD = pytest.param("etcd", marks=[pytest.mark.slow, needs_etcd])


@dataclass(frozen=True)
class Place:
    """Where rows are kept; may be sent to another process."""

    path: Path | None
    endpoints: tuple[str, ...] = ()
    prefix: str = ""

    def open(self, timeout_s: float = TIMEOUT_S) -> Store:
        if self.path is not None:
            return SqliteStore(self.path, timeout_s)
        return EtcdStore(self.endpoints, self.prefix, timeout_s)


@pytest.fixture(scope="module")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(members=1, directory=tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(params=["sqlite", ETCD])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(tmp_path / "leases.db")
    etcd: Etcd = request.getfixturevalue("shared_etcd")
    return Place(None, tuple(etcd.endpoints), f"{tmp_path.name}/")  # A prefix of its own.


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with closing(place.open()) as store:
        yield store


# --- Both ---


def test_a_row_is_written_only_where_absent_if_expected_absent(store: Store) -> None:
    assert store.read("a") is None
    assert store.commit({"a": None}, {"a": b"1"})
    assert not store.commit({"a": None}, {"a": b"2"})
    assert store.read_all() == {"a": b"1"}


def test_a_row_is_replaced_only_if_it_has_exactly_the_bytes_expected(store: Store) -> None:
    assert store.commit({}, {"a": b"1"})
    assert not store.commit({"a": b"12"}, {"a": b"2"})
    assert not store.commit({"a": b""}, {"a": b"2"})
    assert store.commit({"a": b"1"}, {"a": b"2"})
    assert store.read("a") == b"2"


def test_an_empty_row_is_not_an_absent_one(store: Store) -> None:
    assert not store.commit({"a": b""}, {"a": b"1"})
    assert store.commit({"a": None}, {"a": b""})
    assert store.read("a") == b""
    assert store.read_all() == {"a": b""}
    assert not store.commit({"a": None}, {"a": b"1"})
    assert store.commit({"a": b""}, {"a": b"1"})


def test_one_row_that_differs_keeps_all_of_a_commit_from_happening(store: Store) -> None:
    before = {"a": b"1", "b": b"1", "c": b"1"}
    assert store.commit({}, before)
    assert not store.commit({"a": b"1", "b": b"2"}, {"a": b"2", "d": b"2"}, ["c"])
    assert store.read_all() == before


def test_rows_are_compared_put_and_deleted_together(store: Store) -> None:
    assert store.commit({}, {"a": b"1", "b": b"1", "c": b"1"})
    assert store.commit({"a": b"1", "e": None}, {"a": b"2", "d": b"2"}, ["c", "absent"])
    assert store.read_all() == {"a": b"2", "b": b"1", "d": b"2"}


def test_a_row_may_be_expected_that_is_not_written(store: Store) -> None:
    assert store.commit({}, {"term": b"7"})
    assert not store.commit({"term": b"6"}, {"a": b"1"})
    assert store.commit({"term": b"7"}, {"a": b"1"})
    assert store.read_all() == {"term": b"7", "a": b"1"}


def test_values_may_hold_every_byte_and_keys_any_text(store: Store) -> None:
    rows = {"größe/日本/🦊": bytes(range(256)), "": b"\0", "a\0b": b"\xff", "A": b"a", "a": b"A"}
    assert store.commit(dict.fromkeys(rows), rows)
    assert store.read_all() == rows
    assert {key: store.read(key) for key in rows} == rows
    assert store.commit(rows, {}, rows.keys())
    assert store.read_all() == {}


def test_a_value_of_64_kib_is_kept(store: Store) -> None:
    value = os.urandom(65536)
    assert store.commit({}, {"big": value})
    assert store.commit({"big": value}, {"copy": value})
    assert store.read_all() == {"big": value, "copy": value}


def test_a_hundred_rows_are_written_at_once_and_read_over_several_pages(store: Store) -> None:
    rows = {f"row-{i}": str(i).encode() for i in range(100)}
    assert len(rows) > 3 * PAGE_ROWS
    assert store.commit(dict.fromkeys(rows), rows)
    assert store.read_all() == rows
    changed = {key: value + b"!" for key, value in rows.items()}
    assert store.commit(rows, changed)
    assert store.read_all() == changed


def test_no_row_is_missed_between_pages_however_near_its_key(store: Store) -> None:
    rows = {"k" + "\0" * i: b"" for i in range(2 * PAGE_ROWS + 1)}
    assert store.commit({}, rows)
    assert store.read_all() == rows


def test_a_commit_beyond_the_limits_is_refused_before_anything_is_written(store: Store) -> None:
    many = {f"row-{i}": b"" for i in range(129)}
    half = bytes(COMMIT_BYTES_MAX // 2)
    for expect, put, delete in [
        ({}, many, []),
        (many, {}, []),
        ({}, {}, list(many)),
        ({"a": half}, {"a": half}, []),
        ({}, {"a": b""}, ["a"]),
        ({}, {}, ["a", "a"]),
    ]:
        with pytest.raises(ValueError, match="a commit"):
            store.commit(expect, put, delete)
    assert store.read_all() == {}


def test_the_largest_commit_within_the_limits_is_taken(store: Store) -> None:
    rows = {f"row-{i:03}": bytes(5000) for i in range(128)}
    assert store.commit({}, rows)
    assert store.commit(rows, {key: bytes(6500) for key in rows})
    assert len(store.read_all()) == 128
    assert store.commit({}, {"row-000": bytes(1_572_000)})


def test_what_was_committed_is_there_for_the_next_to_open_it(place: Place) -> None:
    with closing(place.open()) as store:
        assert store.commit({}, {"a": b"1"})
    with closing(place.open()) as store:
        assert store.read("a") == b"1"


def increment(place: Place, times: int) -> None:
    with closing(place.open()) as store:
        while times:
            before = store.read("count")
            times -= store.commit({"count": before}, {"count": b"%d" % (int(before or b"0") + 1)})


@pytest.mark.slow
def test_two_processes_that_count_by_compare_and_set_lose_no_count(place: Place) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=increment, args=(place, 100)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(WAIT_S_MAX)
    assert [writer.exitcode for writer in writers] == [0, 0]
    with closing(place.open()) as store:
        assert store.read("count") == b"200"


def test_read_all_never_shows_half_of_a_commit(place: Place, store: Store) -> None:
    # The two rows that change together are the first and the last, pages apart.
    between = {f"m{i}": b"" for i in range(2 * PAGE_ROWS)}
    assert store.commit({}, {"a": b"0", "z": b"0", **between})
    done = threading.Event()
    written: list[bytes] = []

    def write() -> None:
        with closing(place.open()) as writer:
            while not done.is_set():
                value = b"%d" % len(written)
                assert writer.commit({}, {"a": value, "z": value})
                written.append(value)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen: set[bytes] = set()
        deadline = now() + WAIT_S_MAX
        while len(seen) < 50:
            assert now() < deadline, f"only {len(seen)} states seen"
            rows = store.read_all()
            assert rows["a"] == rows["z"]
            seen.add(rows["a"])
    finally:
        done.set()
        thread.join(WAIT_S_MAX)


def test_a_commit_takes_milliseconds(
    store: Store, record_property: Callable[[str, object], None]
) -> None:
    took = []
    for i in range(200):
        began_at = now()
        assert store.commit({"n": b"%d" % i if i else None}, {"n": b"%d" % (i + 1)})
        took.append(now() - began_at)
    median_ms = statistics.median(took) * 1000
    worst_ms = max(took) * 1000
    record_property("commit_ms", f"median {median_ms:.2f}, worst {worst_ms:.2f}")
    print(f"commit: median {median_ms:.2f} ms, worst {worst_ms:.2f} ms")
    assert median_ms < 250


# --- SQLite ---

HOLD_LOCK = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("REPLACE INTO rows VALUES ('a', x'32')")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def stopped_holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process stopped in the middle of a commit."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(path)])
    try:
        stopped = psutil.STATUS_STOPPED
        until(lambda: psutil.Process(holder.pid).status() == stopped, WAIT_S_MAX, "the lock")
        yield holder
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(WAIT_S_MAX)


@pytest.mark.slow
def test_a_process_stopped_inside_a_commit_blocks_commits_for_a_bounded_time_and_no_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "leases.db"
    with closing(SqliteStore(path, 0.5)) as store:
        assert store.commit({}, {"a": b"1"})
        with stopped_holder(path):
            began_at = now()
            with pytest.raises(StoreLocked, match=r"has held its lock for 0\.5 s"):
                store.commit({}, {"a": b"3"})
            assert 0.4 < now() - began_at < 1.5
            assert store.read("a") == b"1"
            with closing(SqliteStore(path, 0.5)) as newcomer:  # A standby that starts just now.
                assert newcomer.read_all() == {"a": b"1"}
        assert store.read("a") == b"1"
        assert store.commit({"a": b"1"}, {"a": b"3"})


def test_the_file_and_its_log_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {"a": b"1"})
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["leases.db", "leases.db-wal", "leases.db-shm"], 0o600)


def test_a_commit_is_synced_to_the_disk_before_it_is_true(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "leases.db", 1.0)) as store:
        assert store._connection is not None
        settings = [
            store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
    assert settings == ["wal", 2]  # 2 is FULL. Only a power cut would show more.


def open_at_once(path: Path, barrier: threading.Barrier, outcomes: list[bool]) -> None:
    barrier.wait(WAIT_S_MAX)
    with closing(SqliteStore(path, 5.0)) as store:
        outcomes.append(store.commit({"a": None}, {"a": b"1"}))


def test_of_many_that_create_the_file_at_once_all_use_the_same(tmp_path: Path) -> None:
    barrier, outcomes = threading.Barrier(8), list[bool]()
    arguments = (tmp_path / "leases.db", barrier, outcomes)
    threads = [threading.Thread(target=open_at_once, args=arguments) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S_MAX)
    assert sorted(outcomes) == [False] * 7 + [True]
    assert not [file.name for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere is not there"):
        SqliteStore(tmp_path / "nowhere" / "leases.db", 1.0)


def test_a_file_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.executescript("CREATE TABLE rows (key TEXT PRIMARY KEY, value BLOB)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a lease store"):
        SqliteStore(path, 1.0)
    assert path.read_bytes() == before


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    SqliteStore(path, 1.0).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="not a lease store of this version"):
        SqliteStore(path, 1.0)


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "leases.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="name another"):
        SqliteStore(path, 1.0)
    assert path.read_bytes() == content


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {f"{i}": bytes(2000) for i in range(100)})
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x77" * (len(content) - 4096))
    with closing(SqliteStore(path, 1.0)) as store, pytest.raises(StoreError, match="damaged"):
        store.read_all()


def test_a_file_that_vanished_is_not_made_anew_and_is_found_again(tmp_path: Path) -> None:
    path, aside = tmp_path / "leases.db", tmp_path / "aside.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {"a": b"1"})
        path.rename(aside)
        for call in (store.read_all, lambda: store.commit({}, {"a": b"2"})):
            with pytest.raises(StoreError, match="is not there"):
                call()
        assert not path.exists()
        aside.rename(path)
        assert store.read("a") == b"1"


def roll_back(path: Path, copy: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    copy.replace(path)


@pytest.mark.parametrize("first_call", ["read", "commit"])
def test_a_copy_put_in_the_place_of_an_open_file_is_noticed(
    tmp_path: Path, first_call: str
) -> None:
    path, copy = tmp_path / "leases.db", tmp_path / "copy.db"
    with closing(SqliteStore(path, 1.0)) as store, closing(SqliteStore(path, 1.0)) as other:
        assert store.commit({}, {"a": b"old"})
        with closing(sqlite3.connect(path)) as source:
            source.execute("VACUUM INTO ?", (str(copy),))
        assert store.commit({"a": b"old"}, {"a": b"new"})
        roll_back(path, copy)
        if first_call == "read":
            assert store.read("a") == b"old"
        assert not store.commit({"a": b"new"}, {"a": b"newer"})
        assert store.commit({"a": b"old"}, {"a": b"again"})
        assert other.read_all() == {"a": b"again"}
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.read("a") == b"again"


def test_a_commit_into_a_file_that_was_just_replaced_is_in_doubt(tmp_path: Path) -> None:
    path, copy = tmp_path / "leases.db", tmp_path / "copy.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {"a": b"old"})
        with closing(sqlite3.connect(path)) as source:
            source.execute("VACUUM INTO ?", (str(copy),))
        assert store._connection is not None
        store._connection.set_trace_callback(
            lambda statement: roll_back(path, copy) if statement == "COMMIT" else None
        )
        with pytest.raises(StoreInDoubt, match="replaced"):
            store.commit({"a": b"old"}, {"a": b"new"})
        assert store.read("a") == b"old"


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file may grow beyond `size`: a disk that fails in another way than by being full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_that_the_disk_failed_is_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {"a": bytes(50_000)})
        log_size = Path(f"{path}-wal").stat().st_size
        with files_limited_to(log_size + 100), pytest.raises(StoreInDoubt, match="committing"):
            store.commit({}, {"a": b"2" * 50_000})
        assert store.read("a") in (bytes(50_000), b"2" * 50_000)
        assert store.commit({}, {"a": b"3"})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@needs_mount
def test_a_full_disk_refuses_commits_whole_says_so_and_works_again_with_room(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    with closing(SqliteStore(small_disk / "leases.db", 1.0)) as store:
        written = {}

        def fill() -> None:
            for i in range(1000):
                row = {f"{i}": os.urandom(5000)}
                assert store.commit({}, row)
                written.update(row)

        with pytest.raises(StoreError, match="full: make room") as raised:
            fill()
        assert raised.type is StoreError
        assert len(written) > 5
        assert store.read_all() == written
        ballast.unlink()
        assert store.commit({"0": written["0"]}, {"0": b""})
        assert store.read_all() == written | {"0": b""}


@needs_mount
def test_a_file_on_a_disk_mounted_read_only_is_read_or_refused_and_never_written(
    small_disk: Path,
) -> None:
    path = small_disk / "leases.db"
    with closing(SqliteStore(path, 1.0)) as store:
        assert store.commit({}, {"a": b"1"})
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="look at its mode"):
        SqliteStore(path, 1.0)


# --- etcd ---


def gateway_store(etcd: Etcd, timeout_s: float = 5.0, **login: str) -> EtcdStore:
    return EtcdStore(etcd.endpoints, "leases/", timeout_s, **login)


def commit_until_clear(store: Store, key: str, value: bytes) -> int:
    """Commit as a manager would, without a look first; returns how often it was in doubt."""
    doubts = 0
    deadline = now() + WAIT_S_MAX
    while True:
        assert now() < deadline, "no commit got through"
        try:
            assert store.commit({}, {key: value})
        except StoreInDoubt:
            doubts += 1
        else:
            return doubts


@pytest.mark.slow
@needs_etcd
def test_three_members_serve_on_while_one_is_killed_be_it_the_leader(tmp_path: Path) -> None:
    with (
        Etcd(members=3, directory=tmp_path) as etcd,
        closing(gateway_store(etcd)) as store,
    ):
        assert store.commit({}, {"a": b"0"})
        for round_, pick in enumerate(["leader", "follower", "asked"], start=1):
            leader = etcd.leader()
            victim = {"leader": leader, "follower": (leader + 1) % 3, "asked": store._at}[pick]
            etcd.kill(victim)
            began_at = now()
            before, value = b"%d" % (round_ - 1), b"%d" % round_
            try:
                told = str(store.commit({"a": before}, {"a": value}))
            except StoreInDoubt as error:
                told = str(error)
                assert store.read_all() in ({"a": before}, {"a": value})
                commit_until_clear(store, "a", value)
            took_s = now() - began_at
            print(f"{pick} killed: {told}; committed {took_s:.2f} s later")
            assert took_s < 10
            assert store.read_all() == {"a": value}
            etcd.start(victim)
            etcd.settle()


@pytest.mark.slow
@needs_etcd
def test_a_paused_member_costs_a_read_its_share_and_the_next_call_nothing(tmp_path: Path) -> None:
    with Etcd(members=3, directory=tmp_path) as etcd:
        follower = (etcd.leader() + 1) % 3
        others = [url for i, url in enumerate(etcd.endpoints) if i != follower]
        with closing(EtcdStore([etcd.endpoints[follower], *others], "leases/", 3.0)) as store:
            assert store.commit({}, {"a": b"1"})
            etcd.pause(follower)
            began_at = now()
            assert store.read("a") == b"1"
            assert 0.9 < now() - began_at < 2.0  # A third of the time, and a little.
            began_at = now()
            assert store.commit({"a": b"1"}, {"a": b"2"})
            assert now() - began_at < 0.9
            etcd.resume(follower)


@pytest.mark.slow
@needs_etcd
def test_with_every_member_paused_each_call_fails_in_time(tmp_path: Path) -> None:
    with Etcd(members=3, directory=tmp_path) as etcd, closing(gateway_store(etcd, 1.0)) as store:
        assert store.commit({}, {"a": b"1"})
        for i in range(3):
            etcd.pause(i)
        for call, error in [
            (store.read_all, StoreError),
            (lambda: store.read("a"), StoreError),
            (lambda: store.commit({"a": b"1"}, {"a": b"2"}), StoreInDoubt),
        ]:
            began_at = now()
            with pytest.raises(StoreError) as raised:
                call()
            assert raised.type is error
            assert now() - began_at < 1.5
        for i in range(3):
            etcd.resume(i)
        etcd.settle()
        assert store.read("a") in (b"1", b"2")
        commit_until_clear(store, "a", b"3")


@pytest.mark.slow
@needs_etcd
def test_two_of_three_killed_a_commit_is_in_doubt_and_a_read_fails(tmp_path: Path) -> None:
    with Etcd(members=3, directory=tmp_path) as etcd, closing(gateway_store(etcd, 1.0)) as store:
        assert store.commit({}, {"a": b"1"})
        leader = etcd.leader()
        for i in {0, 1, 2} - {leader}:
            etcd.kill(i)
        with pytest.raises(StoreInDoubt):  # The leader has it in its log, and may yet carry it out.
            store.commit({}, {"a": b"2"})
        with pytest.raises(StoreError, match="no etcd member could be asked"):
            store.read("a")
        for i in {0, 1, 2} - {leader}:
            etcd.start(i)
        etcd.settle()
        commit_until_clear(store, "a", b"3")
        assert store.read("a") == b"3"


@pytest.mark.slow
@needs_etcd
def test_an_etcd_without_space_is_quoted_and_still_read(tmp_path: Path) -> None:
    options = ["--quota-backend-bytes", "2000000"]
    with (
        Etcd(members=1, directory=tmp_path, options=options) as etcd,
        closing(gateway_store(etcd)) as store,
    ):

        def fill() -> None:
            for i in range(100):
                assert store.commit({}, {"a": b"%06d" % i + bytes(100_000)})

        with pytest.raises(StoreError, match=r"etcd refused: .*space exceeded") as raised:
            fill()
        assert raised.type is StoreError
        assert store.read("a") is not None


@pytest.mark.slow
@needs_etcd
def test_an_etcd_with_users_asks_for_the_password_and_again_when_the_token_is_old(
    tmp_path: Path,
) -> None:
    with Etcd(members=1, directory=tmp_path) as etcd:
        etcd.call(0, "/v3/auth/user/add", {"name": "root", "password": "right"})
        etcd.call(0, "/v3/auth/role/add", {"name": "root"})
        etcd.call(0, "/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call(0, "/v3/auth/enable", {})
        with closing(gateway_store(etcd)) as store, pytest.raises(StoreError, match="etcd refused"):
            store.commit({}, {"a": b"1"})
        wrong = gateway_store(etcd, username="root", password="wrong")
        with closing(wrong), pytest.raises(StoreError, match="invalid user ID or password"):
            wrong.read("a")
        with closing(gateway_store(etcd, username="root", password="right")) as store:
            assert store.commit({}, {"a": b"1"})
            store._token = "forgotten.1"  # As after five minutes without a call.
            assert store.commit({"a": b"1"}, {"a": b"2"})
            assert store.read_all() == {"a": b"2"}


@pytest.mark.slow
@needs_etcd
def test_stores_of_different_prefixes_do_not_see_each_other(shared_etcd: Etcd) -> None:
    names = ["p/", "p0/", "p/q/"]
    stores = [EtcdStore(shared_etcd.endpoints, f"apart/{name}", 5.0) for name in names]
    for store in stores[:2]:
        assert store.commit({"a": None}, {"a": b"1"})
    assert [store.read_all() for store in stores] == [{"a": b"1"}, {"a": b"1"}, {}]
    for store in stores:
        store.close()


class Rude:
    """A listener that reads one whole request from each connection, then says these bytes."""

    def __init__(self, *parts: bytes, keep_open: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._parts = parts
        self._keep_open = keep_open
        self._closing = threading.Event()
        self.requests = 0
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S_MAX)
        self._listener.close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        self.requests += 1
        try:
            for part in self._parts:
                connection.sendall(part)
                self._closing.wait(0.1 if self._keep_open else 0)
        except OSError:
            return  # It had enough of us.


def answer(text: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)


HEAD = b"HTTP/1.1 200 OK\r\n"
ODD = {
    "hangs up": b"",
    "no HTTP": b"SSH-2.0\r\n\r\n",
    "no JSON": answer(b"hello"),
    "JSON of another": answer(b"{}"),
    "cut short": HEAD + b'Content-Length: 90\r\n\r\n{"header":{"revision":"1"}}',
    "too long": HEAD + b"Content-Length: 999999999999\r\n\r\n",
    "a proxy's": answer(b"<html>Bad gateway</html>", b"502 Bad Gateway"),
    "a timeout": answer(b'{"error":"etcdserver: request timed out","code":14}', b"503 No"),
}
SURE = {
    "dropped": answer(b'{"error":"raft proposal dropped","code":2}', b"500 No"),
    "no leader": answer(b'{"error":"etcdserver: no leader","code":14}', b"503 No"),
}
GOOD = answer(b'{"header":{"revision":"7"},"succeeded":true,"kvs":[{"key":"cC9h","value":"MQ=="}]}')


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_commit_without_a_clear_answer_is_in_doubt_and_sent_to_nobody_else(odd: bytes) -> None:
    with closing(Rude(odd)) as rude, closing(Rude(GOOD)) as good:
        with closing(EtcdStore([rude.endpoint, good.endpoint], "p/", 2.0)) as store:
            with pytest.raises(StoreInDoubt):
                store.commit({}, {"a": b"1"})
            assert (rude.requests, good.requests) == (1, 0)
            assert store.commit({}, {"a": b"1"})  # The next one goes to the other.
        assert (rude.requests, good.requests) == (1, 1)


@pytest.mark.parametrize("odd", [*ODD.values(), *SURE.values()], ids=[*ODD, *SURE])
def test_a_read_without_a_clear_answer_is_put_to_the_next(odd: bytes) -> None:
    with closing(Rude(odd)) as rude, closing(Rude(GOOD)) as good:
        with closing(EtcdStore([rude.endpoint, good.endpoint], "p/", 2.0)) as store:
            assert store.read("a") == b"1"
        assert (rude.requests, good.requests) == (1, 1)


@pytest.mark.parametrize("sure", SURE.values(), ids=SURE.keys())
def test_a_commit_that_surely_was_not_carried_out_is_put_to_the_next(sure: bytes) -> None:
    with closing(Rude(sure)) as rude, closing(Rude(GOOD)) as good:
        with closing(EtcdStore([rude.endpoint, good.endpoint], "p/", 2.0)) as store:
            assert store.commit({}, {"a": b"1"})
        assert (rude.requests, good.requests) == (1, 1)


def test_a_commit_that_could_not_be_sent_is_put_to_the_next() -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    with (
        closing(Rude(GOOD)) as good,
        closing(EtcdStore([nobody, good.endpoint], "p/", 2.0)) as store,
    ):
        assert store.commit({}, {"a": b"1"})
    with closing(EtcdStore([nobody], "p/", 2.0)) as store:
        with pytest.raises(StoreError, match="not reached") as raised:
            store.commit({}, {"a": b"1"})
        assert raised.type is StoreError


def test_a_connection_that_was_closed_since_is_not_used_for_a_commit() -> None:
    with closing(Rude(GOOD)) as good, closing(EtcdStore([good.endpoint], "p/", 2.0)) as store:
        for _ in range(3):
            assert store.commit({}, {"a": b"1"})
            wire = store._wire
            assert wire is not None
            until(partial(getattr, wire, "stale"), WAIT_S_MAX, "the other end to close")
        assert good.requests == 3


@pytest.mark.slow
def test_an_answer_is_not_read_beyond_its_limit() -> None:
    good, mebibyte = GOOD.partition(b"\r\n\r\n")[2], 1 << 20
    count = ANSWER_BYTES_MAX // mebibyte + 1
    length = count * mebibyte + len(good)
    with (
        closing(
            Rude(HEAD, b"Content-Length: %d\r\n\r\n" % length, *[b" " * mebibyte] * count, good)
        ) as rude,
        closing(EtcdStore([rude.endpoint], "p/", TIMEOUT_S)) as store,
        pytest.raises(StoreError, match=f"more than {ANSWER_BYTES_MAX} bytes"),
    ):
        store.read("a")


@pytest.mark.slow
def test_an_answer_that_trickles_buys_no_time() -> None:
    drops = [HEAD, b"Content-Length: 1000\r\n\r\n", *[b" "] * 100]
    with (
        closing(Rude(*drops, keep_open=True)) as rude,
        closing(EtcdStore([rude.endpoint], "p/", 0.5)) as store,
    ):
        began_at = now()
        with pytest.raises(StoreError, match="no answer"):
            store.read("a")
        assert now() - began_at < 0.75


@pytest.mark.parametrize(
    ("endpoints", "prefix"),
    [
        ([], "p/"),
        (["https://127.0.0.1:2379"], "p/"),
        (["127.0.0.1:2379"], "p/"),
        (["http://127.0.0.1:port"], "p/"),
        (["http://user@127.0.0.1:2379"], "p/"),
        (["http://127.0.0.1:2379/v3"], "p/"),
        (["http://127.0.0.1:2379"], "p"),
        (["http://127.0.0.1:2379"], ""),
    ],
)
def test_settings_that_cannot_work_are_refused(endpoints: list[str], prefix: str) -> None:
    with pytest.raises(ConfigError, match="etcd"):
        EtcdStore(endpoints, prefix, 1.0)
