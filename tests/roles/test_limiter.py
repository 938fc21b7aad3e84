"""How much a stub may send to one brick: room, growth, cuts.

Method: limiters are driven through `acquire` and `release` with chosen times and delays; at the
end a brick of fixed speed is played, and the limit must find its level.
"""

from collections import deque

import pytest

from roles.limiter import LIMIT_FIRST, Aimd, Limiter, QueueDelay, Unlimited, limiter_of


def fill(limiter: Limiter) -> int:
    taken = 0
    while taken < 5000 and limiter.acquire():
        taken += 1
    return taken


@pytest.mark.parametrize("limiter", [Aimd(0.06), QueueDelay(0.05, 0.005)])
def test_there_is_room_up_to_the_limit_and_no_further(limiter: Limiter) -> None:  # L1
    assert fill(limiter) == LIMIT_FIRST
    assert not limiter.acquire()
    limiter.release("answered", 0.0, 1.0)
    assert limiter.acquire()


@pytest.mark.parametrize("limiter", [Aimd(0.06), QueueDelay(0.05, 0.005)])
def test_there_is_always_room_for_one(limiter: Limiter) -> None:  # L1
    for second in range(50):
        assert limiter.acquire()
        limiter.release("silent", 0.0, float(second))
    assert limiter.limit == 1
    assert fill(limiter) == 1


@pytest.mark.parametrize("limiter", [Aimd(0.06), QueueDelay(0.05, 0.005)])
def test_a_burst_of_failures_cuts_once(limiter: Limiter) -> None:  # L2
    taken = fill(limiter)
    for _ in range(taken):
        limiter.release("refused", 0.0, 10.0)
    assert limiter.limit == LIMIT_FIRST / 2
    limiter.acquire()
    limiter.release("refused", 0.0, 11.0)
    assert limiter.limit == LIMIT_FIRST / 4


@pytest.mark.parametrize("limiter", [Aimd(0.06), QueueDelay(0.05, 0.005)])
def test_a_limit_that_is_not_used_does_not_grow(limiter: Limiter) -> None:  # L3
    for number in range(1000):
        limiter.acquire()
        limiter.release("answered", 0.0, number * 0.01)
    assert limiter.limit == LIMIT_FIRST


@pytest.mark.parametrize("limiter", [Aimd(0.06), QueueDelay(0.05, 0.005)])
def test_a_limit_that_is_used_grows(limiter: Limiter) -> None:
    for turn in range(100):
        for _ in range(fill(limiter)):
            limiter.release("answered", 0.0, turn * 0.1)
    assert limiter.limit > LIMIT_FIRST * 2


def test_long_waits_shrink_the_limit_and_longer_ones_more() -> None:
    mild, bad = QueueDelay(0.05, 0.005), QueueDelay(0.05, 0.005)
    for limiter, queued_s in ((mild, 0.006), (bad, 0.5)):
        for _ in range(fill(limiter)):
            limiter.release("answered", queued_s, 1.0)
    assert LIMIT_FIRST / 2 == bad.limit < mild.limit < LIMIT_FIRST


def test_no_limit_is_none() -> None:
    assert fill(Unlimited()) == 5000


def standing(limiter: Limiter, seconds: float, pause_s: float = 0.0) -> list[int]:
    """A brick that takes 1 ms for each and always has more to do; how many were in flight. Once
    in a tenth of a second it stands still for `pause_s`."""
    now, waiting, seen = 0.0, deque[float](), []
    while now < seconds:
        for _ in range(fill(limiter)):
            waiting.append(now)
        seen.append(len(waiting))
        added_at = waiting.popleft()
        limiter.release("answered", now - added_at, now + 0.001)
        now += 0.001
        if len(seen) % 100 == 0:
            now += pause_s
    return seen[len(seen) // 2 :]


def test_the_limit_finds_what_a_brick_can_carry() -> None:
    """With nine in flight they wait the 8 ms that are the target."""
    seen = standing(limiter_of("qdelay", 0.06), 5.0)
    assert min(seen) >= 7
    assert max(seen) <= 14


def test_a_brick_that_stands_still_now_and_then_is_no_slow_brick() -> None:
    """Many wait longer then, but not all of any period: hardly fewer are in flight."""
    seen = standing(limiter_of("qdelay", 0.06), 5.0, pause_s=0.02)
    assert min(seen) >= 6


@pytest.mark.parametrize(
    ("kind", "limiter"), [("aimd", Aimd), ("qdelay", QueueDelay), ("none", Unlimited)]
)
def test_every_kind_of_the_configuration_is_there(kind: str, limiter: type) -> None:
    assert type(limiter_of(kind, 0.06)) is limiter  # type: ignore[arg-type]
