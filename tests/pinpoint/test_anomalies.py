"""Goal: the sick show in three groups within seconds, and go on showing; the healthy in one at
most, whatever happens to all of them, and whatever they say.

Method: the synthetic herd of `tests/pinpoint/herd.py`, many seeds of it; `SOFTSTATE_SOAK` makes the
healthy ones live as many times longer.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from bus.messages import PeerSeen
from pinpoint.anomalies import Anomalies, Anomaly
from pinpoint.samples import Demand, Sample, Tick
from tests.pinpoint.herd import MB, Herd, Trouble

SOAK = int(os.environ.get("SOFTSTATE_SOAK", "1"))
ENOUGH = 3
GRACE_S = 15.0
SINCE = 30.0


def groups(anomalies: tuple[Anomaly, ...]) -> set[str]:
    return {each.group for each in anomalies}


def looks(herd: Herd, seconds: int) -> Iterator[tuple[Tick, dict[str, set[str]]]]:
    """Each tick, and in which groups each that may be judged is odd."""
    anomalies = Anomalies()
    for _ in range(seconds):
        tick = herd.tick()
        eligible = {sample.id for sample in tick.samples if sample.age_s > GRACE_S}
        looked = anomalies.look(tick, eligible)
        yield tick, {each: groups(looked.anomalies.get(each, ())) for each in eligible}


ILL = {
    "slow": Trouble(SINCE, slow_s=0.001),
    "drop": Trouble(SINCE, drop=0.7),
    "leak": Trouble(SINCE, leak=20 * MB),
}


@pytest.mark.parametrize("begins", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("ill", ILL)
@pytest.mark.slow
def test_the_sick_show_within_seconds_and_go_on_showing(ill: str, begins: float) -> None:
    for seed in range(3):
        trouble = Trouble(**{**vars(ILL[ill]), "since": SINCE + begins})
        herd = Herd(seed, trouble={2: trouble})
        shown = [(tick.at - trouble.since, len(odd["brick-2"])) for tick, odd in looks(herd, 50)]
        # A beacon that is a second old may be from just after it began: that makes four.
        first = min(after for after, count in shown if after > 0 and count >= ENOUGH)
        assert first < 4
        assert all(count >= ENOUGH for after, count in shown if after > 4)
        assert all(count < 2 for after, count in shown if after <= 0)


HEALTHY: dict[str, dict[str, Any]] = {
    "calm": {},
    "noisy": {"noise": lambda _: 0.5},
    "a machine that is busy for a minute now and then": {
        "noise": lambda at: 0.5 if int(at / 60) % 3 == 1 else 0.05
    },
    "load in steps": {"load": lambda at: 300.0 if int(at / 20) % 2 else 1500.0},
    "garbage collection": {"pause_s": 0.2},
    "a cold start": {"born_at": {2: 40.0}},
    "a cold start under steps": {
        "born_at": {2: 40.0},
        "load": lambda at: 300.0 if int(at / 30) % 2 else 1500.0,
    },
    "three": {"bricks": 3},
    "one stub": {"stubs": 1, "pause_s": 0.2},
}


@pytest.mark.parametrize("case", HEALTHY)
@pytest.mark.slow
def test_the_healthy_are_odd_in_one_group_at_most(case: str) -> None:
    counts: Counter[int] = Counter()
    for seed in range(SOAK):
        herd = Herd(seed, **HEALTHY[case])
        counts.update(len(each) for _, odd in looks(herd, 240) for each in odd.values())
    assert counts.keys() <= {0, 1, 2}
    # Two at once: by chance, once in a great while.
    assert counts[2] <= 2 * SOAK
    assert counts[1] <= 0.03 * counts.total()


@pytest.mark.slow
def test_two_hundred_are_as_healthy_as_six() -> None:
    counts: Counter[int] = Counter()
    for _, odd in looks(Herd(3, bricks=200, load=lambda _: 10_000.0), 40):
        counts.update(len(each) for each in odd.values())
    assert counts.keys() <= {0, 1, 2}
    assert counts[2] < 10


def test_a_step_that_all_take_is_no_anomaly_of_any() -> None:
    herd = Herd(1, load=lambda at: 300.0 if at < 30 else 1500.0)
    odd = [each for _, of_all in looks(herd, 36) for each in of_all.values()]
    assert {name for each in odd for name in each} <= {"contents"}


def told(at: float, name: str, values: list[float]) -> Tick:
    """As many bricks, each with that statistic in a beacon of just now."""
    samples = [
        Sample(f"brick-{number}", "brick", "n1", 1, "live", 100.0 + at, 0.0, {name: value})
        for number, value in enumerate(values)
    ]
    return Tick(at, samples, [], Demand(0.0, 0.0), blind=False)


@pytest.mark.parametrize("after", [0.05, 0.95])
def test_who_tells_of_a_step_a_second_later_or_sooner_than_most_is_not_odd(after: float) -> None:
    anomalies = Anomalies()
    few_first = [after] * 2 + [0.5] * 4
    most_first = [0.5] * 2 + [after] * 4
    before, then = [[0.5] * 6] * 5, [[after] * 6] * 5
    for second, values in enumerate([*before, few_first, *then, *before, most_first, *then]):
        tick = told(float(second), "busy_ratio", values)
        assert anomalies.look(tick, {each.id for each in tick.samples}).anomalies == {}


def test_one_that_fills_up_is_odd_only_once_it_is_full() -> None:
    anomalies, draw, odd = Anomalies(), Random(1), []
    for second in range(100):
        others = [1000.0 + draw.gauss(0, 10) for _ in range(5)]
        tick = told(float(second), "items", [12.0 * second, *others])
        if anomalies.look(tick, {each.id for each in tick.samples}).anomalies.get("brick-0"):
            odd.append(second)
    assert 74 <= odd[0] <= 77  # 12 a second make nine tenths of 1,000 by then.


def test_one_stub_of_three_that_lies_condemns_nobody() -> None:
    def lie(component_id: str, told: PeerSeen) -> PeerSeen:
        bad = PeerSeen(component_id, told.incarnation, 100, 0, 0, 100, 9.0, 1.0)
        return bad if component_id == "brick-2" else told

    for _, odd in looks(Herd(1, lie=lie), 30):
        assert not odd.get("brick-2", set()) & {"silent", "wait", "room"}


NONSENSE = [math.nan, math.inf, -math.inf, -5.0, 1e300]


@pytest.mark.parametrize("value", NONSENSE)
def test_one_that_sends_nonsense_neither_raises_nor_spoils_its_peers(value: float) -> None:
    herd, anomalies = Herd(1), Anomalies()
    unsaid: Counter[str] = Counter()
    for _ in range(10):
        tick = herd.tick()
        first = tick.samples[0]
        spoilt = msgspec.structs.replace(first, statistics=dict.fromkeys(first.statistics, value))
        tick = msgspec.structs.replace(tick, samples=[spoilt, *tick.samples[1:]])
        looked = anomalies.look(tick, herd.ids)
        assert looked.anomalies == {}
        unsaid.update(looked.unsaid)
    assert unsaid["not finite"] > 100


def replaced(tick: Tick, change: Callable[[Sample], Sample]) -> Tick:
    return msgspec.structs.replace(tick, samples=[change(each) for each in tick.samples])


def test_two_are_no_group_and_the_reason_is_counted() -> None:
    herd, anomalies = Herd(1, bricks=2, trouble={2: Trouble(0.0, slow_s=1.0)}), Anomalies()
    looked = [anomalies.look(herd.tick(), herd.ids) for _ in range(5)]
    assert [each.anomalies for each in looked] == [{}] * 5
    assert looked[-1].unsaid["group too small"] > 0
    assert looked[-1].unsaid["asker of too few"] > 0


def test_nothing_is_judged_while_the_bus_is_blind() -> None:
    herd, anomalies = Herd(1, trouble={2: Trouble(0.0, slow_s=1.0)}), Anomalies()
    blind = [msgspec.structs.replace(herd.tick(), blind=True) for _ in range(5)]
    looked = [anomalies.look(tick, herd.ids) for tick in blind]
    assert [(each.anomalies, each.unsaid) for each in looked] == [({}, Counter(blind=1))] * 5


def test_who_is_not_eligible_is_neither_judged_nor_compared_with() -> None:
    herd, anomalies = Herd(1, trouble={2: Trouble(0.0, slow_s=1.0)}), Anomalies()
    eligible = herd.ids - {"brick-2"}
    looked = [anomalies.look(herd.tick(), eligible) for _ in range(6)]
    assert [each.anomalies for each in looked] == [{}] * 6


def test_a_new_life_is_not_blamed_for_the_one_before() -> None:
    herd, anomalies = Herd(1, trouble={2: Trouble(3.0, slow_s=1.0)}), Anomalies()
    looked = [anomalies.look(herd.tick(), herd.ids) for _ in range(10)]
    assert "service" in groups(looked[-1].anomalies["brick-2"])
    reborn = replaced(
        herd.tick(),
        lambda each: msgspec.structs.replace(
            each,
            incarnation=2 if each.id == "brick-2" else each.incarnation,
            statistics=herd_mate(each),
        ),
    )
    assert "brick-2" not in anomalies.look(reborn, herd.ids).anomalies


def herd_mate(sample: Sample) -> dict[str, float]:
    """Its statistics, as they are once it is well."""
    well = {"service_s": 0.0001, "busy_ratio": 0.02, "queue_s": 0.00002, "writes_per_s": 90.0}
    return {**sample.statistics, **well}


def test_the_same_ticks_say_the_same() -> None:
    ticks = [herd.tick() for herd in [Herd(4, trouble={2: ILL["drop"]})] for _ in range(40)]
    first, second = Anomalies(), Anomalies()
    eligible = {sample.id for sample in ticks[0].samples}
    assert [first.look(each, eligible) for each in ticks] == [
        second.look(each, eligible) for each in ticks
    ]
