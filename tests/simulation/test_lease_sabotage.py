"""The simulation of leases has teeth: each planted fault is caught, by the promise that it breaks.

Method: `lease_sabotage.py` has the faults; some seed of few must notice each. `make sim-sabotage`
tells which, and what it saw.
"""

import pytest

from tests.simulation.lease_promises import PROMISES, Options
from tests.simulation.lease_sabotage import SABOTAGES, SEEDS_MAX, Sabotage

CHECKED = """one_owner continuous numbers losses find_right owned kept diffs single_trust failover
    clock"""


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=[each.name for each in SABOTAGES])
def test_planted_fault_is_caught(sabotage: Sabotage) -> None:
    assert any(sabotage.caught_by(seed) for seed in range(SEEDS_MAX)), (
        f"no seed of {sabotage.when.__name__} noticed: the simulation has lost a tooth"
    )


def test_every_check_catches_something() -> None:
    assert {sabotage.breaks for sabotage in SABOTAGES} == set(CHECKED.split())


def test_every_scenario_breaks_for_some_fault() -> None:
    assert {sabotage.when.__name__ for sabotage in SABOTAGES} == set(PROMISES)


def test_nothing_is_caught_where_nothing_is_planted() -> None:
    for sabotage in SABOTAGES[:10]:
        sabotage.when(0, Options(only=frozenset({sabotage.breaks})))
