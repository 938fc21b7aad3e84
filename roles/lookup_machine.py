"""The map of one namespace as a lookup keeps it, and what it reports lost. Decides only.

Changes are broadcast as they are committed; a change that does not follow on the version we have,
or a tip that names another one, makes us ask the manager. Asking every `poll_s` is the fallback.

What always holds:
  L1  A change is applied only to the very version it was made from; a lower term changes nothing,
      nor does an older map of the same leader.
  L2  A range is reported lost exactly when its `born` exceeds the `number` we knew: its state began
      anew after what we knew of; or when its number goes back, as only a store rolled back makes
      it. The first map reports nothing.
  L3  After `SILENT_POLLS` polls without a word from a leader everything is reported lost, once;
      `view` goes on as it was.
"""

from bisect import bisect_right
from collections.abc import Callable
from random import Random

import msgspec

from bus.lease_timing import LeaseTiming
from roles.key_range import EVERYTHING, KeyRange
from roles.lease_messages import LEAP_MAX, AskMap, MapAnswered, MapDelta, MapPart
from roles.range_map import Piece, RangeMap

SILENT_POLLS = 3
GAP_ASK_S_MAX = 0.05
"""A gap is noticed by all lookups at once: they ask within this time, not all together."""

Version = tuple[int, int]
"""Term and LSN of the commit that made a map."""


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a key is owned."""

    url: str
    number: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    owner: str
    route: Route | None
    number: int
    born: int


class Ask(msgspec.Struct, frozen=True):
    message: AskMap


class Lost(msgspec.Struct, frozen=True):
    """The state of these ranges is gone."""

    ranges: list[KeyRange]
    reason: str


class MapChanged(msgspec.Struct, frozen=True):
    """Where ranges begin, and who owns each."""

    starts: list[int]
    routes: list[Route | None]


class Odd(msgspec.Struct, frozen=True):
    """Something was ignored: for the counters and the log."""

    reason: str


LookupAction = Ask | Lost | MapChanged | Odd

NOBODY = Entry("", None, 0, 0)

STEPS_MAX = 8


class Step(msgspec.Struct, frozen=True):
    """A map after a change, and what that change reports lost."""

    view: RangeMap[Entry]
    routes: list[Route | None]
    lost: list[KeyRange]


class MapSteps:
    """Changes of one namespace's map, each worked out once for all lookups of a process: a version
    names its map, so the same two versions are the same step."""

    def __init__(self) -> None:
        self._steps: dict[tuple[Version | None, Version], Step] = {}

    def step(self, before: Version | None, after: Version, work_out: Callable[[], Step]) -> Step:
        known = self._steps.get((before, after))
        if known is None:
            known = self._steps[before, after] = work_out()
            if len(self._steps) > STEPS_MAX:
                del self._steps[next(iter(self._steps))]
        return known


class LookupMachine:
    def __init__(
        self,
        namespace: str,
        timing: LeaseTiming,
        chance: Random,
        now: float,
        steps: MapSteps | None = None,
    ) -> None:
        """`steps` may be shared with other lookups of the same namespace."""
        self.namespace = namespace
        self._steps = steps or MapSteps()
        self.view: RangeMap[Entry] = RangeMap(NOBODY)
        self.version: Version | None = None
        self.term = 0
        self._version_term = 0  # Of the leader that told us of `version`.
        self._timing = timing
        self._chance = chance
        self._ask_at = now
        self._heard_at = now
        self._reported_silence = False

    @property
    def wake_at(self) -> float:
        if self._reported_silence or self.version is None:
            return self._ask_at
        return min(self._ask_at, self._silent_at)

    @property
    def _silent_at(self) -> float:
        return self._heard_at + SILENT_POLLS * self._timing.poll_s

    def advance(self, now: float) -> list[LookupAction]:
        actions: list[LookupAction] = []
        if now >= self._silent_at and self.version is not None and not self._reported_silence:
            self._reported_silence = True  # L3
            actions.append(Lost([EVERYTHING], f"no manager for {SILENT_POLLS} polls"))
        if now >= self._ask_at:
            # One in `poll_s`, not all lookups in step.
            self._ask_at = now + self._timing.poll_s * self._chance.uniform(0.8, 1.0)
            term, lsn = self.version or (0, -1)
            actions.append(Ask(AskMap(self.namespace, term, lsn, self.term)))
        return actions

    def heard_tip(self, term: int, version: Version, now: float) -> list[LookupAction]:
        """The leader of `term` says that `version` is the newest."""
        if not self._heard_leader(term, now):
            return []
        if version != self.version:
            self._ask_soon(now)
        return []

    def heard_delta(self, delta: MapDelta, part: MapPart, now: float) -> list[LookupAction]:
        if not self._heard_leader(delta.term, now):
            return []
        if self.version != (delta.after_term, delta.after_lsn):  # L1
            if self.version != (delta.term, delta.lsn):
                self._ask_soon(now)
            return []
        return self._apply(part, (delta.term, delta.lsn), delta.term, whole=False)

    def answered(
        self, answer: MapAnswered, part: MapPart, asked: AskMap, now: float
    ) -> list[LookupAction]:
        """The answer to `asked`."""
        if not answer.leading or not self._heard_leader(answer.term, now):
            return []
        version = answer.version_term, answer.version_lsn
        if version == self.version:
            self._version_term = answer.term
        elif self.version and answer.term == self._version_term and version < self.version:
            pass  # L1: overtaken on the way by a newer one.
        elif answer.whole and not _is_whole(part):
            return [Odd("a map with holes")]
        elif answer.whole or self.version == (asked.term, asked.lsn):  # L1
            return self._apply(part, version, answer.term, whole=answer.whole)
        else:  # Changed since we asked.
            self._ask_soon(now)
        return []

    def unanswered(self, now: float) -> None:
        """No manager answered what we asked: ask again before the next poll is due."""
        self._ask_at = min(self._ask_at, now + self._timing.poll_s * self._chance.uniform(0.1, 0.3))

    def _heard_leader(self, term: int, now: float) -> bool:
        if not self.term <= term <= self.term + LEAP_MAX:  # L1
            return False
        self.term = term
        self._heard_at = now
        self._reported_silence = False
        return True

    def _ask_soon(self, now: float) -> None:
        self._ask_at = min(self._ask_at, now + self._chance.uniform(0.0, GAP_ASK_S_MAX))

    def _apply(
        self, part: MapPart, version: Version, term: int, *, whole: bool
    ) -> list[LookupAction]:
        first = self.version is None
        assert whole or not first, "a change needs something to change"

        def work_out() -> Step:
            changes = _pieces(part)
            lost = [] if first else self._lost(changes)
            view = self.view.updated(changes)
            return Step(view, [entry.route for entry in view.values], lost)

        step = self._steps.step(self.version, version, work_out)
        self.view = step.view
        self.version, self._version_term = version, term
        actions: list[LookupAction] = [MapChanged(step.view.starts, step.routes)]
        if step.lost:
            actions.append(Lost(step.lost, "its state began anew"))
        return actions

    def _lost(self, changes: list[Piece[Entry]]) -> list[KeyRange]:
        """As few ranges as possible, in order, as the changes are."""
        starts, values = self.view.starts, self.view.values
        lost: list[list[int]] = []
        for start, end, entry in changes:
            born, index = entry.born, bisect_right(starts, start)
            while start < end:
                until = min(starts[index], end) if index < len(starts) else end
                known = values[index - 1]
                if born > known.number or _goes_back(known, entry):  # L2
                    if lost and lost[-1][1] == start:
                        lost[-1][1] = until
                    else:
                        lost.append([start, until])
                start = until
                index += 1
        return [KeyRange(from_, until) for from_, until in lost]


def _goes_back(known: Entry, entry: Entry) -> bool:
    """Whether that can only be told by a store rolled back, which forgot what we knew."""
    if entry.number == known.number:
        return entry.owner != known.owner
    return entry.number < known.number


def _pieces(part: MapPart) -> list[Piece[Entry]]:
    owners = part.owners
    pieces: list[Piece[Entry]] = []
    routes: dict[tuple[int, int, int], Entry] = {}  # Few are different: they share one object.
    for span in part.spans:
        key = span.owner, span.number, span.born
        entry = routes.get(key)
        if entry is None:
            owner, url = owners[span.owner] if span.owner >= 0 else ("", "")
            route = Route(url, span.number) if span.owner >= 0 else None
            entry = routes[key] = Entry(owner, route, span.number, span.born)
        pieces.append((span.start, span.end, entry))
    return pieces


def _is_whole(part: MapPart) -> bool:
    after = 0
    for span in part.spans:
        if span.start != after:
            return False
        after = span.end
    return after == EVERYTHING.end
