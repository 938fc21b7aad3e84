"""Which verdicts may end a live process.

Method: ticks of six bricks, a second apart, written out; then random ticks and random verdicts,
against the guards as one would put them into words. Three bricks at least must stay live.
"""

from collections.abc import Iterable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config_shape import JudgeMode, PinpointConfig
from bus.messages import State
from pinpoint.policy import FLIGHT_S_MAX, SETTLED_LOOKS, WARM_UP_LOOKS, Policy
from pinpoint.samples import Sample
from pinpoint.verdict import Evidence, Flags, Verdict, Why
from tests.pinpoint.crowd import anomaly, brick, crowd, flags

NEEDED = {"brick": 3}
GRACE_S = 15.0

Samples = Mapping[str, Sample]


class Watch:
    """A policy, and the clock of its ticks."""

    def __init__(self, mode: JudgeMode = "act") -> None:
        self.policy = Policy(PinpointConfig(mode=mode, grace_s=GRACE_S), NEEDED, 1.0)
        self.at = 500.0

    def look(self, samples: Samples, *sick: str) -> list[tuple[str, Why | None]]:
        """Who is to be ended, and who is not, with the reason."""
        self.at += 1.0
        self.policy.look(samples, self.at)
        allowed = self.policy.allow(flags(samples, *sick))
        assert all(each.withheld is None for each in allowed.condemned)
        return [(each.id, each.withheld) for each in (*allowed.condemned, *allowed.withheld)]

    def settle(self, samples: Samples, looks: int = WARM_UP_LOOKS) -> "Watch":
        for _ in range(looks):
            self.look(samples)
        return self


def busy(per_s: float, count: int = 6) -> Samples:
    told = {"answered_per_s": per_s}
    return crowd(count, but=[brick(n, statistics=told) for n in range(1, count + 1)])


def test_one_sick_brick_of_six_is_condemned() -> None:
    assert Watch().settle(crowd(6)).look(crowd(6), "brick-2") == [("brick-2", None)]


def test_nothing_is_ended_in_the_first_looks() -> None:
    watch = Watch()
    first = [watch.look(crowd(6), "brick-2") for _ in range(WARM_UP_LOOKS)]
    assert first == [[("brick-2", "warming")]] * WARM_UP_LOOKS
    assert watch.look(crowd(6), "brick-2") == [("brick-2", None)]


def test_who_is_young_or_not_live_or_new_to_us_or_a_hub_is_not_judged() -> None:
    samples = crowd(
        6,
        but=[
            brick(1, age_s=GRACE_S - 0.1),
            brick(2, state="starting"),
            brick(3, state="suspect"),
            brick(1, role="hub"),
            brick(1, role="node"),
        ],
    )
    policy = Policy(PinpointConfig(grace_s=GRACE_S), NEEDED, 1.0)
    judged = [policy.look(samples, float(at)) for at in range(4)]
    others = {"brick-4", "brick-5", "brick-6"}
    assert judged == [set(), set(), others, others]


def test_who_was_live_and_is_suspect_is_judged_and_who_was_dead_is_looked_at_anew() -> None:
    policy = Policy(PinpointConfig(grace_s=GRACE_S), NEEDED, 1.0)
    states: list[State] = ["live", "live", "suspect", "live", "dead", "suspect", "live", "live"]
    judged = [
        "brick-1" in policy.look(crowd(6, but=[brick(1, state=state)]), float(at))
        for at, state in enumerate(states)
    ]
    assert judged == [False, False, True, True, False, False, False, False]


def test_suspect_is_not_counted_among_those_who_stay_live() -> None:
    doubtful = crowd(4, but=[brick(1, state="suspect")])
    watch = Watch().settle(crowd(4))
    assert watch.look(doubtful, "brick-2") == [("brick-2", "few")]
    watch = Watch().settle(crowd(4))
    assert watch.look(doubtful, "brick-1") == [("brick-1", None)]


@pytest.mark.parametrize(("count", "together"), [(6, 2), (8, 3), (12, 4)])
def test_more_than_a_quarter_together_is_the_system(count: int, together: int) -> None:
    sick = [f"brick-{number}" for number in range(1, together + 1)]
    watch = Watch().settle(crowd(count))
    assert watch.look(crowd(count), *sick) == [(each, "systemic") for each in sick]
    watch = Watch().settle(crowd(count))
    assert watch.look(crowd(count), *sick[1:])[0] == (sick[1], None)


def test_never_fewer_than_needed_stay_live() -> None:
    four = crowd(4)
    assert Watch().settle(four).look(four, "brick-2") == [("brick-2", None)]
    three = crowd(3)
    assert Watch().settle(three).look(three, "brick-2") == [("brick-2", "few")]
    dead = crowd(5, but=[brick(4, state="dead"), brick(5, state="draining")])
    assert Watch().settle(dead, 15).look(dead, "brick-2") == [("brick-2", "few")]


def test_next_waits_until_the_one_before_is_back() -> None:
    watch = Watch().settle(crowd(8))
    eight = crowd(8)
    assert watch.look(eight, "brick-1", "brick-2") == [("brick-1", None), ("brick-2", "flight")]
    gone = crowd(8, but=[brick(1, state="dead")])
    assert watch.look(gone, "brick-2") == [("brick-2", "flight")]
    starting = crowd(8, but=[brick(1, incarnation=2, state="starting", age_s=0.1)])
    assert watch.look(starting, "brick-2") == [("brick-2", "flight")]
    back = crowd(8, but=[brick(1, incarnation=2, age_s=1.0)])
    assert watch.look(back, "brick-2") == [("brick-2", None)]


def test_who_does_not_come_back_is_waited_for_no_longer_than_that() -> None:
    watch = Watch().settle(crowd(8))
    watch.look(crowd(8), "brick-1")
    gone = crowd(8, but=[brick(1, state="dead")])
    for _ in range(int(FLIGHT_S_MAX) - 1):
        assert watch.look(gone, "brick-2") == [("brick-2", "flight")]
    assert watch.look(gone, "brick-2") == [("brick-2", None)]


def test_same_brick_is_left_alone_for_its_grace() -> None:
    watch = Watch().settle(crowd(6))
    watch.look(crowd(6), "brick-1")
    again = [watch.look(crowd(6), "brick-1") for _ in range(int(GRACE_S))]
    assert again == [[("brick-1", "cooling")]] * (int(GRACE_S) - 1) + [[("brick-1", None)]]


def test_rolling_reboot_or_a_cold_start_is_no_time_to_judge() -> None:
    rolled = crowd(6, but=[brick(1, age_s=8.0, incarnation=2), brick(2, age_s=3.0, incarnation=2)])
    assert Watch().settle(rolled).look(rolled, "brick-5") == [("brick-5", "change")]
    one = crowd(6, but=[brick(1, age_s=3.0, incarnation=2)])
    assert Watch().settle(one).look(one, "brick-5") == [("brick-5", None)]


def test_those_that_went_a_moment_ago_count_as_changing_and_long_ago_as_gone() -> None:
    gone = crowd(6, but=[brick(1, state="dead"), brick(2, state="dead")])
    watch = Watch().settle(crowd(6))
    assert [watch.look(gone, "brick-5")[0][1] for _ in range(12)] == ["change"] * 10 + [
        None,
        "cooling",
    ]
    forgotten = {each: sample for each, sample in crowd(6).items() if each > "brick-2"}
    watch = Watch().settle(crowd(6))
    assert [watch.look(forgotten, "brick-5")[0][1] for _ in range(11)] == ["change"] * 10 + [None]


def test_step_of_the_load_is_waited_out() -> None:
    watch = Watch().settle(busy(100.0))
    steps = [watch.look(busy(300.0), "brick-5")[0][1] for _ in range(5)]
    assert steps == ["step"] * 4 + [None]


@pytest.mark.parametrize("after_per_s", [60.0, 150.0, 199.0])
def test_load_that_merely_varies_is_no_step(after_per_s: float) -> None:
    watch = Watch().settle(busy(100.0))
    assert watch.look(busy(after_per_s), "brick-5") == [("brick-5", None)]


def test_load_that_grows_for_several_seconds_is_no_step() -> None:
    watch = Watch().settle(busy(100.0))
    for per_s in (140.0, 190.0, 250.0, 320.0):
        watch.look(busy(per_s))
    assert watch.look(busy(400.0), "brick-5") == [("brick-5", None)]


def test_one_that_lies_about_its_load_makes_no_step() -> None:
    watch = Watch().settle(busy(100.0))
    liar = brick(1, statistics={"answered_per_s": 1e17})
    assert watch.look({**busy(100.0), liar.id: liar}, "brick-5") == [("brick-5", None)]


def test_shadow_mode_says_when_it_would_have_and_ends_nothing() -> None:
    watch = Watch("shadow").settle(crowd(6))
    said = [watch.look(crowd(6), "brick-2") for _ in range(2)]
    assert said == [[("brick-2", "shadow")], [("brick-2", "cooling")]]


def test_beginning_anew_keeps_what_was_ordered() -> None:
    watch = Watch().settle(crowd(8))
    watch.look(crowd(8), "brick-1")
    watch.policy.begin_anew()
    watch.settle(crowd(8))
    assert watch.look(crowd(8), "brick-2") == [("brick-2", "flight")]


# Of whom nothing may be ended.


def test_role_that_nobody_vouches_for_is_said_and_never_ended() -> None:
    reports = {each.id: each for each in (brick(n, role="report") for n in range(1, 7))}
    assert Watch().settle(reports).look(reports, "report-2") == [("report-2", "unknown")]


# One after the other is together.


def test_restart_of_one_of_two_does_not_make_the_other_the_only_one() -> None:
    watch = Watch().settle(crowd(6))
    both = [("brick-1", "systemic"), ("brick-2", "systemic")]
    assert watch.look(crowd(6), "brick-1", "brick-2") == both
    said = []
    lasting = int(GRACE_S) + SETTLED_LOOKS - 2
    for second in range(lasting + 1):
        young = brick(1, incarnation=2, age_s=float(second))
        said += watch.look(crowd(6, but=[young]), "brick-2")
    assert said == [("brick-2", "systemic")] * lasting + [("brick-2", None)]


def test_who_falls_sick_when_the_one_before_is_cured_is_not_sick_together_with_it() -> None:
    watch = Watch().settle(crowd(6))
    assert watch.look(crowd(6), "brick-1") == [("brick-1", None)]
    cured = crowd(6, but=[brick(1, incarnation=2, age_s=3.0)])
    watch.settle(cured, SETTLED_LOOKS)
    assert watch.look(cured, "brick-4") == [("brick-4", None)]


def test_two_that_look_sick_by_turns_are_sick_together() -> None:
    watch = Watch().settle(crowd(6))
    assert watch.look(crowd(6), "brick-1") == [("brick-1", None)]
    watch.settle(crowd(6), SETTLED_LOOKS)
    assert watch.look(crowd(6), "brick-4") == [("brick-4", "systemic")]


# What is the machine's.


def on_nodes(*counts: int) -> Samples:
    """So many bricks on n1, n2, and so on."""
    nodes = [f"n{number + 1}" for number, count in enumerate(counts) for _ in range(count)]
    bricks = [brick(number + 1, node=node) for number, node in enumerate(nodes)]
    return {each.id: each for each in bricks}


def test_all_of_a_node_together_are_the_machine_and_one_of_them_is_not() -> None:
    twelve = on_nodes(3, 9)
    watch = Watch().settle(twelve)
    assert watch.look(twelve, "brick-1", "brick-2", "brick-3") == [
        ("brick-1", "node"),
        ("brick-2", "node"),
        ("brick-3", "node"),
    ]
    watch = Watch().settle(twelve)
    assert watch.look(twelve, "brick-1", "brick-2")[0] == ("brick-1", None)


def test_machine_is_known_by_one_that_is_sick_and_the_rest_that_lean_that_way() -> None:
    samples = on_nodes(3, 9)
    for leaning, why in (({"brick-2", "brick-3"}, "node"), ({"brick-2", "brick-9"}, None)):
        watch = Watch().settle(samples)
        watch.policy.look(samples, watch.at + 1)
        allowed = watch.policy.allow(flags(samples, "brick-1", leaning=leaning))
        found = [each.withheld for each in (*allowed.condemned, *allowed.withheld)]
        assert found == [why]


def test_one_that_is_just_over_still_counts_to_its_machine() -> None:
    twelve = on_nodes(2, 10)
    watch = Watch().settle(twelve)
    assert watch.look(twelve, "brick-1") == [("brick-1", None)]
    back = {**twelve, "brick-1": brick(1, node="n1", incarnation=2, age_s=3.0)}
    assert watch.look(back, "brick-2") == [("brick-2", "node")]


def test_brick_alone_on_its_machine_and_a_cluster_of_one_machine_are_judged_as_ever() -> None:
    alone = on_nodes(1, 5)
    assert Watch().settle(alone).look(alone, "brick-1") == [("brick-1", None)]
    one = on_nodes(3)
    policy = Policy(PinpointConfig(grace_s=GRACE_S), {"brick": 1}, 1.0)
    for at in range(9):
        policy.look(one, float(at))
    withheld = policy.allow(flags(one, "brick-1", "brick-2", "brick-3")).withheld
    assert {each.withheld for each in withheld} == {"systemic"}


# Who has more to do.


def at_work(sample: Sample, *groups: str, decisive: bool = False) -> Flags:
    odd = [msgspec.structs.replace(anomaly(each), decisive=decisive) for each in groups]
    evidence = tuple(Evidence(each, 3.0) for each in odd)
    verdict = Verdict(sample.id, sample.incarnation, sample.role, sample.node, evidence, 3.0, 5.0)
    return Flags(frozenset([sample.id]), frozenset([sample.id]), (verdict,))


@pytest.mark.parametrize("statistic", ["answered_per_s", "records_received_per_s"])
@pytest.mark.parametrize(
    ("times", "groups", "decisive", "why"),
    [
        (1.7, ["busy", "queue", "wait"], False, "hot"),
        (1.7, ["busy", "queue", "service"], False, None),
        (1.7, ["memory"], True, None),
        (1.4, ["busy", "queue", "wait"], False, None),
    ],
)
def test_more_to_do_explains_waiting_but_not_slow_work(
    statistic: str, times: float, groups: list[str], *, decisive: bool, why: Why | None
) -> None:
    told = [{statistic: 300.0 * (times if number == 2 else 1.0)} for number in range(1, 7)]
    samples = crowd(6, but=[brick(n + 1, statistics=each) for n, each in enumerate(told)])
    watch = Watch().settle(samples)
    watch.policy.look(samples, watch.at + 1)
    allowed = watch.policy.allow(at_work(samples["brick-2"], *groups, decisive=decisive))
    assert [each.withheld for each in (*allowed.condemned, *allowed.withheld)] == [why]


def test_twice_of_next_to_nothing_is_not_more_to_do() -> None:
    idle = crowd(6, but=[brick(2, statistics={"answered_per_s": 8.0})])
    assert Watch().settle(idle).look(idle, "brick-2") == [("brick-2", None)]


# Who says a thing for ever.


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_two_that_start_or_drain_for_ever_are_no_change_for_ever(state: State) -> None:
    watch = Watch().settle(crowd(8))
    stuck = crowd(8, but=[brick(1, state=state, incarnation=2), brick(3, state=state)])
    lasting = int(GRACE_S) if state == "starting" else SETTLED_LOOKS
    said = [watch.look(stuck, "brick-5")[0][1] for _ in range(lasting + 1)]
    assert said[0] == "change"
    assert said[-1] is None


def test_age_that_is_told_wrong_blocks_nothing_and_saves_nobody() -> None:
    liars = crowd(8, but=[brick(number, age_s=1.0) for number in (1, 2, 3)])
    watch = Watch().settle(liars, looks=int(GRACE_S))
    assert watch.look(liars, "brick-8") == [("brick-8", None)]
    policy = Policy(PinpointConfig(grace_s=GRACE_S), NEEDED, 1.0)
    judged = ["brick-1" in policy.look(liars, float(at)) for at in range(int(GRACE_S) + 2)]
    assert judged == [False] * int(GRACE_S) + [True] * 2


# Whatever comes.

STATES: list[State] = ["live", "live", "live", "live", "starting", "draining", "suspect", "dead"]
numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1000)


@st.composite
def a_tick(draw: st.DrawFn) -> tuple[float, Samples, list[str]]:
    """How much later, who is there, and who is held to be sick."""
    ids = draw(st.sets(st.integers(1, 9), max_size=9))
    changed = draw(st.sets(st.integers(1, 9), max_size=2))
    samples = {}
    for number in ids:
        sample = brick(number, statistics={"answered_per_s": 100.0})
        if number in changed:
            sample = brick(
                number,
                state=draw(st.sampled_from(STATES)),
                age_s=draw(numbers),
                incarnation=draw(st.integers(1, 4)),
                statistics={"answered_per_s": draw(numbers)},
            )
        samples[sample.id] = sample
    sick = draw(st.lists(st.sampled_from(sorted(samples) or ["none"]), max_size=3, unique=True))
    return draw(st.sampled_from([1.0, 1.0, 1.0, 0.2, 0.0, 4.0])), samples, sick


def calm(ids: Iterable[int]) -> Samples:
    return {f"brick-{n}": brick(n, statistics={"answered_per_s": 100.0}) for n in ids}


@pytest.mark.slow
@given(st.lists(a_tick(), min_size=1, max_size=30))
def test_guards_hold_whatever_comes(ticks: list[tuple[float, Samples, list[str]]]) -> None:
    watch = Watch().settle(calm(range(1, 10)))
    ordered: dict[str, float] = {}
    flight: tuple[str, int, float] | None = None
    first_seen = {(each, 1): 501.0 for each in calm(range(1, 10))}
    for later_s, samples, sick in ticks:
        watch.at += later_s
        eligible = watch.policy.look(samples, watch.at)
        for each in samples.values():
            first_seen.setdefault((each.id, each.incarnation), watch.at)
        if flight is not None:
            sample = samples.get(flight[0])
            back = sample and sample.incarnation > flight[1] and sample.state == "live"
            if back or watch.at - flight[2] >= FLIGHT_S_MAX:
                flight = None
        named = [each for each in sick if each in eligible]
        allowed = watch.policy.allow(flags(samples, *named))
        live = sum(sample.state == "live" for sample in samples.values())
        assert len(allowed.condemned) <= 1
        assert len(allowed.condemned) + len(allowed.withheld) == len(named)
        for verdict in allowed.condemned:
            sample = samples[verdict.id]
            lived = sample.id, sample.incarnation
            assert flight is None
            assert sample.state == "live"
            assert max(watch.at - first_seen[lived], sample.age_s) >= GRACE_S
            assert live - 1 >= NEEDED["brick"]
            assert len(named) <= max(1, len(eligible) // 4)
            assert watch.at - ordered.get(verdict.id, -1e9) >= GRACE_S
            ordered[verdict.id] = watch.at
            flight = verdict.id, verdict.incarnation, watch.at


@pytest.mark.slow
@given(st.lists(a_tick(), min_size=1, max_size=20))
def test_what_is_remembered_is_what_is_there_or_just_went(
    ticks: list[tuple[float, Samples, list[str]]],
) -> None:
    watch = Watch()
    for later_s, samples, sick in ticks:
        watch.at += later_s
        eligible = watch.policy.look(samples, watch.at)
        watch.policy.allow(flags(samples, *(each for each in sick if each in eligible)))
    copy = msgspec.structs.replace(brick(1), id="other-1", role="other")
    watch.at += 100.0
    watch.policy.look({copy.id: copy}, watch.at)
    watch.at += 100.0
    watch.policy.look({copy.id: copy}, watch.at)
    assert len(watch.policy._lives) == 1
