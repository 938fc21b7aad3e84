"""The rate of another clock: what it says and when that came in, a complaint out."""

from random import Random

import pytest

from roles.clock_rate import ClockRate

SKEW, SLACK_S = 0.05, 0.25


def complaints(
    rate: float, *, seconds: int = 300, seed: int = 1, delay_s: float = 2.0
) -> list[str]:
    """Of a clock that runs at `rate`, heard once a second, one message in three in time."""
    chance = Random(seed)
    clock = ClockRate()
    said = []
    for at in range(seconds):
        late_s = 0.01 if chance.random() < 0.33 else chance.uniform(0, delay_s)
        said.append(clock.heard(at * rate, 1000 + at + late_s, skew=SKEW, slack_s=SLACK_S))
    return [each for each in said if each]


@pytest.mark.parametrize("rate", [1.0, 0.96, 1.04, 1.5])
@pytest.mark.parametrize("seed", range(5))
def test_a_clock_within_the_bound_or_too_fast_is_never_called_odd(
    rate: float, seed: int
) -> None:  # C1
    assert complaints(rate, seed=seed) == []


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.9])
def test_a_slow_clock_is_found(rate: float) -> None:  # C2
    said = complaints(rate)
    assert said
    assert "its clock lost" in said[0]


def test_after_a_complaint_it_is_judged_anew() -> None:
    clock = ClockRate()
    slow = [clock.heard(at * 0.5, 1000.0 + at, skew=SKEW, slack_s=SLACK_S) for at in range(64)]
    assert any(slow)
    healed = [
        clock.heard(32.0 + at, 1064.0 + at, skew=SKEW, slack_s=SLACK_S) for at in range(16, 200)
    ]
    assert not any(healed)
