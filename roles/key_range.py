"""The key space: 64-bit positions, ranges of them, and which position a key has."""

from collections.abc import Iterable

import msgspec
from xxhash import xxh3_64_intdigest

KEYS_END = 1 << 64

Key = str | bytes | int


class KeyRange(msgspec.Struct, frozen=True, order=True, gc=False):
    """From `start` up to, not including, `end`; 0 ≤ start < end ≤ 2**64, so it never wraps."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= KEYS_END:
            raise ValueError(f"no range of keys: {self.start} to {self.end}")

    def __contains__(self, position: int) -> bool:
        return self.start <= position < self.end


EVERYTHING = KeyRange(0, KEYS_END)


def position(key: Key) -> int:
    """Where `key` lies: strings (as UTF-8) and bytes are hashed, an int is taken as it is."""
    kind = type(key)
    if kind is str:
        return xxh3_64_intdigest(key.encode())  # type: ignore[union-attr]
    if kind is bytes:
        return xxh3_64_intdigest(key)  # type: ignore[arg-type]
    if isinstance(key, int) and kind is not bool and 0 <= key < KEYS_END:
        return int(key)
    if isinstance(key, str):
        return xxh3_64_intdigest(key.encode())
    if isinstance(key, bytes | bytearray | memoryview):
        return xxh3_64_intdigest(key)
    raise ValueError(f"a key is str, bytes, or an int from 0 to 2**64 - 1; not {key!r}")


def joined(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """The same positions in as few ranges as possible, in order."""
    result: list[KeyRange] = []
    for each in sorted(ranges):
        if result and each.start <= result[-1].end:
            if each.end > result[-1].end:
                result[-1] = KeyRange(result[-1].start, each.end)
        else:
            result.append(each)
    return result
