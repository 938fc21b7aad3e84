"""When requests begin: shapes and seeds in, times out.

Method: every shape is cut by both rules, and the times are counted and compared with the integral
of the rate; Poisson arrivals by their mean and spread.
"""

from itertools import pairwise
from random import Random
from statistics import mean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.arrivals import (
    Shape,
    Stretch,
    checked,
    constant,
    duration_s,
    part_of,
    poisson,
    ramp,
    rate_at,
    spike,
    steady,
    steps,
    trace,
)

SHAPES = st.lists(
    st.builds(
        Stretch,
        st.floats(min_value=0.1, max_value=5),
        st.floats(min_value=0, max_value=300),
        st.floats(min_value=0, max_value=300),
    ),
    min_size=1,
    max_size=4,
).map(checked)


def total(shape: Shape) -> float:
    return sum(each.count for each in shape)


@given(SHAPES)
def test_times_never_fall_and_are_as_many_as_the_rate_says(shape: Shape) -> None:  # A1, A2
    times = list(constant(shape))
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert all(0 <= at <= duration_s(shape) + 1e-9 for at in times)
    assert abs(len(times) - total(shape)) <= 1


@given(SHAPES, st.integers(0, 1000))
def test_chance_keeps_to_the_order_and_to_the_seed(shape: Shape, seed: int) -> None:  # A1, A3
    times = list(poisson(shape, Random(seed)))
    assert times == list(poisson(shape, Random(seed)))
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert all(0 <= at <= duration_s(shape) + 1e-9 for at in times)


def test_constant_arrivals_of_a_steady_load_are_evenly_spaced() -> None:
    assert list(constant(steady(4, 1))) == pytest.approx([0.125, 0.375, 0.625, 0.875])


def test_poisson_arrivals_are_as_independent_as_people() -> None:  # A2
    """In a Poisson process the count of an interval has a variance like its mean."""
    counts = [0] * 1000
    for at in poisson(steady(20, 1000), Random(1)):
        counts[int(at)] += 1
    assert mean(counts) == pytest.approx(20, rel=0.03)
    assert pvariance(counts) == pytest.approx(20, rel=0.2)


def test_a_ramp_begins_thin_and_ends_dense() -> None:  # A2
    times = list(constant(ramp(0, 100, 10)))
    assert len(times) == 500
    assert sum(at < 5 for at in times) == pytest.approx(125, abs=1)
    assert rate_at(ramp(0, 100, 10), 5) == 50


def test_a_spike_is_a_base_with_a_storm_in_it() -> None:
    shape = spike(10, 100, before_s=1, storm_s=2, after_s=3)
    assert (duration_s(shape), total(shape)) == (6, 10 + 200 + 30)
    assert [rate_at(shape, at) for at in (0.5, 2, 4, 7)] == [10, 100, 10, 0]


def test_parts_make_up_the_whole() -> None:
    shape = steps([(90, 1), (30, 2)])
    assert sum(total(part_of(shape, 3)) for _ in range(3)) == pytest.approx(total(shape))


def test_a_trace_is_replayed_at_any_speed() -> None:
    assert list(trace([0, 1, 1, 4])) == [0, 1, 1, 4]
    assert list(trace([0, 1, 4], speed=2)) == [0, 0.5, 2]


@pytest.mark.parametrize("times", [[1, 0], [-1], [float("nan")], [float("inf")]])
def test_a_trace_that_falls_is_none(times: list[float]) -> None:  # A1
    with pytest.raises(ValueError, match="never fall"):
        trace(times)


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        trace([1], speed=speed)


@pytest.mark.parametrize(
    "stretches",
    [
        [],
        [Stretch(0, 1, 1)],
        [Stretch(1, -1, 1)],
        [Stretch(1, 1, float("nan"))],
        [Stretch(1, 1, 1e9)],
        [Stretch(-1, 1, 1), Stretch(3, 1, 1)],
        [Stretch(1e9, 1, 1)],
    ],
)
def test_what_is_no_shape_is_refused(stretches: list[Stretch]) -> None:
    with pytest.raises(ValueError, match=r"a shape lasts|a rate is"):
        checked(stretches)
