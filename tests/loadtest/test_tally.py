"""What a subscriber counts as received, lost and repeated, against a set of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.tally import Tally


def tallied(*batches: list[int]) -> Tally:
    tally = Tally()
    for batch in batches:
        tally.add(batch)
    return tally


def test_everything_from_the_first_number_on_is_nothing_lost() -> None:
    tally = tallied([5, 6], [], [7, 8])
    assert tally == Tally(first=5, next=9, received=4, repeated=0)
    assert tally.lost(sent=9) == 0


def test_gap_within_and_between_batches_is_lost() -> None:
    assert tallied([0, 2], [3, 5]).lost(sent=6) == 2


def test_missing_tail_is_lost() -> None:
    assert tallied([0, 1]).lost(sent=10) == 8


def test_subscriber_that_heard_nothing_lost_everything() -> None:
    assert tallied().lost(sent=10) == 10


def test_repeated_number_is_counted_and_hides_no_loss() -> None:
    tally = tallied([0, 1, 1, 3])
    assert (tally.repeated, tally.lost(sent=4)) == (1, 1)


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(1, 7))
def test_tally_agrees_with_a_set(numbers: set[int], batch: int) -> None:
    ordered = sorted(numbers)
    tally = tallied(*(ordered[at : at + batch] for at in range(0, len(ordered), batch)))
    assert tally.received == len(numbers)
    assert tally.lost(sent=60) == len(set(range(ordered[0], 60)) - numbers)
