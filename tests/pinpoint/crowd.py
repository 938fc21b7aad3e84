"""Bricks to judge: samples as healthy bricks make them, and verdicts from a few words."""

import random
from collections.abc import Iterable, Mapping

import msgspec

from bus.messages import PeerSeen, State
from pinpoint.anomalies import Anomaly
from pinpoint.samples import Demand, Sample, StubSaw, Tick
from pinpoint.verdict import Evidence, Flags, Verdict

SICK = {"service_s": 8.0, "busy_ratio": 3.0, "queue_s": 20.0}
"""A brick that stands still for a millisecond before each message: by so much more."""

CALM = Demand(0.0, 0.0)


def brick(  # noqa: PLR0913 (all but two are keywords)
    number: int,
    *,
    state: State = "live",
    age_s: float = 100.0,
    incarnation: int = 1,
    role: str = "brick",
    node: str = "",
    statistics: Mapping[str, float] | None = None,
) -> Sample:
    return Sample(
        f"{role}-{number}",
        role,
        node or f"n{number % 2 + 1}",
        incarnation,
        state,
        age_s,
        0.5,
        dict(statistics or {}),
    )


def crowd(count: int, *, but: Iterable[Sample] = ()) -> dict[str, Sample]:
    """`count` live bricks, some of them as `but` says."""
    samples = {sample.id: sample for sample in map(brick, range(1, count + 1))}
    return samples | {sample.id: sample for sample in but}


def anomaly(statistic: str, group: str = "", score: float = 9.0) -> Anomaly:
    return Anomaly(
        statistic=statistic,
        group=group or statistic,
        kind="activity",
        value=10.0,
        median=1.0,
        scale=1.0,
        score=score,
        direction="high",
        peers=6,
    )


def verdict(sample: Sample) -> Verdict:
    evidence = tuple(Evidence(anomaly(name), 3.0) for name in ("a", "b", "c"))
    return Verdict(sample.id, sample.incarnation, sample.role, sample.node, evidence, 3.0, 5.0)


def flags(samples: Mapping[str, Sample], *sick: str, leaning: Iterable[str] = ()) -> Flags:
    """Those have been sick for long enough."""
    persisting = tuple(verdict(samples[each]) for each in sorted(sick))
    return Flags(frozenset(sick), frozenset(sick), persisting, frozenset(leaning))


class Herd:
    """Bricks under load that tell of themselves what such bricks do, a tick a second."""

    def __init__(self, count: int, seed: int, *, load_per_s: float = 300.0) -> None:
        self._random = random.Random(seed)
        self.load_per_s = load_per_s
        self.at = 1000.0
        self.ages = {f"brick-{number}": 100.0 for number in range(1, count + 1)}
        self.incarnations = dict.fromkeys(self.ages, 1)

    def restart(self, brick_id: str) -> None:
        self.ages[brick_id] = 0.0
        self.incarnations[brick_id] += 1

    def tick(self, sick: Mapping[str, Mapping[str, float]] | None = None) -> Tick:
        """Of those in `sick` some statistics are so many times as great."""
        self.at += 1.0
        samples = []
        seen = []
        for brick_id, age_s in self.ages.items():
            self.ages[brick_id] = age_s + 1.0
            by = (sick or {}).get(brick_id, {})
            statistics = {name: value * by.get(name, 1.0) for name, value in self._told().items()}
            incarnation = self.incarnations[brick_id]
            node = f"n{int(brick_id[-1]) % 2 + 1}"
            samples.append(
                Sample(brick_id, "brick", node, incarnation, "live", age_s, 0.3, statistics)
            )
            asked = int(statistics["reads_per_s"] + statistics["writes_per_s"])
            wait_s = self._near(0.001) * by.get("queue_s", 1.0)
            seen.append(PeerSeen(brick_id, incarnation, asked, asked, 0, 0, wait_s, 16.0))
        saw = [StubSaw("linked-1", "brick", 1.0, seen)]
        return Tick(self.at, samples, saw, Demand(self.load_per_s, 0.0), blind=False)

    def _told(self) -> dict[str, float]:
        rate = self.load_per_s
        return {
            "cpu": self._near(0.1),
            "rss_bytes": self._near(60e6, 0.01),
            "loop_lag_s": abs(self._random.gauss(0, 0.002)),
            "answered_per_s": self._events(2 * rate),
            "reads_per_s": self._events(rate),
            "writes_per_s": self._events(rate),
            "refused_per_s": 0.0,
            "expired_per_s": 0.0,
            "failed_per_s": 0.0,
            "inbox_length": 0.0,
            "items": self._near(1000, 0.01),
            "memory_bytes": self._near(1e6, 0.01),
            "service_s": self._near(0.000_2),
            "busy_ratio": self._near(0.12),
            "queue_s": self._near(0.000_1, 0.2),
            "minor_faults_per_s": self._events(20),
        }

    def _near(self, value: float, share: float = 0.05) -> float:
        return max(self._random.gauss(value, share * value), 0.0)

    def _events(self, rate: float) -> float:
        return max(float(round(self._random.gauss(rate, rate**0.5))), 0.0)


def with_samples(tick: Tick, samples: list[Sample]) -> Tick:
    return msgspec.structs.replace(tick, samples=samples)
