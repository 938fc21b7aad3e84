"""Statistics: what a sample and an exposition hold, whatever the roles do.

Method: declare, bump, sample at times written out here, and compare whole outputs.
"""

import math
import timeit
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.statistics import INTERVAL_S_MIN, STATISTICS_MAX, Family, Statistics


def raises() -> float:
    raise OSError("gone")


def test_sample_holds_rates_per_second_and_sizes_as_they_are_and_no_counters() -> None:
    statistics = Statistics()
    reads = statistics.rate("reads", "Reads answered")
    drops = statistics.counter("drops", "Frames dropped")
    inbox = statistics.size("inbox_length", "Requests waiting")
    statistics.size("age_s", "Age", read=lambda: 7)
    statistics.sample(100.0)
    reads.add()
    reads.add(9)
    drops.add(3)
    inbox.set(4)
    assert statistics.sample(104.0) == {"reads_per_s": 2.5, "inbox_length": 4.0, "age_s": 7.0}


def test_first_sample_leaves_rates_out() -> None:
    statistics = Statistics()
    statistics.rate("reads", "Reads answered").add(5)
    statistics.size("inbox_length", "Requests waiting").set(1)
    assert statistics.sample(0.0) == {"inbox_length": 1.0}


def test_each_addition_counts_in_exactly_one_interval() -> None:
    statistics = Statistics()
    reads = statistics.rate("reads", "Reads answered")
    statistics.sample(10.0)
    reads.add(6)
    assert statistics.sample(12.0) == {"reads_per_s": 3.0}
    assert statistics.sample(14.0) == {"reads_per_s": 0.0}


def test_counts_that_somebody_else_keeps_are_read_at_each_sample() -> None:
    statistics = Statistics()
    kept = [0]
    statistics.rate("reads", "Reads answered", lambda: kept[0])
    statistics.counter("drops", "Frames dropped", lambda: 3 * kept[0])
    statistics.sample(10.0)
    kept[0] = 11
    assert statistics.sample(12.0) == {"reads_per_s": 5.5}
    kept[0] = 12
    assert [family.value for family in statistics.families()] == [0.0, 12.0, 36.0]
    assert statistics.sample(13.0) == {"reads_per_s": 1.0}


def test_share_is_of_what_grew_since_the_last_sample_and_of_no_other_time() -> None:
    statistics = Statistics()
    waited_s, count = [5.0], [100]
    statistics.share("wait_s", "Mean wait", lambda: (waited_s[0], count[0]))
    assert statistics.sample(10.0) == {"wait_s": 0.0}
    waited_s[0] += 6.0
    count[0] += 3
    assert statistics.families()[1].value == 0.0  # A scraper ends no interval.
    assert statistics.sample(11.0) == {"wait_s": 2.0}
    waited_s[0] += 1.0
    count[0] += 1
    assert statistics.sample(11.0 + INTERVAL_S_MIN / 2) == {"wait_s": 2.0}
    assert statistics.families()[1].value == 2.0
    assert statistics.sample(12.0) == {"wait_s": 1.0}
    assert statistics.sample(13.0) == {"wait_s": 0.0}  # Of nothing.


def test_share_that_cannot_be_read_is_left_out_and_counted() -> None:
    statistics = Statistics()
    statistics.share("wait_s", "Mean wait", lambda: (raises(), 1.0))
    assert statistics.sample(10.0) == {}
    assert _failed(statistics) == 1.0


def test_sample_too_soon_repeats_the_last_rate_and_loses_nothing() -> None:
    statistics = Statistics()
    reads = statistics.rate("reads", "Reads answered")
    statistics.sample(10.0)
    reads.add(2)
    assert statistics.sample(12.0) == {"reads_per_s": 1.0}
    reads.add(3)
    assert statistics.sample(12.0) == {"reads_per_s": 1.0}
    assert statistics.sample(12.0 + INTERVAL_S_MIN / 2) == {"reads_per_s": 1.0}
    assert statistics.sample(13.0) == {"reads_per_s": 3.0}


def test_rate_declared_after_the_first_sample_is_in_the_next() -> None:
    statistics = Statistics()
    statistics.sample(10.0)
    statistics.rate("reads", "Reads answered").add(4)
    assert statistics.sample(12.0) == {"reads_per_s": 2.0}


@pytest.mark.parametrize(
    "read",
    [
        raises,
        lambda: math.nan,
        lambda: math.inf,
        lambda: -math.inf,
        lambda: "7",
        lambda: None,
        lambda: 10**400,
    ],
    ids=["raises", "nan", "inf", "minus-inf", "text", "none", "too-great"],
)
def test_bad_reading_is_left_out_and_counted(read: Callable[[], float]) -> None:
    statistics = Statistics()
    statistics.size("bad", "Lies", read=read)
    statistics.size("good", "Does not", read=lambda: 2)
    assert statistics.sample(0.0) == {"good": 2.0}
    assert statistics.families() == [
        Family("softstate_statistics_failed", "counter", _FAILED_HELP, 1.0),
        Family("softstate_good", "gauge", "Does not", 2.0),
    ]
    assert _failed(statistics) == 2.0


def test_counter_that_went_down_is_left_out_and_counted_once() -> None:
    statistics = Statistics()
    reads = statistics.rate("reads", "Reads answered")
    statistics.sample(0.0)
    reads.add(-5)
    assert statistics.sample(1.0) == {}
    assert _failed(statistics) == 1.0
    reads.add(2)
    assert statistics.sample(2.0) == {"reads_per_s": 2.0}


def test_families_carry_the_names_prometheus_expects() -> None:
    statistics = Statistics()
    statistics.rate("reads", "Reads answered").add(2)
    statistics.counter("drops", "Frames dropped")
    statistics.size("wait_s", "Longest wait").set(0.5)
    statistics.size("rss_bytes", "Memory").set(1024)
    assert statistics.families() == [
        Family("softstate_statistics_failed", "counter", _FAILED_HELP, 0.0),
        Family("softstate_reads", "counter", "Reads answered", 2.0),
        Family("softstate_drops", "counter", "Frames dropped", 0.0),
        Family("softstate_wait_seconds", "gauge", "Longest wait", 0.5),
        Family("softstate_rss_bytes", "gauge", "Memory", 1024.0),
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "words of a-z"),
        ("Reads", "words of a-z"),
        ("reads-ok", "words of a-z"),
        ("reads_", "words of a-z"),
        ("_reads", "words of a-z"),
        ("reads\n", "words of a-z"),
        ("reads_64", "words of a-z"),
        ("läsningar", "words of a-z"),
        ("r" * 49, "words of a-z"),
        ("reads_total", "leave out the ending"),
        ("reads_per_s", "leave out the ending"),
        ("wait_ms", "end the name in '_s', not '_ms'"),
        ("heap_mb", "end the name in '_bytes', not '_mb'"),
    ],
)
def test_bad_name_is_refused_with_what_to_do(name: str, says: str) -> None:
    statistics = Statistics()
    for declare in (statistics.counter, statistics.rate, statistics.size):
        with pytest.raises(ValueError, match=says):
            declare(name, "Something")


@pytest.mark.parametrize("text", ["", "  ", "two\nlines"])
def test_statistic_without_one_line_of_help_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        Statistics().rate("reads", text)


def test_name_declared_twice_is_refused_whatever_the_kind() -> None:
    statistics = Statistics()
    statistics.rate("reads", "Reads answered")
    with pytest.raises(ValueError, match="declared already"):
        statistics.size("reads", "Reads under way")


def test_number_of_statistics_is_limited() -> None:
    statistics = Statistics()  # Declares one itself.
    names = [a + b + "_length" for a in "abcdefgh" for b in "abcdefgh"]
    for name in names[: STATISTICS_MAX - 1]:
        statistics.size(name, "One of many")
    with pytest.raises(ValueError, match="may have 64 statistics"):
        statistics.size("one_more", "One too many")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False, min_value=-1e3, max_value=1e9),
            st.integers(-10, 10**20),
            st.floats() | st.integers(),
        ),
        max_size=20,
    )
)
def test_sample_is_always_finite(steps: list[tuple[float, int, float]]) -> None:
    statistics = Statistics()
    reads = statistics.rate("reads", "Reads answered")
    size = statistics.size("size", "Anything at all")
    for now, count, value in steps:
        reads.add(count)
        size.set(value)
        assert all(math.isfinite(value) for value in statistics.sample(now).values())


def test_add_is_cheap_enough_for_a_hot_path() -> None:
    add = Statistics().rate("reads", "Reads answered").add
    best_s = min(timeit.repeat(add, number=20_000, repeat=5)) / 20_000
    assert best_s < 1e-6  # 50 ns measured; the bound only tells an addition from a lock or a dict.


_FAILED_HELP = "Readings of a statistic that raised or were no finite number"


def _failed(statistics: Statistics) -> float:
    return statistics.families()[0].value
