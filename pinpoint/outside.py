"""How components look to those that ask them, whatever they say of themselves. Decides only.

Each asker (a stub) is compared with itself only: how one brick treats it beside how the others
do, as it may be far away, slow, or wrong. Of what it told of one in the last `WINDOW` ticks:

    stub_silent_share   (silent + PRIOR * p) / (asked + PRIOR), with p the share of all it asked:
                        two silent of two are chance, 70 of 100 are not
    stub_refused_share  likewise
    stub_wait_s         the least of the medians it told: one bad second is not enough
    stub_room           the greatest it told

Each is judged as in `pinpoint.deviation`, among what the same asker told of others. What nobody
has asked since stays as it was seen last, for `HELD_TICKS`: whom all avoid is no healthier for it.

What always holds:
  O1  An anomaly is what more than half of those see that can tell. So of three askers or more
      one that lies condemns nobody and saves nobody; of two, both must see it.
  O2  Impossible numbers are dropped, and counted; an infinite room, which is none, silently.
  O3  Bounded: `ASKERS_MAX` askers, `TOLD_MAX` lines a tick, and only about components there are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bus.messages import PeerSeen
from pinpoint.catalogue import Judged
from pinpoint.deviation import Reference, is_sound, reference
from pinpoint.samples import StubSaw

WINDOW = 2
HELD_TICKS = 5
PRIOR = 10.0
ANSWERED_MIN = 5
ASKERS_MAX = 256
TOLD_MAX = 16_384
COUNT_MAX = 1_000_000_000


class Complaint(NamedTuple):
    """What one asker, the mildest of those that complain, sees in one component."""

    component_id: str
    value: float
    against: Reference


class _Telling:
    """What one asker told of one component in one tick."""

    __slots__ = ("answered", "asked", "refused", "room", "silent", "tick", "wait_s")

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.asked = 0
        self.answered = 0
        self.refused = 0
        self.silent = 0
        self.wait_s = float("inf")
        self.room = 0.0

    def add(self, seen: PeerSeen) -> None:
        # Who falls silent now may have been asked before.
        self.asked += max(seen.asked, seen.answered + seen.refused + seen.silent)
        self.answered += seen.answered
        self.refused += seen.refused
        self.silent += seen.silent
        self.room = max(self.room, seen.room)
        if seen.answered:
            self.wait_s = min(self.wait_s, seen.wait_s)


class _Seen:
    """What one asker told of one life, lately; the newest is last."""

    __slots__ = ("incarnation", "tellings")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.tellings: list[_Telling] = []

    def add(self, seen: PeerSeen, tick: int) -> None:
        if not self.tellings or self.tellings[-1].tick != tick:
            self.tellings = [each for each in self.tellings if each.tick > tick - WINDOW]
            self.tellings.append(_Telling(tick))
        self.tellings[-1].add(seen)


class Outside:
    """What the askers of one role told."""

    def __init__(self) -> None:
        self._tick = 0
        self._askers: dict[str, dict[str, _Seen]] = {}

    def hear(
        self, saw: Iterable[StubSaw], incarnations: Mapping[str, int], unsaid: Counter[str]
    ) -> None:
        """All that was told since the last tick; `incarnations` of all that are there."""
        self._tick += 1
        told = 0
        for each in saw:
            told += len(each.seen)
            if told > TOLD_MAX or (
                each.asker not in self._askers and len(self._askers) >= ASKERS_MAX
            ):
                unsaid["too much told"] += 1  # O3
                continue
            about = self._askers.setdefault(each.asker, {})
            for seen in each.seen:
                if incarnations.get(seen.id) != seen.incarnation:
                    unsaid["another life"] += 1
                elif not _is_sound(seen):
                    unsaid["not finite"] += 1  # O2
                else:
                    known = about.get(seen.id)
                    if known is None or known.incarnation != seen.incarnation:
                        known = about[seen.id] = _Seen(seen.incarnation)
                    known.add(seen, self._tick)
        self._forget(incarnations)

    def _forget(self, incarnations: Mapping[str, int]) -> None:
        oldest = self._tick - HELD_TICKS
        for asker, about in list(self._askers.items()):
            kept = {
                component_id: seen
                for component_id, seen in about.items()
                if seen.tellings[-1].tick > oldest
                and incarnations.get(component_id) == seen.incarnation
            }
            if kept:
                self._askers[asker] = kept
            else:
                del self._askers[asker]

    def look(
        self, judged: Judged, eligible: Mapping[str, object], unsaid: Counter[str]
    ) -> list[Complaint]:
        """Whom most of those that can tell complain about."""
        able: Counter[str] = Counter()
        complaints: dict[str, list[Complaint]] = {}
        for about in self._askers.values():
            values = _values(judged.name, about, eligible)
            against = reference(judged, sorted(values.values()))
            if against is None:
                unsaid["asker of too few"] += 1
                continue
            if against.median < judged.least:
                unsaid["too little"] += 1
                continue
            able.update(values.keys())
            for component_id, value in values.items():
                if (judged.high and value > against.high) or (judged.low and value < against.low):
                    complaint = Complaint(component_id, value, against)
                    complaints.setdefault(component_id, []).append(complaint)
        return [
            min(each, key=lambda complaint: abs(complaint.against.score(complaint.value)))
            for component_id, each in complaints.items()
            if 2 * len(each) > able[component_id]  # O1
        ]


def _is_sound(seen: PeerSeen) -> bool:
    counts = seen.asked, seen.answered, seen.refused, seen.silent
    return (
        all(0 <= count <= COUNT_MAX for count in counts)
        and is_sound(seen.wait_s)
        and seen.room >= 0  # Which a NaN is not, and an infinity is.
    )


def _values(
    name: str, about: Mapping[str, _Seen], eligible: Mapping[str, object]
) -> dict[str, float]:
    """One statistic of all that this asker can tell it of."""
    measure = MEASURES[name]
    return measure({each: seen.tellings for each, seen in about.items() if each in eligible})


_Lately = Mapping[str, list[_Telling]]


def _silent_shares(lately: _Lately) -> dict[str, float]:
    return _shares({each: sum(t.silent for t in told) for each, told in lately.items()}, lately)


def _refused_shares(lately: _Lately) -> dict[str, float]:
    return _shares({each: sum(t.refused for t in told) for each, told in lately.items()}, lately)


def _shares(parts: dict[str, int], lately: _Lately) -> dict[str, float]:
    wholes = {each: sum(t.asked for t in told) for each, told in lately.items()}
    usual = sum(parts.values()) / max(sum(wholes.values()), 1)
    return {each: (part + PRIOR * usual) / (wholes[each] + PRIOR) for each, part in parts.items()}


def _waits_s(lately: _Lately) -> dict[str, float]:
    return {
        each: min(t.wait_s for t in told)
        for each, told in lately.items()
        if sum(t.answered for t in told) >= ANSWERED_MIN
    }


def _rooms(lately: _Lately) -> dict[str, float]:
    rooms = {each: max(t.room for t in told) for each, told in lately.items()}
    return {each: room for each, room in rooms.items() if is_sound(room)}  # O2


MEASURES: Mapping[str, Callable[[_Lately], dict[str, float]]] = {
    "stub_silent_share": _silent_shares,
    "stub_refused_share": _refused_shares,
    "stub_wait_s": _waits_s,
    "stub_room": _rooms,
}
