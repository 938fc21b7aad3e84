"""When restarts are given up. Method: lives of written-out lengths; a property for any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config_shape import RestartsConfig
from roles.restart_budget import RestartBudget

CONFIG = RestartsConfig(offline_after=3, crash_s=5.0, sick_s=60.0)


def lived(
    budget: RestartBudget,
    for_s: float,
    *,
    restart: bool = True,
    sick: bool = False,
    live: bool = True,
) -> bool:
    """One life, live from its first moment unless never; whether it is given up."""
    budget.began(100.0, restart=restart)
    if live:
        budget.live(100.0)
    return budget.ended(100.0 + for_s, sick=sick)


def test_the_third_restart_in_a_row_that_does_not_help_is_the_last() -> None:  # B3
    budget = RestartBudget(CONFIG)
    assert [lived(budget, 1.0) for _ in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize("sick", [False, True])
def test_a_life_that_lasts_clears_the_row(sick: bool) -> None:  # noqa: FBT001  # B2
    budget = RestartBudget(CONFIG)
    lasted_s = 60.0 if sick else 5.0
    lengths = [1.0, 1.0, lasted_s, 1.0, 1.0, lasted_s, 1.0, 1.0]
    assert not any(lived(budget, length, sick=sick) for length in lengths)
    assert budget.failed == 2


def test_what_was_found_sick_has_to_last_longer_than_what_was_killed() -> None:
    budget = RestartBudget(CONFIG)
    assert [lived(budget, 30.0, sick=True) for _ in range(3)] == [False, False, True]
    assert not lived(budget, 30.0)


def test_a_life_that_was_never_live_has_to_last_as_long_as_a_sick_one() -> None:
    budget = RestartBudget(CONFIG)
    assert [lived(budget, 30.0, live=False) for _ in range(3)] == [False, False, True]


def test_time_until_it_is_live_does_not_count() -> None:
    budget = RestartBudget(CONFIG)
    given_up = []
    for _ in range(3):
        budget.began(0.0, restart=True)
        budget.live(10.0)
        budget.live(14.0)
        given_up.append(budget.ended(14.5, sick=False))
    assert given_up == [False, False, True]


def test_a_life_that_nobody_restarted_is_no_restart_that_failed() -> None:  # B1
    budget = RestartBudget(CONFIG)
    assert not any(lived(budget, 0.0, restart=False) for _ in range(10))


def test_an_end_that_was_asked_for_does_not_count() -> None:  # B1
    budget = RestartBudget(CONFIG)
    for _ in range(10):
        budget.began(0.0, restart=True)
        budget.ended_as_asked()
        assert not budget.ended(0.0, sick=False)


def test_a_person_clears_the_row() -> None:  # B2
    budget = RestartBudget(CONFIG)
    for _ in range(3):
        lived(budget, 0.0)
    budget.forgive()
    assert [lived(budget, 0.0) for _ in range(3)] == [False, False, True]


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=30))
def test_it_is_given_up_exactly_when_the_last_lives_were_all_short_restarts(
    lives: list[tuple[float, bool]],
) -> None:
    budget = RestartBudget(CONFIG)
    failed: list[bool] = []
    for length, restart in lives:
        given_up = lived(budget, length, restart=restart)
        if length + 100.0 - 100.0 >= 5.0:
            failed.clear()
        elif restart:
            failed.append(True)
        assert given_up == (len(failed) >= 3)
