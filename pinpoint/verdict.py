"""When the anomalies of a component make a verdict, and what speaks for it. Ends nothing.

One odd number is chance. A component is *flagged* at a look (a tick) if statistics of several
groups are odd at once, since those of one group say the same thing twice, or if one is so odd that
it decides alone; it is *persisting* if it was flagged at several of the last looks. (The paper:
three or more anomalous statistics.)

What always holds:
  V1  Whoever persists is flagged now, was flagged at `persist` of the last `window` looks, in one
      life, and each of those looks found anomalies in `anomalies` groups, or a decisive one.
  V2  What is remembered is bounded: of components odd within the window, so many looks each.
  V3  A verdict says all that it rests on: each statistic, its value, what the peers have, how
      many scales lie between, and for how long.
"""

from collections import deque
from collections.abc import Mapping
from typing import Literal

import msgspec

from bus.events import REASON_LENGTH_MAX
from pinpoint.anomalies import Anomaly
from pinpoint.samples import Sample

Why = Literal[
    "blind",
    "change",
    "cooling",
    "crowded",
    "few",
    "flight",
    "hot",
    "node",
    "shadow",
    "step",
    "systemic",
    "unknown",
    "warming",
]
WHY: dict[Why, str] = {
    "blind": "more than half of the peers are missing",
    "change": "others of its role come and go",
    "cooling": "it was condemned a moment ago",
    "crowded": "more components than are looked at",
    "few": "too few would be left",
    "flight": "another restart is on its way",
    "hot": "it has more to do than the others",
    "node": "all of its node are slow together: it is the machine",
    "shadow": "shadow mode",
    "step": "the load of all of them changed a moment ago",
    "systemic": "too many are unlike the others at once",
    "unknown": "nothing is known of what is normal for its role",
    "warming": "Pinpoint has just begun to look",
}
"""Every reason to do nothing, in words for people. `pinpoint.policy` says when."""

EVIDENCE_MAX = 16  # Of one verdict; the strongest.
SPOKEN_MAX = 4  # Of those, in the sentence.


class Evidence(msgspec.Struct, frozen=True):
    """One statistic that speaks against a component."""

    anomaly: Anomaly
    seen_s: float
    """For how much of the last `window_s` it was anomalous."""


class Verdict(msgspec.Struct, frozen=True):
    """This life of `id` behaves unlike its peers."""

    id: str
    incarnation: int
    role: str
    node: str
    evidence: tuple[Evidence, ...]
    """The strongest first."""
    flagged_s: float
    window_s: float
    withheld: Why | None = None
    """Why nothing is done about it; None if it is condemned."""

    @property
    def groups(self) -> int:
        """How many independent things are odd about it."""
        return len({each.anomaly.group for each in self.evidence})

    @property
    def sentence(self) -> str:
        """V3, for people; each group's strongest first."""
        spoken = [_spoken(each) for each in _one_a_group(self.evidence)[:SPOKEN_MAX]]
        more = len(self.evidence) - len(spoken)
        head = f"unlike its peers for {self.flagged_s:g} of the last {self.window_s:g} s: "
        text = head + "; ".join(spoken) + (f"; and {more} more" if more else "")
        return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"


class Flags(msgspec.Struct, frozen=True):
    """What one look came to."""

    flagged: frozenset[str]
    nearly: frozenset[str]
    """Flagged at one look fewer than it takes, or more: these may be in the same trouble."""
    persisting: tuple[Verdict, ...]
    """The strongest first."""
    leaning: frozenset[str] = frozenset()
    """Odd in one group fewer than it takes, taking all that the window holds together."""


class Verdicts:
    def __init__(self, *, anomalies: int, persist: int, window: int, period_s: float) -> None:
        assert 1 <= persist <= window
        self._anomalies = anomalies
        self._persist = persist
        self._window = window
        self._period_s = period_s
        self._histories: dict[str, _History] = {}

    def forget(self) -> None:
        """Begin anew: what was seen does not go together with what comes."""
        self._histories.clear()

    def look(
        self, found: Mapping[str, tuple[Anomaly, ...]], samples: Mapping[str, Sample]
    ) -> Flags:
        """The anomalies of this look; who is in neither, or not in `samples`, has none."""
        for component_id, anomalies in found.items():
            sample = samples.get(component_id)
            if sample is None or not anomalies:
                continue
            history = self._histories.get(component_id)
            if history is None or history.incarnation != sample.incarnation:
                self._histories[component_id] = _History(sample.incarnation, self._window)
        for component_id in list(self._histories):
            sample, history = samples.get(component_id), self._histories[component_id]
            if sample is None or sample.incarnation != history.incarnation:
                del self._histories[component_id]  # V1: of one life.
                continue
            history.add(found.get(component_id, ()), self._anomalies)
            if not any(history.looks):
                del self._histories[component_id]  # V2
        return self._flags(samples)

    def _flags(self, samples: Mapping[str, Sample]) -> Flags:
        flagged = {each for each, history in self._histories.items() if history.flags[-1]}
        nearly_count = max(1, self._persist - 1)
        nearly = {
            each for each, history in self._histories.items() if sum(history.flags) >= nearly_count
        }
        persisting = [
            self._verdict(samples[each], self._histories[each])
            for each in flagged
            if sum(self._histories[each].flags) >= self._persist  # V1
        ]
        persisting.sort(key=_strength)
        leaning = {
            each
            for each, history in self._histories.items()
            if len(history.groups) >= max(1, self._anomalies - 1)
        }
        return Flags(frozenset(flagged), frozenset(nearly), tuple(persisting), frozenset(leaning))

    def _verdict(self, sample: Sample, history: "_History") -> Verdict:
        newest = sorted(history.looks[-1], key=lambda anomaly: -abs(anomaly.score))
        evidence = tuple(
            Evidence(anomaly, history.count(anomaly.statistic) * self._period_s)
            for anomaly in newest[:EVIDENCE_MAX]
        )
        return Verdict(
            sample.id,
            sample.incarnation,
            sample.role,
            sample.node,
            evidence,
            flagged_s=sum(history.flags) * self._period_s,
            window_s=self._window * self._period_s,
        )


class _History:
    """What was odd about one life at the last looks."""

    __slots__ = ("flags", "incarnation", "looks")

    def __init__(self, incarnation: int, window: int) -> None:
        self.incarnation = incarnation
        self.looks: deque[tuple[Anomaly, ...]] = deque(maxlen=window)
        self.flags: deque[bool] = deque(maxlen=window)

    def add(self, anomalies: tuple[Anomaly, ...], needed: int) -> None:
        self.looks.append(anomalies)
        groups = {anomaly.group for anomaly in anomalies}
        decisive = any(anomaly.decisive for anomaly in anomalies)
        self.flags.append(len(groups) >= needed or decisive)  # V1

    @property
    def groups(self) -> set[str]:
        return {each.group for look in self.looks for each in look}

    def count(self, statistic: str) -> int:
        return sum(any(each.statistic == statistic for each in look) for look in self.looks)


def _strength(verdict: Verdict) -> tuple[int, float, str]:
    """The more groups the stronger, then the farther; the id, so that none is like another."""
    total = sum(abs(each.anomaly.score) for each in verdict.evidence)
    return -verdict.groups, -total, verdict.id


def _one_a_group(evidence: tuple[Evidence, ...]) -> list[Evidence]:
    strongest: dict[str, Evidence] = {}
    for each in evidence:
        strongest.setdefault(each.anomaly.group, each)
    return list(strongest.values())


def _spoken(evidence: Evidence) -> str:
    anomaly = evidence.anomaly
    return (
        f"{anomaly.statistic} {anomaly.value:.3g}, median of {anomaly.peers} {anomaly.median:.3g} "
        f"({abs(anomaly.score):.0f} scales, {evidence.seen_s:g} s)"
    )
