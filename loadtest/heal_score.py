"""How soon each fault was found and healed, and what was restarted for nothing. Decides only.

It is given what was done (injuries), what was said in the cluster (notices), and what each observer
saw (sightings), all by one clock. A fault is *found* with the first notice that declares that life
sick or over, and *healed* when the next life is live in the eyes of every observer.

What always holds:
  V1  What was noticed of another life, or before the injury, or after the next one, finds nothing.
  V2  A life that ended is a false restart unless it was hurt; each counts once, however often
      and by whomever it was told.
  V3  Somebody who never saw the next life live makes it not healed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any

import msgspec

from loadtest.heal_requests import Injury, Notice, Sighting

ENDS = {"exited", "ended"}
FINDS = ENDS | {"died", "condemned", "restarted", "damaged"}
"""What declares a life sick or over. Who is merely suspected has not been found yet."""
CURE = "cure"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One injury, and what came of it."""

    verb: str
    id: str
    incarnation: int
    at: float
    detect_s: float | None
    recover_s: float | None
    by: str
    """Who noticed, and how; empty if nobody did."""
    how: str
    grown_bytes: float = 0.0
    """Of a leak: how much it had leaked when it was found."""
    in_time: bool = True


class FalseRestart(msgspec.Struct, frozen=True):
    at: float
    id: str
    incarnation: int
    why: str
    """The last that was said of it before."""
    during: str
    """The verb and victim of the injury before it."""


def trials(
    injuries: Sequence[Injury],
    notices: Sequence[Notice],
    sightings: Sequence[Sighting],
    observers: Collection[str],
) -> list[Trial]:
    """Of all injuries that were done, in order."""
    done = sorted((each for each in injuries if not each.refused), key=lambda each: each.at)
    ends = [*(each.at for each in done[1:]), inf]
    return [
        _trial(injury, until, notices, sightings, observers)
        for injury, until in zip(done, ends, strict=False)
        if injury.verb != CURE
    ]


def _trial(
    injury: Injury,
    until: float,
    notices: Sequence[Notice],
    sightings: Sequence[Sighting],
    observers: Collection[str],
) -> Trial:
    notice = found(injury, until, notices)
    live_at = live_everywhere_at(injury, until, sightings, observers)
    healed = notice is not None and live_at is not None
    return Trial(
        verb=injury.verb,
        id=injury.id,
        incarnation=injury.incarnation,
        at=injury.at,
        detect_s=None if notice is None else round(notice.at - injury.at, 4),
        recover_s=round(live_at - notice.at, 4) if healed and notice and live_at else None,
        by="" if notice is None else notice.by,
        how="" if notice is None else f"{notice.kind}: {notice.reason}",
    )


def found(injury: Injury, until: float, notices: Iterable[Notice]) -> Notice | None:
    """The first notice that declares that life sick or over."""
    about = [
        each
        for each in notices
        if each.id == injury.id
        and each.kind in FINDS
        and each.incarnation in (0, injury.incarnation)
        and injury.at <= each.at < until  # V1
    ]
    return min(about, key=lambda each: each.at, default=None)


def live_everywhere_at(
    injury: Injury, until: float, sightings: Iterable[Sighting], observers: Collection[str]
) -> float | None:
    """When the last observer saw a later life live; None if one of them did not."""
    first: dict[str, float] = {}
    for each in sightings:
        is_next = each.id == injury.id and each.incarnation > injury.incarnation
        if is_next and each.state == "live" and injury.at <= each.at < until:
            first[each.observer] = min(first.get(each.observer, each.at), each.at)
    return max(first.values()) if first and first.keys() >= set(observers) else None  # V3


def ended_lives(
    planned: Collection[str], notices: Iterable[Notice], sightings: Iterable[Sighting]
) -> dict[tuple[str, int], float]:
    """Every life that is over, and when that was first known."""
    over: dict[tuple[str, int], float] = {}

    def add(component_id: str, incarnation: int, at: float) -> None:
        life = component_id, incarnation
        over[life] = min(over.get(life, at), at)  # V2

    lives: dict[str, dict[int, float]] = {}
    for notice in notices:
        if notice.kind in ENDS and notice.id in planned:
            add(notice.id, notice.incarnation, notice.at)
    for sighting in sightings:
        if sighting.id in planned:
            seen = lives.setdefault(sighting.id, {})
            known = seen.get(sighting.incarnation, sighting.at)
            seen[sighting.incarnation] = min(known, sighting.at)
    for component_id, seen in lives.items():
        ordered = sorted(seen)
        for former, latter in pairwise(ordered):
            add(component_id, former, seen[latter])
    return over


def false_restarts(
    injuries: Sequence[Injury],
    planned: Collection[str],
    notices: Sequence[Notice],
    sightings: Sequence[Sighting],
) -> list[FalseRestart]:
    """Lives that ended though nobody had hurt them, in order."""
    hurt = {(each.id, each.incarnation) for each in injuries if not each.refused}
    over = ended_lives(planned, notices, sightings)
    wrong = []
    for (component_id, incarnation), at in sorted(over.items(), key=lambda each: each[1]):
        if (component_id, incarnation) in hurt:
            continue
        said = [each for each in notices if each.id == component_id and each.at <= at]
        why = f"{said[-1].kind}: {said[-1].reason} (by {said[-1].by})" if said else ""
        before = [each for each in injuries if each.at <= at and not each.refused]
        during = f"{before[-1].verb} {before[-1].id}" if before else ""
        wrong.append(FalseRestart(at, component_id, incarnation, why, during))
    return wrong


def row(verb: str, tried: Sequence[Trial], false: Sequence[FalseRestart]) -> dict[str, Any]:
    """One kind of fault in figures."""
    mine = [each for each in tried if each.verb == verb]
    detected = [each.detect_s for each in mine if each.detect_s is not None]
    recovered = [each.recover_s for each in mine if each.recover_s is not None]
    right = [each for each in mine if each.detect_s is not None and each.in_time]
    wrong = sum(each.during.split(" ")[0] == verb for each in false)
    ways = Counter(each.how.partition(":")[0] for each in mine if each.how)
    return {
        "fault": verb,
        "runs": len(mine),
        "detect_s": middle(detected),
        "detect_s_worst": max(detected, default=None),
        "recover_s": middle(recovered),
        "recover_s_worst": max(recovered, default=None),
        "precision": share(len(detected), len(detected) + wrong),
        "recall": share(len(right), len(mine)),
        "noticed": ", ".join(f"{kind} {count}" for kind, count in ways.most_common()),
    }


def middle(values: Sequence[float]) -> float | None:
    return round(median(values), 4) if values else None


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
