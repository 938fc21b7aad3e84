"""Acts of owners that can and that cannot have been right, written out."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.lease_acts import Act, problems


def act(owner: str, number: int, begin_at: float, end_at: float, key: str = "k") -> Act:
    return Act(owner, key, number, begin_at, end_at)


def test_owners_that_follow_each_other_are_right() -> None:
    acts = [act("a", 1, 0, 1), act("a", 1, 2, 3), act("b", 2, 3, 4), act("a", 5, 4, 9)]
    assert problems([*acts, act("b", 4, 0, 9, "another key")]) == []


def test_two_lives_that_act_at_the_same_time_are_found() -> None:
    (problem,) = problems([act("a/1", 1, 0, 10), act("a/1", 1, 2, 3), act("a/2", 2, 9, 11)])
    assert problem == "a/2 acted on k at 9.000 under 2, and a/1 until 10.000 under 1"


def test_number_that_goes_back_is_found() -> None:
    (problem,) = problems([act("a", 7, 0, 1), act("b", 6, 2, 3)])
    assert "under 6 after a had acted under 7" in problem


def test_number_of_two_lives_is_found() -> None:
    assert problems([act("a/1", 7, 0, 1), act("a/2", 7, 2, 3)]) == ["k: a/1 and a/2 both had 7"]


ACTS = st.builds(
    lambda owner, number, begin, length: act(owner, number, begin, begin + length),
    st.sampled_from("ab"),
    st.integers(1, 4),
    st.integers(0, 20),
    st.integers(1, 5),
)


def is_possible(acts: list[Act]) -> bool:
    """Every pair, looked at: the obvious way."""
    for one in acts:
        for other in acts:
            apart = one.end_at <= other.begin_at or other.end_at <= one.begin_at
            if one.owner != other.owner and (not apart or one.number == other.number):
                return False
            if one.begin_at < other.begin_at and one.number > other.number:
                return False
    return True


@given(st.lists(ACTS, max_size=6, unique_by=lambda each: each.begin_at))
def test_problems_are_found_exactly_where_a_pair_is_impossible(acts: list[Act]) -> None:
    assert (problems(acts) == []) == is_possible(acts)
