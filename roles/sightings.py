"""What one process sees of the bricks that it asks, from outside. Counts only.

Each life of a brick has one `Sighting`, shared by all stubs of the process; the requests bump it.
About once a second what was counted is taken, as news for Pinpoint (`bus.messages.PeersSeen`).
The median wait is of a sample: every answer at first, then every second, fourth, … as they grow
many, so that it is of the whole second and costs the same however much is asked.

What always holds:
  S1  What is counted is of one life: answers owed by one that is over are not its next life's.
  S2  Each request is told once: asked, and later answered, refused or silent. Of a brick that no
      stub uses any more nothing is told.
  S3  At most `WAITS_MAX` waits are kept of each, and at most `PEERS_SEEN_MAX` rows told: of those
      asked most.
"""

from collections.abc import Iterable
from typing import Protocol

from bus.config_shape import BRICK
from bus.messages import PEERS_SEEN_MAX, PeerSeen, PeersSeen

WAITS_MAX = 64
ROOM_MAX = 1e6  # Without any limit there would be no number to tell.


class Sighting:
    """One life of one brick."""

    __slots__ = ("_every", "_waits", "answered", "asked", "id", "incarnation", "refused", "silent")

    def __init__(self, brick_id: str, incarnation: int) -> None:
        self.id = brick_id
        self.incarnation = incarnation
        self.asked = 0
        self.answered = 0
        self.refused = 0
        self.silent = 0
        """Left unanswered until nobody waited any more."""
        self._waits: list[float] = []
        self._every = 0
        """Waits are kept of answers whose number has none of these bits."""

    def answer(self, wait_s: float) -> None:
        """One more was answered, after so long."""
        self.answered += 1
        if not self.answered & self._every:
            self._keep(wait_s)

    def _keep(self, wait_s: float) -> None:
        waits = self._waits
        waits.append(wait_s)
        if len(waits) >= WAITS_MAX:  # S3
            del waits[::2]  # Those left are of every second number of the ones before.
            self._every = 2 * self._every + 1

    def taken(self, room: float) -> PeerSeen | None:
        """What was counted since the last time, if anything."""
        counts = self.asked, self.answered, self.refused, self.silent
        if not any(counts):
            return None
        waits = sorted(self._waits)
        wait_s = waits[len(waits) // 2] if waits else 0.0
        self.asked = self.answered = self.refused = self.silent = 0  # S2
        self._waits.clear()
        self._every = 0
        return PeerSeen(self.id, self.incarnation, *counts, wait_s, min(room, ROOM_MAX))


class Room(Protocol):
    @property
    def limit(self) -> float: ...


class Asked(Protocol):
    """A brick as one stub uses it."""

    @property
    def sighting(self) -> Sighting: ...

    @property
    def limiter(self) -> Room: ...


class Sightings:
    """Of all stubs of one process."""

    def __init__(self, now: float) -> None:
        self._taken_at = now
        self._by_id: dict[str, Sighting] = {}

    def of(self, brick_id: str, incarnation: int) -> Sighting:
        known = self._by_id.get(brick_id)
        if known is None or known.incarnation != incarnation:
            known = self._by_id[brick_id] = Sighting(brick_id, incarnation)  # S1
        return known

    def taken(self, in_use: Iterable[Asked], now: float) -> PeersSeen | None:
        """What was seen since the last time of the bricks in use, by all stubs; None if nobody was
        asked anything."""
        rooms: dict[str, float] = {}
        for brick in in_use:
            sighting = brick.sighting
            if self._by_id.get(sighting.id) is sighting:  # S1
                rooms[sighting.id] = rooms.get(sighting.id, 0.0) + brick.limiter.limit
        for unused in self._by_id.keys() - rooms.keys():
            del self._by_id[unused]  # S2
        seen = [
            row
            for brick_id, sighting in self._by_id.items()
            if (row := sighting.taken(rooms[brick_id])) is not None
        ]
        period_s, self._taken_at = now - self._taken_at, now
        if not seen:
            return None
        seen.sort(key=lambda row: -row.asked)
        return PeersSeen(BRICK, period_s, seen[:PEERS_SEEN_MAX])  # S3
