"""Does a peer's clock run too slow? Decides only.

Each message says how old its sender is, by its own clock. Delays only ever make a message late, so
of some messages the least late tells how the two clocks stand; how that changes over time is the
difference of their rates. A clock that is too fast does no harm: its owner gives up early.

What always holds:
  C1  A clock whose rate is within `skew` of ours is never called odd, whatever the delays, as long
      as one message in each `WINDOW` was not delayed by more than `slack_s`.
  C2  One that is beyond it by a clear margin is found after some windows.
"""

import math

WINDOW = 8
"""Messages of which the least late one counts."""
SPAN_S_MIN = 20.0
"""No verdict sooner: small differences of delay would look like rates."""


class ClockRate:
    __slots__ = ("_base", "_count", "_least", "_least_at", "is_cleared")

    def __init__(self) -> None:
        self._base: tuple[float, float] | None = None
        self._least = math.inf
        self._least_at = 0.0
        self._count = 0
        self.is_cleared = False
        """Found good over a whole span, and not odd since."""

    def heard(self, age_s: float, now: float, *, skew: float, slack_s: float) -> str:
        """What is wrong with the clock of who says it is `age_s` old; empty if nothing is."""
        offset_s = now - age_s
        if offset_s < self._least:
            self._least, self._least_at = offset_s, now
        self._count += 1
        if self._count < WINDOW:
            return ""
        least, at = self._least, self._least_at
        self._least, self._count = math.inf, 0
        if self._base is None:
            self._base = (least, at)
            return ""
        span_s = at - self._base[1]
        drift_s = least - self._base[0]
        if span_s < SPAN_S_MIN:
            return ""
        if drift_s <= span_s * skew + slack_s:  # C1
            self.is_cleared = True
            return ""
        self._base = None  # Judged anew: the clock may have been put right.
        self.is_cleared = False
        return f"its clock lost {drift_s:.1f} s in {span_s:.0f} s"  # C2
