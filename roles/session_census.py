"""Which of two versions with one number goes on. Decides only.

Two writes on top of one version that both failed half way, as under overload or while bricks are
silent, may leave bytes of each: some bricks have the one, some the other, and whoever goes on from
the one conflicts with the other for good. As far as one brick knows either may have been done, but
not both (T2 of `roles.session_tally`), and what was done was with `WQ` bricks. So every brick is
asked what it has, and what most have goes on, under the next number.

What always holds:
  C1  What more bricks have goes on; of as many, what the first arbiter has, or the next.
  C2  Nobody is believed whose value does not match its checksum; and nothing goes on if somebody
      has a newer version, or knows that the session was deleted.
"""

from collections import Counter
from collections.abc import Sequence

from bus.messages import Refused
from bus.replies import Reply
from roles.brick_view import Brick
from roles.session_messages import SessionAnswer, checksum_of
from roles.session_tally import Outcome, Stage


class Census:
    """What each brick has; filled as the tallies of `roles.session_tally` are."""

    def __init__(self, sid: bytes) -> None:
        self._sid = sid
        self._has: dict[Brick, tuple[SessionAnswer, bytes]] = {}
        self.stage = Stage.EARLY
        self.awaited = 0
        self.refused: list[Refused] = []
        self.is_deleted = False
        self.needs_others = False

    def add(self, brick: Brick, outcome: Outcome) -> None:
        if isinstance(outcome, Refused):
            self.refused.append(outcome)
        elif isinstance(outcome, Reply):
            self._add_answer(brick, outcome.message, bytes(outcome.body))

    def _add_answer(self, brick: Brick, answer: SessionAnswer, value: bytes) -> None:
        self.is_deleted |= answer.outcome == "deleted"
        is_sound = checksum_of(self._sid, answer.version, value) == answer.checksum
        if answer.outcome == "value" and is_sound:  # C2
            self._has[brick] = answer, value

    @property
    def is_settled(self) -> bool:
        return not self.awaited

    def winner(self, version: int, arbiters: Sequence[Brick]) -> bytes | None:
        """The value of that version which goes on; None if none is to."""
        answers = [answer for answer, _ in self._has.values()]
        if self.is_deleted or any(answer.version > version for answer in answers):
            return None  # C2
        values = {answer.checksum: value for answer, value in self._has.values()}
        counts = Counter(answer.checksum for answer in answers if answer.version == version)
        in_order = [self._has[each][0].checksum for each in arbiters if each in self._has]
        ranked = sorted(counts, key=lambda each: (-counts[each], _place(in_order, each), each))
        return values[ranked[0]] if ranked else None  # C1


def _place(in_order: Sequence[bytes], checksum: bytes) -> int:
    return in_order.index(checksum) if checksum in in_order else len(in_order)
