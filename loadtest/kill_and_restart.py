"""The paper's Figure 4: a brick is killed under load and comes back, and nobody should notice.

Four bricks under a steady open loop of hyperactive sessions; one is killed without a word, and
started again later, empty. Waits, orders and measures; `loadtest.draw_overload` draws it, and
tests/loadtest/test_kill_and_restart.py asserts that no request fails.
"""

from collections.abc import Callable
from typing import Any

import gevent
import msgspec

from bus.clock import now
from loadtest.arrivals import steady
from loadtest.goodput import Outcome
from loadtest.session_field import TIMEOUT_S, Field
from loadtest.session_requests import ClusterAsked, Order

VICTIM = "brick-2"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    per_s: float = 450.0
    kill_s: float = 30.0
    start_s: float = 40.0
    end_s: float = 60.0
    warm_up_s: float = 1.0
    """Before all of that, and not counted: connections are made."""
    timeout_s: float = TIMEOUT_S
    settings: dict[str, Any] = {}
    """Of the stub."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    killed_s: float
    """When it was dead, from the beginning."""
    live_s: float
    """When it was live again."""


def run(plan: Plan, progress: Callable[[str], None]) -> Seen:
    with Field(ClusterAsked(bricks=4), generators=1, timeout_s=plan.timeout_s) as field:
        field.drive(steady(plan.per_s, plan.warm_up_s))
        shape = steady(plan.per_s, plan.end_s)
        began_at = field.begin(shape, settings=plan.settings)
        gevent.sleep(max(began_at + plan.kill_s - now(), 0.0))
        progress(f"{VICTIM} is killed")
        killed = field.order(Order("kill", VICTIM))
        gevent.sleep(max(began_at + plan.start_s - now(), 0.0))
        progress(f"{VICTIM} is started")
        live = field.order(Order("start", VICTIM))
        outcome = field.end(shape)
        return Seen(outcome=outcome, killed_s=killed.at - began_at, live_s=live.at - began_at)
