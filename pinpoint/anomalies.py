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
from collections.abc import Iterator, Set
from math import inf
from typing import Literal

import msgspec

from pinpoint import outside
from pinpoint.catalogue import Judged, Kind, judged_of
from pinpoint.deviation import SCORE_MAX, Reference, median_of, reference
from pinpoint.lives import RECENT, Life, Lives
from pinpoint.patterns import Patterns
from pinpoint.samples import StubSaw, Tick

FULL_SHARE = 0.9
"""Of the peers' median: who holds less is still filling up, as after a restart."""

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
    decisive: bool = False
    """Whether it is enough by itself."""


class Looked(msgspec.Struct, frozen=True):
    """What one tick showed."""

    anomalies: dict[str, tuple[Anomaly, ...]]
    """By id; who has none is not in it. Several of one group are one sign, not several."""
    unsaid: Counter[str]
    """How often something was not judged, by reason."""


Group = dict[str, Life]


class Anomalies:
    def __init__(self, period_s: float = 1.0) -> None:
        """`period_s`: how often everyone sends a beacon."""
        self._lives = Lives(period_s)
        self._roles: dict[str, _Role] = {}

    def look(self, tick: Tick, eligible: Set[str]) -> Looked:
        """`eligible`: the ids of those that may be judged, and be compared with."""
        unsaid: Counter[str] = Counter()
        if tick.blind:
            unsaid["blind"] += 1  # A1
            return Looked({}, unsaid)
        lives: dict[str, Group] = {}
        for component_id, life in self._lives.see(tick.samples, tick.at, unsaid).items():
            lives.setdefault(life.role, {})[component_id] = life
        self._roles = {role: self._roles.get(role) or _Role(role) for role in lives}
        found: dict[str, list[Anomaly]] = {}
        for role, of_role in lives.items():
            group = {each: life for each, life in of_role.items() if each in eligible}
            saw = [told for told in tick.saw if told.role == role]
            for component_id, anomaly in self._roles[role].look(of_role, group, saw, unsaid):
                found.setdefault(component_id, []).append(anomaly)
        return Looked({each: tuple(odd) for each, odd in found.items()}, +unsaid)


class _Role:
    """What is remembered of all of one role."""

    def __init__(self, role: str) -> None:
        self._judged = judged_of(role)
        self._references: dict[str, list[Reference]] = {}
        """By statistic, of the last ticks; the newest is last."""
        self._patterns = {
            each.name: Patterns(each.floor) for each in self._judged if each.kind == "state"
        }
        self._outside = outside.Outside()

    def look(
        self, lives: Group, group: Group, saw: list[StubSaw], unsaid: Counter[str]
    ) -> Iterator[tuple[str, Anomaly]]:
        """`group`: those of `lives` that are judged."""
        self._outside.hear(saw, {each: life.incarnation for each, life in lives.items()}, unsaid)
        told = self._outside.told_of(group.keys())
        for judged in self._judged:
            match judged.kind:
                case "activity" | "level":
                    yield from self._compare(judged, group, unsaid)
                case "state":
                    yield from self._read(judged, lives, group, unsaid)
                case "outside":
                    for component_id, value, against in outside.look(judged, told, unsaid):
                        direction: Direction = "high" if judged.high else "low"
                        yield component_id, _odd(judged, value, against, direction)

    def _compare(
        self, judged: Judged, group: Group, unsaid: Counter[str]
    ) -> Iterator[tuple[str, Anomaly]]:
        values = _values(judged.name, group)
        now = reference(judged, sorted(values.values()))
        before = self._references.pop(judged.name, [])
        if now is None:
            unsaid["group too small"] += len(values)  # A1
            return
        unsaid["missing"] += len(group) - len(values)
        references = self._references[judged.name] = [*before[1 - RECENT :], now]  # A3
        if now.median < judged.least:
            unsaid["too little"] += len(values)
        elif judged.high:
            yield from _above(judged, values, group, references)
        else:
            yield from _below(judged, values, group, references)

    def _read(
        self, judged: Judged, lives: Group, group: Group, unsaid: Counter[str]
    ) -> Iterator[tuple[str, Anomaly]]:
        """Histories. Who still fills up is unlike its peers, and in good health."""
        patterns = self._patterns[judged.name]
        patterns.keep(lives)
        for component_id, life in group.items():
            slope = life.slope(judged.name) if life.is_new else None
            if slope is not None:
                patterns.feed(component_id, life, slope)
        values = _values(judged.name, group)
        median = median_of(sorted(values.values())) if values else 0.0
        full = [each for each, value in values.items() if value >= FULL_SHARE * median]
        unsaid["filling"] += len(values) - len(full)
        surprising, peers = patterns.look(full)
        if not peers:
            unsaid["history too short"] += len(full)
        for component_id, surprise in surprising:
            yield (
                component_id,
                Anomaly(
                    statistic=judged.name,
                    group=judged.group,
                    kind=judged.kind,
                    value=surprise.seen,
                    median=surprise.expected,
                    scale=surprise.scale,
                    score=min(surprise.score, SCORE_MAX),
                    direction="pattern",
                    peers=peers,
                ),
            )


def _values(name: str, group: Group) -> dict[str, float]:
    return {each: life.values[name] for each, life in group.items() if name in life.values}


def _above(
    judged: Judged, values: dict[str, float], group: Group, references: list[Reference]
) -> Iterator[tuple[str, Anomaly]]:
    against = max(references, key=lambda each: each.high)  # A2
    for component_id, now in values.items():
        if now > against.high:
            before = group[component_id].before(judged.name)
            value = min(now, max(before, default=0.0)) if judged.kind == "activity" else now
            if value > against.high:
                yield component_id, _odd(judged, value, against, "high")


def _below(
    judged: Judged, values: dict[str, float], group: Group, references: list[Reference]
) -> Iterator[tuple[str, Anomaly]]:
    against = min(references, key=lambda each: each.low)  # A2
    for component_id, now in values.items():
        if now < against.low:
            before = group[component_id].before(judged.name)
            value = max(now, min(before, default=inf)) if judged.kind == "activity" else now
            if value < against.low:
                yield component_id, _odd(judged, value, against, "low")


def _odd(judged: Judged, value: float, against: Reference, direction: Direction) -> Anomaly:
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
        decisive=judged.decides(value, against.median),
    )
