"""Delivered once, in any order.

Method: the property test runs the window beside an obvious one that remembers every number
in a set; the others write out one case each.
"""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from bus.window import WIDTH, DeliveryWindows

ABSURD = 2**63


def delivered(
    windows: DeliveryWindows, sequences: Iterable[int], incarnation: int = 1
) -> list[int]:
    return [n for n in sequences if windows.first_time("brick-1", incarnation, n)]


class ObviousWindows:
    """Remembers everything, for ever."""

    def __init__(self) -> None:
        self.incarnation: dict[str, int] = {}
        self.heard: dict[tuple[str, int], set[int]] = {}

    def first_time(self, sender: str, incarnation: int, sequence: int) -> bool:
        if incarnation < self.incarnation.get(sender, incarnation) or sequence < 0:
            return False
        self.incarnation[sender] = incarnation
        heard = self.heard.setdefault((sender, incarnation), set())
        if sequence in heard or sequence <= max(heard, default=0) - WIDTH:
            return False
        heard.add(sequence)
        return True


near = st.integers(0, 40)
edges = st.integers(WIDTH - 3, WIDTH + 3) | st.integers(2 * WIDTH - 3, 2 * WIDTH + 3)
absurd = st.integers(ABSURD - 3, ABSURD + 3) | st.integers(-3, -1)
messages = st.tuples(st.sampled_from("ab"), st.integers(1, 3), near | near | edges | absurd)


@given(st.lists(messages, max_size=200))
def test_window_delivers_what_a_set_that_remembers_everything_would(
    heard: list[tuple[str, int, int]],
) -> None:
    windows, obvious = DeliveryWindows(), ObviousWindows()
    assert [windows.first_time(*m) for m in heard] == [obvious.first_time(*m) for m in heard]


def test_each_message_of_two_hubs_is_delivered_once() -> None:
    windows = DeliveryWindows()
    both_hubs = [n for n in range(3000) for _ in range(2)]
    assert delivered(windows, both_hubs) == list(range(3000))
    assert windows.repeated == 3000


def test_what_one_hub_lost_the_other_may_bring_late() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [0, 1, 5, 1, 3, 2, 4, 3]) == [0, 1, 5, 3, 2, 4]


def test_oldest_number_in_the_window_is_delivered_and_the_one_before_it_is_stale() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [5000, 5000 - WIDTH + 1, 5000 - WIDTH]) == [5000, 5000 - WIDTH + 1]
    assert (windows.stale, windows.repeated) == (1, 0)


def test_number_behind_the_window_is_stale_even_if_it_was_heard_before() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [7, 7 + WIDTH, 7]) == [7, 7 + WIDTH]
    assert windows.stale == 1


def test_greater_incarnation_begins_anew_and_a_lesser_one_is_refused() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [900, 901], incarnation=4) == [900, 901]
    assert delivered(windows, [0, 1], incarnation=5) == [0, 1]
    assert delivered(windows, [902], incarnation=4) == []
    assert windows.outdated == 1


def test_absurd_leap_costs_no_memory_and_is_a_message_like_any_other() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [3, ABSURD, ABSURD, ABSURD * 2**40, -1, 3]) == [
        3,
        ABSURD,
        ABSURD * 2**40,
    ]
    assert (windows.repeated, windows.stale) == (1, 2)


def test_window_takes_no_more_memory_the_longer_it_is_used() -> None:
    windows = DeliveryWindows()
    delivered(windows, range(10 * WIDTH))
    assert windows._heard["brick-1"].bits == 2**WIDTH - 1


def test_negative_number_is_refused_from_a_new_and_from_a_known_sender() -> None:
    windows = DeliveryWindows()
    assert delivered(windows, [-1, 0, -1]) == [0]
    assert windows.stale == 2


def test_sender_least_recently_heard_is_forgotten_when_there_are_too_many() -> None:
    windows = DeliveryWindows(senders_max=2)
    for sender in ("a", "b", "a", "c"):  # "a" was heard again, so it is "b" that goes.
        windows.first_time(sender, 1, 0)
    assert (len(windows), windows.forgotten) == (2, 1)
    assert not windows.first_time("a", 1, 0)
    assert windows.first_time("b", 1, 0)


def test_restarted_sender_counts_as_recently_heard() -> None:
    windows = DeliveryWindows(senders_max=2)
    for sender, incarnation in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        windows.first_time(sender, incarnation, 0)
    assert not windows.first_time("a", 2, 0)
