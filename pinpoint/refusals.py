"""What stubs refuse: since when, what bricks carried then, and since when one fewer will do.

Decides only. While too much is refused we learn what a brick can carry; when hardly anything is,
what is asked shows whether those that remain could carry it. Between too much and hardly anything
lies a factor of ten, in which neither is counted.

What always holds:
  R1  One fewer will do only if what is asked was for the whole time at most `EASE` of what those
      that remain carried when it was last too much. If that is not known (Pinpoint is young),
      hardly anything refused is enough.
  R2  Whoever gave back too early waits twice as long the next time, up to `PATIENCE_S_MAX`: a
      steady demand cannot have bricks come and go for ever.
"""

import math

from bus.config_shape import PinpointConfig
from pinpoint.samples import Demand

CALM = 0.1  # Of what is too much.
EASE = 0.8
PATIENCE_S_MAX = 3600.0
REFUSED_PER_S_MIN = 0.1  # Fewer than this are hardly anything, however little is asked.
SOON = 10.0  # So many times `give_back_s` after it was given back, one is wanted again.


class Refusals:
    def __init__(self, settings: PinpointConfig) -> None:
        self._settings = settings
        self._refusing_since = math.inf
        self._calm_since = math.inf
        self._carried_per_s = 0.0  # Of this episode, brick by brick, look by look, …
        self._bricks_looked = 0  # … and over so many.
        self._capacity_per_s = 0.0
        """What a brick carried when it was too much; 0: unknown."""
        self._patience_s = settings.give_back_s
        self._gave_back_at: float | None = None

    def look(self, demand: Demand, at: float, live: int) -> None:
        """`live`: how many bricks carry it, the spares included."""
        limit = self._settings.refused_share * demand.asked_per_s
        calm = demand.refused_per_s < max(CALM * limit, REFUSED_PER_S_MIN)
        refusing = demand.refused_per_s > limit and not calm
        if refusing:
            if self._refusing_since == math.inf:
                self._carried_per_s, self._bricks_looked = 0.0, 0
            self._carried_per_s += max(demand.asked_per_s - demand.refused_per_s, 0.0)
            self._bricks_looked += live
        elif calm and live and self._capacity_per_s > 0:
            # What they carry at ease, they can carry.
            self._capacity_per_s = max(self._capacity_per_s, demand.asked_per_s / live)
        eased = calm and self._would_do(demand.asked_per_s, live - 1)  # R1
        self._refusing_since = _since(self._refusing_since, at, holds=refusing)
        self._calm_since = _since(self._calm_since, at, holds=eased)

    def begin_anew(self) -> None:
        """What was counted is over; what was learnt is not."""
        self._refusing_since = self._calm_since = math.inf

    def are_too_many(self, at: float) -> bool:
        """For long enough."""
        return at - self._refusing_since >= self._settings.refused_s

    def for_want_of_bricks(self) -> None:
        """Nothing else is the matter: so this is what bricks can carry."""
        if self._bricks_looked:
            self._capacity_per_s = self._carried_per_s / self._bricks_looked

    def calm_s(self, at: float) -> float | None:
        """How long one fewer would have done; None if that is not long enough."""
        lasted_s = at - self._calm_since
        return lasted_s if lasted_s >= self._patience_s else None

    def one_more(self, at: float) -> None:
        """It was ordered."""
        if self._gave_back_at is None:
            return
        give_back_s = self._settings.give_back_s
        if at - self._gave_back_at < SOON * give_back_s:
            self._patience_s = min(2 * self._patience_s, max(PATIENCE_S_MAX, give_back_s))  # R2
        else:
            self._patience_s = give_back_s
        self._gave_back_at = None

    def one_fewer(self, at: float) -> None:
        """It was ordered."""
        self._gave_back_at = at

    def _would_do(self, asked_per_s: float, bricks: int) -> bool:
        if not self._capacity_per_s > 0:
            return True
        return asked_per_s <= EASE * self._capacity_per_s * bricks


def _since(since: float, at: float, *, holds: bool) -> float:
    if not holds:
        return math.inf
    return min(since, at)
