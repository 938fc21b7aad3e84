"""The score of healing, from injuries, notices and sightings that are written out. No processes.

Instants are small numbers: an injury at 10 that is noticed at 12 and healed at 13 in the eyes of
the slower of two observers was found in 2 s and healed in 1 s.
"""

from typing import Any

import pytest

from bus.messages import State
from loadtest.heal_requests import Injury, Notice, Sighting, Verb
from loadtest.heal_score import (
    FalseRestart,
    ended_lives,
    false_restarts,
    found,
    live_everywhere_at,
    row,
    trials,
)

OBSERVERS = ["node-1", "generator-1"]
PLANNED = {"brick-1", "brick-2", "manager-1"}


def injury(at: float, verb: Verb = "hang", brick: str = "brick-1", life: int = 1) -> Injury:
    return Injury(verb, brick, life, at)


def notice(at: float, kind: str = "died", brick: str = "brick-1", life: int = 0) -> Notice:
    return Notice(at, kind, brick, life, "node-1", "silent")


def sighting(
    at: float, observer: str, life: int, state: State = "live", brick: str = "brick-1"
) -> Sighting:
    return Sighting(at, observer, brick, life, state)


def seen(at: float, life: int = 2) -> list[Sighting]:
    """By both, the second half a second later."""
    return [sighting(at - 0.5, "node-1", life), sighting(at, "generator-1", life)]


def test_detection_lasts_until_the_first_verdict_and_recovery_until_the_last_eye() -> None:
    notices = [notice(11.0, "suspected"), notice(12.0), notice(12.5, "restarted")]
    (trial,) = trials([injury(10.0)], notices, seen(13.0), OBSERVERS)
    assert (trial.detect_s, trial.recover_s) == (2.0, 1.0)
    assert (trial.by, trial.how) == ("node-1", "died: silent")


@pytest.mark.parametrize(
    "other",
    [
        notice(9.0),
        notice(25.0),
        notice(12.0, "suspected"),
        notice(12.0, brick="brick-2"),
        notice(12.0, "exited", life=7),
    ],
    ids=["before", "after the next injury", "no verdict", "of another", "of another life"],
)
def test_notice_of_something_else_finds_nothing(other: Notice) -> None:
    assert found(injury(10.0), 20.0, [other]) is None


def test_who_never_saw_the_next_life_live_makes_it_not_healed() -> None:
    one_eye = [sighting(13.0, "node-1", 2), sighting(13.0, "generator-1", 2, "starting")]
    (trial,) = trials([injury(10.0)], [notice(12.0)], one_eye, OBSERVERS)
    assert (trial.detect_s, trial.recover_s) == (2.0, None)
    same_life = seen(13.0, life=1)
    assert live_everywhere_at(injury(10.0), 20.0, same_life, OBSERVERS) is None


def test_cure_is_no_trial_but_its_end_is_nobodys_fault() -> None:
    injuries = [injury(10.0), injury(20.0, "cure")]
    notices = [notice(20.1, "exited", life=1)]
    tried = trials(injuries, notices, [], OBSERVERS)
    assert [(each.verb, each.detect_s) for each in tried] == [("hang", None)]
    assert false_restarts(injuries, PLANNED, notices, []) == []


def test_what_could_not_be_done_is_no_injury() -> None:
    refused = Injury("drop", "brick-1", 1, 10.0, "it is not live", refused=True)
    notices = [notice(12.0, "exited", life=1)]
    assert trials([refused], notices, [], OBSERVERS) == []
    assert len(false_restarts([refused], PLANNED, notices, [])) == 1


def test_life_that_ended_unhurt_is_one_false_restart_however_often_it_is_told() -> None:
    notices = [
        notice(11.0, "condemned", "brick-2"),
        notice(12.0, "exited", "brick-2", 5),
        notice(12.1, "ended", "brick-2", 5),
    ]
    sightings = [
        sighting(1.0, "node-1", 5, brick="brick-2"),
        sighting(13.0, "node-1", 6, brick="brick-2"),
        sighting(13.5, "generator-1", 6, brick="brick-2"),
    ]
    assert ended_lives(PLANNED, notices, sightings) == {("brick-2", 5): 12.0}
    assert false_restarts([injury(10.0)], PLANNED, notices, sightings) == [
        FalseRestart(12.0, "brick-2", 5, "exited: silent (by node-1)", "hang brick-1")
    ]


def test_life_that_was_replaced_ended_even_if_nobody_said_so() -> None:
    sightings = [sighting(1.0, "node-1", 1), sighting(30.0, "node-1", 2)]
    assert ended_lives(PLANNED, [], sightings) == {("brick-1", 1): 30.0}
    assert false_restarts([injury(10.0)], PLANNED, [], sightings) == []
    assert len(false_restarts([], PLANNED, [], sightings)) == 1


def test_what_is_not_planned_may_come_and_go() -> None:
    notices = [notice(12.0, "exited", "linked-abc", 5), notice(12.0, "exited", "brick-7", 5)]
    assert false_restarts([], PLANNED, notices, []) == []


def test_restart_of_another_in_the_stead_of_the_sick_costs_precision_and_recall() -> None:
    injuries = [injury(10.0, "slow"), injury(20.0, "slow", "brick-2", 3)]
    notices = [notice(12.0, "condemned"), notice(22.0, "exited", life=2)]
    tried = trials(injuries, notices, seen(13.0), OBSERVERS)
    false = false_restarts(injuries, PLANNED, notices, [])
    expected: dict[str, Any] = {
        "fault": "slow",
        "runs": 2,
        "detect_s": 2.0,
        "detect_s_worst": 2.0,
        "recover_s": 1.0,
        "recover_s_worst": 1.0,
        "precision": 0.5,
        "recall": 0.5,
        "noticed": "condemned 1",
    }
    assert row("slow", tried, false) == expected
    nothing = row("leak", tried, false)
    assert (nothing["runs"], nothing["detect_s"], nothing["recall"]) == (0, None, None)
