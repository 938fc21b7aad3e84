"""The tables of a brick: every outcome written out, all of it against an obvious dict, and what a
session really costs.

Method: times are plain numbers. A state machine does the same to the tables and to a dict that
looks at every entry each time; what they answer, and what they hold, must agree. Memory is
measured in a process of its own.
"""

import math
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bus.messages import Refused
from roles.session_messages import FULL, SessionAnswer, checksum_of, is_full
from roles.session_tables import (
    MARK_BYTES,
    SLICE,
    WIDTH_S_MIN,
    Kept,
    SessionTables,
    ValueDamaged,
    cost,
)

ME = 7
A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
DAY_S = 86_400.0


def new_tables(bytes_max: int = 1 << 20, *, value_bytes_max: int = 1 << 16) -> SessionTables:
    return SessionTables(
        ME, bytes_max=bytes_max, value_bytes_max=value_bytes_max, ttl_s_max=400 * DAY_S
    )


def store(
    tables: SessionTables,
    sid: bytes,
    version: int,
    value: bytes = b"value",
    *,
    ttl_s: float = 10.0,
    now: float = 100.0,
) -> SessionAnswer | Refused:
    return tables.store(sid, version, value, checksum_of(sid, version, value), ttl_s=ttl_s, now=now)


STORED = SessionAnswer("stored", ME)
TOUCHED = SessionAnswer("touched", ME)
MISSING = SessionAnswer("missing", ME)
DELETED = SessionAnswer("deleted", ME)


def the_value(
    value: bytes, version: int, ttl_s: float, sid: bytes = A
) -> tuple[SessionAnswer, bytes]:
    return SessionAnswer("value", ME, version, ttl_s, checksum_of(sid, version, value)), value


# What is stored, read, touched and deleted.


def test_what_was_made_from_other_bytes_of_the_version_held_is_a_conflict() -> None:  # T3
    tables = new_tables()
    store(tables, A, 2, b"mine")
    made = {"ttl_s": 10.0, "now": 100.0, "base": 2}
    checksum, base = checksum_of(A, 3, b"next"), checksum_of(A, 2, b"another's")
    refused = tables.store(A, 3, b"next", checksum, base_checksum=base, **made)  # type: ignore[arg-type]
    assert isinstance(refused, SessionAnswer)
    assert (refused.outcome, refused.version) == ("conflict", 2)
    base = checksum_of(A, 2, b"mine")
    assert tables.store(A, 3, b"next", checksum, base_checksum=base, **made) == STORED  # type: ignore[arg-type]


def test_longer_versions_leave_room_for_marks() -> None:  # T5
    tables = new_tables(40_000)
    store(tables, A, 1, b"")
    for version in range(2, 1000):
        if store(tables, A, version, bytes(40 * version)) != STORED:
            break
    else:
        pytest.fail("memory without end")
    assert tables.delete(b"z" * 16, 10.0, 100.0) == DELETED


def test_what_is_stored_is_read_in_its_version_and_for_older_ones() -> None:
    tables = new_tables()
    assert store(tables, A, 4, b"four") == STORED
    assert tables.read(A, 4, 101.0) == the_value(b"four", 4, 9.0)
    assert tables.read(A, 3, 101.0) == the_value(b"four", 4, 9.0)
    assert tables.read(A, 5, 101.0) == (MISSING, b"")
    assert tables.read(B, 4, 101.0) == (MISSING, b"")


def test_newer_version_replaces_and_its_own_expiry_counts() -> None:
    tables = new_tables()
    store(tables, A, 4, b"four", ttl_s=100)
    assert store(tables, A, 9, b"nine", ttl_s=10) == STORED
    assert tables.read(A, 4, 101.0) == the_value(b"nine", 9, 9.0)
    assert (tables.items, tables.bytes_held) == (1, cost(b"nine"))
    assert tables.read(A, 9, 110.0) == (MISSING, b"")


def test_the_same_again_is_stored_and_the_later_expiry_counts() -> None:  # T3
    tables = new_tables()
    store(tables, A, 4, b"four", ttl_s=10)
    assert store(tables, A, 4, b"four", ttl_s=20, now=101) == STORED
    assert tables.read(A, 4, 101.0) == the_value(b"four", 4, 20.0)
    assert store(tables, A, 4, b"four", ttl_s=1, now=101) == STORED
    assert tables.read(A, 4, 101.0) == the_value(b"four", 4, 20.0)


@pytest.mark.parametrize(("version", "value"), [(3, b"three"), (4, b"other four"), (3, b"four")])
def test_older_or_different_is_a_conflict_with_what_is_held(version: int, value: bytes) -> None:
    tables = new_tables()  # T3
    store(tables, A, 4, b"four")
    held = SessionAnswer("conflict", ME, 4, 8.0, checksum_of(A, 4, b"four"))
    assert store(tables, A, version, value, now=102) == held
    assert tables.read(A, 4, 102.0) == the_value(b"four", 4, 8.0)


def test_touch_prolongs_and_never_shortens() -> None:
    tables = new_tables()
    store(tables, A, 4)
    assert tables.touch(A, 4, 20.0, 105.0) == TOUCHED
    assert tables.touch(A, 2, 1.0, 105.0) == TOUCHED
    assert tables.read(A, 4, 106.0)[0].ttl_s == 19.0
    assert tables.touch(A, 5, 20.0, 105.0) == MISSING
    assert tables.touch(B, 1, 20.0, 105.0) == MISSING
    assert tables.touch(A, 4, 20.0, 125.0) == MISSING


def test_what_is_deleted_stays_so_until_its_mark_ends() -> None:  # T4
    tables = new_tables()
    store(tables, A, 4)
    assert tables.delete(A, 10.0, 100.0) == DELETED
    assert (tables.items, tables.marks, tables.bytes_held) == (0, 1, MARK_BYTES)
    assert store(tables, A, 5, now=109) == DELETED
    assert tables.read(A, 4, 109.0) == (DELETED, b"")
    assert tables.touch(A, 4, 10.0, 109.0) == DELETED
    assert tables.delete(A, 5.0, 109.0) == DELETED  # Now until 114.
    assert store(tables, A, 5, now=113.9) == DELETED
    assert store(tables, A, 5, now=114) == STORED
    assert (tables.items, tables.marks, tables.bytes_held) == (1, 0, cost(b"value"))


def test_what_was_never_there_is_marked_too() -> None:
    tables = new_tables()
    assert tables.delete(A, 10.0, 100.0) == DELETED
    assert store(tables, A, 1) == DELETED


# Bad input.


def test_value_that_does_not_match_its_checksum_is_refused() -> None:  # T6
    tables = new_tables()
    refused = tables.store(A, 1, b"value", checksum_of(A, 1, b"valve"), ttl_s=10, now=100)
    assert refused == Refused("failed", "the value does not match its checksum")
    assert tables.read(A, 1, 100.0) == (MISSING, b"")


def test_value_that_rots_is_not_served() -> None:  # T6
    tables = new_tables()
    store(tables, A, 1)
    store(tables, B, 1)
    assert tables.corrupt(A)
    with pytest.raises(ValueDamaged, match=A.hex()):
        tables.read(A, 1, 100.0)
    assert tables.read(B, 1, 100.0) == the_value(b"value", 1, 10.0, B)
    assert not tables.corrupt(C)


@pytest.mark.parametrize(
    ("asked", "rotten"), [(0, []), (1, [0]), (3, [0, 3, 6]), (99, list(range(10)))], ids=str
)
def test_values_spoilt_on_purpose_are_spread_over_all(asked: int, rotten: list[int]) -> None:
    tables = new_tables()
    sids = [bytes([100 + number]) * 16 for number in range(10)]
    store(tables, A, 1, b"")  # Nothing in it to spoil.
    tables.delete(B, 10.0, 100.0)
    for sid in sids:
        store(tables, sid, 1)
    assert tables.corrupt_some(asked) == len(rotten)
    found = []
    for number, sid in enumerate(sids):
        try:
            tables.read(sid, 1, 100.0)
        except ValueDamaged:
            found.append(number)
    assert found == rotten


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, math.nan, math.inf, 401 * DAY_S])
def test_time_to_live_that_cannot_be_is_refused(ttl_s: float) -> None:
    tables = new_tables()
    refused = store(tables, A, 1, ttl_s=ttl_s)
    assert isinstance(refused, Refused)
    assert refused.detail == f"ttl_s of {ttl_s:g}: above 0, at most 3.456e+07"
    store(tables, A, 1)
    assert isinstance(tables.touch(A, 1, ttl_s, 100.0), Refused)
    assert tables.read(A, 1, 101.0)[0].ttl_s == 9.0


def test_value_beyond_the_limit_is_refused() -> None:
    tables = new_tables(value_bytes_max=10)
    assert store(tables, A, 1, bytes(10)) == STORED
    assert store(tables, B, 1, bytes(11)) == Refused("failed", "a value of 11 bytes: at most 10")


# Time.


def test_nothing_is_served_after_its_expiry_though_never_swept() -> None:  # T1
    tables = new_tables()
    store(tables, A, 1, ttl_s=10)
    assert tables.read(A, 1, 109.9)[0].outcome == "value"
    assert tables.read(A, 1, 110.0) == (MISSING, b"")
    assert tables.items == 1
    assert store(tables, A, 1, b"anew", now=110) == STORED
    assert (tables.items, tables.bytes_held) == (1, cost(b"anew"))


@given(
    st.floats(min_value=1e-6, max_value=400 * DAY_S),
    st.floats(min_value=0, max_value=1e8),
    st.floats(min_value=0, max_value=1),
)
def test_nobody_outlives_its_expiry_by_more_than_a_quarter(  # T2
    ttl_s: float, now: float, share: float
) -> None:
    tables = new_tables()
    store(tables, A, 1, ttl_s=ttl_s, now=now)
    tables.sweep(now + share * ttl_s * 0.999)
    assert tables.items == 1
    assert now + ttl_s <= tables.wake_at <= now + ttl_s + max(ttl_s / 4, WIDTH_S_MIN)
    tables.sweep(tables.wake_at)
    assert (tables.items, tables.bytes_held, tables.tables, tables.wake_at) == (0, 0, 0, math.inf)


def test_a_year_of_sessions_is_in_a_few_tables() -> None:
    tables = new_tables(1 << 24)
    for minute in range(0, 365 * 24 * 60, 60):
        now = minute * 60.0
        tables.sweep(now)
        store(tables, minute.to_bytes(16, "big"), 1, ttl_s=365 * DAY_S, now=now)
    assert tables.items == 365 * 24
    assert tables.tables <= 9


def test_touched_again_and_again_a_session_is_in_one_table() -> None:
    tables = new_tables()
    store(tables, A, 1, ttl_s=1800, now=0)
    for now in range(0, 36_000, 100):
        tables.sweep(float(now))
        assert tables.touch(A, 1, 1800.0, float(now)) == TOUCHED
    tables.sweep(35_900.0 + 1799)
    assert tables.read(A, 1, 35_900.0 + 1799)[0].outcome == "value"
    tables.sweep(35_900.0 + 1800 * 1.25)
    assert (tables.items, tables.tables) == (0, 0)


def test_no_sweep_frees_more_than_a_slice() -> None:  # T7
    tables = new_tables(1 << 24)
    for number in range(SLICE + 1):
        store(tables, number.to_bytes(16, "big"), 1, now=100)
    tables.sweep(200.0)
    assert (tables.items, tables.unswept, tables.tables) == (1, 1, 0)
    assert tables.wake_at == -math.inf
    store(tables, A, 1, now=200)
    tables.sweep(200.0)
    assert (tables.items, tables.unswept, tables.bytes_held) == (1, 0, cost(b"value"))
    assert tables.wake_at > 200


def test_what_is_stored_anew_before_its_old_table_is_freed_stays() -> None:
    tables = new_tables(1 << 24)
    sids = [number.to_bytes(16, "big") for number in range(2 * SLICE)]
    for sid in sids:
        store(tables, sid, 1, now=100)
    tables.sweep(200.0)
    for sid in sids:
        assert store(tables, sid, 1, ttl_s=50, now=200) == STORED
    for _ in range(3):
        tables.sweep(201.0)
    assert (tables.items, tables.unswept) == (2 * SLICE, 0)
    assert tables.read(sids[0], 1, 201.0) == the_value(b"value", 1, 49.0, sids[0])


def test_ages_are_those_of_the_oldest_and_the_youngest_table() -> None:
    tables = new_tables()
    assert tables.table_ages_s(100.0) == (0.0, 0.0)
    store(tables, A, 1, ttl_s=10, now=100)
    store(tables, B, 1, ttl_s=1000, now=103)
    assert tables.table_ages_s(104.0) == (4.0, 1.0)


# Memory.


def test_full_tables_refuse_new_sessions_and_nothing_else() -> None:  # T5
    size = cost(b"value")
    tables = new_tables(20 * size)
    sids = [number.to_bytes(16, "big") for number in range(19)]
    outcomes = [store(tables, sid, 1) for sid in sids]
    assert outcomes[:18] == [STORED] * 18
    refused = outcomes[18]
    assert isinstance(refused, Refused)
    assert refused == Refused("busy", FULL + "no memory for a new session", 1.0)
    assert is_full(refused)
    assert store(tables, sids[0], 2, bytes(size)) == STORED  # Longer, and it fits.
    too_long = store(tables, sids[1], 2, bytes(2 * size))
    assert too_long == Refused("busy", FULL + "no memory for a longer version", 1.0)
    assert tables.read(sids[1], 1, 101.0) == the_value(b"value", 1, 9.0, sids[1])
    assert tables.touch(sids[1], 1, 20.0, 101.0) == TOUCHED
    assert tables.delete(sids[2], 20.0, 101.0) == DELETED
    assert tables.bytes_held <= tables.bytes_max


def test_past_the_limit_the_oldest_mark_is_forgotten() -> None:  # T4
    tables = new_tables(8 * 3 * MARK_BYTES)
    assert tables.marks_max == 3
    for number in range(4):
        tables.delete(bytes([number]) * 16, 10.0, 100.0 + number)
    assert (tables.marks, tables.marks_forgotten) == (3, 1)
    assert store(tables, bytes(16), 1, now=103) == STORED
    assert store(tables, bytes([1]) * 16, 1, now=103) == DELETED


def test_mark_without_any_memory_for_it_is_refused() -> None:  # T5
    tables = new_tables(1000)
    assert store(tables, A, 1, bytes(400)) == STORED
    assert store(tables, A, 2, bytes(500)) == STORED
    refused = tables.delete(B, 10.0, 100.0)
    assert refused == Refused("busy", FULL + "no memory for a mark of deletion", 1.0)
    assert tables.delete(A, 10.0, 100.0) == DELETED
    assert tables.delete(B, 10.0, 100.0) == DELETED


MEASURE = """
import gc, random, sys
import psutil
from roles.session_messages import checksum_of
from roles.session_tables import SessionTables
size, count, marks = map(int, sys.argv[1:])
draw = random.Random(1).randbytes
tables = SessionTables(1, bytes_max=1 << 40, value_bytes_max=1 << 20, ttl_s_max=1e6)
def one(number):
    sid, value, now = draw(16), draw(size), number / 100
    if marks:
        tables.delete(sid, 1800.0, now)
    else:
        tables.store(sid, 1, value, checksum_of(sid, 1, value), ttl_s=1800.0, now=now)
for number in range(100):
    one(number)
gc.collect()
before, held = psutil.Process().memory_info().rss, tables.bytes_held
for number in range(count):
    one(number)
print((psutil.Process().memory_info().rss - before) / count, (tables.bytes_held - held) / count)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "count", "marks"), [(512, 200_000, 0), (8192, 20_000, 0), (0, 100_000, 1)]
)
def test_what_is_counted_is_what_the_process_grows_by(size: int, count: int, marks: int) -> None:
    words = [sys.executable, "-c", MEASURE, str(size), str(count), str(marks)]  # T5
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    grown, counted = map(float, done.stdout.split())
    assert 0.85 * counted <= grown <= 1.1 * counted
    assert marks or grown <= 1.3 * (size + 300)


# From one life to the next.


def test_what_is_kept_is_adopted_with_the_time_that_passed() -> None:
    tables, next_life = new_tables(), new_tables()
    store(tables, A, 4, b"four", ttl_s=10)
    store(tables, B, 1, ttl_s=2)
    store(tables, C, 1, ttl_s=1)
    tables.delete(C, 20.0, 100.0)
    for kept in tables.kept(101.0):
        assert next_life.adopt(kept, 3.0, 500.0)
    assert next_life.read(A, 4, 500.0) == the_value(b"four", 4, 6.0)
    assert next_life.read(B, 1, 500.0) == (MISSING, b"")
    assert store(next_life, C, 2, now=515.9) == DELETED
    assert (next_life.items, next_life.marks) == (1, 1)
    assert next_life.bytes_held == cost(b"four") + MARK_BYTES


def test_what_was_damaged_on_the_way_is_not_adopted() -> None:  # T6
    tables = new_tables()
    assert not tables.adopt(Kept(A, 1, 10.0, checksum_of(A, 1, b"value"), b"valve"), 0.0, 100.0)
    assert tables.items == 0


# Against an obvious version.


@dataclass
class Held:
    version: int
    value: bytes | None
    expires_at: float


SIDS = st.sampled_from([A, B, C])
VERSIONS = st.integers(1, 4)
VALUES = st.sampled_from([b"", b"x", b"a longer one" * 5])
TTLS = st.one_of(st.sampled_from([0.1, 1.0, 3.0, 60.0, 1e6]), st.floats(0.01, 30))


class Comparison(RuleBasedStateMachine):
    """The same steps to both; the obvious one never forgets what has expired."""

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.tables = new_tables()
        self.obvious: dict[bytes, Held] = {}

    def held(self, sid: bytes) -> Held | None:
        held = self.obvious.get(sid)
        return held if held is not None and held.expires_at > self.now else None

    @rule(passed_s=st.one_of(st.floats(0, 2), st.sampled_from([30.0, 1e5])))
    def wait(self, passed_s: float) -> None:
        self.now += passed_s

    @rule()
    def sweep(self) -> None:
        self.tables.sweep(self.now)
        late = [held for held in self.obvious.values() if held.expires_at <= self.now]
        assert len(self.obvious) - len(late) <= self.tables.items + self.tables.marks

    @rule(sid=SIDS, version=VERSIONS, value=VALUES, ttl_s=TTLS)
    def store(self, sid: bytes, version: int, value: bytes, ttl_s: float) -> None:
        outcome = store(self.tables, sid, version, value, ttl_s=ttl_s, now=self.now)
        assert isinstance(outcome, SessionAnswer)
        held, expires_at = self.held(sid), self.now + ttl_s
        if held is None or (held.value is not None and held.version < version):
            assert outcome == STORED
            self.obvious[sid] = Held(version, value, expires_at)
        elif held.value is None:
            assert outcome == DELETED
        elif (held.version, held.value) == (version, value):
            assert outcome == STORED
            held.expires_at = max(held.expires_at, expires_at)
        else:
            assert (outcome.outcome, outcome.version) == ("conflict", held.version)
            assert outcome.checksum == checksum_of(sid, held.version, held.value)

    @rule(sid=SIDS, version=VERSIONS)
    def read(self, sid: bytes, version: int) -> None:
        held = self.held(sid)
        if held is None or (held.value is not None and held.version < version):
            assert self.tables.read(sid, version, self.now) == (MISSING, b"")
        elif held.value is None:
            assert self.tables.read(sid, version, self.now) == (DELETED, b"")
        else:
            left_s = held.expires_at - self.now
            told = the_value(held.value, held.version, left_s, sid)
            assert self.tables.read(sid, version, self.now) == told

    @rule(sid=SIDS, version=VERSIONS, ttl_s=TTLS)
    def touch(self, sid: bytes, version: int, ttl_s: float) -> None:
        outcome = self.tables.touch(sid, version, ttl_s, self.now)
        held = self.held(sid)
        if held is not None and held.value is None:
            assert outcome == DELETED
        elif held is None or held.version < version:
            assert outcome == MISSING
        else:
            assert outcome == TOUCHED
            held.expires_at = max(held.expires_at, self.now + ttl_s)

    @rule(sid=SIDS, ttl_s=TTLS)
    def delete(self, sid: bytes, ttl_s: float) -> None:
        assert self.tables.delete(sid, ttl_s, self.now) == DELETED
        held, expires_at = self.held(sid), self.now + ttl_s
        if held is not None:  # A mark, or cookies of it may live as long.
            expires_at = max(expires_at, held.expires_at)
        self.obvious[sid] = Held(0, None, expires_at)

    @invariant()
    def holds_what_it_counts(self) -> None:
        if not hasattr(self, "tables"):
            return
        index = self.tables._index
        values = [entry.value for entry in index.values()]
        assert self.tables.bytes_held == sum(map(cost, values))
        assert self.tables.marks == values.count(None)
        tables = [*self.tables._tables.values(), *self.tables._dropped]
        assert sorted(sid for table in tables for sid in table.sids) == sorted(index)
        assert all(sid in entry.table.sids for sid, entry in index.items())
        assert all(entry.expires_at <= entry.table.ends_at for entry in index.values())  # T2


TestComparison = Comparison.TestCase
TestComparison.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.plain
def test_each_step_costs_the_same_however_much_is_held() -> None:  # T7
    """Counted in lines of Python run, which no busy machine changes."""
    small, large = new_tables(1 << 28), new_tables(1 << 28)
    for number in range(20_000):
        if number < 20:
            store(small, number.to_bytes(16, "big"), 1)
        store(large, number.to_bytes(16, "big"), 1)
    assert lines_run(small) == lines_run(large)


def lines_run(tables: SessionTables) -> int:
    lines = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    sid = (7).to_bytes(16, "big")
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        store(tables, sid, 2, now=101)
        tables.read(sid, 2, 101.0)
        tables.touch(sid, 2, 3600.0, 101.0)
        tables.delete(sid, 10.0, 101.0)
        tables.sweep(101.5)
    finally:
        sys.settrace(before)
    return lines
