"""Which requests await an answer, and until when. Decides only; no clock, no greenlet.

One sweep serves all deadlines: a timer per request would cost more than the request. The
next sweep is due at the earliest deadline known; as most requests are answered long before
theirs, and deadlines mostly lie equally far ahead, sweeps are rare and find little.

What always holds:
  Q1  A request leaves once, by `take`: answered, cancelled, or too late.
  Q2  No deadline passes unseen: `wake_at` is never later than the earliest one.
  Q3  At most `requests_max` wait at once; past it `add` refuses.
"""

import math
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")

REQUESTS_MAX = 100_000


class Pending(Generic[Waiter]):
    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._requests_max = requests_max
        self._waiting: dict[int, tuple[float, Waiter]] = {}
        self.wake_at = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request_id: int, deadline: float, waiter: Waiter) -> bool:
        """Whether there was room (Q3)."""
        if len(self._waiting) >= self._requests_max:
            return False
        self._waiting[request_id] = (deadline, waiter)
        if deadline < self.wake_at:
            self.wake_at = deadline  # Q2
        return True

    def find(self, request_id: int) -> Waiter | None:
        """Who waits for this answer, and goes on waiting; None if nobody does."""
        entry = self._waiting.get(request_id)
        return None if entry is None else entry[1]

    def take(self, request_id: int) -> Waiter | None:
        """Who waits for this answer, once; None if nobody does any more (Q1)."""
        entry = self._waiting.pop(request_id, None)
        return None if entry is None else entry[1]

    def late(self, now: float) -> list[int]:
        """The requests whose deadline has come; the caller takes them one by one, as waking
        the first may end the second (Q1)."""
        if now < self.wake_at:
            return []
        late = [request_id for request_id, entry in self._waiting.items() if entry[0] <= now]
        self.wake_at = min(
            (entry[0] for entry in self._waiting.values() if entry[0] > now), default=math.inf
        )
        return late
