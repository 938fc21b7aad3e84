"""Whether what owners did under their leases can have been right. Decides only.

An owner notes each act that it began with a lease and ended with the same one still held: the key,
the number of the lease, and when, by the one clock of the machine. All that is compared with what
every other life did, so it does not matter what the manager believed.

What always holds:
  K1  Two lives never act on one key at the same time.
  K2  A later act on a key has no lesser number, and one number is never of two lives.
"""

from collections.abc import Iterable

import msgspec


class Act(msgspec.Struct, frozen=True, array_like=True, gc=False):
    owner: str
    """One life of an owner: never used twice."""
    key: str
    number: int
    begin_at: float
    end_at: float


def problems(acts: Iterable[Act]) -> list[str]:
    """What is wrong, in sentences; nothing, if every act can have been right."""
    by_key: dict[str, list[Act]] = {}
    for act in acts:
        by_key.setdefault(act.key, []).append(act)
    return [
        problem
        for _, done in sorted(by_key.items())
        for problem in (*_overlapping(done), *_backward(done))
    ]


def _overlapping(done: list[Act]) -> list[str]:
    """K1. An act is compared with the one that ends last of all before it, of any other life."""
    wrong = []
    last: dict[str, Act] = {}  # By owner.
    for act in sorted(done, key=lambda each: each.begin_at):
        wrong += [
            f"{act.owner} acted on {act.key} at {act.begin_at:.3f} under {act.number}, and "
            f"{other.owner} until {other.end_at:.3f} under {other.number}"
            for owner, other in last.items()
            if owner != act.owner and other.end_at > act.begin_at
        ]
        mine = last.get(act.owner)
        if mine is None or mine.end_at < act.end_at:
            last[act.owner] = act
    return wrong


def _backward(done: list[Act]) -> list[str]:
    """K2."""
    wrong = []
    greatest: Act | None = None
    holder: dict[int, str] = {}
    for act in sorted(done, key=lambda each: each.begin_at):
        if greatest is not None and act.number < greatest.number:
            wrong.append(
                f"{act.owner} acted on {act.key} under {act.number} after {greatest.owner} had "
                f"acted under {greatest.number}"
            )
        if holder.setdefault(act.number, act.owner) != act.owner:
            wrong.append(f"{act.key}: {holder[act.number]} and {act.owner} both had {act.number}")
        if greatest is None or act.number > greatest.number:
            greatest = act
    return wrong
