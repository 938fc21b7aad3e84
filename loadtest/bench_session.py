"""`softstate bench session`: our sessions against Redis, memcached and bare TCP.

Each contestant is a client process and its servers, on loopback. A round starts them all anew, then
goes through the cases (write or read, so many sessions in flight) and in each case through the
contestants, one right after the other. Ours keeps three copies of a write and waits for two, and
has everything switched on: cookies, checksums, limiters, statistics. So do three Redis servers of
which two must have it, but for all of that; one Redis and one memcached keep one copy.

Beside it, of ours alone: how late answers are at half of the peak (open loop), and how much memory
the bricks take for what they hold.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from math import prod
from statistics import median
from typing import Any, Literal

import gevent
import msgspec
import psutil

from bus.clock import now
from loadtest import machine
from loadtest.arrivals import steady
from loadtest.bench_overload import in_ms
from loadtest.goodput import Outcome
from loadtest.peer_servers import PROGRAMS, Kind, PeerServer
from loadtest.processes import START_S_MAX, Child, Children
from loadtest.runner import turned
from loadtest.session_field import CLUSTER_END_S_MAX, TIMEOUT_S, VALUE_BYTES, Field, start_cluster
from loadtest.session_requests import ClusterAsked, Fill, Phase, Phased

BRICKS = 4
IN_FLIGHT = (1, 10, 60, 240)
OPERATIONS: tuple[Literal["write", "read"], ...] = ("write", "read")
COMPARED_AT = 60
ENTRY_BYTES = 300  # What a session may cost besides its value.
FILL_S_MAX = 120.0
HALF = 0.5
SETTLE_S = 0.5

CONTESTANTS = ("ours", "redis_single", "redis_replicated", "memcached", "tcp")
AIMS = {
    "ratio_redis_single": {"at_least": 2},
    "ratio_redis_replicated": {"at_least": 5},
    "ratio_memcached": {"at_least": 1},
    "ratio_tcp": {"at_least": 0.3},
    "latency_ratio_redis_single": {"at_most": 3},
    "p99_ms_half_peak": {"at_most": 10},
    "bytes_ratio": {"at_most": 1.3},
}
METHOD = (
    "8 KiB values, W=3 WQ=2 R=2, 4 bricks on 2 nodes, one client process, closed loop; contestants "
    "alternate in each case of each round. A ratio is the geometric mean of the write and the read "
    "ratio within a round, and of these the median over the rounds; requests a second at 60 in "
    "flight, latency (p50) at 1. CPU is of the client and of all servers, hubs and agents too. "
    "p99_ms_half_peak: open loop at half of the best rate of alternating writes and reads, from "
    "the intended start. bytes_ratio: growth of the bricks' resident memory / (copies x (value + "
    "300 B))"
)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    warm_up_s: float
    duration_s: float
    """Of each measurement; a round has forty."""
    last_round_begins_s: float
    in_flight: tuple[int, ...] = IN_FLIGHT
    half_peaks: int
    half_peak_s: float
    sessions: int
    """For the memory they take."""


FULL = Pace(
    rounds=9,
    warm_up_s=0.25,
    duration_s=1.0,
    last_round_begins_s=600.0,
    half_peaks=5,
    half_peak_s=5.0,
    sessions=20_000,
)
QUICK = Pace(
    rounds=5,
    warm_up_s=0.12,
    duration_s=0.4,
    last_round_begins_s=120.0,
    half_peaks=3,
    half_peak_s=2.5,
    sessions=6000,
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    round: int
    contestant: str
    operation: str
    in_flight: int
    per_s: float
    good_per_s: float
    """Of those, within 60 ms."""
    failed: int
    p50_ms: float | None
    p99_ms: float | None
    client_cpu_us: float | None
    server_cpu_us: float | None

    @property
    def cpu_us(self) -> float | None:
        if self.client_cpu_us is None or self.server_cpu_us is None:
            return None
        return self.client_cpu_us + self.server_cpu_us


class HalfPeak(msgspec.Struct, frozen=True):
    offered_per_s: float
    good_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_share: float
    """Of a core, that the generator used; it is the client as well."""


class Memory(msgspec.Struct, frozen=True):
    copies: int
    grown_bytes: int
    value_bytes: int

    @property
    def ratio(self) -> float:
        return self.grown_bytes / (self.copies * (self.value_bytes + ENTRY_BYTES))


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before, names = machine.machine(), contestants()
    began_at, samples, rounds = now(), list[Sample](), 0
    while rounds < pace.rounds and (not rounds or now() - began_at < pace.last_round_begins_s):
        progress(f"round {rounds + 1} of {pace.rounds}: {', '.join(turned(names, rounds))}")
        samples += one_round(rounds, turned(names, rounds), pace)
        rounds += 1
    peak_per_s = peak(samples)
    progress(f"half of {peak_per_s:.0f} a second")
    halves = half_peaks(peak_per_s * HALF, pace)
    progress(f"memory of {pace.sessions} sessions")
    memory = memory_of(pace.sessions)
    late_ms = [each.p99_ms for each in halves if each.p99_ms is not None]
    return {
        **figures(samples),
        "p99_ms_half_peak": round(median(late_ms), 3) if late_ms else None,
        "bytes_ratio": round(memory.ratio, 4),
        "peak_per_s": round(peak_per_s, 1),
        "rounds": rounds,
        "cases": rows(samples, names, pace.in_flight),
        "aims": AIMS,
        "method": METHOD,
        "elapsed_s": round(now() - began_at, 1),
        "samples": {
            "requests": msgspec.to_builtins(samples),
            "half_peak": msgspec.to_builtins(halves),
            "memory": msgspec.to_builtins(memory),
        },
        "versions": {
            **machine.versions(),
            **{name: machine.installed(name) for name in ("redis", "hiredis", "pymemcache")},
        },
        "machine": before,
    }


def contestants() -> list[str]:
    """Those that are installed; the others have no figures."""
    missing = set()
    if not (
        PROGRAMS["redis-server"] and machine.installed("redis") and machine.installed("hiredis")
    ):
        missing |= {"redis_single", "redis_replicated"}
    if not (PROGRAMS["memcached"] and machine.installed("pymemcache")):
        missing.add("memcached")
    return [name for name in CONTESTANTS if name not in missing]


# A round.


class Contestant(msgspec.Struct, frozen=True):
    client: Child
    servers: list[int]


def one_round(number: int, names: Sequence[str], pace: Pace) -> list[Sample]:
    with ExitStack() as stack:
        children = stack.enter_context(Children(CLUSTER_END_S_MAX))
        started = {name: start(name, children, stack) for name in names}
        for each in started.values():
            each.client.receive(START_S_MAX)
        found = []
        for in_flight in pace.in_flight:
            for operation in OPERATIONS:
                for name in names:
                    phase = Phase(
                        operation=operation,
                        in_flight=in_flight,
                        value_bytes=VALUE_BYTES,
                        timeout_s=TIMEOUT_S,
                        warm_up_s=pace.warm_up_s,
                        duration_s=pace.duration_s,
                        servers=started[name].servers,
                    )
                    wait_s = START_S_MAX + pace.warm_up_s + pace.duration_s
                    phased = msgspec.convert(started[name].client.ask(phase, wait_s), Phased)
                    found.append(sample(number, name, phase, phased))
        return found


def start(name: str, children: Children, stack: ExitStack) -> Contestant:
    """Its servers and its client; the client says when it is ready."""
    if name == "ours":
        cluster, _ = start_cluster(children, ClusterAsked(bricks=BRICKS))
        client = children.start(name, "loadtest.session_ours", cluster.config)
        return Contestant(client, cluster.processes)
    if name == "tcp":
        servers = [
            children.start(f"tcp server {n}", "loadtest.session_tcp", "server")
            for n in range(BRICKS)
        ]
        ports = [str(each.receive(START_S_MAX)["port"]) for each in servers]
        client = children.start(name, "loadtest.session_tcp", "client", *ports)
        return Contestant(client, [each.pid for each in servers])
    program: Kind = "memcached" if name == "memcached" else "redis-server"
    module = "session_memcached" if name == "memcached" else "session_redis"
    peers = [
        stack.enter_context(PeerServer(program))
        for _ in range(3 if name == "redis_replicated" else 1)
    ]
    client = children.start(name, f"loadtest.{module}", *[str(each.port) for each in peers])
    return Contestant(client, [each.pid for each in peers])


def sample(number: int, name: str, phase: Phase, phased: Phased) -> Sample:
    return Sample(
        round=number,
        contestant=name,
        operation=phase.operation,
        in_flight=phase.in_flight,
        per_s=phased.done / phased.elapsed_s,
        good_per_s=phased.good / phased.elapsed_s,
        failed=phased.failed,
        p50_ms=phased.p50_ms,
        p99_ms=phased.p99_ms,
        client_cpu_us=phased.client_cpu_us,
        server_cpu_us=phased.server_cpu_us,
    )


# Of ours alone.


def half_peaks(per_s: float, pace: Pace) -> list[HalfPeak]:
    with Field(ClusterAsked(bricks=BRICKS), 1) as field:
        return [half_peak(field, per_s, pace) for _ in range(pace.half_peaks)]


def half_peak(field: Field, per_s: float, pace: Pace) -> HalfPeak:
    field.drive(steady(per_s, SETTLE_S))
    outcome: Outcome = field.drive(steady(per_s, pace.half_peak_s))
    seen = outcome.total()
    return HalfPeak(
        offered_per_s=round(seen.offered / pace.half_peak_s, 1),
        good_per_s=round(seen.good / pace.half_peak_s, 1),
        p50_ms=in_ms(outcome.latencies.percentile(0.5)),
        p99_ms=in_ms(outcome.latencies.percentile(0.99)),
        cpu_share=round(outcome.cpu_share, 3),
    )


def memory_of(sessions: int) -> Memory:
    with Children(CLUSTER_END_S_MAX) as children:
        cluster, _ = start_cluster(children, ClusterAsked(bricks=BRICKS))
        filler = children.start("filler", "loadtest.session_filler", cluster.config)
        filler.receive(START_S_MAX)
        bricks = [psutil.Process(pid) for pid in cluster.bricks.values()]
        # What buffers and the interpreter take for any load at all is not for the sessions.
        begun = int(filler.ask(Fill(sessions=sessions // 10, value_bytes=VALUE_BYTES), FILL_S_MAX))
        before = sum(each.memory_info().rss for each in bricks)
        copies = int(filler.ask(Fill(sessions=sessions, value_bytes=VALUE_BYTES), FILL_S_MAX))
        gevent.sleep(SETTLE_S)
        after = sum(each.memory_info().rss for each in bricks)
        return Memory(copies - begun, after - before, VALUE_BYTES)


# What comes of it.


def figures(samples: Sequence[Sample]) -> dict[str, float | None]:
    """The keys other people's programs read; a contestant that is absent is None."""
    return {
        "ratio_redis_single": ratio(samples, "redis_single", COMPARED_AT, "per_s"),
        "ratio_redis_replicated": ratio(samples, "redis_replicated", COMPARED_AT, "per_s"),
        "ratio_memcached": ratio(samples, "memcached", COMPARED_AT, "per_s"),
        "ratio_tcp": ratio(samples, "tcp", COMPARED_AT, "per_s"),
        "latency_ratio_redis_single": ratio(samples, "redis_single", 1, "p50_ms"),
    }


def ratio(samples: Sequence[Sample], peer: str, in_flight: int, field: str) -> float | None:
    """Ours by the peer's: the geometric mean over the operations in each round, of these the
    median."""
    found = []
    for number in sorted({each.round for each in samples}):
        ratios = []
        for operation in OPERATIONS:
            ours, theirs = (
                value_of(samples, (number, name, operation, in_flight), field)
                for name in ("ours", peer)
            )
            if ours is not None and theirs:
                ratios.append(ours / theirs)
        if len(ratios) == len(OPERATIONS):
            found.append(prod(ratios) ** (1 / len(ratios)))
    return round(median(found), 4) if found else None


def value_of(
    samples: Iterable[Sample], which: tuple[int, str, str, int], field: str
) -> float | None:
    for each in samples:
        if (each.round, each.contestant, each.operation, each.in_flight) == which:
            value: float | None = getattr(each, field)
            return value
    return None


def peak(samples: Sequence[Sample]) -> float:
    """Our best rate of writes and reads in turn."""

    def middle(operation: str, in_flight: int) -> float:
        return median(
            each.per_s
            for each in samples
            if (each.contestant, each.operation, each.in_flight) == ("ours", operation, in_flight)
        )

    return max(
        2 / (1 / max(middle("write", n), 1.0) + 1 / max(middle("read", n), 1.0))
        for n in {each.in_flight for each in samples}
    )


def rows(
    samples: Sequence[Sample], names: Sequence[str], in_flight: Sequence[int]
) -> list[dict[str, Any]]:
    """The medians behind the ratios, a row each, for people."""
    found = []
    for operation in OPERATIONS:
        for number in in_flight:
            for name in names:
                same = [
                    each
                    for each in samples
                    if (each.contestant, each.operation, each.in_flight)
                    == (name, operation, number)
                ]
                found.append(
                    {
                        "contestant": name,
                        "operation": operation,
                        "in flight": number,
                        **{
                            field: middle_of(same, field)
                            for field in ("per_s", "good_per_s", "p50_ms", "p99_ms")
                        },
                        **{field: middle_of(same, field) for field in ("cpu_us", "client_cpu_us")},
                        "failed": sum(each.failed for each in same),
                    }
                )
    return found


def middle_of(samples: Iterable[Sample], field: str) -> float | None:
    known = [value for each in samples if (value := getattr(each, field)) is not None]
    return round(median(known), 3) if known else None
