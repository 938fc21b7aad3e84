"""Judging tick by tick: from numbers to verdicts.

Method: a herd of made-up bricks under a made-up load, the whole judge on it; what is sick is so
from a tick on that is known. No clock and no process.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.config_shape import PinpointConfig
from bus.messages import PeerSeen
from pinpoint.judge import COMPONENTS_MAX, Judge, Judgement
from pinpoint.samples import Demand, Sample, StubSaw, Tick
from tests.pinpoint import herd as herds
from tests.pinpoint.crowd import CALM, SICK, Herd, brick, with_samples
from tests.pinpoint.herd import MB

NEEDED = {"brick": 3}
DETECTED_S_MAX = 7


def judge() -> Judge:
    return Judge(PinpointConfig(), NEEDED)


def condemned(judgements: Iterator[Judgement]) -> list[tuple[int, str]]:
    """At which tick who was."""
    return [
        (number, verdict.id)
        for number, judgement in enumerate(judgements)
        for verdict in judgement.condemned
    ]


@pytest.mark.parametrize("seed", range(4), ids="seed-{}".format)
def test_slow_brick_is_condemned_within_seconds_and_no_other(seed: int) -> None:
    herd, machine = Herd(6, seed), judge()
    assert condemned(machine.tick(herd.tick()) for _ in range(60)) == []
    found = condemned(machine.tick(herd.tick({"brick-3": SICK})) for _ in range(DETECTED_S_MAX))
    assert [each for _, each in found] == ["brick-3"]


@pytest.mark.slow
def test_healthy_herd_is_left_alone_for_ten_minutes_with_steps_of_the_load() -> None:
    herd, machine = Herd(6, 1), judge()
    judgements = []
    for tick in range(600):
        herd.load_per_s = 900.0 if tick % 100 >= 50 else 300.0
        judgements.append(machine.tick(herd.tick()))
    assert condemned(iter(judgements)) == []


def test_same_ticks_give_the_same_judgements() -> None:
    herd = Herd(6, 2)
    ticks = [herd.tick({"brick-2": SICK} if n > 20 else None) for n in range(60)]
    first, second = judge(), judge()
    assert [first.tick(tick) for tick in ticks] == [second.tick(tick) for tick in ticks]


@pytest.mark.parametrize("begin", [0, 7, 20])
def test_pinpoint_that_begins_in_the_middle_condemns_nobody_who_is_well(begin: int) -> None:
    herd, machine = Herd(6, 3), judge()
    for _ in range(begin):
        herd.tick()
    herd.restart("brick-1")
    found = condemned(machine.tick(herd.tick()) for _ in range(120))
    assert found == []


def test_pinpoint_that_begins_while_one_is_sick_finds_it() -> None:
    herd, machine = Herd(6, 3), judge()
    found = condemned(machine.tick(herd.tick({"brick-3": SICK})) for _ in range(12))
    assert [each for _, each in found] == ["brick-3"]


def test_what_was_seen_before_a_gap_counts_for_nothing_after_it() -> None:
    herd, machine = Herd(6, 3), judge()
    for _ in range(30):
        machine.tick(herd.tick())
    for _ in range(2):
        machine.tick(herd.tick({"brick-3": SICK}))
    herd.at += 60.0
    found = condemned(machine.tick(herd.tick({"brick-3": SICK})) for _ in range(4))
    assert found == []


def test_nobody_is_judged_while_the_bus_is_blind() -> None:
    herd, machine = Herd(6, 3), judge()
    for _ in range(30):
        machine.tick(herd.tick())
    blind = msgspec.structs.replace(herd.tick({"brick-3": SICK}), blind=True)
    assert machine.tick(blind) == Judgement(withheld=Counter(["blind"]))


def test_mode_off_looks_at_nothing() -> None:
    machine = Judge(PinpointConfig(mode="off"), NEEDED)
    herd = Herd(6, 3)
    assert [machine.tick(herd.tick({"brick-3": SICK})) for _ in range(20)] == [Judgement()] * 20


def test_shadow_mode_says_and_does_nothing() -> None:
    machine = Judge(PinpointConfig(mode="shadow"), NEEDED)
    herd = Herd(6, 3)
    judgements = [machine.tick(herd.tick({"brick-3": SICK})) for _ in range(20)]
    assert condemned(iter(judgements)) == []
    would = [(each.id, each.withheld) for judged in judgements for each in judged.would]
    assert ("brick-3", "shadow") in would


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_of_a_role_are_not_judged_against_each_other(count: int) -> None:
    herd, machine = Herd(count, 3), judge()
    judgements = [machine.tick(herd.tick({"brick-1": SICK})) for _ in range(30)]
    assert [judged for judged in judgements if judged.flagged or judged.would] == []


def test_half_of_the_herd_being_sick_is_the_system_and_nobody_is_ended() -> None:
    herd, machine = Herd(6, 3), judge()
    for _ in range(30):
        machine.tick(herd.tick())
    sick = {"brick-1": SICK, "brick-2": SICK}
    judgements = [machine.tick(herd.tick(sick)) for _ in range(20)]
    assert condemned(iter(judgements)) == []
    assert sum((judged.withheld for judged in judgements), Counter())["systemic"] > 0


@pytest.mark.slow
def test_tick_of_ten_thousand_samples_is_bounded_and_counted() -> None:
    machine = judge()
    samples = [brick(number) for number in range(10_000)]
    ticks = [Tick(float(at), samples, [], CALM, blind=False) for at in range(3)]
    last = [machine.tick(tick) for tick in ticks][-1]
    assert last.withheld == Counter({"crowded": 10_000 - COMPONENTS_MAX})
    assert last.judged == COMPONENTS_MAX


# Who is well, and looks odd; who is sick, and looks well.


def test_slow_machine_is_not_taken_for_so_many_sick_bricks() -> None:
    herd, machine = Herd(12, 3), judge()
    slow = dict.fromkeys(["brick-1", "brick-2", "brick-3"], SICK)
    judgements = []
    for _ in range(60):
        tick = herd.tick(slow)
        there = [msgspec.structs.replace(each, node="n3") for each in tick.samples[:3]]
        judgements.append(machine.tick(with_samples(tick, [*there, *tick.samples[3:]])))
    assert condemned(iter(judgements)) == []
    assert sum((judged.withheld for judged in judgements), Counter())["node"] > 0


def test_restart_of_one_of_two_that_are_slow_does_not_condemn_the_other() -> None:
    herd, machine = Herd(6, 1), judge()
    found = []
    for second in range(200):
        if second == 80:
            herd.restart("brick-1")
        tick = herd.tick({"brick-1": SICK, "brick-2": SICK} if second > 40 else None)
        found += machine.tick(tick).condemned
    assert found == []


def test_hot_brick_is_busy_and_lets_wait_and_is_well() -> None:
    herd, machine = Herd(6, 1), judge()
    hot = {"answered_per_s": 2.0, "busy_ratio": 5.0, "queue_s": 20.0}
    judgements = [machine.tick(herd.tick({"brick-2": hot})) for _ in range(60)]
    assert condemned(iter(judgements)) == []
    assert sum((judged.withheld for judged in judgements), Counter())["hot"] > 0


@pytest.mark.parametrize("liar", ["the sick one", "two others"])
def test_age_that_is_told_wrong_saves_nobody(liar: str) -> None:
    herd, machine = Herd(9, 2), judge()
    young = {"brick-2"} if liar == "the sick one" else {"brick-8", "brick-9"}
    judgements = []
    for second in range(60):
        tick = herd.tick({"brick-2": SICK} if second > 30 else None)
        told = [
            msgspec.structs.replace(each, age_s=1.0 if each.id in young else each.age_s)
            for each in tick.samples
        ]
        judgements.append(machine.tick(with_samples(tick, told)))
    assert {each for _, each in condemned(iter(judgements))} == {"brick-2"}


@pytest.mark.slow
@pytest.mark.parametrize("leak", [1 * MB, 2 * MB])
def test_slow_leak_is_condemned_before_it_hurts(leak: float) -> None:
    herd = herds.Herd(1, trouble={2: herds.Trouble(since=30, leak=leak)})
    machine = judge()
    found = condemned(machine.tick(herd.tick()) for _ in range(280))
    assert {each for _, each in found} == {"brick-2"}
    assert (found[0][0] - 30) * leak < 256 * MB


def test_task_of_its_own_ends_nobody_in_a_role_that_nobody_vouches_for() -> None:
    machine = judge()
    judgements = []
    for second in range(60):
        reports = [brick(number, role="report", statistics=idle()) for number in (1, 3)]
        loads = {
            **idle(),
            "rss_bytes": (60 + 40 * second) * MB,
            "minor_faults_per_s": 10_000.0,
            "loop_lag_s": 1.5,
            "failed_per_s": 90.0,
        }
        samples = [*reports, brick(2, role="report", statistics=loads)]
        judgements.append(machine.tick(Tick(float(second), samples, [], CALM, blind=False)))
    assert condemned(iter(judgements)) == []
    assert {each.withheld for judged in judgements for each in judged.would} == {"unknown"}


def idle() -> dict[str, float]:
    return {
        "rss_bytes": 60 * MB,
        "minor_faults_per_s": 5.0,
        "loop_lag_s": 0.002,
        "failed_per_s": 0.0,
    }


def test_id_that_comes_twice_in_a_tick_is_one_component() -> None:
    herd, machine = Herd(6, 3), judge()
    ticks = [herd.tick() for _ in range(30)]
    last = [machine.tick(with_samples(tick, [*tick.samples] * 2)) for tick in ticks][-1]
    assert (last.judged, last.flagged) == (6, 0)


# Whatever comes.

absurd = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, -1e300, 1e17, 3.0])
names = st.sampled_from(["service_s", "busy_ratio", "queue_s", "answered_per_s", "items", "x"])


@st.composite
def a_sample(draw: st.DrawFn) -> Sample:
    return Sample(
        draw(st.sampled_from(["brick-1", "brick-2", "brick-3", "manager-1", "", "\0" * 300])),
        draw(st.sampled_from(["brick", "manager", "hub", "", "nonsense"])),
        draw(st.sampled_from(["n1", ""])),
        draw(st.integers(-1, 3)),
        draw(st.sampled_from(["live", "starting", "dead"])),
        draw(absurd),
        draw(absurd),
        draw(st.dictionaries(names, absurd, max_size=6)),
    )


@st.composite
def a_tick(draw: st.DrawFn) -> Tick:
    seen = PeerSeen("brick-1", 1, draw(st.integers(-5, 9)), 3, 3, 3, draw(absurd), draw(absurd))
    return Tick(
        draw(absurd | st.floats(0, 9)),
        draw(st.lists(a_sample(), max_size=6)),
        [StubSaw("s", draw(st.sampled_from(["brick", ""])), draw(absurd), [seen, seen])],
        Demand(draw(absurd), draw(absurd)),
        draw(st.booleans()),
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(a_tick(), max_size=8), st.integers(0, 5))
def test_no_tick_raises_and_the_healthy_suffer_from_none(ticks: list[Tick], seed: int) -> None:
    herd, machine = Herd(6, seed), judge()
    chance = random.Random(seed)
    judgements = []
    for tick in ticks:
        judgements += [machine.tick(tick), machine.tick(herd.tick())]
        if chance.random() < 0.5:
            judgements.append(machine.tick(herd.tick()))
    assert all(len(judged.condemned) <= 1 for judged in judgements)
