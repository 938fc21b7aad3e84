"""The availability calculator: the paper's table and equations, and a race run many times.

Method: the closed form against the paper's own equations, against the integral it stands for, and
against a simulation in which bricks crash and the next write comes, with seeded chance.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.nines import NINES_MAX, PAPER, WQ_MAX, loss, needed_ratio, nines

RUNS = 100_000

copies = st.integers(1, WQ_MAX)
ratios = st.floats(0.01, 1e6)


@pytest.mark.parametrize(
    ("wq", "count", "ratio"),
    [(wq, count, ratio) for wq, rows in PAPER.items() for count, ratio in rows.items()],
)
def test_table_2_of_the_paper_within_half_a_percent(wq: int, count: int, ratio: float) -> None:
    assert needed_ratio(count, wq) == pytest.approx(ratio, rel=0.005)


@given(ratios)
def test_equations_1_and_2_of_the_paper(rho: float) -> None:
    third = rho * (rho**2 + 6 * rho + 11) / ((rho + 1) * (rho + 2) * (rho + 3))
    second = rho * (rho + 3) / ((rho + 1) * (rho + 2))
    assert 1 - loss(rho, 3) == pytest.approx(third, abs=1e-12)
    assert 1 - loss(rho, 2) == pytest.approx(second, abs=1e-12)


def test_example_of_the_paper_has_three_nines() -> None:
    assert nines(81 / 5, 3) == pytest.approx(3.0, abs=0.001)
    assert nines(81 / 5, 3) >= 3.0


@pytest.mark.parametrize(("wq", "ratio"), [(1, 1.0), (2, 3.0), (3, 2.0), (4, 1.0), (8, 0.5)])
def test_race_run_many_times_ends_as_calculated(wq: int, ratio: float) -> None:
    """Each run: `wq` bricks crash at random times, a write comes at another. Four deviations."""
    chance = random.Random(7)
    lost = 0
    for _ in range(RUNS):
        write_at = chance.expovariate(1.0)
        lost += all(chance.expovariate(1.0 / ratio) < write_at for _ in range(wq))
    expected = loss(ratio, wq)
    deviation = math.sqrt(expected * (1 - expected) / RUNS)
    assert lost / RUNS == pytest.approx(expected, abs=4 * deviation)
    assert lost > 100, "too few to tell anything"


@pytest.mark.parametrize("wq", range(1, WQ_MAX + 1))
def test_closed_form_is_the_integral_over_the_time_of_the_next_write(wq: int) -> None:
    """All `wq` have crashed by time t with (1 - exp(-t/ratio))**wq; the write comes with exp(-t).
    Summed in steps so small that only the fourth digit can differ."""
    ratio, step = 3.0, 0.002
    times = [step * (index + 0.5) for index in range(20_000)]
    summed = sum(step * math.exp(-t) * (1 - math.exp(-t / ratio)) ** wq for t in times)
    assert loss(ratio, wq) == pytest.approx(summed, rel=1e-4)


@given(ratios, copies)
def test_longer_lives_and_more_copies_lose_less(ratio: float, wq: int) -> None:  # N1
    assert loss(ratio * 1.01, wq) < loss(ratio, wq)
    assert loss(ratio, wq + 1) < loss(ratio, wq)
    assert nines(ratio, wq) == pytest.approx(-math.log10(loss(ratio, wq)), abs=1e-9)


@given(st.floats(0.001, NINES_MAX), copies)
def test_needed_ratio_gives_what_was_asked_for(wanted: float, wq: int) -> None:  # N2
    ratio = needed_ratio(wanted, wq)
    assert nines(ratio, wq) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert nines(ratio, wq) >= wanted - 1e-12
