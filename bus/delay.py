"""How long did this message wait in queues we cannot see? Estimates only, after LEDBAT.

Two clocks do not compare, but differences do: `arrived - sent` is the unknown offset of the
clocks, plus the travel time, plus the waiting. The least value of late is taken for a message
that did not wait; whatever is above it was spent in queues.
The minimum is kept over two windows in turn, the one being filled and the one before it, so
what was learnt when the clocks stood otherwise is forgotten after `2 * WINDOW_US`.

What always holds:
  Q1  No estimate is negative, whatever a peer claims and whichever way clocks move.
  Q2  Each connection is a path of its own, and so is each life of a sender. What a peer says of
      itself makes no paths: one connection, whatever it claims, costs others nothing.
  Q3  A clock that runs unlike ours by `SKEW` or less, even over an hour without a message,
      adds no more than `2 * WINDOW_US * SKEW` (12 ms); one that jumps misleads us for two
      windows, one that jumps by more than `QUEUED_US_MAX` for one message.
  Q4  Our own pause is seen for what it was: what arrived meanwhile did wait.
  Q5  Memory is bounded: past `paths_max` the path least recently heard is forgotten.

What it cannot see: a standing queue that has not once been empty in two windows looks like
travel time; nor the waiting of a sender's first message. A peer that lies harms only the
estimates of its own messages.
"""

from collections import OrderedDict

WINDOW_US = 30_000_000
SKEW = 0.0002  # Twice what undisciplined quartz does.
QUEUED_US_MAX = 600_000_000  # Nothing waits ten minutes: that is a clock that jumped.


class QueueDelay:
    """The path from one sender. Mutable and slotted: this is touched for every request."""

    __slots__ = ("_former_us", "_least_us", "_turn_at_us")

    def __init__(self, sent_us: int, arrived_us: int) -> None:
        self._least_us = self._former_us = arrived_us - sent_us
        self._turn_at_us = arrived_us + WINDOW_US

    def queued_s(self, sent_us: int, arrived_us: int) -> float:
        """Seconds this message waited, beyond what the quickest one of late did."""
        apart_us = arrived_us - sent_us
        if arrived_us >= self._turn_at_us:
            self._turn(apart_us, arrived_us)
        elif apart_us < self._least_us:
            self._least_us = apart_us
        least_us = self._least_us
        # Q1: `least_us` is `apart_us` or less by now.
        queued_us = apart_us - (least_us if least_us < self._former_us else self._former_us)
        if queued_us > QUEUED_US_MAX:
            self._least_us = self._former_us = apart_us  # Q3
            return 0.0
        return queued_us / 1_000_000

    def _turn(self, apart_us: int, arrived_us: int) -> None:
        """Begin the next window; the one that was being filled becomes the former."""
        # Q3, Q4: after a long silence the old minimum still holds, less what drift may have
        # added. Were it forgotten, the backlog of a pause would look as if it had not waited.
        silent_us = arrived_us - self._turn_at_us
        self._former_us = self._least_us + int(silent_us * SKEW)
        self._least_us = apart_us
        self._turn_at_us = arrived_us + WINDOW_US


class QueueDelays:
    """One estimate per connection."""

    def __init__(self, paths_max: int = 10_000) -> None:
        assert paths_max > 0
        self._paths_max = paths_max
        self._paths: OrderedDict[bytes, QueueDelay] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paths)

    def queued_s(self, connection: bytes, sent_us: int, arrived_us: int) -> float:
        """As `QueueDelay.queued_s`; 0 for a connection not heard before. `arrived_us` is ours."""
        path = self._paths.get(connection)  # Q2
        if path is None:
            self._paths[connection] = QueueDelay(sent_us, arrived_us)
            if len(self._paths) > self._paths_max:
                self._paths.popitem(last=False)  # Q5
            return 0.0
        self._paths.move_to_end(connection)
        return path.queued_s(sent_us, arrived_us)
