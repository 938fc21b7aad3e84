"""Six bricks (or more) that do not exist, and three stubs that ask them: seeded ticks, as Pinpoint
would see them, of the healthy and of the sick.

Method: each brick sends a beacon at its own moment of every second, with statistics of the second
before it, drawn around what its load and its troubles make of them. The noise is of three kinds,
as on real machines: of the counts (Poisson), of each brick, and of the machine, common to all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from bus.messages import PeerSeen
from pinpoint.samples import Demand, Sample, StubSaw, Tick

MB = float(1 << 20)
TIMEOUT_S = 0.06


@dataclass
class Trouble:
    """What is the matter with one brick, from `since` on."""

    since: float = math.inf
    slow_s: float = 0.0
    """Of standing still before each request."""
    drop: float = 0.0
    """Of what goes out, beacons too."""
    leak: float = 0.0
    """Bytes a second."""
    stuck: bool = False
    """Nothing that expires is swept any more."""

    def share(self, begin: float, end: float) -> float:
        """How much of that time lies after `since`."""
        return max(0.0, end - max(begin, self.since)) / (end - begin)


@dataclass
class _Brick:
    id: str
    phase: float
    period: float
    """Of its saw-tooth."""
    trouble: Trouble
    born_at: float = -1000.0
    incarnation: int = 1
    heard_at: float = -math.inf
    statistics: dict[str, float] = field(default_factory=dict)
    items: float = 0.0
    leaked: float = 0.0
    rss: float = 50 * MB
    room: float = 200.0
    wobble: float = 0.0
    asked: int = 0
    usual: float = 1.0
    next_beacon: float = 0.0


class Herd:
    def __init__(  # noqa: PLR0913 (all but one are keywords)
        self,
        seed: int,
        *,
        bricks: int = 6,
        stubs: int = 3,
        load: Callable[[float], float] = lambda _: 300.0,
        noise: Callable[[float], float] = lambda _: 0.05,
        pause_s: float = 0.0,
        trouble: dict[int, Trouble] | None = None,
        born_at: dict[int, float] | None = None,
        lie: Callable[[str, PeerSeen], PeerSeen] | None = None,
    ) -> None:
        """`load`: requests a second of all stubs together. `noise`: how much one second of one
        brick differs from another's. `pause_s`: of a garbage collection, each half minute."""
        self._draw = Random(seed)
        self._load = load
        self._noise = noise
        self._pause_s = pause_s
        self._stubs = stubs
        self._lie = lie
        self._machine = 1.0
        self.now = 0.0
        self._bricks = [
            _Brick(
                id=f"brick-{number}",
                phase=self._draw.random(),
                period=self._draw.uniform(25, 35),
                trouble=(trouble or {}).get(number, Trouble()),
                born_at=(born_at or {}).get(number, -1000.0),
            )
            for number in range(1, bricks + 1)
        ]
        for brick in self._bricks:
            brick.items = 9000 * self._fullness(brick, 0.0)
            brick.next_beacon = brick.phase

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(brick.id for brick in self._bricks)

    def tick(self) -> Tick:
        """The next second."""
        self.now += 1.0
        self._machine = 0.8 * self._machine + 0.2 * math.exp(self._gauss(self._noise(self.now)))
        for brick in self._bricks:
            while brick.next_beacon <= self.now:
                self._beacon(brick, brick.next_beacon)
                brick.next_beacon += 1.0
        for brick in self._bricks:
            brick.usual = 3 * self._load(self.now) / len(self._bricks)
            brick.asked = 0
        saw = [self._saw(number) for number in range(1, self._stubs + 1)]
        samples = [
            Sample(
                brick.id,
                "brick",
                "n1",
                brick.incarnation,
                "live",
                self.now - brick.born_at,
                self.now - brick.heard_at,
                dict(brick.statistics),
            )
            for brick in self._bricks
            if brick.statistics
        ]
        return Tick(self.now, samples, saw, Demand(self._load(self.now), 0.0), blind=False)

    # One brick.

    def _beacon(self, brick: _Brick, at: float) -> None:
        trouble, draw = brick.trouble, self._draw
        ill = trouble.share(at - 1, at)
        rate = self._load(at - 0.5) / len(self._bricks)
        rate *= min(brick.asked / brick.usual, 1.0) if ill * trouble.drop else 1.0
        writes, reads = (
            self._poisson(1.8 * rate),
            self._poisson(1.2 * rate * self._fullness(brick, at)),
        )
        touches = writes + reads
        slow_s = ill * trouble.slow_s
        brick.wobble = 0.5 * brick.wobble + self._gauss(0.87 * self._noise(at))
        wobble = self._machine * math.exp(brick.wobble)
        service_s = 0.0001 * wobble + slow_s
        paused_s = self._paused_s(brick, at - 1, at)
        since_s = self._since_pause(brick, at)
        busy = min(service_s * touches + paused_s, 1.0)
        if paused_s:
            service_s += 0.0006 * math.exp(-max(since_s, 0.0) * touches / 32)
        queue_s = 0.00002 * wobble + busy * service_s / (2 * max(1 - busy, 0.05)) + paused_s**2 / 2
        self._remember(brick, at, writes, trouble)
        before = brick.rss
        held = brick.items * 1024
        brick.leaked += ill * trouble.leak
        brick.rss = max(brick.rss * 0.999, 50 * MB + 1.15 * held + brick.leaked)
        statistics = {
            "writes_per_s": float(writes),
            "reads_per_s": float(reads),
            "answered_per_s": float(touches),
            "service_s": service_s,
            "busy_ratio": busy,
            "queue_s": queue_s,
            "cpu": min(0.02 + 0.0002 * touches * wobble + paused_s, 1.0),
            "loop_lag_s": 0.001 * wobble + (0.5 * paused_s if since_s <= 0 < paused_s else 0.0),
            "inbox_length": float(int(queue_s * touches)),
            "expired_per_s": 0.0,
            "refused_per_s": 0.0,
            "failed_per_s": 0.0,
            "minor_faults_per_s": self._poisson(5) + max(brick.rss - before, 0.0) / 4096,
            "rss_bytes": brick.rss,
            "memory_bytes": held,
            "items": float(int(brick.items)),
            "allocated_blocks": 200_000.0 + 6 * int(brick.items) + draw.randint(-200, 200),
        }
        if draw.random() >= ill * trouble.drop:
            brick.heard_at, brick.statistics = at, statistics

    def _remember(self, brick: _Brick, at: float, writes: int, trouble: Trouble) -> None:
        """Sessions come, and every `period` those that expired are swept, all but some."""
        brick.items += 0.2 * writes
        sweeps = int((at + brick.phase * 30) / brick.period) != int(
            (at - 1 + brick.phase * 30) / brick.period
        )
        if sweeps and not (trouble.stuck and at >= trouble.since):
            brick.items = max(brick.items - 0.2 * 1.8 * 50 * brick.period, 0.8 * brick.items, 0.0)

    def _fullness(self, brick: _Brick, at: float) -> float:
        return min(max((at - brick.born_at) / 120, 0.0), 1.0)

    def _paused_s(self, brick: _Brick, begin: float, end: float) -> float:
        """How much of that time it collected garbage."""
        first = self._pause_at(brick, end)
        return max(0.0, min(end, first + self._pause_s) - max(begin, first))

    def _since_pause(self, brick: _Brick, at: float) -> float:
        return at - self._pause_at(brick, at) - self._pause_s

    def _pause_at(self, brick: _Brick, at: float) -> float:
        offset = 7.3 * brick.phase
        return offset + math.floor((at - offset) / 29.37) * 29.37

    # One stub.

    def _saw(self, number: int) -> StubSaw:
        seen = []
        for brick in self._bricks:
            if brick.born_at > self.now:
                continue
            told = self._seen(brick)
            if number == 1 and self._lie is not None:
                told = self._lie(brick.id, told)
            seen.append(told)
        return StubSaw(f"web-{number}", "brick", 1.0, seen)

    def _seen(self, brick: _Brick) -> PeerSeen:
        begin, end = self.now - 1, self.now
        trouble = brick.trouble
        ill = trouble.share(begin, end)
        asked = self._poisson(3 * self._load(self.now) / len(self._bricks) / self._stubs)
        lost = ill * trouble.drop
        if lost:
            brick.room = max(brick.room * 0.1, 1.0)
            asked = min(asked, int(brick.room / TIMEOUT_S) + 1)
        else:
            brick.room = min(brick.room * math.exp(self._gauss(0.1)) + 1, 300.0)
        brick.asked += asked
        paused_s = self._paused_s(brick, begin, end)
        lost += max(paused_s - TIMEOUT_S, 0.0)
        silent = sum(self._draw.random() < lost for _ in range(asked))
        noise = math.exp(self._gauss(self._noise(self.now)))
        wait_s = 0.0003 * self._machine * noise + ill * trouble.slow_s
        return PeerSeen(
            brick.id, brick.incarnation, asked, asked - silent, 0, silent, wait_s, brick.room
        )

    # Chance.

    def _gauss(self, deviation: float) -> float:
        return self._draw.gauss(0.0, deviation)

    def _poisson(self, mean: float) -> int:
        return max(0, round(self._draw.gauss(mean, math.sqrt(mean)))) if mean > 0 else 0
