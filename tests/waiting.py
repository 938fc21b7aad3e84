"""How tests wait: for a condition, with a deadline, in small steps. Never for a fixed time."""

from collections.abc import Callable

import gevent

from bus.clock import now

STEP_S = 0.01


def until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once `condition()` is true; fail with `what` if that takes longer than `timeout_s`."""
    deadline = now() + timeout_s
    while not condition():
        assert now() < deadline, f"not within {timeout_s} s: {what}"
        gevent.sleep(STEP_S)
