"""An open loop begins requests on time, whatever became of those before.

Method: real greenlets; requests that wait, fail or are too many. Never a tight timing.
"""

import gevent
import pytest
from gevent.event import Event

from bus.clock import now
from bus.errors import SystemOverloaded
from loadtest.arrivals import constant, steady
from loadtest.goodput import Outcome
from loadtest.open_loop import NoRoomError, OpenLoop

pytestmark = pytest.mark.slow


def run(
    carry_out: object, per_s: float = 200, in_flight_max: int = 1000, timeout_s: float = 0.06
) -> Outcome:
    outcome = Outcome.of(0.5, 0.1, timeout_s)
    shape = steady(per_s, 0.5)
    loop = OpenLoop(carry_out, constant(shape), outcome, in_flight_max)  # type: ignore[arg-type]
    return loop.run(now() + 0.01)


def test_no_request_waits_for_another() -> None:  # O2
    """None ends before all have begun: a closed loop would never get there."""
    begun, all_begun = 0, Event()

    def carry_out() -> None:
        nonlocal begun
        begun += 1
        if begun == 100:
            all_begun.set()
        assert all_begun.wait(10)

    total = run(carry_out).total()
    assert (total.offered, total.failed) == (100, 0)
    assert total.late >= 80, "the first had to wait for the last"


def test_more_than_may_be_in_flight_are_not_begun() -> None:  # O1
    stop = Event()
    gevent.spawn_later(0.6, stop.set)
    total = run(lambda: stop.wait(10), in_flight_max=30).total()
    assert (total.unstarted, total.late) == (70, 30)


def test_latency_counts_from_when_a_request_was_meant_to_begin() -> None:  # O2
    """The loop is held up: the requests that fall due meanwhile are late by that."""
    held = False

    def carry_out() -> None:
        nonlocal held
        if not held:
            held = True
            until = now() + 0.3
            while now() < until:
                pass  # As a handler that computes: nothing else has its turn.

    outcome = run(carry_out)
    assert outcome.total().late >= 40
    assert outcome.total().offered == 100


def test_what_is_raised_is_what_became_of_it() -> None:
    raised = [SystemOverloaded("", 1.0), NoRoomError(""), KeyError("x"), None]

    def carry_out() -> None:
        error = raised[0]
        raised.append(raised.pop(0))
        if error is not None:
            raise error

    outcome = run(carry_out, timeout_s=60)
    assert outcome.total().offered == 100
    total = outcome.total()
    assert (total.good, total.refused, total.unstarted, total.failed) == (25, 25, 25, 25)
    assert outcome.errors == {"KeyError": 25}


def test_what_is_given_up_when_its_time_is_over_is_late() -> None:
    def carry_out() -> None:
        gevent.sleep(0.07)
        raise SystemOverloaded("", 1.0)

    total = run(carry_out).total()
    assert (total.late, total.refused) == (100, 0)
