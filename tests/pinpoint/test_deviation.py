"""Goal: the median absolute deviation is right for any group, and no number breaks it.

Method: hypothesis compares with the formula written down as plainly as possible.
"""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinpoint.catalogue import Judged
from pinpoint.deviation import (
    GROUP_MIN,
    SCORE_MAX,
    THRESHOLD,
    VALUE_MAX,
    Reference,
    factor,
    is_sound,
    reference,
)

FACTORS = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}

sound = st.floats(0, VALUE_MAX)
judgeds = st.builds(
    Judged,
    name=st.sampled_from(["reads_per_s", "bytes_in_per_s", "service_s"]),
    group=st.just("some"),
    kind=st.just("activity"),
    high=st.just(True),  # noqa: FBT003
    floor=st.floats(0, 1e6),
    relative=st.floats(0, 1),
)


def slowly(judged: Judged, values: list[float]) -> Reference:
    median = statistics.median(values)
    mad = statistics.median([abs(value - median) for value in values])
    count = len(values)
    scale = 1.4826 * (FACTORS[count] if count < 10 else count / (count - 0.8)) * mad
    scale = max(scale, judged.floor, judged.relative * median)
    if judged.name == "reads_per_s":
        scale = max(scale, math.sqrt(median), 1.0)
    return Reference(median, scale or 1.0, count)


@given(judgeds, st.lists(sound, min_size=GROUP_MIN, max_size=60))
def test_reference_is_what_the_formula_says(judged: Judged, values: list[float]) -> None:
    found = reference(judged, sorted(values))
    assert found is not None
    assert found == pytest.approx(slowly(judged, values))


def test_reference_of_a_thousand_is_what_the_formula_says() -> None:
    judged = Judged(name="service_s", group="service", kind="activity", high=True)
    values = [((7 * number) % 1000) ** 1.5 for number in range(1000)]
    assert reference(judged, sorted(values)) == pytest.approx(slowly(judged, values))


def test_factor_is_croux_and_rousseeuws_and_falls_to_one() -> None:
    assert {count: factor(count) for count in FACTORS} == FACTORS
    assert factor(10) == pytest.approx(10 / 9.2)
    assert factor(1000) == pytest.approx(1.0008, abs=1e-4)


@given(judgeds, st.lists(sound, max_size=GROUP_MIN - 1))
def test_two_have_no_majority(judged: Judged, values: list[float]) -> None:
    assert reference(judged, sorted(values)) is None


def test_a_number_that_cannot_be_is_not_sound() -> None:
    cannot_be = [None, math.nan, math.inf, -math.inf, -1.0, 1e300]
    assert [is_sound(each) for each in cannot_be] == [False] * 6
    assert [is_sound(each) for each in (0.0, 5e-324, VALUE_MAX)] == [True] * 3


@given(judgeds, st.lists(sound, min_size=GROUP_MIN, max_size=20), sound)
def test_a_score_is_finite_whatever_is_compared(
    judged: Judged, values: list[float], value: float
) -> None:
    found = reference(judged, sorted(values))
    assert found is not None
    assert -SCORE_MAX <= found.score(value) <= SCORE_MAX
    assert math.isfinite(found.high)
    assert math.isfinite(found.low)


def test_two_bad_ones_of_six_do_not_hide_each_other() -> None:
    judged = Judged(name="service_s", group="service", kind="activity", high=True)
    values = sorted([1.0, 1.01, 1.02, 0.99, 50.0, 60.0])
    found = reference(judged, values)
    assert found is not None
    assert [value > found.high for value in values] == [False] * 4 + [True] * 2
    mean, deviation = statistics.mean(values), statistics.pstdev(values)
    assert (60.0 - mean) / deviation < THRESHOLD  # What they would do to a mean.


def test_peers_that_are_exactly_alike_leave_room_for_the_floor() -> None:
    judged = Judged(name="queue_s", group="queue", kind="activity", high=True, floor=0.001)
    found = reference(judged, [0.0] * 6)
    assert found == Reference(0.0, 0.001, 6)
    assert found.high == pytest.approx(0.0035)


def test_chance_of_counts_is_allowed_for() -> None:
    judged = Judged(name="writes_per_s", group="work", kind="activity", low=True)
    found = reference(judged, [100.0] * 6)
    assert found == Reference(100.0, 10.0, 6)
