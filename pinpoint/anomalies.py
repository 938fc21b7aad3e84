"""Who differs from its peers just now, in what, and by how much. Decides only; what follows from
that is the verdict's to say.

Peers are those of one role that are *eligible*: whoever asks says who may be judged, and they
alone are what the others are compared with. Beacons come at different moments, so when a load
changes for all, some have told it and some not. Therefore a value is an anomaly only beyond the
limits of each of the last `RECENT` ticks, not of this one alone; and an activity only if the
beacon before, or the one before that, was as bad: a pause of a moment is in one second's numbers.

What always holds:
  A1  Nothing is judged by what is no sound number, nor in a group of fewer than three, nor while
      the bus is blind; each time is counted under its reason in `unsaid`.
  A2  A step that all take within a period of each other is no anomaly of any.
  A3  Bounded: as `pinpoint.lives`, and `RECENT` references of each statistic of each role.
"""

from collections import Counter
from collections.abc import Set
from typing import Literal

import msgspec

from pinpoint.catalogue import Judged, Kind, judged_of
from pinpoint.deviation import Reference, reference
from pinpoint.lives import RECENT, Life, Lives
from pinpoint.samples import Tick

Direction = Literal["low", "high", "pattern"]


class Anomaly(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The evidence: one statistic of one component, beside its peers'."""

    statistic: str
    group: str
    kind: Kind
    value: float
    median: float
    """Of the peers."""
    scale: float
    """What counts as one deviation."""
    score: float
    """How many of them it is away; of a pattern, how surprising."""
    direction: Direction
    peers: int
    """How many were compared, itself included."""


class Looked(msgspec.Struct, frozen=True):
    """What one tick showed."""

    anomalies: dict[str, tuple[Anomaly, ...]]
    """By id; who has none is not in it. Several of one group are one sign, not several."""
    unsaid: Counter[str]
    """How often something was not judged, by reason."""


Found = dict[str, list[Anomaly]]
Group = dict[str, Life]


class Anomalies:
    def __init__(self, period_s: float = 1.0) -> None:
        """`period_s`: how often everyone sends a beacon."""
        self._lives = Lives(period_s)
        self._references: dict[tuple[str, str], list[Reference]] = {}
        """By role and statistic, of the last ticks; the newest is last."""

    def look(self, tick: Tick, eligible: Set[str]) -> Looked:
        """`eligible`: the ids of those that may be judged, and be compared with."""
        unsaid: Counter[str] = Counter()
        if tick.blind:
            unsaid["blind"] += 1  # A1
            return Looked({}, unsaid)
        groups: dict[str, Group] = {}
        for component_id, life in self._lives.see(tick.samples, tick.at, unsaid).items():
            if component_id in eligible:
                groups.setdefault(life.role, {})[component_id] = life
        before, self._references = self._references, {}  # A3
        found: Found = {}
        for role, group in groups.items():
            for judged in judged_of(role):
                if judged.kind in ("activity", "level"):
                    key = role, judged.name
                    kept = _references(judged, group, before.get(key, []), unsaid)
                    if kept and kept[-1].median >= judged.least:
                        _compare(judged, group, kept, found)
                    self._references[key] = kept
        return Looked({each: tuple(odd) for each, odd in found.items()}, unsaid)


def _references(
    judged: Judged, group: Group, before: list[Reference], unsaid: Counter[str]
) -> list[Reference]:
    """Those of the last ticks, this one included; none if there is nothing to compare with."""
    name = judged.name
    values = sorted([life.values[name] for life in group.values() if name in life.values])
    now = reference(judged, values)
    if now is None:
        unsaid["group too small"] += len(values)  # A1
        return []
    unsaid["missing"] += len(group) - len(values)
    if now.median < judged.least:
        unsaid["too little"] += len(values)
    return [*before[1 - RECENT :], now]


def _compare(judged: Judged, group: Group, references: list[Reference], found: Found) -> None:
    name = judged.name
    if judged.high:
        highest = max(references, key=lambda each: each.high)  # A2
        limit = highest.high
        for component_id, life in group.items():
            if life.values.get(name, limit) > limit:
                value = life.values[name]
                if judged.kind == "activity":
                    value = min(value, max(life.before(name), default=highest.median))
                if value > limit:
                    found.setdefault(component_id, []).append(odd(judged, value, highest, "high"))
    if judged.low:
        lowest = min(references, key=lambda each: each.low)  # A2
        limit = lowest.low
        for component_id, life in group.items():
            if life.values.get(name, limit) < limit:
                value = life.values[name]
                if judged.kind == "activity":
                    value = max(value, min(life.before(name), default=lowest.median))
                if value < limit:
                    found.setdefault(component_id, []).append(odd(judged, value, lowest, "low"))


def odd(judged: Judged, value: float, against: Reference, direction: Direction) -> Anomaly:
    return Anomaly(
        statistic=judged.name,
        group=judged.group,
        kind=judged.kind,
        value=value,
        median=against.median,
        scale=against.scale,
        score=against.score(value),
        direction=direction,
        peers=against.peers,
    )
