"""Which agent tells the cluster what every agent noticed. Decides only.

All agents watch the same beacons, so a death is noticed by all of them and should be one event.
The first agent tells at once. It may be what died, or be cut off with what it should tell of, so
the next few agents wait their turn and tell what nobody told before it came.

What always holds:
  T1  What an agent noticed and nobody told is told by it when its turn has come.
  T2  What was heard from another agent in the meantime is not told again.
  T3  At most `TELLERS` agents ever have a turn, and `WAITING_MAX` things wait for it.
"""

import math

TELLERS = 3
WAITING_MAX = 1000

Told = tuple[str, str, str]
"""Kind, subject and reason of an event."""


class Telling:
    def __init__(self, turn_s: float) -> None:
        """`turn_s`: how long one agent waits for the one before it."""
        self._turn_s = turn_s
        self._waiting: dict[tuple[str, str], tuple[float, str]] = {}

    @property
    def wake_at(self) -> float:
        return min((at for at, _ in self._waiting.values()), default=math.inf)

    def noticed(self, told: Told, rank: int, now: float) -> None:
        """We noticed something, as the agent that has `rank` agents before it."""
        kind, subject, reason = told
        if rank < TELLERS and len(self._waiting) < WAITING_MAX:  # T3
            self._waiting.setdefault((kind, subject), (now + rank * self._turn_s, reason))

    def heard(self, kind: str, subject: str) -> None:
        """Somebody told the cluster of it."""
        self._waiting.pop((kind, subject), None)  # T2

    def due(self, now: float) -> list[Told]:
        """What is ours to tell now."""
        due = [key for key, (at, _) in self._waiting.items() if at <= now]
        return [(*key, self._waiting.pop(key)[1]) for key in due]  # T1
