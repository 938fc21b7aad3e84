"""Bricks are restarted in turn, evenly spread, none too late; and on a real cluster, without loss.

Method: lives are numbers; a little simulation restarts whoever is due. Then a cluster whose bricks
live for three seconds each, while one stub writes and reads: nothing is lost and nothing refused.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config_shape import Planned
from bus.errors import BusError, NotReady
from bus.member import Member
from bus.messages import State
from roles import Stub
from roles.brick_roll import LeftAsItWas, Rolled
from roles.inquiry import event_rows
from roles.rejuvenation import JITTER_SHARE, BrickLife, Due, in_the_way, next_due
from roles.rejuvenator import LOOK_PERIODS, MEANWHILE_S, WAIT_S_MAX, Rejuvenator
from roles.testing import LocalCluster
from tests.waiting import until

PATIENCE_S = 30.0
PLANNED = {"brick-1", "brick-2", "brick-3"}


def lives(*ages_s: float) -> list[BrickLife]:
    return [BrickLife(f"brick-{number}", "live", age_s) for number, age_s in enumerate(ages_s, 1)]


def test_oldest_is_next_when_the_youngest_has_lasted_its_part() -> None:
    assert next_due(lives(50.0, 70.0, 10.0), PLANNED, 90.0, 0.0) == Due("brick-2", 20.0)
    assert next_due(lives(50.0, 70.0, 31.0), PLANNED, 90.0, 0.0) == Due("brick-2", -1.0)
    assert next_due(lives(50.0, 70.0, 10.0), PLANNED, 90.0, 0.5) == Due(
        "brick-2", 30.0 * (1 - JITTER_SHARE / 2) - 10.0
    )


def test_spare_bricks_have_their_turn_too() -> None:
    assert next_due(lives(50.0, 70.0, 40.0, 99.0), PLANNED, 120.0, 0.0) == Due("brick-4", -10.0)


@pytest.mark.parametrize("state", ["starting", "suspect", "draining", "dead", "offline"])
def test_nobody_is_due_while_a_planned_brick_is_not_live(state: State) -> None:  # J1
    healthy = lives(500.0, 700.0)
    assert next_due([*healthy, BrickLife("brick-3", state, 9.0)], PLANNED, 90.0, 0.0) is None
    assert next_due(healthy, PLANNED, 90.0, 0.0) is None, "never heard of"
    assert next_due([], PLANNED, 90.0, 0.0) is None


@pytest.mark.parametrize("state", ["starting", "suspect", "draining"])
def test_nobody_is_due_while_a_spare_brick_is_not_live(state: State) -> None:  # J1
    healthy = lives(500.0, 700.0, 600.0)
    assert next_due([*healthy, BrickLife("brick-4", state, 9.0)], PLANNED, 90.0, 0.0) is None


@pytest.mark.parametrize("state", ["dead", "offline"])
def test_a_spare_brick_that_has_ended_is_in_nobodys_way(state: State) -> None:
    healthy = lives(50.0, 70.0, 31.0)
    ended = BrickLife("brick-4", state, 9.0)
    assert next_due([*healthy, ended], PLANNED, 90.0, 0.0) == Due("brick-2", -1.0)


def test_those_in_the_way_are_named() -> None:
    states: list[State] = ["live", "offline", "starting", "dead"]
    bricks = [BrickLife(f"brick-{n}", state, 9.0) for n, state in enumerate(states, 1)]
    planned = {"brick-1", "brick-2", "brick-9"}
    assert in_the_way(bricks, planned) == ["brick-2", "brick-3", "brick-9"]
    assert in_the_way(bricks[:1], {"brick-1"}) == []


class Led:
    """A rejuvenator that leads three bricks of such an age, and what it says and does."""

    def __init__(self, age_s: float = 1000.0) -> None:
        self.now = 0.0
        self.age_s = age_s
        self.states: dict[str, State] = dict.fromkeys(sorted(PLANNED), "live")
        self.said: list[str] = []
        self.rolled: list[str] = []
        self.trouble: BusError | None = None
        plan = [Planned(each, "brick", "n1") for each in sorted(PLANNED)]
        member = SimpleNamespace(
            config=SimpleNamespace(
                sessions=SimpleNamespace(rejuvenate_s=90.0, ttl_s_max=7200.0),
                components=lambda: plan,
                beacons=SimpleNamespace(period_s=1.0),
            ),
            identity=SimpleNamespace(id="manager-1"),
            liveness=SimpleNamespace(blind=False, peers=self._peers),
            event=lambda kind, subject, reason: self.said.append(f"{kind} {subject}: {reason}"),
        )
        self.rejuvenator = Rejuvenator(
            cast("Member", member), lambda: True, roll=self._roll, clock=lambda: self.now
        )

    def _peers(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                id=each,
                state=state,
                age_s=self.age_s,
                heard_at=self.now,
                role="brick",
                linked=False,
            )
            for each, state in self.states.items()
        ]

    def _roll(self, member: Member, ids: list[str]) -> Iterator[Rolled]:
        self.rolled += ids
        if self.trouble is not None:
            raise self.trouble
        yield Rolled(ids[0], 7, 1, 0.5)

    def wait_s(self) -> float:
        """How long it waits after one more look."""
        wait_s = self.rejuvenator.look()
        self.now += wait_s
        return wait_s


def test_after_a_brick_came_back_empty_nobody_is_restarted_till_all_is_written_again() -> None:
    led = Led()
    led.trouble = NotReady("brick-3 came back empty")
    assert led.wait_s() == 7200.0
    assert led.said == [
        "alert manager-1: brick-3 was to be rejuvenated: brick-3 came back empty; no brick is "
        "rejuvenated for 7200 s"
    ]


def test_brick_that_was_left_as_it_was_is_tried_again_and_that_is_said_once() -> None:
    led = Led()
    led.trouble = LeftAsItWas("2 bricks are live")
    assert [led.wait_s(), led.wait_s()] == [WAIT_S_MAX, WAIT_S_MAX]
    led.trouble = None
    assert led.wait_s() == LOOK_PERIODS
    assert led.rolled == ["brick-3"] * 3
    assert led.said == [
        "degraded manager-1: brick-3 is not rejuvenated: 2 bricks are live",
        "rejuvenated brick-3: with 7 sessions, away for 0.5 s",
    ]


def test_that_one_brick_keeps_all_from_being_rejuvenated_is_said_once() -> None:
    led = Led()
    led.states["brick-2"] = "offline"
    while led.now < MEANWHILE_S:
        led.wait_s()
    assert led.said == []
    for _ in range(5):
        led.wait_s()
    why = "degraded manager-1: no brick is rejuvenated while these are not live: brick-2"
    assert led.said == [why]
    led.states["brick-2"] = "live"
    led.wait_s()
    assert led.rolled == ["brick-3"]


@given(
    count=st.integers(1, 12),
    every_s=st.floats(1.0, 1e6),
    jitters=st.lists(st.floats(0, 1), min_size=40, max_size=40),
)
def test_no_life_is_too_long_and_restarts_are_spread(  # J2
    *, count: int, every_s: float, jitters: list[float]
) -> None:
    began = {f"brick-{number}": 0.0 for number in range(1, count + 1)}
    at = 0.0
    for jitter in jitters:
        bricks = [BrickLife(each, "live", at - since) for each, since in began.items()]
        due = next_due(bricks, began.keys(), every_s, jitter)
        assert due is not None
        assert due.in_s >= 0.89 * every_s / count
        at += due.in_s
        assert at - began[due.id] <= every_s * 1.0001
        began[due.id] = at


@pytest.mark.slow
def test_bricks_of_a_real_cluster_are_young_and_nothing_is_lost_or_refused() -> None:
    settings = {"sessions": {"rejuvenate_s": 3.0, "timeout_ms": 2000}}
    with LocalCluster(
        hubs=1, nodes=2, managers=1, bricks=3, preset="fast", settings=settings
    ) as local:
        stub = Stub(local.cluster)
        member = local.cluster.member()
        cookies: dict[int, str] = {}
        ended = [False]

        def use() -> None:
            count = 0
            while not ended[0]:
                number = count % 50
                value = f"{number} {count}".encode()
                cookies[number] = stub.write(
                    f"user-{number}", value, ttl_s=60, cookie=cookies.get(number)
                )
                assert stub.read(cookies[number]) == value
                count += 1
                gevent.sleep(0.002)

        def rejuvenated() -> set[str]:
            rows = event_rows(member, 200, 5.0).events
            return {each.subject for each in rows if each.kind == "rejuvenated"}

        using = gevent.spawn(use)
        until(lambda: len(rejuvenated()) == 3 or using.ready(), PATIENCE_S, "all three")
        ended[0] = True
        using.get()  # Raises what was refused or lost.
        local.cluster.release()
        stub.close()
