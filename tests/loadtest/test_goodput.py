"""What became of requests: counts in, goodput, latencies and recovery out.

Method: outcomes are made by hand, interval by interval; histograms are compared with sorted lists.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.goodput import Interval, Outcome, merged, recovery_s
from loadtest.goodput_seconds import GoodputSeconds
from loadtest.histogram import PER_DOUBLING, Histogram
from loadtest.runner import percentile

LATENCIES = st.lists(st.floats(min_value=1e-6, max_value=1e4), min_size=1, max_size=200)


def histogram(latencies_s: list[float]) -> Histogram:
    found = Histogram({})
    for each in latencies_s:
        found.add(each)
    return found


@given(LATENCIES, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_percentile_is_at_most_a_bucket_above_the_true_one(  # H1
    latencies_s: list[float], share: float
) -> None:
    found, true = histogram(latencies_s).percentile(share), percentile(latencies_s, share)
    assert found is not None
    assert true * (1 - 1e-9) <= found <= true * 2 ** (1 / PER_DOUBLING) * (1 + 1e-9)


@given(LATENCIES, LATENCIES)
def test_two_merged_are_the_histogram_of_both(one: list[float], other: list[float]) -> None:  # H2
    both = histogram(one)
    both.merge(histogram(other))
    assert both == histogram(one + other)


def test_there_is_no_percentile_of_nothing() -> None:
    assert Histogram({}).percentile(0.5) is None


def test_every_request_has_one_fate_in_the_interval_it_was_meant_for() -> None:  # G1
    outcome = Outcome.of(1.0, 0.1, 0.06)
    outcome.done(0.05, 0.06)
    outcome.done(0.05, 0.0601)
    outcome.refused(0.15, 0.0)
    outcome.refused(0.15, 0.06)  # The stub gave it up when its time was over.
    outcome.add(0.15, "unstarted")
    outcome.failed(0.999, "StateLost")
    outcome.failed(1.0, "StateLost")  # The very end belongs to the last interval.
    assert len(outcome.intervals) == 10
    assert outcome.intervals[0] == Interval(good=1, late=1, latencies=histogram([0.06, 0.0601]))
    assert outcome.intervals[1] == Interval(refused=1, late=1, unstarted=1)
    assert outcome.intervals[9] == Interval(failed=2)
    assert outcome.errors == {"StateLost": 2}
    assert (outcome.total().offered, outcome.total(0.1, 0.2).offered) == (7, 3)
    assert (outcome.latencies.total, outcome.total(0.1, 0.2).latencies.total) == (2, 0)


def test_what_is_done_late_is_not_good() -> None:  # G2
    outcome = Outcome.of(1.0, 1.0, 0.06)
    outcome.done(0.0, 0.07)
    assert (outcome.total().good, outcome.total().late, outcome.latencies.total) == (0, 1, 1)


def test_what_several_generators_saw_is_added_up() -> None:  # G1, H2
    first, second = Outcome.of(0.2, 0.1, 0.06), Outcome.of(0.2, 0.1, 0.06)
    first.done(0.0, 0.001)
    first.failed(0.1, "Bad")
    second.done(0.1, 0.001)
    second.failed(0.1, "Bad")
    first.cpu_share, second.cpu_share = 0.2, 0.3
    whole = merged([first, second])
    one = histogram([0.001])
    assert whole.intervals == [
        Interval(good=1, latencies=one),
        Interval(good=1, failed=2, latencies=one),
    ]
    assert (whole.errors, whole.cpu_share, whole.latencies.total) == ({"Bad": 2}, 0.3, 2)


def storm(good_after: list[int]) -> Outcome:
    """Ten a tenth of a second; a second before, half a second of storm, and after."""
    good = [10] * 10 + [5] * 5 + good_after
    return Outcome(0.1, 0.06, [Interval(good=each, refused=10 - each) for each in good], {})


@pytest.mark.parametrize(
    ("good_after", "recovered_s"),
    [
        ([10] * 10, 0.0),
        ([0, 3, 10, 10, 10, 10], 0.2),
        ([0, 10, 10, 0, 10, 10, 10], 0.4),
        ([9] * 10, None),
        ([10, 10], None),
    ],
)
def test_recovery_is_the_first_window_that_is_as_before(
    good_after: list[int], recovered_s: float | None
) -> None:
    found = recovery_s(storm(good_after), before_s=1.0, storm_s=0.5, share=0.95, window_s=0.3)
    assert found == recovered_s


def test_seconds_of_several_processes_are_counted_once() -> None:  # S1
    here, there = GoodputSeconds(), GoodputSeconds()
    for second, is_good in ((7, True), (7, False), (8, True)):
        here.add(second, is_good=is_good)
        there.add(second, is_good=is_good)
    here.merge(there.taken())
    here.merge(there.taken())
    assert here.rows() == [(7, 4, 2), (8, 2, 2)]
    assert here.told() == "goodput 2.0/s of 3.0/s offered (66.67 % within the timeout)"


def test_seconds_are_drawn_with_those_in_which_nothing_was_asked() -> None:
    seconds = GoodputSeconds()
    for second, is_good in ((7, True), (7, False), (9, True)):
        seconds.add(second, is_good=is_good)
    drawn = seconds.section()
    assert "goodput 0.7/s of 1.0/s offered" in drawn
    assert 'points="0.0,0.0 450.0,240.0 900.0,120.0"' in drawn, "offered: 2, 0, 1"
    assert 'points="0.0,120.0 450.0,240.0 900.0,120.0"' in drawn, "good: 1, 0, 1"
