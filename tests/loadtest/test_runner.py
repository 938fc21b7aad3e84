"""The figures of a benchmark: medians, ratios and percentiles, from samples written out here."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from loadtest.runner import (
    Case,
    Measured,
    Sample,
    figures,
    middle,
    percentile,
    ratio,
    sample,
    turned,
)


def samples(contestant: str, *rates: float, case: str = "64x256") -> list[Sample]:
    """One sample a round, with the given rates."""
    return [
        Sample(number, contestant, case, rate, None, 1.0, 1.0) for number, rate in enumerate(rates)
    ]


def test_measured_figures_are_for_each_second_and_each_message() -> None:
    measured = Measured(
        messages=200, elapsed_s=0.5, client_cpu_s=0.002, server_cpu_s=0.004, p50_us=70.0
    )
    assert sample(3, "ours", Case(64, 1), measured) == Sample(
        round=3,
        contestant="ours",
        case="64x1",
        per_s=400.0,
        p50_us=70.0,
        client_cpu_us=10.0,
        server_cpu_us=20.0,
    )


def test_nothing_answered_is_a_rate_of_zero_and_no_error() -> None:
    measured = Measured(messages=0, elapsed_s=1.0, client_cpu_s=0.5, server_cpu_s=0.0)
    assert sample(0, "ours", Case(64, 1), measured).per_s == 0


def test_ratio_is_the_median_of_the_ratios_of_single_rounds() -> None:
    # The ratios are 2, 2 and 0.5. The ratio of the medians would be 20 / 40 = 0.5: it compares
    # our slow first round with the peer's fast last one.
    ours = samples("ours", 20, 200, 20)
    peer = samples("raw", 10, 100, 40)
    assert ratio(ours + peer, "64x256", "per_s", ours="ours", peer="raw") == 2


def test_ratio_leaves_out_rounds_that_only_one_contestant_was_measured_in() -> None:
    both = samples("ours", 30, 1) + samples("raw", 10)
    assert ratio(both, "64x256", "per_s", ours="ours", peer="raw") == 3


def test_contestant_that_was_not_measured_has_no_figure() -> None:
    ours = samples("ours", 1, 2, 3)
    assert ratio(ours, "64x256", "per_s", ours="ours", peer="zerorpc") is None
    assert middle(ours, "zerorpc", "64x256", "per_s") is None
    assert middle(ours, "ours", "64x1", "per_s") is None


def test_figures_are_of_one_case_alone() -> None:
    both = samples("ours", 1, 2) + samples("ours", 7, 8, case="64x1")
    assert figures(both, "ours", "64x1", "per_s") == {0: 7, 1: 8}
    assert middle(both, "ours", "64x256", "per_s") == 1.5


def test_no_contestant_is_always_first() -> None:
    assert [turned(["a", "b", "c"], number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert turned([], 1) == []


def test_percentile_is_the_smallest_value_that_enough_values_do_not_exceed() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([4.0, 3.0, 2.0, 1.0], 0.5) == 2
    assert percentile([1.0, 2.0], 0.0) == 1
    assert percentile([1.0, 2.0], 1.0) == 2


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.integers(0, 100))
def test_percentile_agrees_with_counting(values: list[int], percent: int) -> None:
    found = percentile([float(value) for value in values], percent / 100)
    enough = [
        value
        for value in sorted(values)
        if 100 * sum(other <= value for other in values) >= percent * len(values)
    ]
    assert found == enough[0]


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9))
def test_ratio_to_itself_is_one_whatever_the_noise(rates: list[float]) -> None:
    both = samples("ours", *rates) + samples("raw", *rates)
    assert ratio(both, "64x256", "per_s", ours="ours", peer="raw") == 1
    assert middle(both, "raw", "64x256", "per_s") == round(median(rates), 3)
