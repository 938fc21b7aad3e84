"""When a request to several bricks is decided, and how. Decides only.

What bricks say is added one by one. A write has three stages: at first it waits for all that is
wanted (enough copies, those of both arbiters among them, on two nodes, at another site); after half
of its time enough copies will do; at its end, copies of this site alone.

What always holds:
  T1  A write is done only when enough bricks have it: `WQ`, or `WQ_local` of this site.
  T2  Of two writes on top of one version at most one is done, whatever befalls one brick between
      them. The first two live bricks of a cookie are its *arbiters*. A brick takes one of the two
      writes, and the other conflicts; each waits for both arbiters, so one that dies, hangs, is
      thought dead, or hands over leaves the other to tell. An arbiter too busy to take it, or
      that seems to hang or to lose it, counts as none; but then the write is not done without the
      word of the other, however long that takes, nor if the first is too busy. So that all
      cookies of a version have the same arbiters, they name bricks in the order of the cookie
      before them, and what is found to be newer is stored there before it is handed out.
  T3  A value counts only if it is what was written: by its checksum, and by the cookie's if it is
      of the cookie's version. A newer version is better than none.
"""

from collections.abc import Collection, Sequence
from enum import IntEnum

from bus.messages import Refused
from bus.replies import Reply
from roles.brick_view import Brick
from roles.session_messages import HANDING_OVER, SessionAnswer, checksum_of, is_full

Outcome = Reply[SessionAnswer] | Refused | None
"""None: silence until the end."""


class Stage(IntEnum):
    EARLY = 0
    HALF = 1
    END = 2


class Quorum:
    """What a write needs: `count` copies, or by sites."""

    def __init__(self, count: int, *, here: Collection[str] = (), remote: bool = False) -> None:
        self.count = count
        self.leaving: Collection[Brick] = ()
        """Who is asked for its word alone: what it has is to be had elsewhere."""
        self._here = here
        """Nodes of this site; none: sites do not matter."""
        self._remote = remote
        """Whether one copy must be at another site."""

    def counts(self, brick: Brick) -> bool:
        """Whether a copy there is one of the `count`."""
        return brick not in self.leaving and (not self._here or brick.node in self._here)

    def counted(self, copies: Collection[Brick]) -> int:
        """How many of the `count` these are."""
        if not self._here and not self.leaving:
            return len(copies)
        return sum(map(self.counts, copies))

    def is_met(self, copies: Collection[Brick], stage: Stage) -> bool:
        local = self.counted(copies)
        if local < self.count:
            return False
        if not self._remote or stage == Stage.END:
            return True
        return any(brick.node not in self._here and brick not in self.leaving for brick in copies)


class WriteTally:
    """For writes, touches and deletes: who has done it."""

    def __init__(  # noqa: PLR0913 (all but two by name)
        self,
        quorum: Quorum,
        done: str,
        *,
        arbiters: Sequence[Brick] = (),
        nodes: int = 1,
        all_count: bool = False,
        needs_word: bool = False,
        version: int = 0,
    ) -> None:
        """`all_count`: wait for everyone, though fewer would do; `done` may be "deleted".
        `needs_word`: an arbiter was left out, so that one of those given must have it (T2).
        `version`: of what is written."""
        self._quorum = quorum
        self._done = done
        self._arbiters = list(arbiters)
        self._judges = list(arbiters)
        self._version = version
        self._nodes = nodes
        """How many nodes' acknowledgements are wanted at first: 1 or 2."""
        self._all_count = all_count
        self._needs_word = needs_word
        self._awake: Sequence[Brick] = ()
        self._elsewhere: set[Brick] = set()
        """Who was asked, and does not count towards the quorum."""
        self.stage = Stage.EARLY
        self.awaited = 0
        """Bricks that may still answer; kept by the caller."""
        self.copies: dict[Brick, int] = {}
        """Who has it, and the incarnation of its tables."""
        self.missing = 0
        self.refused: list[Refused] = []
        self.conflict: tuple[Brick, SessionAnswer] | None = None
        self.is_deleted = False
        self.is_turned_away = False
        """The first arbiter is overloaded: the write is not done, whoever else has it (T2)."""

    def asked(self, brick: Brick) -> None:
        """It may answer."""
        if not self._quorum.counts(brick):
            self._elsewhere.add(brick)

    def add(self, brick: Brick, outcome: Outcome) -> None:
        if self._elsewhere:
            self._elsewhere.discard(brick)
        if outcome is None:
            return
        if isinstance(outcome, Refused):
            self.refused.append(outcome)
            if brick in self._arbiters:
                self._leave_out(brick, outcome)
            return
        answer = outcome.message
        if answer.outcome == self._done:
            self.copies[brick] = answer.data_incarnation
        elif answer.outcome == "conflict":
            self._add_conflict(brick, answer)
        elif answer.outcome == "deleted":
            self.is_deleted = True
        else:
            self.missing += 1

    def _add_conflict(self, brick: Brick, answer: SessionAnswer) -> None:
        """T2: what somebody else than an arbiter has of the version before was never done, but
        left there by a write that failed."""
        if self._judges and brick not in self._judges and answer.version < self._version:
            self.missing += 1
        else:
            self.conflict = brick, answer

    def reach(self, stage: Stage, awake: Collection[Brick], lost: Collection[Brick] = ()) -> None:
        """Half of the time is over, or all. `awake`: who is silent, but has answered others: it
        does not hang, so its word is waited for, and the first one's is indispensable (T2).
        `lost`: who is silent, and has answered later ones: nothing will come of this any more."""
        self.stage = stage
        if len(self._arbiters) > 1 and any(brick in self._arbiters for brick in lost):
            self._needs_word = True
        self._awake = [brick for brick in self._arbiters if brick in awake]

    def _leave_out(self, arbiter: Brick, refused: Refused) -> None:
        """T2"""
        is_first = arbiter is self._arbiters[0]
        self._arbiters.remove(arbiter)
        if is_overload(refused):
            self._needs_word = True
            self.is_turned_away |= is_first
        self.is_turned_away |= self._needs_word and not self._arbiters

    @property
    def is_met(self) -> bool:
        stage = self.stage if self.awaited else Stage.END
        if self.is_turned_away or not self._quorum.is_met(self.copies, stage):  # T1
            return False
        if self._awake and self._awake[0] in self._arbiters[:1]:
            return self._awake[0] in self.copies  # T2
        return not self._needs_word or any(brick in self.copies for brick in self._arbiters)  # T2

    @property
    def is_settled(self) -> bool:
        if self.is_deleted or self.conflict is not None or not self.awaited or self.is_turned_away:
            return True
        if self._all_count:
            return False
        if self._is_out_of_reach:
            return True
        if not self.is_met:
            return False
        if self.stage == Stage.EARLY:
            return self._is_all_wanted
        return all(arbiter in self.copies for arbiter in self._awake)

    @property
    def needs_others(self) -> bool:
        """Whether those who were asked cannot get it done any more, and others may."""
        if self.is_deleted or self.conflict is not None or self.is_turned_away or self._all_count:
            return False
        return self._is_out_of_reach

    @property
    def _is_out_of_reach(self) -> bool:
        """Whether all that may still answer would be too few."""
        count = self._quorum.counted(self.copies) + self.awaited - len(self._elsewhere)
        return count < self._quorum.count

    @property
    def _is_all_wanted(self) -> bool:
        for arbiter in self._arbiters:
            if arbiter not in self.copies:
                return False  # T2
        return self._nodes < 2 or len({brick.node for brick in self.copies}) > 1


class ReadTally:
    """For reads: the first value that is what was written."""

    def __init__(self, sid: bytes, version: int, checksum: bytes) -> None:
        self._sid = sid
        self._version = version
        self._checksum = checksum
        self.stage = Stage.EARLY
        self.awaited = 0
        self.value: bytes | None = None
        self.answer: SessionAnswer | None = None
        self.brick: Brick | None = None
        self.missing: list[Brick] = []
        self.refused: list[Refused] = []
        self.corrupted = 0
        self.is_deleted = False

    def add(self, brick: Brick, outcome: Outcome) -> None:
        if outcome is None or self.answer is not None:
            return
        if isinstance(outcome, Refused):
            self.refused.append(outcome)
            return
        answer = outcome.message
        match answer.outcome:
            case "value":
                self._add_value(brick, answer, bytes(outcome.body))
            case "deleted":
                self.is_deleted = True
            case _:
                self.missing.append(brick)

    def _add_value(self, brick: Brick, answer: SessionAnswer, value: bytes) -> None:
        checksum = self._checksum if answer.version == self._version else answer.checksum
        is_ours = checksum_of(self._sid, answer.version, value) == checksum
        if answer.version < self._version or not is_ours:  # T3
            self.corrupted += 1
            return
        self.brick, self.answer, self.value = brick, answer, value

    @property
    def is_settled(self) -> bool:
        return self.answer is not None or self.is_deleted or not self.awaited

    @property
    def needs_others(self) -> bool:
        """Whoever has no value to give is replaced at once: the rest may be silent for long."""
        if self.answer is not None or self.is_deleted:
            return False
        return bool(self.missing or self.refused or self.corrupted)


def is_overload(refused: Refused) -> bool:
    """Whether it has too much to do; not if it has no memory, or is about to end."""
    if refused.reason not in ("busy", "late"):
        return False
    return not is_full(refused) and not refused.detail.endswith(HANDING_OVER)
