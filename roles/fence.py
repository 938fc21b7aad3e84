"""Refuse the delayed write of an owner that has been replaced. Decides only; keeps no data.

A lease ends at its owner, but what the owner sent may still be on its way. So whoever receives
it keeps the greatest lease number seen for each key and refuses lesser ones. `RangeFence` does
that in the memory of a service, for whole ranges; `roles.fence_sql` and `roles.fence_redis` do
it inside a database, for single keys. docs/fencing.md says when each is needed, and what none
of them can do.

What always holds, for each key:
  F1  A number less than one seen before (admitted or learned) is refused.
  F2  Refusing changes nothing; admitting remembers the number.
  F3  As long as `joined` is 0, whatever F1 does not refuse is admitted.
  F4  Memory is bounded. At `ranges_max` neighbouring ranges are joined under the greater number:
      it errs on the refusing side, so F1 holds, and an owner may be refused wrongly until its
      range is granted anew. `joined` counts these; if it grows, the limit is too low.
"""

from bisect import bisect_right
from heapq import nsmallest

from roles.key_range import KEYS_END, Key, KeyRange, position

NUMBER_END = 1 << 63  # What BIGINT holds, and more grants than there will ever be.
RANGES_MAX = 65_536  # A hundred owners of 64 ranges, ten times over; about 6 MB when full.


def check_number(number: int) -> int:
    """The number, if it can be that of a lease; else ValueError."""
    if type(number) is not int or not 0 < number < NUMBER_END:
        raise ValueError(f"a lease number is an int from 1 to 2**63 - 1; not {number!r}")
    return number


class RangeFence:
    """The numbers seen of one namespace: numbers of two namespaces do not compare."""

    def __init__(self, *, ranges_max: int = RANGES_MAX) -> None:
        if ranges_max < 8:
            raise ValueError(f"ranges_max is at least 8; not {ranges_max}")
        self._ranges_max = ranges_max
        self._starts = [0]  # Each range lasts until the next one starts.
        self._numbers = [0]  # The greatest seen there; 0 is none.
        self.refused = 0
        """Operations not admitted: each is a write that would have come too late."""
        self.joined = 0
        """Ranges joined to make room (F4)."""

    def __len__(self) -> int:
        return len(self._starts)

    def greatest(self, key: Key) -> int:
        """The greatest number seen for `key`; 0 if none was."""
        return self._numbers[self._index(position(key))]

    def admit(self, key: Key, number: int) -> bool:
        """May what was sent under lease `number` be done to `key`? Remembers it if so."""
        check_number(number)
        place = position(key)
        seen = self._numbers[self._index(place)]
        if number < seen:  # F1
            self.refused += 1
            return False
        if number > seen:
            self._raise(place, place + 1, number)  # F2
        return True  # F3

    def admit_range(self, keys: KeyRange, number: int) -> bool:
        """The same for an operation on all of `keys`: refused if any part of it is."""
        check_number(number)
        first, last = self._index(keys.start), self._index(keys.end - 1)
        if number < max(self._numbers[first : last + 1]):  # F1
            self.refused += 1
            return False
        self._raise(keys.start, keys.end, number)  # F2
        return True

    def learn(self, keys: KeyRange, number: int) -> None:
        """`keys` are leased under `number`: from now on refuse what is less, even unwritten keys.

        One call when an owner introduces itself costs one range. Single keys that `admit` has
        to remember cost two each, so learning is also how the fence stays far from its limit.
        """
        self._raise(keys.start, keys.end, check_number(number))

    def _index(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def _raise(self, start: int, end: int, number: int) -> None:
        """Every position from `start` to `end` to at least `number`."""
        first, last = self._index(start), self._index(end - 1)
        starts, numbers = self._starts[first : last + 1], self._numbers[first : last + 1]
        after = last + 1
        rest = self._starts[after] if after < len(self._starts) else KEYS_END
        pieces = [(starts[0], numbers[0])] if starts[0] < start else []
        starts[0] = start
        pieces += [(at, max(old, number)) for at, old in zip(starts, numbers, strict=True)]  # F1
        if end < rest:
            pieces.append((end, numbers[-1]))
        self._splice(first, after, pieces)
        if len(self._starts) > self._ranges_max:
            self._make_room()

    def _splice(self, first: int, after: int, pieces: list[tuple[int, int]]) -> None:
        """Put `pieces` in place of the ranges from `first` up to `after`; equal neighbours join."""
        before = self._numbers[first - 1] if first else -1
        kept = []
        for start, number in pieces:
            if number != before:
                kept.append((start, number))
                before = number
        if after < len(self._numbers) and self._numbers[after] == before:
            after += 1
        self._starts[first:after] = [start for start, _ in kept]
        self._numbers[first:after] = [number for _, number in kept]

    def _make_room(self) -> None:
        """F4: join an eighth of the ranges with a neighbour, so that the next ones cost nothing.

        Of two neighbours the one with the lesser number rises. Its width is how many keys may
        now be refused wrongly, so the narrowest go first.
        """
        starts, numbers = self._starts, self._numbers
        ends = [*starts[1:], KEYS_END]

        def rising(index: int) -> int:
            lesser = index if numbers[index] < numbers[index - 1] else index - 1
            return ends[lesser] - starts[lesser]

        count = len(starts) - self._ranges_max + self._ranges_max // 8
        gone = set(nsmallest(count, range(1, len(starts)), key=rising))
        pieces: list[tuple[int, int]] = []
        for index, (start, number) in enumerate(zip(starts, numbers, strict=True)):
            if index in gone:
                earlier, other = pieces.pop()
                pieces.append((earlier, max(other, number)))  # F1
            else:
                pieces.append((start, number))
        self.joined += len(gone)
        self._splice(0, len(starts), pieces)
