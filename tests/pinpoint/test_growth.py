"""When a brick more is started, where, and when it is given back.

Method: ticks a second apart, of three planned bricks on two nodes and an overflow node; at most
two spares. Stubs refuse, or do not; refused for 5 s is enough, and nothing refused for 60 s.
"""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config_shape import PinpointConfig, Planned
from pinpoint.growth import EFFECT_S_MAX, DrainSpare, Grown, Growth, StartSpare
from pinpoint.refusals import SOON
from pinpoint.samples import Demand, Sample, Tick
from tests.pinpoint.crowd import CALM, brick

NODES = {"n1": False, "n2": False, "o1": True}
PLAN = [Planned(f"brick-{n}", "brick", f"n{n % 2 + 1}") for n in (1, 2, 3)]  # Two on n2.
BYTES_MAX = 1000
REFUSING = Demand(1000.0, 100.0)
REFUSED_S, GIVE_BACK_S = 5, 60


def node(number: int, name: str, busy: float | None = None, **more: str) -> Sample:
    told = {} if busy is None else {"machine_busy_ratio": busy}
    sample = brick(number, role="node", node=name, statistics=told)
    return msgspec.structs.replace(sample, **more)


AGENTS = (node(1, "n1"), node(2, "n2"), node(3, "o1"))
BRICKS = tuple(brick(n, node=f"n{n % 2 + 1}") for n in (1, 2, 3))


class Town:
    def __init__(self, settings: PinpointConfig | None = None) -> None:
        self.growth = Growth(settings or PinpointConfig(), PLAN, NODES, BYTES_MAX)
        self.at = 100.0

    def look(
        self,
        demand: Demand = REFUSING,
        samples: Iterable[Sample] = (*BRICKS, *AGENTS),
        *,
        restarting: bool = False,
        blind: bool = False,
    ) -> Grown:
        self.at += 1.0
        tick = Tick(self.at, list(samples), [], demand, blind)
        return self.growth.tick(tick, restarting=restarting)

    def after(
        self, seconds: int, demand: Demand = REFUSING, samples: Iterable[Sample] = ()
    ) -> Grown:
        """What comes of the last of so many looks; those before it come to nothing."""
        samples = samples or (*BRICKS, *AGENTS)
        before = [self.look(demand, samples).step for _ in range(seconds)]
        assert before == [None] * seconds
        return self.look(demand, samples)


def test_stubs_that_keep_refusing_get_a_brick_where_there_are_fewest() -> None:
    reason = "stubs refused 10% of 1000 requests a second for 5 s; n1 has room"
    assert Town().after(REFUSED_S) == Grown(StartSpare("brick-4", "n1", reason))


def test_refusing_now_and_then_is_not_enough() -> None:
    town = Town()
    for _ in range(5):
        town.after(REFUSED_S - 2)
        assert town.look(CALM) == Grown()
    few = Demand(1000.0, 40.0)
    assert town.after(100, few) == Grown()


def test_node_without_room_or_agent_is_passed_over_and_overflow_comes_last() -> None:
    def chosen(*agents: Sample) -> str | None:
        grown = Town().after(REFUSED_S, samples=(*BRICKS, *agents))
        return grown.step.node if isinstance(grown.step, StartSpare) else grown.short

    busy, free = node(1, "n1", 0.95), node(1, "n1", 0.2)
    assert chosen(free, *AGENTS[1:]) == "n1"
    assert chosen(busy, *AGENTS[1:]) == "n2"
    assert chosen(busy, node(2, "n2", state="dead"), AGENTS[2]) == "o1"
    assert chosen(busy) == "room"
    assert chosen(node(9, "unheard-of")) == "room"


def test_nothing_is_started_while_another_cure_is_due() -> None:
    missing = (*BRICKS[:2], brick(3, state="dead"), *AGENTS)
    assert Town().after(REFUSED_S, samples=missing) == Grown(short="bricks")
    full = {"memory_bytes": 0.95 * BYTES_MAX}
    crammed = [brick(n, statistics=full) for n in (1, 2, 3)]
    assert Town().after(REFUSED_S, samples=(*crammed, *AGENTS)) == Grown(short="memory")
    loaded = [brick(n, statistics={**full, "overloaded": 1.0}) for n in (1, 2, 3)]
    assert Town().after(REFUSED_S, samples=(*loaded, *AGENTS)).short is None
    town = Town()
    town.after(REFUSED_S - 1)
    assert town.look(restarting=True) == Grown(short="restart")


def test_blindness_begins_the_count_anew() -> None:
    town = Town()
    town.after(REFUSED_S - 1)
    assert town.look(blind=True) == Grown()
    assert isinstance(town.after(REFUSED_S).step, StartSpare)


def test_one_at_a_time_and_the_next_only_if_that_did_not_help() -> None:
    town = Town()
    assert isinstance(town.after(REFUSED_S).step, StartSpare)
    starting = (*BRICKS, brick(4, state="starting", age_s=1.0), *AGENTS)
    assert town.after(6, samples=starting) == Grown()
    there = (*BRICKS, brick(4, node="n1"), *AGENTS)
    step = town.look(REFUSING, there).step
    assert isinstance(step, StartSpare)
    assert (step.id, step.node) == ("brick-5", "n1")
    both = (*BRICKS, brick(4), brick(5), *AGENTS)
    assert town.after(REFUSED_S, samples=both) == Grown(short="spares")


def test_order_that_came_to_nothing_is_given_again() -> None:
    town = Town()
    assert isinstance(town.after(REFUSED_S).step, StartSpare)
    step = town.after(int(EFFECT_S_MAX) - 1).step
    assert isinstance(step, StartSpare)
    assert step.id == "brick-4"


def test_id_of_a_spare_that_is_known_to_have_died_is_not_given_again() -> None:
    dead = (*BRICKS, brick(4, state="dead"), brick(5, state="offline"), *AGENTS)
    step = Town().after(REFUSED_S, samples=dead).step
    assert isinstance(step, StartSpare)
    assert step.id == "brick-6"


def test_spare_with_the_fewest_sessions_is_given_back_one_at_a_time() -> None:
    spares = (brick(4, statistics={"items": 9.0}), brick(5, statistics={"items": 3.0}))
    town = Town()
    grown = town.after(GIVE_BACK_S, CALM, (*BRICKS, *spares, *AGENTS))
    assert grown == Grown(
        DrainSpare("brick-5", "hardly anything was refused for 60 s, and one fewer will do")
    )
    draining = (*BRICKS, spares[0], brick(5, state="draining"), *AGENTS)
    assert town.after(GIVE_BACK_S + 40, CALM, draining) == Grown()
    last = (*BRICKS, spares[0], brick(5, state="offline"), *AGENTS)
    reason = "hardly anything was refused for 101 s, and one fewer will do"
    assert town.look(CALM, last) == Grown(DrainSpare("brick-4", reason))


def test_spare_stays_while_a_planned_brick_is_missing() -> None:
    short = (*BRICKS[:2], brick(4), *AGENTS)
    assert Town().after(3 * GIVE_BACK_S, CALM, short) == Grown()


def test_spare_that_died_a_moment_ago_may_come_back_and_counts() -> None:
    def chosen(silent_s: float) -> str | None:
        dead = msgspec.structs.replace(brick(4, state="dead"), beacon_age_s=silent_s)
        town = Town(PinpointConfig(spare_bricks=1))
        grown = town.after(REFUSED_S, samples=(*BRICKS, dead, *AGENTS))
        return grown.step.id if grown.step is not None else grown.short

    assert chosen(59.0) == "spares"
    assert chosen(60.0) == "brick-5"


class Load:
    """Bricks that carry 220 a second each; who is ordered is there, or gone, at the next look."""

    def __init__(self, bricks: int = 3) -> None:
        self.town = Town()
        self.bricks = {f"brick-{n}": brick(n) for n in range(1, bricks + 1)}
        self.steps: list[str] = []

    def last(self, seconds: int, asked: float) -> list[str]:
        """What was ordered in that time."""
        before = len(self.steps)
        for _ in range(seconds):
            demand = Demand(asked, max(asked - 220.0 * len(self.bricks), 0.0))
            match self.town.look(demand, (*self.bricks.values(), *AGENTS)).step:
                case StartSpare() as step:
                    self.bricks[step.id] = brick(int(step.id[-1]))
                    self.steps.append(f"+{step.id}")
                case DrainSpare() as step:
                    del self.bricks[step.id]
                    self.steps.append(f"-{step.id}")
                case None:
                    pass
        return self.steps[before:]


def test_steady_load_that_three_cannot_carry_keeps_the_fourth() -> None:
    load = Load()
    assert load.last(3600, 800.0) == ["+brick-4"]
    assert load.last(3600, 0.81 * 660) == []
    assert load.last(GIVE_BACK_S + 1, 0.79 * 660) == ["-brick-4"]


def test_pinpoint_that_knows_nothing_yet_errs_once() -> None:
    assert Load(4).last(3600, 800.0) == ["-brick-4", "+brick-4"]


def test_load_that_comes_and_goes_makes_the_calm_needed_longer() -> None:
    load = Load()
    for _ in range(60):  # Six hours.
        load.last(180, 800.0)
        load.last(180, 100.0)
    # The first three times it is calm for 60, 120 and then never 240 s.
    assert load.steps == ["+brick-4", "-brick-4"] * 2 + ["+brick-4"]
    assert load.last(GIVE_BACK_S * 4, 100.0) == ["-brick-4"]
    load.last(int(SOON * GIVE_BACK_S), 100.0)
    assert load.last(10, 800.0) == ["+brick-4"]
    assert load.last(GIVE_BACK_S + 1, 100.0) == ["-brick-4"]


def test_bricks_that_carry_more_than_they_once_did_can() -> None:
    """Something else had been the matter, so that nearly all was refused."""
    town = Town()
    assert isinstance(town.after(REFUSED_S, Demand(600.0, 590.0)).step, StartSpare)
    there = (*BRICKS, brick(4), *AGENTS)
    assert town.after(10 * GIVE_BACK_S, Demand(600.0, 0.0), there) == Grown()
    assert town.after(GIVE_BACK_S - 1, Demand(350.0, 0.0), there) == Grown()
    assert isinstance(town.look(Demand(350.0, 0.0), there).step, DrainSpare)


@pytest.mark.parametrize("demand", [Demand(1000.0, 4.0), Demand(0.02, 0.02)])
def test_one_who_is_refused_now_and_then_keeps_nothing(demand: Demand) -> None:
    town = Town()
    grown = town.after(GIVE_BACK_S, demand, (*BRICKS, brick(4), *AGENTS))
    assert isinstance(grown.step, DrainSpare)


def test_between_too_much_and_hardly_anything_nothing_is_done() -> None:
    for refused in (6.0, 49.0):
        demand = Demand(1000.0, refused)
        assert Town().after(500, demand, (*BRICKS, brick(4), *AGENTS)) == Grown()


def test_mode_off_and_no_spares_mean_none() -> None:
    assert Town(PinpointConfig(mode="off")).after(REFUSED_S) == Grown()
    assert Town(PinpointConfig(spare_bricks=0)).after(REFUSED_S) == Grown(short="spares")


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 2000)
spares = st.sets(st.integers(1, 8), max_size=8)
states = st.sampled_from(["starting", "live", "live", "draining", "suspect", "dead", "offline"])


@pytest.mark.slow
@given(st.lists(st.tuples(numbers, numbers, spares, states, st.booleans()), max_size=40))
def test_plan_is_never_drained_and_never_more_than_allowed_are_started(
    looks: list[tuple[float, float, set[int], str, bool]],
) -> None:
    town = Town(PinpointConfig(refused_s=1.0, give_back_s=2.0))
    for asked, refused, there, state, blind in looks:
        bricks = [
            msgspec.structs.replace(brick(n), state=state if n > 3 else "live") for n in there
        ]
        grown = town.look(Demand(asked, refused), (*bricks, *AGENTS), blind=blind)
        here = [each for each in bricks if each.state not in ("dead", "offline")]
        match grown.step:
            case StartSpare() as step:
                assert len(here) < 3 + 2
                assert step.id not in {each.id for each in bricks} | {each.id for each in PLAN}
                assert there >= {1, 2, 3}
            case DrainSpare() as step:
                assert step.id in {each.id for each in here}
                assert step.id not in {each.id for each in PLAN}
            case None:
                pass
