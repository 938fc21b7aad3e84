"""The soak's plan and score, from what is written out; and one clean soak, short and real."""

from itertools import islice
from pathlib import Path

import pytest

from loadtest import soak
from loadtest.heal_requests import Loss
from loadtest.heal_score import FalseRestart
from loadtest.soak import Run, acts_in
from loadtest.soak_history import lines
from loadtest.soak_plan import FOR_S_MAX, clean_steps, steps
from loadtest.soak_score import Verdict, sorted_losses

COMPONENTS = {
    f"{role}-{number}": role
    for role, count in (("hub", 2), ("node", 2), ("manager", 3), ("brick", 6), ("pinpoint", 1))
    for number in range(1, count + 1)
}
OWNERS = ("owner-1", "owner-2")


def plan(seed: int) -> list[object]:
    return list(islice(steps(seed, COMPONENTS, ["n1", "n2"], OWNERS), 300))


def test_seed_says_everything_that_is_done() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_plan_has_every_verb_and_names_only_who_is_there() -> None:
    drawn = list(islice(steps(1, COMPONENTS, ["n1", "n2"], OWNERS), 300))
    faults = [fault for step in drawn for fault in step.faults]
    verbs = {fault.verb for fault in faults}
    assert verbs == {
        "crash",
        "hang",
        "flip",
        "image",
        "drop",
        "slow",
        "leak",
        "clock",
        "disk",
        "node",
    }
    assert {each for fault in faults for each in fault.ids} <= COMPONENTS.keys() | {"n1", "n2"}
    assert max(fault.for_s for fault in faults) <= FOR_S_MAX
    assert any(step.load for step in drawn)
    assert {step.owner[1] for step in drawn if step.owner} == set(OWNERS)


def test_clean_plan_hurts_nobody() -> None:
    drawn = list(islice(clean_steps(3), 100))
    assert not any(step.faults or step.owner for step in drawn)
    assert len({step.load for step in drawn}) > 3


def loss(error: str, copies: list[str], good_at: float = 10.0, at: float = 20.0) -> Loss:
    return Loss(at, "alice", error, good_at, copies)


def test_loss_is_excused_only_if_every_copy_ended_meanwhile() -> None:
    ended = {("brick-1", 1): 12.0, ("brick-2", 1): 19.0, ("brick-3", 1): 5.0}
    gone = loss("StateLost", ["brick-1", "brick-2"])
    losses = [
        gone,
        loss("StateLost", ["brick-1", "brick-3"]),
        loss("StateLost", ["brick-1", "brick-2"], at=15.0),
        loss("StateLost", []),
        loss("WrongValueError", ["brick-1", "brick-2"]),
    ]
    assert sorted_losses(losses, ended) == (losses[1:4], losses[4:], 1)


def test_anything_at_all_makes_a_soak_wrong() -> None:
    assert Verdict(excused=3).is_right
    whole = Verdict()
    for bad in (
        Verdict(lost=[loss("StateLost", [])]),
        Verdict(wrong=[loss("WrongValueError", [])]),
        Verdict(doubled=["two"]),
        Verdict(false_restarts=[FalseRestart(1.0, "brick-1", 1, "", "")]),
        Verdict(never_whole=["brick-1"]),
    ):
        assert not bad.is_right
        whole.add(bad)
    assert set(whole.figures().values()) == {0, 1}


@pytest.mark.slow
def test_nothing_is_restarted_while_nobody_is_hurt(tmp_path: Path) -> None:
    """A clean soak, cut short: a cold start under load, steps of it, sessions that soon end."""
    run = Run(14.0, 5, tmp_path, clean=True, progress=lambda line: None)
    leg = run.leg()
    assert leg.verdict == Verdict(), "nobody is hurt, and nothing is lost, doubled or restarted"
    assert len(leg.paces) > 1
    assert sum(second[1] for one in leg.carried for second in one.seconds) > 100
    acts = list(acts_in(tmp_path / "acts-5"))
    assert {act.owner.partition("/")[0] for act in acts} == set(soak.OWNERS)
    whats = {line["what"] for line in lines(leg)}
    assert whats == {"leg", "second", "load"}
