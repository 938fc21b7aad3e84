"""The simulation of leases for people: `make sim SEEDS=2000`, `make sim SEED=123`,
`make sim-sabotage`.

Many seeds on all cores, and the first line of what each broke; or one seed, with all that happened
in it; or every planted fault with the seed that caught it. Ends with 1 if anything is not as it
should be.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context

import msgspec

from tests.simulation.lease_promises import Options, promises_of
from tests.simulation.lease_sabotage import SABOTAGES, SEEDS_MAX, Sabotage

TOLD_MAX = 20
"""Broken seeds that are shown; the rest are counted."""
CHUNK = 8


class Ran(msgspec.Struct, frozen=True):
    seed: int
    events: int
    broken: list[str]


def run(seed: int) -> Ran:
    """All promises of that seed."""
    events = 0
    broken: list[str] = []
    for promise in promises_of(seed):
        try:
            events += promise(seed, Options()).world.events
        except Exception as error:  # noqa: BLE001 (the others are to be run all the same)
            said = str(error) if isinstance(error, AssertionError) else repr(error)
            broken.append(f"{promise.__name__}, " + said.partition("\n")[0])
    return Ran(seed, events, broken)


def run_all(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    events, broken = 0, 0
    with get_context("spawn").Pool(jobs) as pool:
        for ran in pool.imap(run, seeds, CHUNK):
            events += ran.events
            broken += bool(ran.broken)
            for problem in ran.broken if broken <= TOLD_MAX else []:
                _say(f"BROKEN {problem}\n  make sim SEED={ran.seed} tells how")
    took_s = time.monotonic() - began
    _say(f"{len(seeds)} seeds, {events} events in {took_s:.0f} s: {broken} broken")
    return 1 if broken else 0


def replay(seed: int) -> int:
    """One seed, with its whole transcript."""
    broken = 0
    for promise in promises_of(seed):
        _say(f"{promise.__name__}, seed {seed}")
        try:
            world = promise(seed, Options(transcript_lines=None)).world
        except AssertionError as error:
            broken += 1
            problem, _, transcript = str(error).partition("\n")
            _say(f"{transcript}\nBROKEN {problem}\n")
        else:
            _say("\n".join(world.transcript) + f"\nkept, in {world.events} events\n")
    return 1 if broken else 0


class Caught(msgspec.Struct, frozen=True):
    sabotage: int
    seed: int
    """-1: none did."""
    said: str


def catch(number: int) -> Caught:
    for seed in range(SEEDS_MAX):
        said = SABOTAGES[number].caught_by(seed)
        if said:
            return Caught(number, seed, said)
    return Caught(number, -1, "")


def sabotage(jobs: int) -> int:
    with get_context("spawn").Pool(jobs) as pool:
        escaped = sum(_told(each) for each in pool.imap(catch, range(len(SABOTAGES))))
    _say(f"{len(SABOTAGES)} planted faults, {escaped} not caught within {SEEDS_MAX} seeds")
    return 1 if escaped else 0


def _told(caught: Caught) -> bool:
    """Whether it escaped."""
    planted: Sabotage = SABOTAGES[caught.sabotage]
    escaped = caught.seed < 0
    by = "NOT CAUGHT" if escaped else f"seed {caught.seed}"
    _say(f"{planted.name:44} {planted.breaks:12} {by:10} {caught.said[:110]}".rstrip())
    return escaped


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sim", description="Simulate clusters with leases.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=int, default=200, help="run that many, from 0 on")
    what.add_argument("--seed", type=int, help="run this one, and tell all of it")
    what.add_argument("--sabotage", action="store_true", help="plant each fault; is it caught?")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(None if words is None else list(words))
    if chosen.sabotage:
        return sabotage(chosen.jobs)
    if chosen.seed is not None:
        return replay(chosen.seed)
    return run_all(range(chosen.seeds), chosen.jobs)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # As in `make sim SEED=7 | head`.
    sys.exit(main())
