"""Which brick to restart next, and when, so that none lives longer than it should. Decides only.

What leaks or fragments is cured by a restart, and one that is planned costs nobody anything: the
brick hands its tables to its next life (`roles.brick_roll`). Each has its turn once in `every_s`,
evenly spread: the oldest life ends when the youngest has lasted its part of that time. Nothing is
remembered, so it does not matter who asks: a new leader goes on where the one before stopped.

What always holds:
  J1  Nobody is due unless every planned brick is live, and every other one that is there: not while
      one is away, hangs or drains.
  J2  As long as nothing else befalls them, no life lasts longer than `every_s` and what restarts
      take, and two ends are at least nine tenths of an even part of it apart.
"""

from collections.abc import Collection, Iterable

import msgspec

from bus.messages import State

JITTER_SHARE = 0.1
"""Of the time between two: so much sooner by chance, lest it keeps step with something else."""


class BrickLife(msgspec.Struct, frozen=True):
    id: str
    state: State
    age_s: float
    """How long this life has lasted."""


class Due(msgspec.Struct, frozen=True):
    """Its turn comes in so long, if all stays as it is; at once if that is not above 0."""

    id: str
    in_s: float


def next_due(
    bricks: Iterable[BrickLife], planned: Collection[str], every_s: float, jitter: float
) -> Due | None:
    """`bricks`: all that are there in any state; `planned`: ids; `jitter`: drawn, 0 to 1."""
    bricks = list(bricks)
    lives = [each for each in bricks if each.state == "live"]
    if not lives or in_the_way(bricks, planned):
        return None  # J1
    part_s = every_s / len(lives) * (1 - JITTER_SHARE * jitter)
    oldest = max(lives, key=lambda each: (each.age_s, each.id))
    youngest = min(lives, key=lambda each: each.age_s)
    return Due(oldest.id, part_s - youngest.age_s)  # J2


def in_the_way(bricks: Iterable[BrickLife], planned: Collection[str]) -> list[str]:
    """Because of whom nobody is due: the planned that are not live, and who else is there so."""
    states = {each.id: each.state for each in bricks}
    absent = {each for each in planned if states.get(each) != "live"}
    unready = {each for each in states if states[each] not in ("live", "offline", "dead")}
    return sorted(absent | unready)
