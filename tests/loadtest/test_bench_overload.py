"""The overload benchmark, tiny and real: all keys are there, of the right types. Never a timing."""

from typing import Any

import msgspec
import pytest

from loadtest import bench_overload
from loadtest.bench_overload import Point, Storm
from loadtest.report import page

TINY = bench_overload.Pace(
    multiples=(1.0, 4.0, 10.0),
    unprotected=(4.0,),  # Each of them starts a cluster of its own.
    rounds=1,
    compared=1,
    last_round_begins_s=0.0,
    climb_s=0.2,
    settle_s=0.2,
    measure_s=0.2,
    storms=1,
    before_s=0.3,
    storm_s=0.2,
    after_s=0.5,
)


@pytest.mark.slow
def test_overload_benchmark_has_every_key() -> None:
    lines: list[str] = []
    result: dict[str, Any] = bench_overload.run(TINY, lines.append)
    assert lines, "progress is told"
    assert page(result), "a page for people can be made of it"
    assert msgspec.json.decode(msgspec.json.encode(result)) == result, "it is plain JSON"
    assert set(result) >= {"aims", "method", "samples", "versions", "machine", "sweep", "limiters"}
    assert result["saturating_per_s"] > 0
    assert type(result["unprotected_goodput_4x"]) in (float, type(None))
    assert type(result["goodput_4x"]) in (float, type(None)), "none: a generator was the limit"
    assert type(result["goodput_10x"]) in (float, type(None))
    assert set(result) >= {"recovery_s", "unprotected_goodput_10x", "unprotected_recovery_s"}
    limiters = {row["limiter"] for row in result["limiters"]}
    assert limiters == {"qdelay", "aimd"}
    assert len(result["samples"]["points"]) == len(TINY.multiples) * 2 + len(TINY.unprotected)
    errors = {name for each in result["samples"]["points"] for name in each["errors"]}
    assert errors <= {"StateConflict"}, "whatever the load, nothing is lost or mixed up"


def point(
    limiter: str, multiple: float, goodput: float, cpu_share: float = 0.1, number: int = 0
) -> Point:
    return Point(
        protection=limiter != "none",
        limiter=limiter,
        round=number,
        multiple=multiple,
        offered_per_s=multiple * 1000,
        goodput_per_s=goodput,
        refused_per_s=0.0,
        late_per_s=0.0,
        failed_per_s=0.0,
        p50_ms=None,
        p99_ms=None,
        cpu_share=cpu_share,
        errors={},
        goodput_series=[],
    )


def storm(recovery_s: float | None) -> Storm:
    return Storm(
        limiter=bench_overload.DEFAULT, recovery_s=recovery_s, goodput_series=[], offered_series=[]
    )


DEFAULT = bench_overload.DEFAULT
POINTS = [
    point(DEFAULT, 2, 1000),
    point(DEFAULT, 4, 900),
    point(DEFAULT, 4, 950),
    point(DEFAULT, 4, 100),
    point(DEFAULT, 10, 800),
    point("none", 1, 500),
    point("none", 4, 25),
]


def test_figures_are_medians_as_shares_of_the_best_of_their_sweep() -> None:
    found = bench_overload.figures(POINTS, [storm(0.5), storm(0.1), storm(None)])
    assert found == {
        "goodput_4x": 0.9,
        "goodput_10x": 0.8,
        "recovery_s": 0.5,
        "goodput_4x_by_rounds": 0.9,
        "goodput_10x_by_rounds": 0.8,
        "unprotected_goodput_4x": 0.025,
        "unprotected_goodput_10x": None,
        "unprotected_recovery_s": None,
    }


def test_by_rounds_a_slow_one_counts_as_much_as_a_fast_one() -> None:
    """Somebody else used the machine in the second round: the shares within it are the same."""
    points = [
        point(DEFAULT, multiple, slowness * goodput, number=number)
        for number, slowness in enumerate((1.0, 0.5, 1.0, 0.7))
        for multiple, goodput in ((2.0, 1000), (4.0, 950), (10.0, 900))
    ]
    points.append(point(DEFAULT, 1.0, 800))
    points.append(point(DEFAULT, 0.5, 400, number=1))
    found = bench_overload.figures(points, [])
    assert (found["goodput_4x_by_rounds"], found["goodput_10x_by_rounds"]) == (0.95, 0.9)
    evened = bench_overload.in_rounds(points, DEFAULT)
    assert bench_overload.share(evened, DEFAULT, 1.0) == 0.8
    assert bench_overload.share(evened, DEFAULT, 0.5) == 0.8, "as the round in which it was"


def test_generator_that_was_the_limit_itself_has_no_figures() -> None:
    points = [*POINTS, point(DEFAULT, 10, 900, cpu_share=0.51)]
    found = bench_overload.figures(points, [])
    assert (found["goodput_4x"], found["goodput_10x"]) == (None, None)


def test_no_recovery_is_no_figure() -> None:
    assert bench_overload.middle_recovery([storm(None), storm(None), storm(0.1)], DEFAULT) is None
    assert bench_overload.middle_recovery([], DEFAULT) is None
