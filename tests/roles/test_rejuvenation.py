"""Bricks are restarted in turn, evenly spread, none too late; and on a real cluster, without loss.

Method: lives are numbers; a little simulation restarts whoever is due. Then a cluster whose bricks
live for three seconds each, while one stub writes and reads: nothing is lost and nothing refused.
"""

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages import State
from roles import Stub
from roles.inquiry import event_rows
from roles.rejuvenation import JITTER_SHARE, BrickLife, Due, next_due
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
