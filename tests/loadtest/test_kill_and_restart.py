"""A brick is killed under load and comes back: nobody notices (the paper's Figure 4).

Method: as `make overload` does it, but shorter, and with a timeout of seconds: what must hold on
any machine is that every request is done, and right. That 60 ms are enough, the benchmark says.
"""

import pytest

from loadtest.kill_and_restart import Plan, run

pytestmark = pytest.mark.slow

SHORT = Plan(
    kill_s=1.5,
    start_s=2.5,
    end_s=5.0,
    timeout_s=5.0,
    # A machine that stands still has everything to do at once afterwards: that is no overload.
    settings={"limiter": "none"},
)


def test_no_request_fails_when_a_brick_is_killed_and_started_again() -> None:
    """450 requests a second of 8 KiB: reads bring what was written, in every tenth of a second."""
    seen = run(SHORT, lambda line: None)
    assert seen.outcome.errors == {}, "lost, in conflict, or not what was written"
    assert [each.offered - each.good for each in seen.outcome.intervals] == [0] * 50
    assert min(each.offered for each in seen.outcome.intervals) > SHORT.per_s / 10 / 2
    assert SHORT.kill_s < seen.killed_s < seen.live_s
