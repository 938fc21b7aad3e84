"""Which owner should have which keys: a plan, from the owners alone. Decides only.

A plan is a map of the whole key space; who really holds what is the lease manager's business,
which moves towards the plan. Load does not count yet.

What always holds:
  A1  The same owners give the same plan, in whatever order they are named.
  A2  `vnodes`: an owner that comes takes keys, and one that goes gives keys, but no key moves
      between two owners that stay.
"""

from collections.abc import Collection
from typing import Protocol

from roles.key_range import KEYS_END, position
from roles.range_map import RangeMap

VNODES = 64


class Assignment(Protocol):
    def plan(self, owners: Collection[str]) -> RangeMap[str]:
        """The owner each key should have; nobody ("") if there are no owners."""
        ...


class Vnodes:
    """The papers': each owner stands at 64 points of a ring, and has what follows each of them."""

    def __init__(self) -> None:
        self._points: dict[str, list[tuple[int, str]]] = {}

    def plan(self, owners: Collection[str]) -> RangeMap[str]:
        self._points = {
            owner: self._points.get(owner) or _points(owner) for owner in owners
        }  # Those of the gone are forgotten.
        ring = sorted(point for points in self._points.values() for point in points)  # A1
        if not ring:
            return RangeMap("")
        # What lies before the first point follows the last one: the ring is closed. Each point is
        # its owner's own, wherever the others stand (A2).
        return _mapped([0, *(at for at, _ in ring)], [ring[-1][1], *(name for _, name in ring)])


class Fixed:
    """Equal parts in the order of the owners' names. For tests: nearly everything moves."""

    def plan(self, owners: Collection[str]) -> RangeMap[str]:
        names = sorted(owners)  # A1
        if not names:
            return RangeMap("")
        return _mapped([index * KEYS_END // len(names) for index in range(len(names))], names)


POLICIES: dict[str, type[Vnodes] | type[Fixed]] = {"vnodes": Vnodes, "fixed": Fixed}


def _points(owner: str) -> list[tuple[int, str]]:
    return [(position(f"{owner}/{number}"), owner) for number in range(VNODES)]


def _mapped(starts: list[int], names: list[str]) -> RangeMap[str]:
    ends = [*starts[1:], KEYS_END]
    pieces = [piece for piece in zip(starts, ends, names, strict=True) if piece[0] < piece[1]]
    return RangeMap("").updated(pieces)
