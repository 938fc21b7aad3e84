"""A value for every position of the key space, kept as few ranges. Decides nothing.

What always holds:
  M1  The ranges cover the whole key space and do not overlap.
  M2  A view handed out never changes: updates make new lists.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Generic, TypeVar

from roles.key_range import KEYS_END

V = TypeVar("V")

Piece = tuple[int, int, V]
"""Start, end and value of one range."""


class RangeMap(Generic[V]):
    def __init__(self, value: V) -> None:
        """Everywhere `value`."""
        self.starts: list[int] = [0]
        self.values: list[V] = [value]

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, position: int) -> V:
        return self.values[bisect_right(self.starts, position) - 1]

    def pieces(self, start: int = 0, end: int = KEYS_END) -> Iterator[Piece[V]]:
        """The ranges within `start` to `end`, cut off at both."""
        index = bisect_right(self.starts, start) - 1
        starts, values = self.starts, self.values
        while start < end:
            index += 1
            until = min(starts[index] if index < len(starts) else KEYS_END, end)
            yield start, until, values[index - 1]
            start = until

    def updated(self, changes: Iterable[Piece[V]]) -> "RangeMap[V]":
        """Another map with `changes` made: sorted ranges that do not overlap."""
        made: RangeMap[V] = RangeMap.__new__(RangeMap)
        made.starts, made.values = [], []  # M2
        starts = self.starts
        done, index = 0, 1  # Positions below `done` are made; `index` of our ranges begin by then.
        for start, end, value in changes:
            assert done <= start < end <= KEYS_END, "changes are sorted and do not overlap"
            if done < start:
                last = bisect_left(starts, start, index)
                self._copy(made, done, index, last)
                index = last
            made._add(start, value)
            done = end
            index = bisect_right(starts, end, index)
        if done < KEYS_END:  # M1
            self._copy(made, done, index, len(starts))
        return made

    def _copy(self, made: "RangeMap[V]", start: int, index: int, last: int) -> None:
        """Append what is at `start`, and our ranges from `index` to `last`, which begin later."""
        made._add(start, self.values[index - 1])
        if index < last:
            made.starts += self.starts[index:last]
            made.values += self.values[index:last]

    def _add(self, start: int, value: V) -> None:
        values = self.values
        # Mostly the very same object, or one that differs: comparing is the slow part.
        if not values or (values[-1] is not value and values[-1] != value):
            self.starts.append(start)
            values.append(value)


def overlaid(changes: Sequence[Piece[V]]) -> list[Piece[V]]:
    """What `changes` made one after the other come to: sorted ranges that do not overlap, as few
    as possible."""
    in_order = sorted(range(len(changes)), key=lambda index: changes[index][0])
    cuts = sorted({cut for start, end, _ in changes for cut in (start, end)})
    pieces: list[Piece[V]] = []
    begun = 0
    on_top: list[int] = []  # Changes that have begun; the latest made is the first.
    for start, end in pairwise(cuts):
        while begun < len(changes) and changes[in_order[begun]][0] <= start:
            heappush(on_top, -in_order[begun])
            begun += 1
        while on_top and changes[-on_top[0]][1] <= start:
            heappop(on_top)
        if not on_top:
            continue
        value = changes[-on_top[0]][2]
        if pieces and pieces[-1][1] == start and pieces[-1][2] == value:
            pieces[-1] = (pieces[-1][0], end, value)
        else:
            pieces.append((start, end, value))
    return pieces
