"""Whom to refuse first when not all can be served: alike for all of a session. Decides only.

Limiters say how much the bricks can carry; without more, chance would decide whom that is for, and
a task of several requests would seldom be carried to its end. So every session has a level, and
requests above a cursor are refused. The cursor is moved so that about as many pass as can be
carried: as many as were, when there was too much. So it is gone as soon as a storm is, and need
not feel its way back. The level of a session is the same in every stub, and for its reads and
writes.

What always holds:
  A1  Existing sessions come before new ones, then higher priority before lower, then by lot; the
      lot is drawn anew each hour, so that nobody loses for ever.
  A2  The cursor moves once in `PERIOD_S`, or after `REQUESTS_MAX`; it is gone when no more are
      offered than can be carried.
  A3  For every `TRICKLE` that pass, and in every period, one from above the cursor may pass too:
      nobody is locked out, and the others lose little by it, however many knock.
"""

from xxhash import xxh3_64_intdigest

PRIORITY_MIN, PRIORITY_MAX = -4, 3

LOTS = 128
PRIORITIES = PRIORITY_MAX - PRIORITY_MIN + 1
LEVELS = 2 * PRIORITIES * LOTS

PERIOD_S = 0.1
REQUESTS_MAX = 2000  # A period also ends after so many.
TRICKLE = 50
GROWTH, GROWTH_MAX = 0.05, 1.0  # Of what is let through; doubled as long as all is carried.
UNCARRIED_SHARE = 0.02  # So many turned away by the limiters are no reason to refuse more,
UNCARRIED_FREE = 2  # nor so few in a period: a stall of the machine, or a brick that dies.
CAPACITY_MIN, CAPACITY_MAX = 1.0, 1e12  # Requests a second; the latter is as good as no limit.
ELAPSED_S_MIN = 0.001


def level_of(sid: bytes, *, is_new: bool, priority: int, hour: int) -> int:
    """0 is the last to be refused (A1)."""
    lot = xxh3_64_intdigest(sid, hour) & (LOTS - 1)
    return (is_new * PRIORITIES + PRIORITY_MAX - priority) * LOTS + lot


class Admission:
    def __init__(self) -> None:
        self.cursor = LEVELS
        """Levels below it are let through."""
        self._capacity_per_s = CAPACITY_MAX
        """How much can be carried, as far as that is known."""
        self._growth = GROWTH
        self._offered = [0] * LEVELS
        self._offered_in_all = 0
        self._let_through = 0
        self._uncarried = 0
        self._trickle = 1.0
        self._period_began_at: float | None = None

    def admits(self, level: int, now: float) -> bool:
        """Whether a request of that level may try."""
        if self._period_began_at is None:
            self._period_began_at = now
        elif now >= self._period_began_at + PERIOD_S or self._offered_in_all >= REQUESTS_MAX:
            self._move_cursor(now - self._period_began_at)
            self._period_began_at = now
        self._offered[level] += 1
        self._offered_in_all += 1
        if level >= self.cursor:
            if self._trickle < 1:
                return False
            self._trickle -= 1  # A3
        else:
            self._trickle += 1 / TRICKLE
        self._let_through += 1
        return True

    def not_carried(self) -> None:
        """One that was let through found no room at the bricks, or no answer."""
        self._uncarried += 1

    def _move_cursor(self, elapsed_s: float) -> None:
        elapsed_s = max(elapsed_s, ELAPSED_S_MIN)
        if self._uncarried > UNCARRIED_FREE + self._let_through * UNCARRIED_SHARE:
            known = min(self._capacity_per_s, self._let_through / elapsed_s)
            carried = max(self._let_through - self._uncarried, 0) / elapsed_s
            # A period is a small sample, and in one of them all may have stood still: it counts
            # for half, and halves what was known at most.
            carried = max((min(known, 2 * carried) + carried) / 2, known / 2)
            self._capacity_per_s = max(carried, CAPACITY_MIN)
            self._growth = GROWTH
        else:
            self._capacity_per_s = min(self._capacity_per_s * (1 + self._growth), CAPACITY_MAX)
            self._growth = min(self._growth * 2, GROWTH_MAX)
        self.cursor = self._level_that_passes(self._capacity_per_s * elapsed_s)  # A2
        self._offered = [0] * LEVELS
        self._offered_in_all = self._let_through = self._uncarried = 0
        self._trickle = max(self._trickle, 1.0)  # A3

    def _level_that_passes(self, count: float) -> int:
        if self._offered_in_all <= count:
            return LEVELS
        passing = 0
        for level, offered in enumerate(self._offered):
            passing += offered
            if passing > count:
                return max(1, level)
        return LEVELS
