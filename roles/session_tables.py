"""The sessions that one brick holds, and for how long. Decides only: `now` is an argument.

Of each session the newest version is held, until its expiry; of a deleted one a *mark*, so that
what is written late does not bring it back. Nobody looks for what has expired: each session is in
a table of those that end at about the same time, and whole tables are dropped. The time to live
says which tables: their width is a power of two of seconds, at most a quarter of it. So one
of half an hour is in one of eight tables or so, each 256 s wide, and moves on when it is touched.

A table is dropped in one step; what it held is freed a slice at a time, so that no sweep takes
long, however many end at once.

What always holds:
  T1  What has expired is never served, whether or not it was swept.
  T2  The table of a session ends at its expiry or later, by at most a quarter of its time to live
      (`WIDTH_S_MIN`, if that is more). The first sweep after that drops it.
  T3  Versions only grow, until a session expires or is deleted; the same version is held with the
      first bytes that came, and the latest expiry. What was made from other bytes of the version
      that is held is a conflict.
  T4  While a mark lives its session is not stored. There are at most `marks_max`; past that the
      oldest is forgotten, and counted.
  T5  `bytes_held` counts all that is held, as measured in a real process (`cost`), and is at most
      `bytes_max`. New sessions are refused from `new_bytes_max` on: what is left is for longer
      versions of old ones, up to `longer_bytes_max`, and for marks.
  T6  A value that does not match its checksum is neither stored nor served: one that comes is
      refused; one that is held raises `ValueDamaged`, and no table of this life is to be trusted.
  T7  Each step costs the same, however much is held; a sweep frees at most `SLICE`.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from math import ceil, frexp, inf
from typing import Literal, NamedTuple

from bus.messages import Refused
from roles.session_entry import Entry, Table
from roles.session_messages import FULL, SessionAnswer, checksum_of

WIDTH_S_MIN = 0.25
_EXPONENT_MIN = -2  # Of that width: 2 ** -2 s.

ENTRY_BYTES = 390
"""What one session costs beside its value: sid, checksum, entry, and its share of the index and of
a table, just after those have grown. See `tests/roles/test_session_tables.py`, which measures."""

MARK_BYTES = 450
"""What a mark costs."""

MARKS_SHARE = 1 / 8  # Of the memory: so much may be marks.
RESERVE_SHARE = 1 / 16  # Of the memory: not for new sessions (T5).
SLICE = 2000
"""Sessions freed in one sweep: a millisecond or so."""

RETRY_S = 1.0


class ValueDamaged(Exception):  # noqa: N818 (what it is, not what to do about it)
    """What is held of this session is not what was written: bits have flipped."""

    def __init__(self, sid: bytes) -> None:
        super().__init__(f"the value of session {sid.hex()} does not match its checksum")
        self.sid = sid


class Kept(NamedTuple):
    """One session, or a mark, as it is handed to the next life of a brick."""

    sid: bytes
    version: int
    left_s: float
    checksum: bytes
    value: bytes | None
    """None: a mark."""


class SessionTables:
    def __init__(
        self, data_incarnation: int, *, bytes_max: int, value_bytes_max: int, ttl_s_max: float
    ) -> None:
        self.data_incarnation = data_incarnation
        self.bytes_max = bytes_max
        self.new_bytes_max = int(bytes_max * (1 - RESERVE_SHARE))
        self.longer_bytes_max = int(bytes_max * (1 - RESERVE_SHARE / 2))
        self.marks_max = max(1, int(bytes_max * MARKS_SHARE / MARK_BYTES))
        self._value_bytes_max = value_bytes_max
        self._ttl_s_max = ttl_s_max
        self._index: dict[bytes, Entry] = {}
        self._marks: OrderedDict[bytes, None] = OrderedDict()  # Oldest first.
        self._tables: dict[tuple[int, int], Table] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._dropped: list[Table] = []
        self.bytes_held = 0
        self.marks_forgotten = 0
        self._stored = SessionAnswer("stored", data_incarnation)
        self._touched = SessionAnswer("touched", data_incarnation)
        self._missing = SessionAnswer("missing", data_incarnation)
        self._deleted = SessionAnswer("deleted", data_incarnation)

    # What stubs ask for.

    def store(  # noqa: PLR0911, PLR0913 (a session has as many parts, and fates)
        self,
        sid: bytes,
        version: int,
        value: bytes,
        checksum: bytes,
        *,
        ttl_s: float,
        now: float,
        base: int = 0,
        base_checksum: bytes = b"",
    ) -> SessionAnswer | Refused:
        """Hold it, made from version `base` with that checksum, unless there is a newer one."""
        refused = self._unsound(ttl_s, len(value))
        if checksum_of(sid, version, value) != checksum:
            refused = Refused("failed", "the value does not match its checksum")  # T6
        if refused is not None:
            return refused
        held = self._held(sid, now)
        if held is None:
            if self.bytes_held + cost(value) > self.new_bytes_max:  # T5
                return _full("no memory for a new session")
        elif held.value is None:
            return self._deleted  # T4
        elif held.version >= version:
            return self._stored_again(sid, held, version, checksum, ttl_s, now)
        elif held.version == base and base_checksum not in (b"", held.checksum):
            return self._described("conflict", held, now)  # T3
        else:
            return self._stored_over(sid, held, version, value, checksum, ttl_s, now)
        self._put(sid, Entry(value, checksum, version, now + ttl_s, _NOWHERE), ttl_s, now)
        return self._stored

    def read(self, sid: bytes, version: int, now: float) -> tuple[SessionAnswer, bytes]:
        """The answer, and the value if that is one; raises `ValueDamaged`."""
        held = self._held(sid, now)
        if held is None:
            return self._missing, b""
        value = held.value
        if value is None:
            return self._deleted, b""
        if held.version < version:
            return self._missing, b""
        if checksum_of(sid, held.version, value) != held.checksum:
            raise ValueDamaged(sid)  # T6
        return self._described("value", held, now), value

    def touch(self, sid: bytes, version: int, ttl_s: float, now: float) -> SessionAnswer | Refused:
        refused = self._unsound(ttl_s, 0)
        if refused is not None:
            return refused
        held = self._held(sid, now)
        if held is None:
            return self._missing
        if held.value is None:
            return self._deleted
        if held.version < version:
            return self._missing
        self._prolong(sid, held, ttl_s, now)
        return self._touched

    def delete(self, sid: bytes, ttl_s: float, now: float) -> SessionAnswer | Refused:
        ttl_s = min(ttl_s, self._ttl_s_max)  # Nothing that could come back lives longer.
        held = self._held(sid, now)
        if held is not None:
            ttl_s = max(ttl_s, held.expires_at - now)  # A cookie of what we hold lives as long.
        if held is not None and held.value is None:
            self._prolong(sid, held, ttl_s, now)
            return self._deleted
        freed = 0 if held is None or held.value is None else cost(held.value)
        while self._marks and (
            len(self._marks) >= self.marks_max
            or self.bytes_held - freed + MARK_BYTES > self.bytes_max
        ):
            self._remove(next(iter(self._marks)))
            self.marks_forgotten += 1  # T4
        if self.bytes_held - freed + MARK_BYTES > self.bytes_max:
            return _full("no memory for a mark of deletion")
        self._put(sid, Entry(None, b"", 0, now + ttl_s, _NOWHERE), ttl_s, now)
        return self._deleted

    # Time.

    @property
    def wake_at(self) -> float:
        """When there is something to sweep."""
        if self._dropped:
            return -inf
        return self._ends[0][0] if self._ends else inf

    def sweep(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, exponent, number = heappop(self._ends)
            self._dropped.append(self._tables.pop((exponent, number)))  # T2
        left = SLICE
        while self._dropped and left:  # T7
            sids = self._dropped[-1].sids
            if not sids:
                self._dropped.pop()
                continue
            self._remove(sids.pop())
            left -= 1

    # From one life to the next.

    def kept(self, now: float) -> Iterator[Kept]:
        """All that has not expired. Nothing may be changed until this is done."""
        for sid, entry in self._index.items():
            left_s = entry.expires_at - now
            if left_s > 0:
                yield Kept(sid, entry.version, left_s, entry.checksum, entry.value)

    def adopt(self, kept: Kept, passed_s: float, now: float) -> bool:
        """Hold what a life before held `passed_s` ago. Whether it is sound; if not, T6."""
        value = kept.value
        if value is not None and checksum_of(kept.sid, kept.version, value) != kept.checksum:
            return False
        ttl_s = kept.left_s - passed_s
        if 0 < ttl_s <= self._ttl_s_max:
            entry = Entry(kept.value, kept.checksum, kept.version, now + ttl_s, _NOWHERE)
            self._put(kept.sid, entry, ttl_s, now)
        return True

    def corrupt(self, sid: bytes) -> bool:
        """Flip a bit of what is held, as a fault for tests; whether there is anything to spoil."""
        held = self._index.get(sid)
        if held is None or not held.value:
            return False
        held.value = bytes([held.value[0] ^ 1]) + held.value[1:]
        return True

    def corrupt_some(self, count: int) -> int:
        """Flip a bit in each of so many values, spread over all that is held; how many it were."""
        sids = [sid for sid, held in self._index.items() if held.value]
        chosen = sids[:: max(1, len(sids) // max(1, count))][:count]
        return sum(self.corrupt(sid) for sid in chosen)

    # Statistics.

    @property
    def items(self) -> int:
        """Sessions held; those that expired and are not swept yet among them."""
        return len(self._index) - len(self._marks)

    @property
    def marks(self) -> int:
        return len(self._marks)

    @property
    def tables(self) -> int:
        return len(self._tables)

    @property
    def unswept(self) -> int:
        """What is in tables that were dropped, and not freed yet."""
        return sum(len(table.sids) for table in self._dropped)

    def table_ages_s(self, now: float) -> tuple[float, float]:
        """How old the oldest table is, and the youngest."""
        began = [table.began_at for table in self._tables.values()]
        return (now - min(began), now - max(began)) if began else (0.0, 0.0)

    # How it is held.

    def _held(self, sid: bytes, now: float) -> Entry | None:
        held = self._index.get(sid)
        return None if held is None or held.expires_at <= now else held  # T1

    def _stored_over(  # noqa: PLR0913 (a session has as many parts)
        self,
        sid: bytes,
        held: Entry,
        version: int,
        value: bytes,
        checksum: bytes,
        ttl_s: float,
        now: float,
    ) -> SessionAnswer | Refused:
        """A newer version in the place of the one that is held: what most writes are."""
        longer = cost(value) - cost(held.value)
        if longer > 0 and self.bytes_held + longer > self.longer_bytes_max:  # T5
            return _full("no memory for a longer version")
        self.bytes_held += longer
        held.value, held.checksum, held.version = value, checksum, version
        self._move(sid, held, ttl_s, now)
        return self._stored

    def _stored_again(
        self, sid: bytes, held: Entry, version: int, checksum: bytes, ttl_s: float, now: float
    ) -> SessionAnswer:
        if held.version > version or held.checksum != checksum:
            return self._described("conflict", held, now)  # T3
        self._prolong(sid, held, ttl_s, now)
        return self._stored

    def _prolong(self, sid: bytes, held: Entry, ttl_s: float, now: float) -> None:
        if now + ttl_s > held.expires_at:  # T3
            self._move(sid, held, ttl_s, now)

    def _move(self, sid: bytes, held: Entry, ttl_s: float, now: float) -> None:
        """To the table of those that end with it."""
        expires_at = now + ttl_s
        table = self._table(ttl_s, expires_at, now)
        if table is not held.table:
            held.table.sids.discard(sid)
            table.sids.add(sid)
            held.table = table
        held.expires_at = expires_at

    def _put(self, sid: bytes, entry: Entry, ttl_s: float, now: float) -> None:
        before = self._index.get(sid)
        if before is not None:
            self._remove(sid)
        entry.table = self._table(ttl_s, entry.expires_at, now)
        entry.table.sids.add(sid)
        self._index[sid] = entry
        if entry.value is None:
            self._marks[sid] = None
        self.bytes_held += cost(entry.value)

    def _remove(self, sid: bytes) -> None:
        entry = self._index.pop(sid)
        entry.table.sids.discard(sid)
        if entry.value is None:
            del self._marks[sid]
        self.bytes_held -= cost(entry.value)

    def _table(self, ttl_s: float, expires_at: float, now: float) -> Table:
        """The one for sessions that live that long and end then; made if need be."""
        exponent = max(frexp(ttl_s / 4)[1] - 1, _EXPONENT_MIN)  # T2: 2**exponent <= ttl_s / 4
        width_s = 2.0**exponent
        number = ceil(expires_at / width_s)
        table = self._tables.get((exponent, number))
        if table is None:
            ends_at = number * width_s
            table = self._tables[exponent, number] = Table(now, ends_at)
            heappush(self._ends, (ends_at, exponent, number))
        return table

    def _described(
        self, outcome: Literal["value", "conflict"], held: Entry, now: float
    ) -> SessionAnswer:
        return SessionAnswer(
            outcome,
            self.data_incarnation,
            held.version,
            held.expires_at - now,
            held.checksum,
        )

    def _unsound(self, ttl_s: float, value_bytes: int) -> Refused | None:
        if value_bytes > self._value_bytes_max:
            detail = f"a value of {value_bytes} bytes: at most {self._value_bytes_max}"
            return Refused("failed", detail)
        if not 0 < ttl_s <= self._ttl_s_max:
            return Refused("failed", f"ttl_s of {ttl_s:g}: above 0, at most {self._ttl_s_max:g}")
        return None


def cost(value: bytes | None) -> int:
    """Bytes of memory for a session with that value, or for a mark."""
    if value is None:
        return MARK_BYTES
    return ENTRY_BYTES + (len(value) + 56 & -16)  # T5: as malloc rounds an object of bytes up.


def _full(what: str) -> Refused:
    return Refused("busy", FULL + what, retry_after_s=RETRY_S)


_NOWHERE = Table(0.0, 0.0)
