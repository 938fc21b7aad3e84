"""Was this published message heard before? Delivered once, in any order. Decides only.

Everyone hears every message once from each hub, and what one hub lost the other may bring
late. So "newer than the newest" will not do: per sender we remember which of its newest
`WIDTH` sequence numbers were heard, as the bits of one integer (bit 0 is the newest).

What always holds:
  W1  No sequence number of one life of a sender is delivered twice, as long as the sender
      is remembered.
  W2  Of the newest `WIDTH` numbers every one is delivered, however late and in any order;
      what falls behind them is dropped and counted as stale, since we cannot tell.
  W3  A greater incarnation of a sender begins anew; a lesser one is refused.
  W4  Memory and time per message are bounded, whatever numbers a peer makes up: a leap costs
      what a step does, and past `senders_max` the sender least recently heard is forgotten.
"""

from collections import OrderedDict

WIDTH = 1024
_FULL = (1 << WIDTH) - 1


class _Heard:
    """One life of one sender. Mutable and slotted: this is touched for every message."""

    __slots__ = ("bits", "incarnation", "newest")

    def __init__(self, incarnation: int, newest: int) -> None:
        self.incarnation = incarnation
        self.newest = newest
        self.bits = 1


class DeliveryWindows:
    """One window per sender. The counters are for statistics and only grow."""

    def __init__(self, senders_max: int = 10_000) -> None:
        assert senders_max > 0
        self._senders_max = senders_max
        self._heard: OrderedDict[str, _Heard] = OrderedDict()  # Least recently heard first.
        self.repeated = 0
        """Heard before: with two hubs, about as many as were delivered."""
        self.stale = 0
        """Too far behind the newest to tell, or no sequence number at all (negative)."""
        self.outdated = 0
        """From an incarnation that has been replaced."""
        self.forgotten = 0
        """Senders dropped to make room. If it grows, repeats may get through."""

    def __len__(self) -> int:
        return len(self._heard)

    def first_time(self, sender: str, incarnation: int, sequence: int) -> bool:
        """True exactly once for each message: deliver it. False: drop it."""
        heard = self._heard.get(sender)
        if heard is None or incarnation != heard.incarnation:
            return self._other_life(sender, incarnation, sequence)
        self._heard.move_to_end(sender)
        behind = heard.newest - sequence
        if behind < 0:
            # W4: shifting by a made-up leap of 2**63 would ask for all the memory there is.
            heard.bits = ((heard.bits << -behind) | 1) & _FULL if behind > -WIDTH else 1
            heard.newest = sequence
            return True
        if behind >= WIDTH or sequence < 0:
            self.stale += 1  # W2
            return False
        bit = 1 << behind
        if heard.bits & bit:
            self.repeated += 1  # W1
            return False
        heard.bits |= bit
        return True

    def _other_life(self, sender: str, incarnation: int, sequence: int) -> bool:
        heard = self._heard.get(sender)
        if heard is not None and incarnation < heard.incarnation:
            self.outdated += 1  # W3
            return False
        if sequence < 0:
            self.stale += 1
            return False
        self._heard[sender] = _Heard(incarnation, sequence)  # W3
        self._heard.move_to_end(sender)
        if len(self._heard) > self._senders_max:
            self._heard.popitem(last=False)  # W4
            self.forgotten += 1
        return True
