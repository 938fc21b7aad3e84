"""How components look to those that ask them, whatever they say of themselves. Decides only.

Each asker (a stub) is compared with itself only: how one brick treats it beside how the others
do, as it may be far away, slow, or wrong. Of what it told of one in the last `WINDOW` ticks:

    stub_silent_share   (silent + PRIOR * p) / (asked + PRIOR), with p the median of silent / asked:
                        two silent of two are chance, 70 of 100 are not
    stub_refused_share  likewise
    stub_wait_s         the newest: a median, so a pause of a moment is not in it
    stub_asked_per_s    how much it is asked: who chooses by its room asks the sick less
    stub_tightness      1 / the greatest room it told: a brick that keeps failing gets down to 1

Each is judged as in `pinpoint.deviation`, among what the same asker told of others. What nobody
has asked since stays as it was seen last, for `HELD_TICKS`: whom all avoid is no healthier for it.

What always holds:
  O1  What counts is the median of the scores of all askers that can tell, each no more than
      `CLIP`: of three or more a minority that lies condemns nobody and saves nobody; of two, one
      does not condemn alone.
  O2  Impossible numbers are dropped, and counted.
  O3  Bounded: `ASKERS_MAX` askers, of each `TOLD_MAX` lines a tick, and only about components there
      are. Who tells more silences nobody else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from math import inf
from typing import NamedTuple

from bus.messages import PeerSeen
from pinpoint.catalogue import Judged
from pinpoint.deviation import (
    THRESHOLD,
    Reference,
    is_sound,
    median_of,
    reference,
)
from pinpoint.samples import StubSaw

WINDOW = 2
CLIP = 2 * THRESHOLD
HELD_TICKS = 5
PRIOR = 10.0
ANSWERED_MIN = 5
ASKERS_MAX = 256
TOLD_MAX = 1024
PERIOD_S_MIN, PERIOD_S_MAX = 0.05, 60.0
ROOM_MIN = 0.01  # A limiter has room for one, always.
COUNT_MAX = 1_000_000_000
NAME_MAX = 200


class Seen(NamedTuple):
    """What is odd about one component, as one of its askers puts it."""

    component_id: str
    value: float
    against: Reference


class _Telling:
    """What one asker told of one component in one tick."""

    __slots__ = ("answered", "asked", "period_s", "refused", "room", "silent", "tick", "wait_s")

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.period_s = 0.0
        self.asked = 0
        self.answered = 0
        self.refused = 0
        self.silent = 0
        self.wait_s = inf
        self.room = 0.0

    def add(self, seen: PeerSeen, period_s: float) -> None:
        self.period_s += period_s
        # Who falls silent now may have been asked before.
        self.asked += max(seen.asked, seen.answered + seen.refused + seen.silent)
        self.answered += seen.answered
        self.refused += seen.refused
        self.silent += seen.silent
        self.room = max(self.room, seen.room)
        if seen.answered:
            self.wait_s = min(self.wait_s, seen.wait_s)


Lately = Mapping[str, list[_Telling]]
"""By component; the newest of its tellings is last."""
_View = tuple[dict[str, float], Reference]


class _Known:
    """What one asker told of one life, lately; the newest is last."""

    __slots__ = ("incarnation", "tellings")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.tellings: list[_Telling] = []

    def add(self, seen: PeerSeen, period_s: float, tick: int) -> None:
        if not self.tellings or self.tellings[-1].tick != tick:
            self.tellings = [each for each in self.tellings if each.tick > tick - WINDOW]
            self.tellings.append(_Telling(tick))
        self.tellings[-1].add(seen, period_s)


class Outside:
    """What the askers of one role told."""

    def __init__(self) -> None:
        self._tick = 0
        self._askers: dict[str, dict[str, _Known]] = {}

    def hear(
        self, saw: Iterable[StubSaw], incarnations: Mapping[str, int], unsaid: Counter[str]
    ) -> None:
        """All that was told since the last tick; `incarnations` of all that are there."""
        self._tick += 1
        told: Counter[str] = Counter()
        for each in saw:
            rows = each.seen[: max(TOLD_MAX - told[each.asker], 0)]
            told[each.asker] += len(each.seen)
            if len(rows) < len(each.seen):
                unsaid["too much told"] += 1  # O3
            self._hear(each, rows, incarnations, unsaid)
        self._forget(incarnations)

    def _hear(
        self,
        told: StubSaw,
        rows: Iterable[PeerSeen],
        incarnations: Mapping[str, int],
        unsaid: Counter[str],
    ) -> None:
        sound = is_sound_telling(told.role, told.period_s)
        about = self._askers.get(told.asker)
        for seen in rows:
            if incarnations.get(seen.id) != seen.incarnation:
                unsaid["another life"] += 1
                continue
            if not (sound and is_sound_row(seen)):
                unsaid["not finite"] += 1  # O2
                continue
            if about is None:
                if len(self._askers) >= ASKERS_MAX:
                    unsaid["too much told"] += 1  # O3
                    return
                about = self._askers[told.asker] = {}
            known = about.get(seen.id)
            if known is None or known.incarnation != seen.incarnation:
                known = about[seen.id] = _Known(seen.incarnation)
            known.add(seen, told.period_s, self._tick)

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

    def told_of(self, eligible: Set[str]) -> list[Lately]:
        """What each asker told of those, lately."""
        return [
            {each: known.tellings for each, known in about.items() if each in eligible}
            for about in self._askers.values()
        ]


def look(judged: Judged, told: Iterable[Lately], unsaid: Counter[str]) -> list[Seen]:
    """Who differs from the others, in the middle one of the eyes that see it."""
    views: list[_View] = []
    suspects: set[str] = set()
    for lately in told:
        values = MEASURES[judged.name](lately)
        against = reference(judged, sorted(values.values()))
        if against is None:
            unsaid["asker of too few"] += 1
        elif against.median < judged.least:
            unsaid["too little"] += 1
        else:
            views.append((values, against))
            high, low = against.high if judged.high else inf, against.low if judged.low else -inf
            suspects.update([each for each, value in values.items() if value > high or value < low])
    return [
        found for each in sorted(suspects) if (found := _agreed(judged, views, each)) is not None
    ]


def _score(
    judged: Judged, values: dict[str, float], against: Reference, component_id: str
) -> float:
    """How far towards the side that matters."""
    score = against.score(values[component_id])
    return min(score if judged.high else -score, CLIP)


def _agreed(judged: Judged, views: list[_View], component_id: str) -> Seen | None:
    """What those that see it see in the middle (O1), told by the one nearest to that."""
    scored = sorted(
        (_score(judged, values, against, component_id), number)
        for number, (values, against) in enumerate(views)
        if component_id in values
    )
    middle = median_of([score for score, _ in scored])
    if middle <= THRESHOLD:
        return None
    values, against = views[scored[len(scored) // 2][1]]
    return Seen(component_id, values[component_id], against)


def is_sound_telling(role: str, period_s: float) -> bool:
    return len(role) <= NAME_MAX and PERIOD_S_MIN <= period_s <= PERIOD_S_MAX


def is_sound_row(seen: PeerSeen) -> bool:
    """Whether that can be, of whomever."""
    counts = seen.asked, seen.answered, seen.refused, seen.silent
    return (
        all(0 <= count <= COUNT_MAX for count in counts)
        and is_sound(seen.wait_s)
        and is_sound(seen.room)
        and len(seen.id) <= NAME_MAX
    )


def _silent_shares(lately: Lately) -> dict[str, float]:
    return _shares({each: sum(t.silent for t in told) for each, told in lately.items()}, lately)


def _refused_shares(lately: Lately) -> dict[str, float]:
    return _shares({each: sum(t.refused for t in told) for each, told in lately.items()}, lately)


def _shares(parts: dict[str, int], lately: Lately) -> dict[str, float]:
    wholes = {each: sum(t.asked for t in told) for each, told in lately.items()}
    usual = median_of(sorted([part / (wholes[each] or 1) for each, part in parts.items()] or [0]))
    return {each: (part + PRIOR * usual) / (wholes[each] + PRIOR) for each, part in parts.items()}


def _waits_s(lately: Lately) -> dict[str, float]:
    return {
        each: told[-1].wait_s for each, told in lately.items() if told[-1].answered >= ANSWERED_MIN
    }


def _asked_per_s(lately: Lately) -> dict[str, float]:
    return {
        each: sum(t.asked for t in told) / sum(t.period_s for t in told)
        for each, told in lately.items()
    }


def _tightness(lately: Lately) -> dict[str, float]:
    # Rooms differ by factors: beside 100 and 300, 1 is far away only upside down.
    rooms = {each: max(t.room for t in told) for each, told in lately.items()}
    return {each: 1 / room for each, room in rooms.items() if room >= ROOM_MIN}  # O2


MEASURES: Mapping[str, Callable[[Lately], dict[str, float]]] = {
    "stub_silent_share": _silent_shares,
    "stub_refused_share": _refused_shares,
    "stub_wait_s": _waits_s,
    "stub_asked_per_s": _asked_per_s,
    "stub_tightness": _tightness,
}
