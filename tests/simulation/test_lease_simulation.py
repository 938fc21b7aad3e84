"""The promises of leases, in clusters under faults: some seeds of what `make sim` runs many of.

Method: see `lease_promises.py`. A seed that fails here is told in full by `make sim SEED=n`.
"""

from collections import Counter

import pytest

from tests.simulation.lease_promises import (
    AT_ONE_FAULT,
    UNDER_TROUBLE,
    Options,
    Promise,
    all_is_well_after_any_trouble,
    no_store_rolled_back_does_harm,
    no_trouble_of_the_store_does_harm,
    promises_of,
)

SEEDS = 60
RUNS = [
    pytest.param(promise, seed, id=f"{promise.__name__}-seed-{seed}")
    for seed in range(SEEDS)
    for promise in promises_of(seed)
]


@pytest.mark.parametrize(("promise", "seed"), RUNS)
def test_promise_is_kept(promise: Promise, seed: int) -> None:
    promise(seed, Options())


def test_every_promise_gets_its_share_of_seeds() -> None:
    runs = Counter(promise for seed in range(SEEDS) for promise in promises_of(seed))
    assert min(runs[promise] for promise in [*UNDER_TROUBLE, *AT_ONE_FAULT]) >= 4


def test_simulation_meets_what_it_is_meant_to_survive() -> None:
    seen: Counter[str] = Counter()
    kinds = [
        all_is_well_after_any_trouble,
        no_trouble_of_the_store_does_harm,
        no_store_rolled_back_does_harm,
    ]
    for kind in kinds:
        for seed in range(4):
            seen += kind(seed, Options()).world.seen
    harms = ["kill", "start", "pause", "cut", "isolate", "leave", "resign", "in_doubt"]
    for name in [*harms, "rolled_back", "ignored: race", "ignored: not a grant"]:
        assert seen[name] >= 5, f"{name} came up only {seen[name]} times"


def test_leases_move_and_get_lost_while_there_is_trouble() -> None:
    ledgers = [all_is_well_after_any_trouble(seed, Options()).ledger for seed in range(4)]
    assert min(ledger.changes for ledger in ledgers) >= 10
    assert sum(ledger.losses for ledger in ledgers) >= 40


def test_same_seed_gives_the_same_run() -> None:
    first, second = (
        all_is_well_after_any_trouble(7, Options(transcript_lines=None)).world for _ in range(2)
    )
    assert list(first.transcript) == list(second.transcript)
    assert first.events == second.events
