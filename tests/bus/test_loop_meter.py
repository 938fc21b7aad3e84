"""How busy an event loop is, told by loops that are known to work and to wait.

Method: a greenlet that makes the loop stand still for as long as it then waits; the clock is real,
so what is asserted leaves room for a busy machine.
"""

import gevent
import pytest
from gevent.monkey import get_original

from bus.clock import now
from bus.loop_meter import LoopMeter

pytestmark = pytest.mark.slow

stand_still = get_original("time", "sleep")


def share(work_s: float, wait_s: float, turns: int) -> float:
    meter, began_at = LoopMeter(), now()
    try:
        for _ in range(turns):
            stand_still(work_s)
            gevent.sleep(wait_s)
        return meter.busy_s / (now() - began_at)
    finally:
        meter.close()


def test_loop_that_stands_still_is_at_work_and_one_that_waits_is_not() -> None:
    assert share(0.01, 0.0, 40) > 0.9
    assert share(0.0, 0.01, 40) < 0.4
    assert 0.2 < share(0.01, 0.01, 40) < 0.8


def test_closed_meter_costs_and_counts_nothing() -> None:
    meter = LoopMeter()
    meter.close()
    before = meter.busy_s
    gevent.sleep(0.01)
    stand_still(0.01)
    gevent.sleep(0.01)
    assert meter.busy_s == before
