"""The checker of histories lets through what can be true, and nothing else.

Method: histories of a few lines, written by hand, with one thing wrong in each.
"""

import pytest

from tests.jepsen.history import Event, problems

A = Event("a", "r", "invoke")
B = Event("b", "r", "invoke")


def test_history_in_which_all_is_well_has_no_problems() -> None:
    assert problems([], {}) == []
    assert problems([A, Event("a", "r", "ok", 1)], {"r": ["a"]}) == []
    both = [A, B, Event("b", "r", "ok", 1), Event("a", "r", "ok", 2)]
    assert problems(both, {"r": ["b", "a"]}) == []


@pytest.mark.parametrize("ids", [[], ["a"]])
def test_increment_of_unknown_outcome_may_be_there_or_not(ids: list[str]) -> None:
    assert problems([A, Event("a", "r", "unknown")], {"r": ids}) == []
    assert problems([A], {"r": ids}) == [], "the client ended before it knew"


@pytest.mark.parametrize(
    ("history", "ids", "problem"),
    [
        ([A, Event("a", "r", "ok", 1)], [], "a of r was acknowledged and is there 0 times"),
        ([A, Event("a", "r", "ok", 1)], ["a", "a"], "a of r was acknowledged and is there 2 times"),
        (
            [A, Event("a", "r", "ok", 1), B, Event("b", "r", "unknown")],
            ["b", "a"],
            "a of r was told 1, which is another's",
        ),
        ([A, Event("a", "r", "fail")], ["a"], "a of r failed, and is there all the same"),
        ([A], ["a", "a"], "a of r, of unknown outcome, is there 2 times"),
        ([], ["c"], "c is in r, where nobody asked for it"),
        ([Event("a", "s", "invoke")], ["a"], "a is in r, where nobody asked for it"),
        (
            [A, Event("a", "r", "ok", 2), B, Event("b", "r", "ok", 1)],
            ["b", "a"],
            "b of r got 1 after 2 was told",
        ),
    ],
)
def test_each_thing_that_cannot_be_is_named(
    history: list[Event], ids: list[str], problem: str
) -> None:
    assert problems(history, {"r": ids}) == [problem]


def test_lost_increment_is_seen_though_a_doubled_one_keeps_the_value_right() -> None:
    history = [A, Event("a", "r", "ok", 1), B, Event("b", "r", "ok", 2)]
    assert "b of r was acknowledged and is there 0 times" in problems(history, {"r": ["a", "a"]})


def test_increments_that_overlap_may_end_in_either_order() -> None:
    history = [A, B, Event("a", "r", "ok", 2), Event("b", "r", "ok", 1)]
    assert problems(history, {"r": ["b", "a"]}) == []
