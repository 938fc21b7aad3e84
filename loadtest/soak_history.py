"""What happened in a soak, as lines of one time axis: for `history.jsonl`, and to be drawn.
Decides only.

Every line has `at_s`, seconds since the load of its leg began, and `what`: `second` (of the load),
`fault`, `noticed`, `over` (a life), `live` (a later one), `load`, `loss`, or `leg`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from loadtest.heal_requests import Carried, Injury, Notice, Sighting
from loadtest.heal_score import ENDS, FINDS, ended_lives
from loadtest.soak_score import Verdict

Line = dict[str, Any]


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of a soak."""

    seed: int
    begin_at: float
    planned: Mapping[str, str]
    carried: list[Carried]
    paces: list[tuple[float, float]]
    """When the load changed, and to how many requests a second."""
    injuries: list[Injury]
    notices: list[Notice]
    sightings: list[Sighting]
    verdict: Verdict


def lines(leg: Leg) -> list[Line]:
    """All of it, in order."""
    found = [
        {"at_s": 0.0, "what": "leg", "seed": leg.seed, "planned": list(leg.planned)},
        *_seconds(leg),
        *_faults(leg),
        *_noticed(leg),
        *_lives(leg),
        *({"at_s": _since(leg, at), "what": "load", "per_s": per_s} for at, per_s in leg.paces),
        *(
            {"at_s": _since(leg, loss.at), "what": "loss", **msgspec.to_builtins(loss)}
            for one in leg.carried
            for loss in one.losses
        ),
    ]
    return sorted(found, key=lambda line: float(line["at_s"]))


def _since(leg: Leg, at: float) -> float:
    return round(max(at - leg.begin_at, 0.0), 3)


def _seconds(leg: Leg) -> Iterator[Line]:
    """Of all generators together."""
    length = max((len(one.seconds) for one in leg.carried), default=0)
    for second in range(length):
        rows = [one.seconds[second] for one in leg.carried if second < len(one.seconds)]
        offered, good, late, failed = (sum(column) for column in zip(*rows, strict=True))
        yield {
            "at_s": float(second),
            "what": "second",
            "offered": offered,
            "good": good,
            "late": late,
            "failed": failed,
        }


def _faults(leg: Leg) -> Iterator[Line]:
    for each in leg.injuries:
        if not each.refused:
            yield {
                "at_s": _since(leg, each.at),
                "what": "fault",
                "verb": each.verb,
                "id": each.id,
                "detail": each.detail,
            }


def _noticed(leg: Leg) -> Iterator[Line]:
    for each in leg.notices:
        if each.kind in FINDS - ENDS and each.id in leg.planned:
            yield {
                "at_s": _since(leg, each.at),
                "what": "noticed",
                "kind": each.kind,
                "id": each.id,
                "by": each.by,
                "reason": each.reason,
            }


def _lives(leg: Leg) -> Iterator[Line]:
    """From where a life was known to be over to where a later one was seen live."""
    for (component_id, _), at in ended_lives(leg.planned, leg.notices, leg.sightings).items():
        yield {"at_s": _since(leg, at), "what": "over", "id": component_id}
    first: dict[tuple[str, int], float] = {}
    for each in leg.sightings:
        if each.state == "live" and each.id in leg.planned:
            life = each.id, each.incarnation
            first[life] = min(first.get(life, each.at), each.at)
    begun = {each: min(life for name, life in first if name == each) for each, _ in first}
    for (component_id, incarnation), at in first.items():
        if incarnation == begun[component_id]:
            continue  # That was there from the beginning.
        yield {"at_s": _since(leg, at), "what": "live", "id": component_id}
