"""What a brick leaves to its next life, as bytes. Decides only: who reads and writes is a shell.

    MAGIC | length u32 | Head, msgpack | (record | value)* | digest of all before

A record says how long its session still had when the head was written. Clocks of one boot of one
machine compare, so that the next life can tell what has passed; those of two boots do not.

What always holds:
  H1  Nothing is taken from a file that is not whole and sound to its last byte, not of this
      brick of this cluster, not of this boot, or older than `VALID_S`: `Unusable` says why. Who
      reads must throw away what it got before that.
  H2  Whatever the bytes, reading ends in `Unusable` or with the last record, and holds no more
      than one value beyond those it gave.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NoReturn

import msgspec
from xxhash import xxh3_128

from roles.session_messages import CHECKSUM_BYTES, SID_BYTES
from roles.session_tables import Kept

MAGIC = b"softstate tables 1\n"
VALID_S = 60.0
HEAD_BYTES_MAX = 4096
VALUE_BYTES_MAX = 17 << 20
DIGEST_BYTES = 16

_LENGTH = struct.Struct("<I")
_RECORD = struct.Struct(f"<{SID_BYTES}sQd{CHECKSUM_BYTES}sI")
_MARK = 0xFFFFFFFF  # In the place of a length: no value, but a mark of deletion.


class Unusable(Exception):  # noqa: N818 (what it is, not what to do about it)
    """This file is nothing to begin with. The sentence is for people."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    cluster: str
    id: str
    boot_id: str
    data_incarnation: int
    written_at: float
    """By the clock of that boot."""
    count: int
    """Of records."""


class Writer:
    """Makes the chunks of a file, to be written in order."""

    def __init__(self) -> None:
        self._digest = xxh3_128()

    def begin(self, head: Head) -> bytes:
        encoded = msgspec.msgpack.encode(head)
        return self._add(MAGIC + _LENGTH.pack(len(encoded)) + encoded)

    def record(self, kept: Kept) -> bytes:
        value = b"" if kept.value is None else kept.value
        length = _MARK if kept.value is None else len(value)
        checksum = kept.checksum.ljust(CHECKSUM_BYTES, b"\0")
        return self._add(
            _RECORD.pack(kept.sid, kept.version, kept.left_s, checksum, length) + value
        )

    def end(self) -> bytes:
        return self._digest.digest()

    def _add(self, chunk: bytes) -> bytes:
        self._digest.update(chunk)
        return chunk


class Reader:
    """Reads a file, of which `take(count)` gives the next bytes, fewer only at its end."""

    def __init__(self, take: Callable[[int], bytes]) -> None:
        self._source = take
        self._digest = xxh3_128()

    def head(self, *, cluster: str, brick_id: str, boot_id: str, now: float) -> Head:
        """What this is; raises `Unusable` unless it is ours and recent (H1)."""
        if self._take(len(MAGIC)) != MAGIC:
            raise Unusable("it is not of our making")
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if length > HEAD_BYTES_MAX:
            _damaged()
        try:
            head = msgspec.msgpack.decode(self._take(length), type=Head)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            _damaged()
        if (head.cluster, head.id) != (cluster, brick_id):
            raise Unusable("it is of another brick")
        if head.boot_id != boot_id:
            raise Unusable("it was written before this machine was started")
        age_s = now - head.written_at
        if not 0 <= age_s <= VALID_S:
            raise Unusable(f"it is {age_s:.0f} s old, and counts for {VALID_S:.0f} s")
        return head

    def records(self, head: Head) -> Iterator[Kept]:
        """All of them; raises `Unusable` if any byte is wrong, at the latest after the last."""
        for _ in range(max(head.count, 0)):
            sid, version, left_s, checksum, length = _RECORD.unpack(self._take(_RECORD.size))
            if length == _MARK:
                yield Kept(sid, version, left_s, b"", None)
            elif length > VALUE_BYTES_MAX:
                _damaged()  # H2
            else:
                yield Kept(sid, version, left_s, checksum, self._take(length))
        digest = self._digest.digest()
        if self._source(DIGEST_BYTES) != digest or self._source(1):
            _damaged()

    def _take(self, count: int) -> bytes:
        chunk = self._source(count)
        if len(chunk) < count:
            raise Unusable("it ends too soon")
        self._digest.update(chunk)
        return chunk


def _damaged() -> NoReturn:
    raise Unusable("it is damaged")
