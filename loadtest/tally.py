"""Which numbered messages arrived at one subscriber, and which never will. Decides only.

Numbers come from one publisher through one hub, so in order and once each; whatever is
missing was lost, and whatever comes back was delivered twice. Counting begins with the first
number seen: a subscriber that connects in mid-stream has lost nothing.
"""

import msgspec


class Tally(msgspec.Struct):
    """Filled in the subscriber's process, read in the benchmark's."""

    first: int | None = None
    next: int = 0
    """One more than the highest number seen."""
    received: int = 0
    """Different numbers seen."""
    repeated: int = 0

    def add(self, numbers: list[int]) -> None:
        """Numbers in the order they arrived."""
        if self.first is None and numbers:
            self.first = self.next = numbers[0]
        if numbers == list(range(self.next, self.next + len(numbers))):  # As a rule, and fast.
            self.received += len(numbers)
            self.next += len(numbers)
            return
        for number in numbers:
            if number >= self.next:
                self.received += 1
                self.next = number + 1
            else:
                self.repeated += 1

    def lost(self, sent: int) -> int:
        """How many of the numbers below `sent` never came; all of them, if nothing did."""
        return sent - (self.first or 0) - self.received
