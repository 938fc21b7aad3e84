"""Who leads: one row in the store, a beat, and patience. Decides only.

The leader writes the row with each commit, with a greater beat, and trusts its term for
`leader_ttl_s` from when it *asked* for that. A standby that has watched one beat for longer than
that, on its own clock, takes the next term; so does one to whom the leader was vouched dead.
A store may be rolled back under all of them: then a leader trusts a row that is no longer there, so
only who has looked all the time knows that a dead or empty row is the last word.

What always holds:
  E1  At no instant do two managers trust their terms, as long as clocks keep to the skew.
  E2  Terms only grow, beyond all that we know of, whatever the store says; and every commit names
      the row it expects: one of a lower term fails.
  E3  A commit whose outcome is unknown is tried again, unchanged, until its outcome is known or
      the term is no longer trusted.
"""

import math

import msgspec

from bus.lease_timing import LeaseTiming
from roles.lease_rows import LEADER, LeaderRow, decode, encode

WATCHES = 6
"""How often within `leader_ttl_s` a standby looks, and a leader beats at least half as often."""


class Candidate(msgspec.Struct, frozen=True):
    """Who we are, as the row would say."""

    id: str
    incarnation: int
    node: str


class Watching(msgspec.Struct, frozen=True):
    row: bytes | None
    since: float
    """When we first saw it; `inf` before the first look."""


class Taking(msgspec.Struct, frozen=True):
    """We have asked for the next term, or for one greater than another manager is said to have."""

    row: bytes
    term: int
    fresh: bool
    """There was no row, and never was, as far as we know: nobody ever led."""


class Leading(msgspec.Struct, frozen=True):
    row: bytes
    term: int
    trusted_until: float
    beat: int
    fresh: bool


Standing = Watching | Taking | Leading


class Election:
    def __init__(self, me: Candidate, timing: LeaseTiming) -> None:
        self._me = me
        self._timing = timing
        self.state: Standing = Watching(None, math.inf)
        self.holder: LeaderRow | None = None
        """Who led when we last looked."""
        self._look_at = -math.inf
        self._looked_at = -math.inf
        self._looking_since = -math.inf
        """Since when we have not missed a leader that came and went."""
        self._still_trusted_until = -math.inf
        self.term_floor = 0
        self._vouched: set[tuple[str, int]] = set()

    @property
    def term(self) -> int:
        match self.state:
            case Leading(term=term):
                return term
            case _:
                return 0 if self.holder is None else self.holder.term

    @property
    def every_s(self) -> float:
        return self._timing.leader_ttl_s / WATCHES

    @property
    def wake_at(self) -> float:
        match self.state:
            case Leading(trusted_until=trusted_until):
                return min(trusted_until, self._beat_at(trusted_until))
            case _:
                return self._look_at

    def _beat_at(self, trusted_until: float) -> float:
        asked_at = trusted_until - self._timing.leader_ttl_s
        return asked_at + 2 * self.every_s

    def trusted(self, now: float) -> bool:
        """E1: whether we lead at this instant, for certain."""
        return isinstance(self.state, Leading) and now < self.state.trusted_until

    def beat_due(self, now: float) -> bool:
        return isinstance(self.state, Leading) and now >= self._beat_at(self.state.trusted_until)

    def look_due(self, now: float) -> bool:
        return isinstance(self.state, Watching) and now >= self._look_at

    # A standby looks.

    def looked(self, row: bytes | None, now: float) -> bool:
        """What the row says now; True if it is time to take the lead."""
        assert isinstance(self.state, Watching)
        self._look_at = now + self.every_s
        self.holder = None if row is None else decode(LeaderRow, LEADER, row)
        blind = now > self._looked_at + self._timing.takeover_s
        self._looked_at = now
        if blind:
            self._looking_since = now
        if blind or math.isinf(self.state.since) or row != self.state.row:
            # From now, not from when we asked: the beat may have been written in between.
            self.state = Watching(row, now)
        may_take = self._may_take(now)
        if self.holder is not None:
            self.heard_of_term(self.holder.term)
        return may_take

    def _may_take(self, now: float) -> bool:
        assert isinstance(self.state, Watching)
        if now < self._still_trusted_until:
            return True  # We lead, so that nobody else can.
        if now >= self.state.since + self._timing.takeover_s:  # E1
            return True
        if self.holder is None:
            return not self.term_floor  # Nobody ever led; or the store has lost who does.
        life = self.holder.holder, self.holder.incarnation
        ended = not self.holder.holder or life in self._vouched
        # E1: and no later leader can trust a row that is no longer there.
        is_last = self.holder.term >= self.term_floor
        return ended and is_last and now >= self._looking_since + self._timing.takeover_s

    def take(self) -> tuple[bytes | None, bytes]:
        """The row we expect and the one to put in its place."""
        assert isinstance(self.state, Watching)
        before = 0 if self.holder is None else self.holder.term
        self.heard_of_term(before)
        term = self.term_floor + 1  # E2
        expect = self.state.row
        row = encode(LeaderRow(term, self._me.id, self._me.incarnation, self._me.node, 1))
        self.state = Taking(row, term, fresh=term == 1)
        return expect, row

    def taken(self, asked_at: float) -> Leading:
        assert isinstance(self.state, Taking)
        taking = self.state
        trusted_until = asked_at + self._timing.leader_ttl_s
        self.state = Leading(taking.row, taking.term, trusted_until, 1, taking.fresh)
        return self.state

    # A leader beats with each commit.

    def next_row(self) -> tuple[bytes, bytes]:
        """The row a commit expects, and the one it puts: the same until `committed` (E3)."""
        assert isinstance(self.state, Leading)
        beat = self.state.beat + 1
        me = self._me
        return self.state.row, encode(
            LeaderRow(self.state.term, me.id, me.incarnation, me.node, beat)
        )

    def committed(self, row: bytes, asked_at: float) -> None:
        assert isinstance(self.state, Leading)
        trusted_until = asked_at + self._timing.leader_ttl_s
        state = self.state
        self.state = Leading(row, state.term, trusted_until, state.beat + 1, state.fresh)

    # Ends.

    def step_down(self, now: float, *, for_greater_term: bool = False) -> None:
        """Watch like anyone else; or take a greater term, as long as we are still trusted with this
        one. Looks at once."""
        self._still_trusted_until = -math.inf
        if isinstance(self.state, Leading):
            self.heard_of_term(self.state.term)
            if for_greater_term:
                self._still_trusted_until = self.state.trusted_until
        self.state = Watching(None, math.inf)
        self._look_at = now

    def rest(self, now: float) -> None:
        """Leave the lead to others for a while."""
        self._look_at = now + self._timing.leader_ttl_s

    def vouched_dead(self, process: str, incarnation: int, now: float) -> None:
        """That manager's life is over for certain: nobody has to wait for it."""
        if len(self._vouched) > 1000:
            self._vouched.clear()
        self._vouched.add((process, incarnation))
        if isinstance(self.state, Watching):
            self._look_at = min(self._look_at, now)

    def heard_of_term(self, term: int) -> None:
        """Somebody has obeyed that term: ours must be greater, or nobody listens to us."""
        self.term_floor = max(self.term_floor, term)
