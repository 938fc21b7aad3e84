"""How long requests took, in few numbers that can be added up over processes. Decides only.

Each latency is counted in a bucket; sixteen buckets make a factor of two. So a percentile is told
to within five percent, of a microsecond or of an hour, and a run of any length takes little memory.

What always holds:
  H1  A percentile is at most one bucket above a latency that was counted, and never below it.
  H2  Two histograms merged are the histogram of both.
"""

from math import log2

import msgspec

PER_DOUBLING = 16
LATENCY_S_MIN = 1e-6


class Histogram(msgspec.Struct):
    counts: dict[int, int] = {}

    def add(self, latency_s: float) -> None:
        bucket = _bucket(latency_s)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        for bucket, count in other.counts.items():  # H2
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile(self, share: float) -> float | None:
        """What `share` of all did not exceed, in seconds; None of nothing."""
        left = share * self.total
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return float(LATENCY_S_MIN * 2 ** ((bucket + 1) / PER_DOUBLING))  # H1
        return None


def _bucket(latency_s: float) -> int:
    return int(log2(max(latency_s / LATENCY_S_MIN, 1.0)) * PER_DOUBLING)
