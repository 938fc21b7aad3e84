"""`softstate bench heal`: six bricks under load are hurt in every way of the paper, one at a time.

Waits for the cluster to be whole and settled, hurts the next brick, waits until its next life is
live in everybody's eyes, and goes on. All that failed, was lost, or was restarted for nothing
counts: the load goes on all the time, and every load of a session is compared with what was
written. The score is in `loadtest.heal_score`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import gevent
import msgspec

from bus.clock import now
from bus.config_shape import BRICK, PinpointConfig
from loadtest import machine
from loadtest.heal_field import HealField, Load
from loadtest.heal_requests import PAPERS, Carried, Injure, SoFar, TownAsked, Verb
from loadtest.heal_score import FalseRestart, Trial, false_restarts, row, trials

COUNTS = {"hub": 2, "manager": 2, "brick": 6, "pinpoint": 1}
GENERATORS = 2
MIB = 1 << 20

DROP_SHARE = 0.7
SLOW_S = 0.001
LEAK_BYTES_PER_S = 10e6
LEAK_HURTS_BYTES = 256 * MIB
"""That much more than it needs, and a machine that is planned tightly begins to swap."""
FLIPPED_VALUES = 10.0
AMOUNTS: dict[Verb, float] = {
    "drop": DROP_SHARE,
    "slow": SLOW_S,
    "leak": LEAK_BYTES_PER_S,
    "flip": FLIPPED_VALUES,
}
FIND_S_MAX_OF: dict[Verb, float] = {"leak": LEAK_HURTS_BYTES / LEAK_BYTES_PER_S + 5}
WHOLE_S_MAX = 30.0
WARM_UP = 0.3  # Of the load: while connections are made, and every stub is new.
SICK_S = 20.0
DETECT_S_MAX = 5.0
RECOVER_S_MAX = 3.0

WORST = "_worst"

METHOD = (
    "six bricks on two nodes with two hubs, two managers and one Pinpoint, W=3 WQ=2 R=2, and 100 "
    "ms as where the paper injects faults; an open loop by chance over sessions that take turns "
    "to write and load. One fault at a time, the next brick each time. detect_s: from the injury "
    "to the first word in the cluster that this life is sick or over (a flipped value: until the "
    "brick meets it, too); recover_s: from there until its next life is live in the eyes of both "
    "agents, both generators and a bystander. failed_requests: all that raised anything, refusals "
    "and timeouts among them, but for those before the first fault (warm_up_failed); "
    "late_requests: done, but later than the timeout after they were meant to begin. "
    "lost_sessions: acknowledged, and then gone or not what was written, during the run or when "
    "all are loaded at the end. false_restarts: lives that ended and had not been hurt. "
    "precision: of the restarts, those of the hurt; recall: of the hurt, those found (a leak: "
    "before it has leaked leak_hurts_bytes)"
)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    runs: dict[Verb, int]
    settle_s: float
    """From where all is whole to the next fault. The one before it is compared with again after
    `grace_s`, and no longer held to be changing, which keeps Pinpoint's hands off, after 10 s."""
    last_begins_s: float = inf
    """Nothing but the first fault of its kind is injected later, however many are left."""
    find_s_max: float = 15.0
    """So long until a fault that nobody found is ended by us."""
    first_s: float = 18.0
    """From the beginning of the load to the first fault: Pinpoint must know what is normal."""
    grace_s: float = PinpointConfig().grace_s
    """How old a brick must be to be judged."""
    load: Load = Load()
    records: Path | None = None
    """Where to keep what Pinpoint recorded."""


FULL = Pace(runs=dict.fromkeys(PAPERS, 10), settle_s=16.0)
QUICK = Pace(
    runs={**dict.fromkeys(PAPERS, 2), "image": 1, "leak": 1}, settle_s=10.0, last_begins_s=185.0
)


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before, began_at = machine.machine(), now()
    with HealField(asked(pace), GENERATORS, pace.load) as field:
        field.begin()
        warmed = warm_up(field, pace)
        victims = cycle(field.of_role(BRICK))
        for number, verb in in_turn(pace.runs):
            if not number or now() - began_at < pace.last_begins_s:
                hurt(field, verb, next(victims), pace, progress)
        field.await_whole(WHOLE_S_MAX)
        carried = field.rest()
        field.look()
        if pace.records is not None:
            field.keep_records(pace.records)
    return {
        **result(field, carried, pace, warmed),
        "elapsed_s": round(now() - began_at, 1),
        "versions": machine.versions(),
        "machine": before,
    }


def asked(pace: Pace) -> TownAsked:
    settings = {
        "chaos": True,
        # A brick is hurt again sooner than it would be in life: that is no restart in vain.
        "restarts": {"sick_s": SICK_S},
        "pinpoint": {"grace_s": pace.grace_s},
    }
    return TownAsked(counts=COUNTS, settings=settings)


def warm_up(field: HealField, pace: Pace) -> SoFar:
    """Stubs find out what bricks can carry, and Pinpoint what is normal. What came of that."""
    field.pace(WARM_UP * pace.load.per_s)
    gevent.sleep(pace.first_s / 4)
    field.pace(pace.load.per_s)
    gevent.sleep(3 * pace.first_s / 4)
    return field.how_far()


def in_turn(runs: dict[Verb, int]) -> Iterator[tuple[int, Verb]]:
    """One of each kind, then the next of each; with its number, from 0."""
    for number in range(max(runs.values(), default=0)):
        yield from ((number, verb) for verb, count in runs.items() if number < count)


def hurt(
    field: HealField, verb: Verb, victim: str, pace: Pace, progress: Callable[[str], None]
) -> None:
    missing = field.await_whole(WHOLE_S_MAX)
    if missing:
        progress(f"not whole: {', '.join(missing)}")
    gevent.sleep(pace.settle_s)
    find_s_max = FIND_S_MAX_OF.get(verb, pace.find_s_max)
    (injury,) = field.injure(Injure(verb, [victim], AMOUNTS.get(verb, 0.0), find_s_max))
    if injury.refused:
        progress(f"{verb} {victim}: {injury.detail}")
        return
    if field.await_next(injury, find_s_max):
        progress(f"{verb} {victim}: nobody found it")
        field.cure(victim)
    else:
        progress(f"{verb} {victim}: back after {now() - injury.at:.1f} s")


def result(
    field: HealField, carried: Sequence[Carried], pace: Pace, warmed: SoFar
) -> dict[str, Any]:
    tried = [
        in_time(each)
        for each in trials(field.injuries, field.notices, field.sightings, field.observers)
    ]
    false = false_restarts(field.injuries, field.up.components, field.notices, field.sightings)
    rows = [row(verb, tried, false) for verb in pace.runs]
    seconds = [each for one in carried for each in one.seconds]
    return {
        "failed_requests": sum(each.failed for each in carried) - warmed.failed,
        "lost_sessions": sum(len(each.losses) for each in carried),
        "false_restarts": len(false),
        "detect_s": middle_of(rows, "detect_s"),
        "recover_s": middle_of(rows, "recover_s"),
        **figures(rows),
        "requests": sum(each[0] for each in seconds) - warmed.offered,
        "warm_up_failed": warmed.failed,
        "late_requests": sum(each[2] for each in seconds),
        "sessions": sum(each.sessions for each in carried),
        "p50_ms": max((each.p50_ms for each in carried if each.p50_ms), default=None),
        "p99_ms": max((each.p99_ms for each in carried if each.p99_ms), default=None),
        "offered_per_s": pace.load.per_s,
        "timeout_ms": pace.load.timeout_ms,
        "leak_bytes_per_s": LEAK_BYTES_PER_S,
        "leak_hurts_bytes": LEAK_HURTS_BYTES,
        "faults": rows,
        "aims": aims(rows),
        "method": METHOD,
        "samples": samples(field, tried, false, carried),
    }


def in_time(trial: Trial) -> Trial:
    """A leak hurts at last, and is found too late then."""
    if trial.verb != "leak" or trial.detect_s is None:
        return trial
    grown = LEAK_BYTES_PER_S * trial.detect_s
    return msgspec.structs.replace(trial, grown_bytes=grown, in_time=grown <= LEAK_HURTS_BYTES)


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The figures of each kind of fault, by names of their own."""
    names = ("detect_s", "detect_s_worst", "recover_s", "recover_s_worst", "precision", "recall")
    return {
        f"{name.removesuffix(WORST)}_{each['fault']}{WORST * name.endswith(WORST)}": each[name]
        for each in rows
        for name in names
    }


def middle_of(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    """The median over the kinds of faults."""
    found = [each[name] for each in rows if each[name] is not None]
    return round(median(found), 4) if found else None


def aims(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {
        name: {"exactly": 0} for name in ("failed_requests", "lost_sessions", "false_restarts")
    }
    for each in rows:
        if each["fault"] not in ("leak", "image"):
            found[f"detect_s_{each['fault']}"] = {"at_most": DETECT_S_MAX}
        found[f"recover_s_{each['fault']}"] = {"at_most": RECOVER_S_MAX}
    return found


def samples(
    field: HealField,
    tried: Sequence[Trial],
    false: Sequence[FalseRestart],
    carried: Sequence[Carried],
) -> dict[str, Any]:
    return {
        "trials": msgspec.to_builtins(tried),
        "false_restarts": msgspec.to_builtins(false),
        "failures": [msgspec.to_builtins(each) for one in carried for each in one.failures],
        "losses": [msgspec.to_builtins(each) for one in carried for each in one.losses],
        "notices": msgspec.to_builtins(field.notices),
    }
