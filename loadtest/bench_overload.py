"""`softstate bench overload`: what is left of the goodput when far more is asked than can be done.

Bricks are given a fixed extra cost, so that they are the limit and not the generators. Generators
(open loops of hyperactive sessions, 8 KiB, 60 ms) first climb to the load that saturates the
bricks; then the sweep offers multiples of it, in rounds, with each limiter; then storms, to see how
soon all is well after. At last the same without any protection: the cliff. What that leaves behind
would take long to work off, so there each load has bricks of its own.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

import msgspec

from bus.clock import now
from bus.config_shape import LimiterKind, SessionsConfig
from loadtest import machine
from loadtest.arrivals import spike, steady
from loadtest.goodput import Outcome, recovery_s
from loadtest.session_field import VALUE_BYTES, Field
from loadtest.session_requests import ClusterAsked

EXTRA_COST_MS = 1.0
BRICKS = 4
COST_OF_A_REQUEST = 2.5  # Brick operations: three for a write, two for a read.
GENERATORS = 2
CPU_SHARE_MAX = 0.5  # Of a core: a generator that needs more may be the limit itself.
LIMITERS: tuple[LimiterKind, ...] = ("qdelay", "aimd")
DEFAULT = SessionsConfig().limiter

CLIMB_FROM, CLIMB_BY = 0.5, 1.2  # Of what the extra cost alone would allow.
CLIMB_STEPS_MAX = 10
CLIMBED = 0.7  # Less than that of the load is good: the best is behind us.
SUMMIT, SUMMITS = (
    2.0,
    3,
)  # A short step in a bad moment tells too little: so often at twice as much.
RECOVERED = 0.95
WINDOW_S = 0.3
BASE = 0.7  # Of the saturating load: before and after a storm.
STORM = 10.0
WARM_UP = 0.3

AIMS = {
    "goodput_4x": {"at_least": 0.95},
    "goodput_10x": {"at_least": 0.90},
    "recovery_s": {"at_most": 1.0},
}
METHOD = (
    "open loop, Poisson, latency from the intended start; goodput is what completes within 60 ms. "
    "Bricks take 1 ms more for each operation. The saturating load is the best goodput of a climb "
    "in steps of 20 %. goodput_4x and goodput_10x: medians over rounds, as shares of the best of "
    "the same sweep, with the default limiter; null if a generator used over half a core at 10x. "
    "…_by_rounds: the same, but each goodput is first divided by the mean of its round, as a "
    "machine that others use too is now faster, now slower. "
    "recovery_s: from the end of a storm of 10x to the first 0.3 s with 95 % of the goodput before "
    "it, at 0.7x; the median. unprotected_…: the same with protection = false, as shares of the "
    "best with protection, each load on new bricks; no recovery: not within recovery_s_max"
)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    multiples: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 10.0)
    """The first of them, at which hardly any are refused, is measured in the first round only."""
    unprotected: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 10.0)
    rounds: int
    compared: int
    """In so many of the rounds the other limiter is measured too, and in as many storms."""
    last_round_begins_s: float
    """No round begins later than this, however many are left: a slow machine gets fewer."""
    climb_s: float = 0.8
    settle_s: float = 1.0
    """From the beginning of a load to where it is measured."""
    measure_s: float
    storms: int
    before_s: float = 1.5
    storm_s: float = 2.0
    after_s: float = 3.0


FULL = Pace(rounds=7, compared=7, last_round_begins_s=260.0, measure_s=3.0, storms=5)
QUICK = Pace(
    multiples=(1.0, 2.0, 4.0, 10.0),
    unprotected=(0.5, 4.0, 10.0),
    rounds=5,
    compared=1,
    last_round_begins_s=50.0,
    settle_s=0.6,
    measure_s=1.2,
    storms=2,
    storm_s=1.5,
    after_s=1.5,
)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One load of a sweep, measured once."""

    protection: bool
    limiter: str
    round: int
    multiple: float
    offered_per_s: float
    goodput_per_s: float
    refused_per_s: float
    late_per_s: float
    failed_per_s: float
    """Those that the generator could not begin among them."""
    p50_ms: float | None
    p99_ms: float | None
    cpu_share: float
    """Of the busiest generator."""
    errors: dict[str, int]
    goodput_series: list[int]
    """Requests that were good, by tenths of a second."""


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    limiter: str
    recovery_s: float | None
    goodput_series: list[int]
    offered_series: list[int]


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before, began_at = machine.machine(), now()
    with Field(asked(protection=True), GENERATORS) as field:
        saturating = climb(field, pace, progress)
        points: list[Point] = []
        for number in range(pace.rounds):
            if not number or now() - began_at < pace.last_round_begins_s:
                points += one_round(field, saturating, number, pace, progress)
        storms = [
            one_storm(field, limiter, saturating, pace, progress)
            for number in range(pace.storms)
            for limiter in compared(number, pace)
        ]
    for multiple in pace.unprotected:
        points.append(unprotected(multiple, saturating, pace, progress))
    storms.append(unprotected_storm(saturating, pace, progress))
    return {
        **figures(points, storms),
        "saturating_per_s": round(saturating, 1),
        "recovery_s_max": pace.after_s,
        "generator_cpu_share_10x": cpu_share(points, DEFAULT),
        "default_limiter": DEFAULT,
        "limiters": [limiter_row(points, storms, limiter) for limiter in LIMITERS],
        "sweep": sweep_rows(points),
        "storms": storm_rows(storms),
        "aims": AIMS,
        "method": METHOD,
        "setup": setup(),
        "elapsed_s": round(now() - began_at, 1),
        "samples": {"points": msgspec.to_builtins(points), "storms": msgspec.to_builtins(storms)},
        "versions": machine.versions(),
        "machine": before,
    }


def asked(*, protection: bool) -> ClusterAsked:
    sessions = {"extra_cost_ms": EXTRA_COST_MS, "protection": protection}
    return ClusterAsked(bricks=BRICKS, sessions=sessions)


def setup() -> dict[str, Any]:
    return {
        "bricks": BRICKS,
        "generators": GENERATORS,
        "value_bytes": VALUE_BYTES,
        "extra_cost_ms": EXTRA_COST_MS,
    }


def climb(field: Field, pace: Pace, progress: Callable[[str], None]) -> float:
    """The load that saturates the bricks, in requests a second."""
    per_s = CLIMB_FROM * BRICKS * 1000 / EXTRA_COST_MS / COST_OF_A_REQUEST
    best = 0.0
    field.drive(steady(per_s, pace.climb_s))  # To warm everybody up.
    for _ in range(CLIMB_STEPS_MAX):
        outcome = field.drive(steady(per_s, pace.climb_s + pace.settle_s / 2))
        seen = outcome.total(pace.settle_s / 2)
        good_per_s = seen.good / pace.climb_s
        best = max(best, good_per_s)
        if seen.good < CLIMBED * seen.offered:
            break
        per_s *= CLIMB_BY
    for _ in range(SUMMITS):
        outcome = field.drive(steady(SUMMIT * best, pace.climb_s + pace.settle_s / 2))
        best = max(best, outcome.total(pace.settle_s / 2).good / pace.climb_s)
    progress(f"saturated at {best:.0f} requests a second")
    return best


def one_round(
    field: Field, saturating: float, number: int, pace: Pace, progress: Callable[[str], None]
) -> list[Point]:
    found = []
    limiters = compared(number, pace)
    for multiple in pace.multiples[number > 0 :]:
        for limiter in limiters if number % 2 == 0 else limiters[::-1]:
            outcome = field.drive(
                steady(multiple * saturating, pace.settle_s + pace.measure_s),
                settings={"limiter": limiter},
            )
            point = point_of(outcome, pace, multiple, number, limiter)
            progress(told(point))
            found.append(point)
    return found


def compared(number: int, pace: Pace) -> tuple[LimiterKind, ...]:
    """The limiters of that round, or of that storm."""
    return LIMITERS if number < pace.compared else (DEFAULT,)


def unprotected(
    multiple: float, saturating: float, pace: Pace, progress: Callable[[str], None]
) -> Point:
    with Field(asked(protection=False), GENERATORS) as field:
        field.drive(steady(WARM_UP * saturating, pace.climb_s))
        outcome = field.drive(steady(multiple * saturating, pace.settle_s + pace.measure_s))
    point = point_of(outcome, pace, multiple, 0, "none", protection=False)
    progress(told(point))
    return point


def unprotected_storm(saturating: float, pace: Pace, progress: Callable[[str], None]) -> Storm:
    with Field(asked(protection=False), GENERATORS) as field:
        field.drive(steady(WARM_UP * saturating, pace.climb_s))
        return one_storm(field, "none", saturating, pace, progress)


def one_storm(
    field: Field, limiter: str, saturating: float, pace: Pace, progress: Callable[[str], None]
) -> Storm:
    shape = spike(
        BASE * saturating,
        STORM * saturating,
        before_s=pace.before_s,
        storm_s=pace.storm_s,
        after_s=pace.after_s,
    )
    outcome = field.drive(shape, settings={"limiter": limiter})
    took_s = recovery_s(
        outcome,
        before_s=pace.before_s,
        storm_s=pace.storm_s,
        share=RECOVERED,
        window_s=WINDOW_S,
    )
    how = "not recovered" if took_s is None else f"recovered after {took_s:g} s"
    progress(f"storm, {limiter if limiter != 'none' else 'no protection'}: {how}")
    return Storm(
        limiter=limiter,
        recovery_s=took_s,
        goodput_series=[each.good for each in outcome.intervals],
        offered_series=[each.offered for each in outcome.intervals],
    )


def point_of(
    outcome: Outcome,
    pace: Pace,
    multiple: float,
    number: int,
    limiter: str,
    *,
    protection: bool = True,
) -> Point:
    seen = outcome.total(pace.settle_s, pace.settle_s + pace.measure_s)

    def per_s(count: int) -> float:
        return round(count / pace.measure_s, 1)

    return Point(
        protection=protection,
        limiter=limiter,
        round=number,
        multiple=multiple,
        offered_per_s=per_s(seen.offered),
        goodput_per_s=per_s(seen.good),
        refused_per_s=per_s(seen.refused),
        late_per_s=per_s(seen.late),
        failed_per_s=per_s(seen.failed + seen.unstarted),
        p50_ms=in_ms(seen.latencies.percentile(0.5)),
        p99_ms=in_ms(seen.latencies.percentile(0.99)),
        cpu_share=round(outcome.cpu_share, 3),
        errors=outcome.errors,
        goodput_series=[each.good for each in outcome.intervals],
    )


def in_ms(found_s: float | None) -> float | None:
    return None if found_s is None else round(1e3 * found_s, 3)


def told(point: Point) -> str:
    how = point.limiter if point.protection else "no protection"
    return (
        f"{how}, {point.multiple:g}x: {point.goodput_per_s:.0f} good of "
        f"{point.offered_per_s:.0f} offered a second"
    )


# What comes of it.


def figures(points: Sequence[Point], storms: Sequence[Storm]) -> dict[str, float | None]:
    """The keys other people's programs read, for the default limiter."""
    busy = (cpu_share(points, DEFAULT) or 0.0) > CPU_SHARE_MAX
    return {
        "goodput_4x": None if busy else share(points, DEFAULT, 4.0),
        "goodput_10x": None if busy else share(points, DEFAULT, 10.0),
        "recovery_s": middle_recovery(storms, DEFAULT),
        "goodput_4x_by_rounds": share(in_rounds(points, DEFAULT), DEFAULT, 4.0),
        "goodput_10x_by_rounds": share(in_rounds(points, DEFAULT), DEFAULT, 10.0),
        "unprotected_goodput_4x": share(points, "none", 4.0),
        "unprotected_goodput_10x": share(points, "none", 10.0),
        "unprotected_recovery_s": middle_recovery(storms, "none"),
    }


def goodput(points: Sequence[Point], limiter: str) -> dict[float, float]:
    """The median goodput by multiple."""
    multiples = sorted({each.multiple for each in points if each.limiter == limiter})
    return {
        multiple: median(
            each.goodput_per_s
            for each in points
            if each.limiter == limiter and each.multiple == multiple
        )
        for multiple in multiples
    }


def share(points: Sequence[Point], limiter: str, multiple: float) -> float | None:
    """Of the best of the sweep: of the default limiter's, if there was none at all."""
    found = goodput(points, limiter)
    best = max(goodput(points, DEFAULT if limiter == "none" else limiter).values(), default=0.0)
    return round(found[multiple] / best, 4) if best and multiple in found else None


def in_rounds(points: Sequence[Point], limiter: str) -> list[Point]:
    """Those of a limiter, each by the mean of its round: of the loads that every round has."""
    ours = [each for each in points if each.limiter == limiter]
    rounds = {each.round for each in ours}
    common = {
        each.multiple
        for each in ours
        if {other.round for other in ours if other.multiple == each.multiple} == rounds
    }
    means = {
        number: fmean(
            each.goodput_per_s for each in ours if each.round == number and each.multiple in common
        )
        for number in rounds
        if common
    }
    return [
        msgspec.structs.replace(each, goodput_per_s=each.goodput_per_s / means[each.round])
        for each in ours
        if means.get(each.round)
    ]


def middle_recovery(storms: Sequence[Storm], limiter: str) -> float | None:
    """None if it did not recover in more than half of the storms."""
    found = [each.recovery_s for each in storms if each.limiter == limiter]
    never = float("inf")
    middle = median([never if each is None else each for each in found] or [never])
    return None if middle == never else round(middle, 3)


def cpu_share(points: Sequence[Point], limiter: str) -> float | None:
    found = [each.cpu_share for each in points if (each.limiter, each.multiple) == (limiter, 10.0)]
    return max(found, default=None)


def limiter_row(
    points: Sequence[Point], storms: Sequence[Storm], limiter: str
) -> dict[str, float | str | None]:
    found = goodput(points, limiter)
    return {
        "limiter": limiter,
        "best_per_s": max(found.values(), default=None),
        "goodput_4x": share(points, limiter, 4.0),
        "goodput_10x": share(points, limiter, 10.0),
        "goodput_10x_per_s": found.get(10.0),
        "recovery_s": middle_recovery(storms, limiter),
        "cpu_share_10x": cpu_share(points, limiter),
    }


def sweep_rows(points: Sequence[Point]) -> list[dict[str, Any]]:
    """The medians, a row each, for people and for the plot."""
    kinds = sorted({(not each.protection, each.limiter, each.multiple) for each in points})
    rows = []
    for off, limiter, multiple in kinds:
        same = [each for each in points if (each.limiter, each.multiple) == (limiter, multiple)]

        def middle(field: str, same: list[Point] = same) -> float | None:
            known = [value for each in same if (value := getattr(each, field)) is not None]
            return round(median(known), 3) if known else None

        rows.append(
            {
                "protection": "off" if off else limiter,
                "multiple": multiple,
                **{
                    field: middle(field)
                    for field in ("offered_per_s", "goodput_per_s", "refused_per_s", "late_per_s")
                },
                **{field: middle(field) for field in ("failed_per_s", "p50_ms", "p99_ms")},
            }
        )
    return rows


def storm_rows(storms: Sequence[Storm]) -> list[dict[str, Any]]:
    return [
        {
            "protection": "off" if each.limiter == "none" else each.limiter,
            "recovery_s": each.recovery_s,
        }
        for each in storms
    ]
