"""One generator of the benchmarks of self-healing, in a process of its own.

Requests begin at their times, by chance, until it is told to rest. What it notes of the cluster is
what a web server would see of it.
"""

import sys
from collections.abc import Iterator
from random import Random

import gevent

from bus.config_shape import BRICK
from bus.errors import BusError
from loadtest.child import answer_all, tell
from loadtest.goodput import Fate, Interval, Outcome
from loadtest.greenlets import read_line
from loadtest.heal_requests import Carried, Carry, HowFar, Pace, Rest, SoFar, ToGenerator
from loadtest.open_loop import OpenLoop
from loadtest.patrons import Named, Patrons
from loadtest.sightings import Sightings
from roles.cluster import Cluster
from roles.key_ring_file import KeyRingFile
from roles.stub import Stub

INTERVAL_S = 1.0
PER_S_MIN = 1.0  # Slower, and it would not notice for long that it is told to rest.
LAST_S_MAX = 30.0


class Arrivals:
    """A timetable by chance without an end, until it is told; its rate may change."""

    def __init__(self, per_s: float, random: Random) -> None:
        self.per_s = per_s
        self.over = False
        self._random = random

    def __iter__(self) -> Iterator[float]:
        at_s = 0.0
        while not self.over:
            at_s += self._random.expovariate(max(self.per_s, PER_S_MIN))
            yield at_s


class LongOutcome(Outcome):
    """As long as it takes."""

    def add(self, meant_s: float, fate: Fate) -> Interval:
        while len(self.intervals) * self.interval_s <= meant_s:
            self.intervals.append(Interval())
        return super().add(meant_s, fate)


class Generator:
    def __init__(self, cluster: Cluster, name: str) -> None:
        config = cluster.config
        self._cluster = cluster
        self._name = name
        self._sightings = Sightings(cluster.member("generator"), name)
        self._ring = KeyRingFile(config.key_ring_path, config.sessions.application)
        self._run: _Run | None = None

    def obey(self, line: ToGenerator) -> object:
        match line.order:
            case Carry() as carry:
                assert self._run is None, "one run at a time"
                self._run = _Run(self._cluster, self._name, self._named, carry)
                return {}
            case Pace(per_s=per_s):
                self._running.arrivals.per_s = per_s
                return {}
            case HowFar():
                return self._running.so_far()
            case Rest():
                run, self._run = self._running, None
                return run.ended(self._sightings)

    @property
    def _running(self) -> "_Run":
        assert self._run is not None, "it was not told to begin"
        return self._run

    def _named(self, cookie: str) -> list[str]:
        try:
            copies = self._ring.decode(cookie).copies
        except BusError:
            return []
        return [f"{BRICK}-{number}" for number, _ in copies]


class _Run:
    def __init__(self, cluster: Cluster, name: str, named: Named, carry: Carry) -> None:
        self._name = name
        self._begin_at = carry.begin_at
        self._stub = Stub(cluster, **carry.settings)
        random = Random(carry.seed)
        self._patrons = Patrons(self._stub, named, random, name=f"{name}-{carry.seed}", carry=carry)
        self.arrivals = Arrivals(carry.per_s, random)
        self._outcome = LongOutcome.of(INTERVAL_S, INTERVAL_S, carry.timeout_s)
        loop = OpenLoop(self._patrons, iter(self.arrivals), self._outcome)
        self._greenlet = gevent.spawn(loop.run, carry.begin_at)

    def so_far(self) -> SoFar:
        offered = sum(each.offered for each in self._outcome.intervals)
        return SoFar(offered, self._patrons.failed)

    def ended(self, sightings: Sightings) -> Carried:
        self.arrivals.over = True
        self._greenlet.get(timeout=LAST_S_MAX)
        self._patrons.load_all()
        self._stub.close()
        outcome, patrons = self._outcome, self._patrons
        latencies = outcome.latencies
        p50_s, p99_s = latencies.percentile(0.5), latencies.percentile(0.99)
        return Carried(
            generator=self._name,
            begin_at=self._begin_at,
            seconds=[
                (each.offered, each.good, each.late, each.failed + each.refused + each.unstarted)
                for each in outcome.intervals
            ],
            p50_ms=None if p50_s is None else round(1e3 * p50_s, 3),
            p99_ms=None if p99_s is None else round(1e3 * p99_s, 3),
            sessions=patrons.sessions,
            failures=patrons.failures,
            failed=patrons.failed,
            losses=patrons.losses,
            sightings=sightings.taken(),
            cpu_share=round(outcome.cpu_share, 3),
        )


def main(config: str, name: str) -> None:
    generator = Generator(Cluster.load(config), name)
    tell({})
    answer_all(ToGenerator, generator.obey, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
