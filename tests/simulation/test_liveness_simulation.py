"""The promises of the liveness table, in a cluster under faults, for many seeds each.

Method: see `liveness_promises.py`. Replay one run by its name, for example
pytest tests/simulation/test_liveness_simulation.py -k 'both_hubs and seed-17'
If SOFTSTATE_SOAK is set (`make soak`), each run goes on with other seeds, `SEED_STEP` apart.
"""

import os
from collections import Counter

import pytest

from bus.liveness import Liveness
from tests.simulation.liveness_promises import PROMISES, Promise, all_is_well_after_any_trouble

TIMES = 600 if "SOFTSTATE_SOAK" in os.environ else 1  # Half an hour of seeds, not 3 s.
SEED_STEP = 1000
RUNS = [
    pytest.param(promise, seed, id=f"{promise.__name__}-seed-{seed}")
    for promise, seeds in PROMISES.items()
    for seed in range(seeds)
]


@pytest.mark.parametrize(("promise", "seed"), RUNS)
def test_promise_is_kept(promise: Promise, seed: int) -> None:
    for again in range(TIMES):
        promise(seed + again * SEED_STEP, Liveness)


def test_simulation_meets_what_it_is_meant_to_survive() -> None:
    seen: Counter[str] = Counter()
    for seed in range(10):
        seen += all_is_well_after_any_trouble(seed, Liveness).world.seen
    for name in ("Suspected", "Returned", "Died", "Replaced", "HubsSuspected", "HubsTrusted"):
        assert seen[name] >= 10, f"{name} came up only {seen[name]} times"
    for name in ("kill", "start", "pause", "cut"):
        assert seen[name] >= 10, f"{name} came up only {seen[name]} times"


def test_same_seed_gives_the_same_run() -> None:
    first, second = (all_is_well_after_any_trouble(7, Liveness).world.noted for _ in range(2))
    assert first == second
