"""Who a brick serves next and whom it turns away: requests and times in, decisions out.

Method: a request here is a name, a deadline and a rank; times are plain numbers. A property test
runs whole storms through the inbox.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.inbox import TurnedAway
from bus.messages import Message, Ping, Refused
from roles.brick_inbox import (
    INTERVAL_S,
    LEAP,
    LEAP_S_MIN,
    RETRY_S_MAX,
    RETRY_S_MIN,
    TARGET_S,
    DeadlineInbox,
    PlainInbox,
)


@dataclass(frozen=True)
class Request:
    name: str
    until: float
    priority: int = 0
    message: Message = field(default=Ping(), repr=False)


def new_inbox(length_max: int = 100, *, service_s: float = 0.0) -> DeadlineInbox[Request]:
    inbox: DeadlineInbox[Request] = DeadlineInbox(length_max, lambda call: call.priority, 3)
    inbox.service_s = service_s
    return inbox


def names(turned_away: TurnedAway[Request]) -> list[tuple[str, str]]:
    return [(call.name, refused.reason) for call, refused in turned_away]


def taken(inbox: DeadlineInbox[Request], now: float) -> str:
    """The names in the order in which they are served, all at `now`."""
    order = ""
    while (call := inbox.take(now)[0]) is not None:
        order += call.name
        inbox.served(now)
    return order


def overloaded(service_s: float = 0.001) -> DeadlineInbox[Request]:
    """An inbox in which nobody waited less than the target for an interval; empty at 1.0."""
    inbox = new_inbox(service_s=service_s)
    for at in (0.0, INTERVAL_S):
        inbox.add(Request("x", 10.0), at - 2 * TARGET_S)
        inbox.take(at)
    assert inbox.is_overloaded
    return inbox


# Order.


def test_earliest_deadline_comes_first_and_of_equals_who_came_first() -> None:  # I2
    inbox = new_inbox()
    for name, until in [("c", 3.0), ("a", 1.0), ("d", 3.0), ("b", 2.0), ("e", 3.0)]:
        assert inbox.add(Request(name, until), 0.5) == ()
    assert len(inbox) == 5
    assert taken(inbox, 0.5) == "abcde"
    assert len(inbox) == 0


def test_rank_counts_for_nothing_until_there_is_overload() -> None:  # I3
    inbox = new_inbox()
    for name, until, rank in [("b", 2.0, 2), ("a", 1.0, 2), ("d", 3.0, 1), ("c", 2.0, 0)]:
        inbox.add(Request(name, until, rank), 0.5)
    assert taken(inbox, 0.5) == "abcd"


def test_greater_rank_comes_first_when_overloaded() -> None:  # I3
    inbox = overloaded()
    requests = [("d", 1.0, 1), ("e", 0.9, 2), ("b", 4.0, 0), ("a", 3.0, 0), ("c", 0.8, 1)]
    for name, until, rank in requests:
        inbox.add(Request(name, until, rank), 0.11)
    assert taken(inbox, 0.12) == "abcde"


def test_one_who_hardly_waited_ends_the_overload_with_the_interval() -> None:  # I3
    inbox = overloaded()
    inbox.add(Request("a", 10.0), 0.15)
    inbox.take(0.15)
    assert inbox.is_overloaded  # Of the interval before.
    inbox.add(Request("b", 10.0), 0.21)
    inbox.take(0.21)
    assert not inbox.is_overloaded


def test_overload_of_long_ago_is_over() -> None:  # I3
    inbox = overloaded()
    inbox.add(Request("a", 100.0), 50.0 - 2 * TARGET_S)
    inbox.take(50.0)
    assert not inbox.is_overloaded


# Who is turned away.


def test_who_would_wait_too_long_is_refused_on_arrival() -> None:  # I4
    inbox = new_inbox(service_s=0.1)
    for number in range(10):
        assert inbox.add(Request(str(number), 2.0), 0.99) == ()
    refused = inbox.add(Request("a", 1.98), 0.99)
    assert refused == [(Request("a", 1.98), Refused("busy", "not in time", retry_after_s=1.0))]
    assert inbox.add(Request("b", 2.0), 0.99) == ()
    assert (len(inbox), inbox.refused_hopeless) == (11, 1)


def test_when_overloaded_only_those_of_greater_or_equal_rank_are_before_one() -> None:  # I4
    inbox = overloaded(service_s=0.1)
    for _ in range(3):
        inbox.add(Request("x", 9.0, 1), 0.11)
    assert names(inbox.add(Request("a", 0.36, 1), 0.11)) == [("a", "busy")]
    assert names(inbox.add(Request("b", 0.36, 2), 0.11)) == [("b", "busy")]
    assert inbox.add(Request("c", 0.36, 0), 0.11) == ()


def test_who_finds_nobody_is_let_in_whatever_the_average_says() -> None:  # I4, I5
    inbox = new_inbox(service_s=5.0)
    assert inbox.add(Request("a", 1.06), 1.0) == ()
    assert inbox.take(1.0) == (Request("a", 1.06), [])


def test_turn_that_comes_too_late_is_refused() -> None:  # I5
    inbox = new_inbox(service_s=0.01)
    for name, until in [("a", 1.049), ("b", 1.04), ("c", 1.2)]:
        inbox.add(Request(name, until), 1.0)
    call, turned_away = inbox.take(1.04)
    assert call == Request("c", 1.2)
    assert names(turned_away) == [("b", "late"), ("a", "late")]
    assert turned_away[0][1].retry_after_s == RETRY_S_MIN
    assert inbox.refused_late == 2


def test_full_inbox_refuses_unless_a_lesser_rank_makes_room() -> None:  # I1
    inbox = new_inbox(2)
    inbox.add(Request("a", 5.0, 1), 1.0)
    inbox.add(Request("b", 6.0, 2), 1.0)
    assert names(inbox.add(Request("c", 1.5, 2), 1.0)) == [("c", "busy")]
    assert names(inbox.add(Request("d", 9.0, 1), 1.0)) == [("b", "busy")]
    assert names(inbox.add(Request("e", 1.5, 1), 1.0)) == [("e", "busy")]
    assert (len(inbox), inbox.refused_full) == (2, 3)
    assert taken(inbox, 1.0) == "ad"


def test_retry_after_is_how_long_those_waiting_take_within_reason() -> None:
    inbox = new_inbox(100, service_s=0.05)
    for _ in range(6):
        inbox.add(Request("x", 100.0), 1.0)
    assert inbox.add(Request("a", 1.1), 1.0)[0][1].retry_after_s == pytest.approx(0.3)
    inbox.service_s = 10.0
    assert inbox.add(Request("a", 1.1), 1.0)[0][1].retry_after_s == RETRY_S_MAX


# How long one takes.


def test_average_follows_what_requests_take_with_all_that_is_between_them() -> None:
    inbox, now = new_inbox(1000), 0.0
    for _ in range(300):
        inbox.add(Request("x", 1e9), now)
    for _ in range(300):
        inbox.take(now)
        now += 0.002
        inbox.served(now)
    assert inbox.service_s == pytest.approx(0.002)


def test_time_without_work_does_not_count() -> None:
    inbox = new_inbox()
    for at in (0.0, 50.0, 100.0):
        inbox.add(Request("x", 1e9), at)
        inbox.take(at)
        inbox.served(at + 0.001)
    assert inbox.service_s == pytest.approx(0.001)


def test_one_pause_does_not_make_a_slow_brick() -> None:
    inbox = new_inbox(service_s=0.0001)
    inbox.add(Request("x", 1e9), 0.0)
    inbox.take(0.0)
    inbox.served(5.0)
    assert inbox.service_s < 0.001
    assert LEAP * 0.0001 < LEAP_S_MIN


@given(st.floats(min_value=1e-5, max_value=1.0), st.floats(min_value=1e-5, max_value=100.0))
def test_a_wrong_average_corrects_itself(wrong_s: float, budget_s: float) -> None:  # I5
    """However wrong it is, and though everyone is refused by it: some are tried."""
    inbox, now, true_s = new_inbox(service_s=wrong_s), 0.0, 0.001
    for _ in range(1000):
        for _ in range(3):
            inbox.add(Request("x", now + budget_s), now)
        call, _ = inbox.take(now)
        assert call is not None
        now += true_s
        inbox.served(now)
    assert inbox.service_s == pytest.approx(true_s, rel=0.05)


# A storm.


@given(
    st.lists(st.tuples(st.floats(0, 0.01), st.floats(0.001, 0.1), st.integers(0, 2)), max_size=300),
    st.floats(0.0001, 0.02),
    st.integers(1, 50),
)
def test_everyone_is_served_or_turned_away_once_and_never_too_many_wait(
    arrivals: list[tuple[float, float, int]], service_s: float, length_max: int
) -> None:
    inbox = new_inbox(length_max)
    ended: list[str] = []
    now = free_at = 0.0

    def work(until: float) -> None:
        nonlocal free_at
        while len(inbox) and free_at < until:
            call, turned_away = inbox.take(free_at)
            ended.extend(name for name, _ in names(turned_away))
            if call is not None:
                ended.append(call.name)
                free_at += service_s
                inbox.served(free_at)

    for number, (gap_s, budget_s, rank) in enumerate(arrivals):
        now += gap_s
        work(now)
        free_at = max(free_at, now)
        call = Request(str(number), now + budget_s, rank)
        ended.extend(name for name, _ in names(inbox.add(call, now)))
        assert len(inbox) <= length_max  # I1
    work(1e9)
    assert sorted(ended) == sorted(str(number) for number in range(len(arrivals)))


# Without protection.


def test_plain_inbox_serves_all_in_order_however_late() -> None:
    inbox: PlainInbox[Request] = PlainInbox(3)
    for name in "abc":
        assert inbox.add(Request(name, 1.0), 0.0) == ()
    assert names(inbox.add(Request("d", 1.0), 0.0)) == [("d", "busy")]
    calls = []
    while (call := inbox.take(99.0)[0]) is not None:
        inbox.served(99.0)
        calls.append(call.name)
    assert calls == ["a", "b", "c"]
    assert (len(inbox), inbox.refused_full) == (0, 1)


@pytest.mark.parametrize("plain", [False, True], ids=["deadline", "plain"])
def test_waits_and_work_are_added_up_for_those_that_are_served(*, plain: bool) -> None:
    inbox: DeadlineInbox[Request] | PlainInbox[Request] = PlainInbox() if plain else new_inbox()
    for name, added_at in (("a", 1.0), ("b", 1.5)):
        inbox.add(Request(name, 10.0), added_at)
    for taken_at, served_at in ((2.0, 2.25), (2.5, 3.0)):
        inbox.take(taken_at)
        inbox.served(served_at)
    inbox.take(4.0)
    assert (inbox.taken, inbox.waited_s, inbox.busy_s) == (2, 2.0, 0.75)


def test_those_turned_away_at_their_turn_count_as_neither() -> None:
    inbox = new_inbox()
    inbox.add(Request("a", 1.2), 1.0)
    inbox.add(Request("b", 9.0), 1.0)
    inbox.service_s = 0.5
    assert inbox.take(1.1)[0] == Request("b", 9.0)
    assert (inbox.taken, round(inbox.waited_s, 6)) == (1, 0.1)
