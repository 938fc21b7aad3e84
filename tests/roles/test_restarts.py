"""The wait before another start: numbers in, number out."""

from roles.restarts import Restarts


def restarts() -> Restarts:
    return Restarts(free=2, window_s=10.0, delay_s_first=0.5, delay_s_max=3.0)


def test_the_first_ends_cost_no_wait_and_further_ones_twice_as_much_each_up_to_the_cap() -> (
    None
):  # R1, R2
    policy = restarts()
    starts = [policy.ended(now=100.0) for _ in range(7)]
    assert starts == [100.0, 100.0, 100.5, 101.0, 102.0, 103.0, 103.0]


def test_an_end_older_than_the_window_no_longer_counts() -> None:  # R3
    policy = restarts()
    assert [policy.ended(now) for now in (100.0, 101.0, 102.0)] == [100.0, 101.0, 102.5]
    assert policy.delay_s(now=109.9) == 0.5
    assert policy.delay_s(now=110.0) == 0.0  # The one at 100 is forgotten: two are left.


def test_a_process_that_never_stays_up_is_still_started_every_few_seconds() -> None:  # R2
    policy = restarts()
    now = 0.0
    for _ in range(1000):
        start = policy.ended(now)
        assert start - now <= 3.0
        now = start + 0.1
