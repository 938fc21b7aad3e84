"""What went wrong in a soak: lost, wrong, doubled, restarted for nothing, or never whole again.
Decides only.

A session may be lost if every brick that its cookie names ended between when it was last seen and
when it was missed: such is soft state, and a soak kills whole groups. Nothing else is excused: a
value that was not written, or two owners at a time, can never be right.

What always holds:
  U1  A loss is excused only if every copy that was known of had ended meanwhile.
  U2  A soak is right only if nothing at all is in any of its lists.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from loadtest.heal_requests import Loss
from loadtest.heal_score import FalseRestart

GONE = {"StateLost", "StateExpired"}
"""Errors that say that a session is gone; any other loss says that it is wrong."""


class Verdict(msgspec.Struct, kw_only=True):
    lost: list[Loss] = []
    wrong: list[Loss] = []
    doubled: list[str] = []
    """Acts of two owners that cannot both have been right."""
    false_restarts: list[FalseRestart] = []
    never_whole: list[str] = []
    """After which step who was missing."""
    excused: int = 0
    """Sessions whose copies were all killed."""

    @property
    def is_right(self) -> bool:
        lists = self.lost, self.wrong, self.doubled, self.false_restarts, self.never_whole
        return not any(lists)  # U2

    def add(self, other: "Verdict") -> None:
        self.lost += other.lost
        self.wrong += other.wrong
        self.doubled += other.doubled
        self.false_restarts += other.false_restarts
        self.never_whole += other.never_whole
        self.excused += other.excused

    def figures(self) -> dict[str, Any]:
        return {
            "lost_sessions": len(self.lost),
            "wrong_values": len(self.wrong),
            "doubled_leases": len(self.doubled),
            "false_restarts": len(self.false_restarts),
            "never_whole": len(self.never_whole),
            "excused_losses": self.excused,
        }


def sorted_losses(
    losses: Iterable[Loss], ended: Mapping[tuple[str, int], float]
) -> tuple[list[Loss], list[Loss], int]:
    """Those lost without excuse, those that are wrong, and how many are excused."""
    ends: dict[str, list[float]] = {}
    for (component_id, _), at in ended.items():
        ends.setdefault(component_id, []).append(at)
    lost, wrong, excused = [], [], 0
    for loss in losses:
        if loss.error not in GONE:
            wrong.append(loss)
        elif _is_excused(loss, ends):
            excused += 1
        else:
            lost.append(loss)
    return lost, wrong, excused


def _is_excused(loss: Loss, ends: Mapping[str, Sequence[float]]) -> bool:
    """U1."""
    return bool(loss.copies) and all(
        any(loss.good_at <= at <= loss.at for at in ends.get(brick, ())) for brick in loss.copies
    )
