"""How long a message waited in queues nobody sees.

Method: a sender's clock is ours plus an offset; the test delays messages by known times and
compares the estimate. Times are microseconds, as on the wire, written out in full.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.delay import QUEUED_US_MAX, SKEW, WINDOW_US, QueueDelay, QueueDelays

OFFSET_US = 7_000_000_000_000  # Sender's clock less ours: eighty days.
TRAVEL_US = 200
SECOND_US = 1_000_000


def heard(
    path: QueueDelay, arrived_us: int, *, waited_us: int = 0, offset_us: int = OFFSET_US
) -> float:
    return path.queued_s(arrived_us - TRAVEL_US - waited_us + offset_us, arrived_us)


def path_at(arrived_us: int) -> QueueDelay:
    return QueueDelay(arrived_us - TRAVEL_US + OFFSET_US, arrived_us)


def test_message_that_waited_is_told_from_one_that_did_not() -> None:
    path = path_at(0)
    assert [heard(path, 1000), heard(path, 2000, waited_us=50_000), heard(path, 3000)] == [
        0.0,
        0.05,
        0.0,
    ]


def test_quicker_message_becomes_the_measure_at_once() -> None:
    path = QueueDelay(-30_000 + OFFSET_US, 0)  # The first message waited; nobody can tell.
    assert heard(path, 1000) == 0.0
    assert heard(path, 2000, waited_us=10_000) == 0.01


def test_minimum_of_the_window_before_still_counts_and_is_then_forgotten() -> None:
    path = path_at(0)
    slow = {"waited_us": 40_000}
    in_turn = [heard(path, at_s * SECOND_US, **slow) for at_s in (29, 30, 59, 60, 61)]
    assert in_turn == [0.04, 0.04, 0.04, 0.0, 0.0]


def test_backlog_of_our_own_pause_is_seen_to_have_waited() -> None:
    path = path_at(0)
    resumed_us = 300 * SECOND_US  # We were stopped for five minutes, ten windows.
    first = heard(path, resumed_us, waited_us=299 * SECOND_US)
    last = heard(path, resumed_us, waited_us=1 * SECOND_US)
    assert [first, last] == pytest.approx([299, 1], abs=0.1)


def test_clocks_of_unlike_rate_add_little_even_after_an_idle_hour() -> None:
    path = path_at(0)
    estimates = []
    for at_s in [*range(0, 300, 5), 3900, *range(3905, 4200, 5)]:
        at_us = at_s * SECOND_US
        behind_us = int(at_us * SKEW)  # The sender's clock runs slow, so its messages look late.
        estimates.append(heard(path, at_us, offset_us=OFFSET_US - behind_us))
    assert max(estimates) <= 2 * WINDOW_US * SKEW / SECOND_US + 0.001


def test_clock_that_jumps_back_misleads_for_two_windows_at_most() -> None:
    path = path_at(0)
    jumped = OFFSET_US - 5 * SECOND_US
    estimates = [heard(path, at_s * SECOND_US, offset_us=jumped) for at_s in range(1, 62)]
    assert estimates[0] == 5.0
    assert estimates[-1] == 0.0


def test_clock_that_jumps_absurdly_is_believed_at_once() -> None:
    path = path_at(0)
    jumped = OFFSET_US - QUEUED_US_MAX - 1
    assert heard(path, 1000, offset_us=jumped) == 0.0
    assert heard(path, 2000, offset_us=jumped, waited_us=3000) == 0.003


def test_clock_that_jumps_forward_gives_no_negative_wait() -> None:
    path = path_at(0)
    assert heard(path, 1000, offset_us=OFFSET_US + 10 * SECOND_US) == 0.0


any_us = st.integers(-(2**64), 2**64) | st.integers(0, 200 * SECOND_US)


@given(st.lists(st.tuples(any_us, any_us), min_size=1, max_size=50))
def test_no_estimate_is_negative_or_beyond_its_limit_whatever_clocks_say(
    stamps: list[tuple[int, int]],
) -> None:
    delays = QueueDelays()
    for sent_us, arrived_us in stamps:
        queued_s = delays.queued_s(b"liar", sent_us, arrived_us)
        assert 0.0 <= queued_s <= QUEUED_US_MAX / SECOND_US


def test_another_connection_is_fresh() -> None:
    delays = QueueDelays()
    assert delays.queued_s(b"1", 5000, 5000) == 0.0
    assert delays.queued_s(b"1", 5000, 9000) == 0.004
    assert delays.queued_s(b"2", 5000, 9000) == 0.0


def test_connection_least_recently_heard_is_forgotten_when_there_are_too_many() -> None:
    delays = QueueDelays(paths_max=2)
    for connection in (b"a", b"b", b"a", b"c"):  # "a" was heard again, so it is "b" that goes.
        delays.queued_s(connection, 0, 0)
    assert len(delays) == 2
    assert delays.queued_s(b"a", 0, 1000) == 0.001
    assert delays.queued_s(b"b", 0, 1000) == 0.0
