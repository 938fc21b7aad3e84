"""Who a process is: a name that survives restarts, and a number that tells its lives apart."""

import msgspec

INCARNATION_MAX = 1 << 42
"""Nobody has a greater one. They are milliseconds of the wall clock, so this is the year 2109. If
one that somebody made up were believed, the id could not come back: a next life must exceed it."""

BELIEVED_MAX = INCARNATION_MAX - (1 << 20)
"""What an agent believes to have been an incarnation, so that there is room for later lives."""


class Identity(msgspec.Struct, frozen=True):
    """`id` is `role-n` and survives restarts; `incarnation` grows with each life of that id."""

    id: str
    role: str
    node: str
    incarnation: int


def next_incarnation(known: int, wall_ms: int) -> int:
    """Of the life after `known`, at that time."""
    return max(known + 1, min(wall_ms, BELIEVED_MAX))
