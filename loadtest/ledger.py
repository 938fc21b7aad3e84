"""What each session must hold, by what was acknowledged. Decides only; asks nobody.

A value is made from its session's key and a number, so a ledger keeps numbers and no values, and
whoever reads one can tell which it is. A write whose outcome is not known may have been done by
some bricks: until another write is acknowledged, its value may show at any time, or never.

What always holds:
  D1  A value is right if it is of the last write acknowledged, or of one in doubt since then.
  D2  No two writes of a session have the same number.
"""

from collections.abc import Iterator
from itertools import count

BLOCK = bytes(range(256)) * 64  # What values are filled with, from a place of their own.


def value_of(key: str, number: int, size: int) -> bytes:
    """The value of that write: its key and number, then filling that differs by number."""
    mark = f"{key} {number} {size} ".encode()
    begin = number % 256
    return (mark + BLOCK[begin : begin + size])[: max(size, len(mark))]


def number_of(key: str, value: bytes) -> int | None:
    """Which write of that session this is, whole and unharmed; None if it is none."""
    words = value[:100].split(b" ", 3)
    if len(words) < 3 or words[0] != key.encode():
        return None
    if not (words[1].isdigit() and words[2].isdigit() and len(words[2]) < 9):
        return None
    number = int(words[1])
    return number if value == value_of(key, number, int(words[2])) else None


class Ledger:
    """Of one session."""

    __slots__ = ("_doubtful", "_numbers", "acknowledged", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.acknowledged = 0
        """The number of the last write known to be done; 0: none yet."""
        self._doubtful: set[int] = set()
        self._numbers: Iterator[int] = count(1)

    def next_number(self) -> int:
        return next(self._numbers)  # D2

    def done(self, number: int) -> None:
        self.acknowledged = number
        self._doubtful.clear()

    def in_doubt(self, number: int) -> None:
        self._doubtful.add(number)

    def is_right(self, value: bytes) -> bool:
        """Whether reading this can be; if so, it is what is known to be there from now on."""
        number = number_of(self.key, value)
        if number is None or (number != self.acknowledged and number not in self._doubtful):
            return False  # D1
        self._doubtful.discard(number)
        self.acknowledged = number
        return True
