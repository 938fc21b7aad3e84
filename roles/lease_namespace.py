"""The leases of one namespace, as the leading manager keeps them. Decides only.

Every position belongs to one life of one owner, or to nobody. Owners ask; `settle` moves what is
held towards the plan of the assignment: it recalls what another should have, and grants what is
free. A recall is acknowledged when the owner has acted on an answer that leaves the range out.

What always holds:
  N1  A range passes from one life to another only when the first has given it up, is dead for
      certain, or has been silent for `manager_ttl_s`.
  N2  An ask counts once and in order; what it says of an answer counts only if that answer was
      ours, of this term: a revision is not given twice, even to a life that comes back.
  N3  Every grant and every loss of state takes a number greater than all before.
  N4  Until `manager_ttl_s` after a takeover (or after a store was found rolled back), nothing is
      granted that this term has not itself seen held, given up or granted: the store may be older
      than the leases.
  N5  A takeover by itself moves nothing.
  N6  `born` changes only when state is lost, and then to a new number.
"""

import math
from collections import deque
from collections.abc import Iterable

import msgspec

from bus.lease_timing import LeaseTiming
from roles.assignment import Assignment
from roles.clock_rate import ClockRate
from roles.key_range import KEYS_END
from roles.lease_messages import (
    NUMBER_MAX,
    AskMap,
    MapPart,
    MapSpan,
    OwnerAnswer,
    OwnerAsk,
    Span,
    spans_in_order,
)
from roles.lease_rows import DecisionRow, LifeRow, NamespaceRow, SpanRow, life_key
from roles.lookup_machine import Version
from roles.range_map import Piece, RangeMap, overlaid

ROWS_MAX = 48
"""Rows changed in one commit, beyond which nothing is begun: etcd takes 128 operations at a time,
and what is begun may be one more message, of 24 owners, with two lives and a namespace each."""
LIVES_MAX = 4000
"""Owners of one namespace: planning anew for more takes the better part of a leader's term."""
HOLDS_MAX = 4096
SPANS_MAX = 512
"""Ranges of one life beyond which neighbours are merged, whatever that reports lost."""
GAPS_MAX = 2000
LOG_S = 300.0
LOG_SPANS_MAX = 200_000
DECISIONS_MAX = 64
"""Reasons that outlive a leader."""
REASONS_MAX = 20_000
ANSWERS_MAX = 16
CLAIM_MAX = NUMBER_MAX // 2
"""The greatest number that we learn from others: half of all stay for our own."""
JUMP = 1 << 20
"""Beyond any number that a store could have forgotten."""


class LeasedSpan(msgspec.Struct, frozen=True, gc=False):
    start: int
    end: int
    number: int
    born: int
    told: int
    """The revision from which on answers name it."""
    recalled: int = 0
    """The revision from which on they no longer do; 0: not recalled."""
    confirmed: bool = False
    """N4: this term has granted it, or has seen it held by who had heard of this term."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """A range that nobody holds."""

    start: int
    end: int
    number: int
    born: int
    free_at: float
    reason: str


class Life:
    """One life of one owner, as far as this leader knows."""

    def __init__(self, ask: OwnerAsk | LifeRow, expires_at: float) -> None:
        self.namespace = ask.namespace
        self.owner = ask.owner
        self.url = ask.url
        self.process = ask.process
        self.process_incarnation = ask.process_incarnation
        self.incarnation = ask.incarnation
        self.nonce = ask.nonce
        self.key = life_key(ask.namespace, ask.owner, ask.nonce)
        self.expires_at = expires_at
        self.refused = ""
        """Why it may hold nothing any more; empty: it may."""
        self.superseded = False
        self.vouched_dead = False
        self.leaving = False
        self.spans: list[LeasedSpan] = []
        self.revision = 1
        """As of the last change of what we answer."""
        self.sequence = 0
        self.clock = ClockRate()

    @property
    def may_hold(self) -> bool:
        return not (self.refused or self.leaving)

    def row(self) -> LifeRow:
        spans = [SpanRow(s.start, s.end - 1, s.number, s.born) for s in self.spans]
        return LifeRow(
            self.namespace,
            self.owner,
            self.url,
            self.process,
            self.process_incarnation,
            self.incarnation,
            self.nonce,
            self.superseded,
            spans,
        )


class Noted(msgspec.Struct, frozen=True):
    """Something for the event log."""

    kind: str
    subject: str
    reason: str


class Logged(msgspec.Struct, frozen=True):
    """One commit's change of the map."""

    after: Version
    version: Version
    part: MapPart
    at: float


class MapEntry(msgspec.Struct, frozen=True, gc=False):
    life: Life | None
    number: int
    born: int


class Explained(msgspec.Struct, frozen=True):
    """Why a key is where it is."""

    start: int
    end: int
    owner: str
    url: str
    number: int
    born: int
    reason: str
    expires_in_s: float
    recalled: bool


class Namespace:
    def __init__(
        self,
        name: str,
        assignment: Assignment,
        timing: LeaseTiming,
        *,
        term: int,
        now: float,
        grace_until: float = -math.inf,
    ) -> None:
        """One that begins with its first owner; with nothing to give before `grace_until`."""
        self.name = name
        self.term = term
        self.version: Version = (term, 0)
        self.version_found: Version = (0, 0)
        """The last of any earlier term, as far as the store or a lookup knew."""
        self.lives: dict[str, Life] = {}
        free_at = max(now, grace_until)  # N4: perhaps the store only forgot it.
        self.gaps: list[Gap] = [Gap(0, KEYS_END, 0, 0, free_at, "never owned")]
        self.log: deque[Logged] = deque()
        self.races = 0
        """Asks that came twice or too late: dropped."""
        self._assignment = assignment
        self._timing = timing
        self._number = 0
        self._revision = 1  # The last that was given, to any life.
        self._grace_until = grace_until
        self._current: dict[str, Life] = {}
        self._decisions: deque[DecisionRow] = deque(maxlen=DECISIONS_MAX)
        self._reasons: dict[int, str] = {}
        self._plan: RangeMap[str] = RangeMap("")
        self._eligible: frozenset[str] = frozenset()
        self._snapshot: tuple[Version, MapPart] | None = None
        self._log_spans = 0
        self._answers_of: Version | None = None
        self._answers: dict[Version, tuple[bool, MapPart]] = {}
        # Since the last commit:
        self._dirty: dict[str, Life | None] = {}
        self._changes: list[Piece[MapEntry]] = []
        self._nudges: set[str] = set()
        self._notes: list[Noted] = []
        self._row_changed = False

    @classmethod
    def restored(
        cls,
        row: NamespaceRow,
        lives: Iterable[LifeRow],
        assignment: Assignment,
        timing: LeaseTiming,
        *,
        term: int,
        now: float,
    ) -> "Namespace":
        """As a new leader finds it: every lease counts as renewed now."""
        made = cls(row.name, assignment, timing, term=term, now=now)
        made.version = made.version_found = (row.version_term, row.version_lsn)
        made._number = row.number
        made._grace_until = now + timing.manager_ttl_s  # N4
        made._decisions.extend(row.decisions)
        made._reasons = {each.number: each.reason for each in row.decisions}
        made.gaps = [
            Gap(s.start, s.last + 1, s.number, s.born, made._grace_until, "unowned at takeover")
            for s in row.unowned
        ]
        for each in lives:
            life = Life(each, now + timing.manager_ttl_s)  # N5
            life.superseded = each.superseded
            life.refused = "replaced by a later life" if each.superseded else ""
            recalled = 1 if each.superseded else 0
            life.spans = [
                LeasedSpan(s.start, s.last + 1, s.number, s.born, 1, recalled) for s in each.spans
            ]
            made.lives[life.key] = life
            if not life.superseded:
                made._current[life.owner] = life
        made._check_cover()
        return made

    @property
    def wake_at(self) -> float:
        expiries = [life.expires_at for life in self.lives.values()]
        frees = [gap.free_at for gap in self.gaps if self._eligible]
        return min([*expiries, *frees], default=math.inf)

    @property
    def rows_changed(self) -> int:
        """How many rows the next commit has of us."""
        changed = bool(self._dirty or self._changes or self._row_changed)
        return len(self._dirty) + changed

    # What owners say.

    def ask(self, ask: OwnerAsk, now: float) -> OwnerAnswer | Life | None:
        """A life to be answered with `answer` after the commit, a refusal, or nothing at all."""
        odd = self._odd(ask)
        if odd:
            self._notes.append(Noted("refused", ask.owner[:100], odd))
            return refusal(ask, odd)
        if ask.number_max > self._number:
            knows = f"{ask.owner} knows number {ask.number_max}, the store only {self._number}"
            self.rolled_back(knows, ask.number_max, now)
        life = self.lives.get(life_key(self.name, ask.owner, ask.nonce))
        if life is None:
            entered = self._enter(ask, now)
            if isinstance(entered, OwnerAnswer):
                return entered
            life = entered
        if ask.sequence <= life.sequence or life.vouched_dead:  # N2
            self.races += 1
            return None
        seen = ask.seen_revision if ask.seen_term == self.term else 0  # N2
        if seen > life.revision:
            return refusal(ask, f"it has seen revision {seen} of {life.revision}")
        life.sequence = ask.sequence
        slow = life.clock.heard(
            ask.age_s, now, skew=self._timing.skew, slack_s=self._timing.slack_s
        )
        self._set_refused(life, slow)
        if not life.superseded:
            life.expires_at = now + self._timing.manager_ttl_s
        if life.leaving != ask.leaving:
            life.leaving = ask.leaving
            self._notes.append(Noted("leaving" if ask.leaving else "joined", life.owner, self.name))
        self._acknowledge(life, ask.holds, seen, now)
        if (life.superseded or life.leaving) and not life.spans and not ask.holds:
            self._forget(life)
        return life

    def answer(self, life: Life, sequence: int) -> OwnerAnswer:
        """The complete set, for an ask that was taken in."""
        ranges = (
            []
            if life.refused
            else [Span(s.start, s.end - 1, s.number, s.born) for s in life.spans if not s.recalled]
        )
        return OwnerAnswer(
            self.name, life.owner, life.nonce, sequence, life.revision, life.refused, ranges
        )

    def _odd(self, ask: OwnerAsk) -> str:
        if not 0 <= ask.number_max <= max(self._number, CLAIM_MAX) or not math.isfinite(ask.age_s):
            return "an ask with absurd numbers"
        if len(ask.holds) > HOLDS_MAX or not spans_in_order(ask.holds):
            return "an ask with malformed ranges"
        return ""

    def _enter(self, ask: OwnerAsk, now: float) -> Life | OwnerAnswer:
        """A life that we did not know."""
        former = self._current.get(ask.owner)
        if former is not None and former.incarnation >= ask.incarnation:
            reason = (
                "a later life has its place"
                if former.incarnation > ask.incarnation
                else "two processes use this id"
            )
            self._notes.append(Noted("refused", ask.owner, reason))
            return refusal(ask, reason)
        if ask.leaving and not ask.holds:
            return refusal(ask, "")  # It has left already: a complete set of nothing.
        if len(self.lives) >= LIVES_MAX:
            return refusal(ask, f"there are {LIVES_MAX} owners already")
        if former is not None:
            self._supersede(former)
        life = Life(ask, now + self._timing.manager_ttl_s)
        self._revise(life)  # N2: perhaps we forgot it, and it has seen lower ones.
        self.lives[life.key] = self._current[life.owner] = life
        self._dirty[life.key] = life
        self._notes.append(Noted("joined", life.owner, f"owner of {self.name}, at {life.url}"))
        return life

    def _supersede(self, former: Life) -> None:
        """N1: what it held is free when it says so, is vouched dead, or runs out."""
        former.superseded = True
        former.refused = "replaced by a later life"
        self._dirty[former.key] = former
        if former.spans:
            self._recall(former, former.spans)
        else:
            self._forget(former)

    def _set_refused(self, life: Life, slow: str) -> None:
        if life.superseded:
            return
        if slow:
            life.refused = f"{slow}, more than the bound of {self._timing.skew:.0%}"
            self._recall(life, life.spans)
            self._notes.append(Noted("refused", life.owner, life.refused))
        elif life.clock.is_cleared:
            life.refused = ""  # N1: not sooner, as a clock that was odd probably still is.

    def _acknowledge(self, life: Life, holds: list[Span], seen: int, now: float) -> None:
        """Free what the owner has given up; remember what it has."""
        kept: list[LeasedSpan] = []
        freed: list[LeasedSpan] = []
        nothing: RangeMap[Span | None] = RangeMap(None)
        held = nothing.updated([(hold.start, hold.end, hold) for hold in holds])
        for span in life.spans:
            if 0 < span.recalled <= seen:
                freed.append(span)
                continue
            for start, end, holding in held.pieces(span.start, span.end):
                if holding is None and span.told <= seen:
                    freed.append(msgspec.structs.replace(span, start=start, end=end))
                else:
                    # N4: an older ask may tell of what was given up since, and granted to another.
                    confirmed = span.confirmed or (holding is not None and seen > 0)
                    kept.append(_part(span, start, end, confirmed=confirmed))
        life.spans = _merged_parts(kept)
        if freed:
            self._free(life, freed, f"given up by {life.owner}", now)
        if len(life.spans) > SPANS_MAX:
            self._merge_neighbours(life, seen)

    # What becomes free, and why.

    def vouched_dead(self, process: str, incarnation: int) -> None:
        """That life of that process is over for certain; `expire` ends what it held."""
        for life in self.lives.values():
            if (life.process, life.process_incarnation) == (process, incarnation):
                life.vouched_dead = True
                life.expires_at = -math.inf

    def expire(self, now: float, rows_max: int = ROWS_MAX) -> None:
        """End who is dead or has been silent for too long, as far as `rows_max` goes."""
        for life in [life for life in self.lives.values() if life.expires_at <= now]:
            if self.rows_changed < rows_max:
                self._end(life, now)

    def _end(self, life: Life, now: float) -> None:
        how = "vouched dead" if life.vouched_dead else "lease ran out"
        self._notes.append(Noted("expired", life.owner, f"{how}, in {self.name}"))
        spans, life.spans = life.spans, []
        if not life.vouched_dead:
            # Silent for `manager_ttl_s` of this term: whoever held it, nobody does any more.
            spans = [_part(span, span.start, span.end, confirmed=True) for span in spans]
        self._forget(life)
        if spans:
            self._free(life, spans, f"{life.owner}: {how}", now)

    def _forget(self, life: Life) -> None:
        self.lives.pop(life.key, None)
        if self._current.get(life.owner) is life:
            del self._current[life.owner]
        self._dirty[life.key] = None

    def _free(self, life: Life, spans: list[LeasedSpan], reason: str, now: float) -> None:
        """State is lost with it, as nothing carries it over: N6."""
        number = self._next_number(f"lost: {reason}")
        if life.key in self.lives:
            self._dirty[life.key] = life
        for span in spans:
            free_at = now if span.confirmed else max(now, self._grace_until)  # N4
            self.gaps.append(Gap(span.start, span.end, number, number, free_at, reason))
            self._changes.append((span.start, span.end, MapEntry(None, number, number)))

    def rolled_back(self, reason: str, number_max: int, now: float) -> None:
        """N3, N4: somebody knows what our store does not, and perhaps a number as great as this."""
        self._notes.append(Noted("rolled-back", self.name, reason))
        self._number = max(self._number, number_max) + JUMP
        self.log.clear()
        self._log_spans = 0
        until = now + self._timing.manager_ttl_s
        self._grace_until = until
        for life in self.lives.values():
            life.expires_at = max(life.expires_at, until)
        # N6: what nobody has by our store may have been owned since, even if it says never.
        number = self._next_number(f"lost: {reason}")
        self.gaps = [
            Gap(gap.start, gap.end, number, number, until, gap.reason) for gap in self.gaps
        ]
        self._changes += [(gap.start, gap.end, MapEntry(None, number, number)) for gap in self.gaps]

    # Moving towards the plan.

    def settle(self, now: float, rows_max: int = ROWS_MAX) -> None:
        """Recall what another owner should have; grant what is free, as far as `rows_max` goes."""
        eligible = frozenset(life.owner for life in self._current.values() if life.may_hold)
        changed = eligible != self._eligible
        if changed:
            self._eligible = eligible
            self._plan = self._assignment.plan(eligible)
        for life in self.lives.values():
            if changed or life.leaving:
                self._recall_misplaced(life)
        self._grant_free(now, rows_max)

    def _recall_misplaced(self, life: Life) -> None:
        if not life.spans:
            return
        spans: list[LeasedSpan] = []
        recall = False
        for span in life.spans:
            if span.recalled:
                spans.append(span)
                continue
            for start, end, owner in self._plan.pieces(span.start, span.end):
                part = _part(span, start, end, confirmed=span.confirmed)
                if life.leaving or (owner != life.owner and owner):
                    recall = True
                    part = msgspec.structs.replace(part, recalled=self._revision + 1)
                spans.append(part)
        if recall:
            life.spans = _merged_parts(spans)
            self._revise(life)
            self._nudges.add(life.owner)

    def _recall(self, life: Life, spans: list[LeasedSpan]) -> None:
        """Leave all of it out of what we answer from now on."""
        self._revise(life)
        life.spans = [
            s if s.recalled else msgspec.structs.replace(s, recalled=life.revision) for s in spans
        ]
        self._nudges.add(life.owner)

    def _grant_free(self, now: float, rows_max: int) -> None:
        waiting: list[Gap] = []
        granted: dict[str, list[LeasedSpan]] = {}
        numbers: dict[str, int] = {}
        for gap in self.gaps:
            if gap.free_at > now or not self._eligible:
                waiting.append(gap)
                continue
            for start, end, owner in self._plan.pieces(gap.start, gap.end):
                life = self._current[owner]
                full = life.key not in self._dirty and self.rows_changed >= rows_max
                if full:
                    waiting.append(msgspec.structs.replace(gap, start=start, end=end))
                    continue
                if owner not in numbers:
                    numbers[owner] = self._next_number(f"granted to {owner}: {gap.reason}")
                    self._dirty[life.key] = life
                    self._revise(life)
                number = numbers[owner]
                granted.setdefault(owner, []).append(
                    LeasedSpan(start, end, number, gap.born, life.revision, confirmed=True)
                )
                self._changes.append((start, end, MapEntry(life, number, gap.born)))
        self.gaps = _merged_gaps(waiting)
        for owner, spans in granted.items():
            life = self._current[owner]
            life.spans = sorted([*life.spans, *spans], key=lambda span: span.start)
            self._nudges.add(owner)

    def _merge_neighbours(self, life: Life, seen: int) -> None:
        """Fewer ranges; a merge takes the greater numbers, so part of it may be reported lost."""
        merged: list[LeasedSpan] = []
        for span in life.spans:
            last = merged[-1] if merged else None
            if (
                last is not None
                and last.end == span.start
                and not (last.recalled or span.recalled)
                and max(last.told, span.told) <= seen
            ):
                number, born = max(last.number, span.number), max(last.born, span.born)
                last = merged[-1] = msgspec.structs.replace(
                    last, end=span.end, number=number, born=born
                )
                self._changes.append((last.start, last.end, MapEntry(life, number, born)))
            else:
                merged.append(span)
        life.spans = merged
        self._revise(life)
        self._dirty[life.key] = life

    def _revise(self, life: Life) -> None:
        """What we answer it changes."""
        self._revision += 1  # N2
        life.revision = self._revision

    def _next_number(self, reason: str) -> int:
        self._number += 1  # N3
        self._decisions.append(DecisionRow(self._number, reason))
        self._reasons[self._number] = reason
        if len(self._reasons) > REASONS_MAX:
            del self._reasons[next(iter(self._reasons))]
        self._row_changed = True
        return self._number

    # What is to be committed, and what follows from it.

    def take_rows(self) -> tuple[list[msgspec.Struct], list[str]] | None:
        """Rows to put and keys to delete, or None if nothing changed. Makes the next version."""
        if not (self._dirty or self._changes or self._row_changed):
            return None
        if self._changes or self._row_changed:
            self._next_version()
        put: list[msgspec.Struct] = [life.row() for life in self._dirty.values() if life]
        delete = [key for key, life in self._dirty.items() if life is None]
        put.append(self._row())
        self._dirty = {}
        self._row_changed = False
        self._check_cover()
        return put, delete

    def take_notes(self) -> tuple[set[str], list[Noted]]:
        """Owners to nudge and events to tell, once the rows are committed."""
        nudges, self._nudges = self._nudges, set()
        notes, self._notes = self._notes, []
        return nudges, notes

    def _next_version(self) -> None:
        after, self.version = self.version, (self.term, self.version[1] + 1)
        part = _encoded(overlaid(self._changes))
        self._changes = []
        self.log.append(Logged(after, self.version, part, at=math.nan))
        self._log_spans += len(part.spans)

    def stamp_log(self, now: float) -> Logged | None:
        """The newest change, now committed; forgets what is older than `LOG_S`."""
        if not self.log or not math.isnan(self.log[-1].at):
            return None
        logged = self.log[-1] = msgspec.structs.replace(self.log[-1], at=now)
        while self.log[0].at < now - LOG_S or (
            self._log_spans > LOG_SPANS_MAX and len(self.log) > 1
        ):
            self._log_spans -= len(self.log.popleft().part.spans)
        return logged

    def _row(self) -> NamespaceRow:
        unowned = [SpanRow(g.start, g.end - 1, g.number, g.born) for g in self.gaps]
        return NamespaceRow(self.name, self._number, *self.version, unowned, list(self._decisions))

    # What lookups ask.

    def since(self, ask: AskMap) -> tuple[bool, MapPart]:
        """What changed since a version, or all of it, whichever is smaller; True: all of it."""
        known = ask.term, ask.lsn
        if known == self.version:
            return False, MapPart([], [])
        if self._answers_of != self.version:  # A change makes all lookups ask the same.
            self._answers_of, self._answers = self.version, {}
        answer = self._answers.get(known)
        if answer is None:
            answer = self._since(known)
            if len(self._answers) < ANSWERS_MAX:
                self._answers[known] = answer
        return answer

    def _since(self, known: Version) -> tuple[bool, MapPart]:
        steps = list(self.log)
        first = next((i for i, step in enumerate(steps) if step.after == known), None)
        whole = self.whole()
        if first is None:
            return True, whole
        steps = steps[first:]
        if sum(len(step.part.spans) for step in steps) >= 4 * len(whole.spans):
            return True, whole
        part = _combined([step.part for step in steps])
        return (True, whole) if len(part.spans) >= len(whole.spans) else (False, part)

    def whole(self) -> MapPart:
        if self._snapshot is None or self._snapshot[0] != self.version:
            pieces: list[Piece[MapEntry]] = [
                (s.start, s.end, MapEntry(life, s.number, s.born))
                for life in self.lives.values()
                for s in life.spans
            ]
            pieces += [(g.start, g.end, MapEntry(None, g.number, g.born)) for g in self.gaps]
            pieces.sort(key=lambda piece: piece[0])
            self._snapshot = self.version, _encoded(_joined_pieces(pieces))
        return self._snapshot[1]

    def explain(self, position: int, now: float) -> Explained:
        """Who has that position, since when, by which decision."""
        reasons = self._reasons
        unknown = "decided before what is remembered"
        for life in self.lives.values():
            for span in life.spans:
                if span.start <= position < span.end:
                    return Explained(
                        span.start,
                        span.end,
                        life.owner,
                        life.url,
                        span.number,
                        span.born,
                        reasons.get(span.number, unknown),
                        max(0.0, life.expires_at - now),
                        span.recalled > 0,
                    )
        gap = next(gap for gap in self.gaps if gap.start <= position < gap.end)
        wait_s = max(0.0, gap.free_at - now)
        return Explained(
            gap.start, gap.end, "", "", gap.number, gap.born, gap.reason, wait_s, recalled=False
        )

    def _check_cover(self) -> None:
        """Every position once. A mistake here would be two owners, so it is looked for always."""
        size = sum(s.end - s.start for life in self.lives.values() for s in life.spans)
        size += sum(gap.end - gap.start for gap in self.gaps)
        assert size == KEYS_END, f"{self.name}: ranges do not cover the keys once"


def refusal(ask: OwnerAsk, reason: str) -> OwnerAnswer:
    return OwnerAnswer(ask.namespace, ask.owner, ask.nonce, ask.sequence, 0, reason, [])


def _part(span: LeasedSpan, start: int, end: int, *, confirmed: bool) -> LeasedSpan:
    if (span.start, span.end, span.confirmed) == (start, end, confirmed):
        return span
    return msgspec.structs.replace(span, start=start, end=end, confirmed=confirmed)


def _merged_parts(spans: list[LeasedSpan]) -> list[LeasedSpan]:
    """Neighbours that differ in nothing but their place become one."""
    merged: list[LeasedSpan] = []
    for span in spans:
        last = merged[-1] if merged else None
        if last is not None and last.end == span.start:
            longer = msgspec.structs.replace(last, end=span.end)
            if longer == msgspec.structs.replace(span, start=last.start):
                merged[-1] = longer
                continue
        merged.append(span)
    return merged


def _merged_gaps(gaps: list[Gap]) -> list[Gap]:
    merged: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.start):
        last = merged[-1] if merged else None
        if last is not None and last.end == gap.start:
            same = (last.number, last.born) == (gap.number, gap.born)
            if same or len(gaps) > GAPS_MAX:
                merged[-1] = Gap(
                    last.start,
                    gap.end,
                    max(last.number, gap.number),
                    max(last.born, gap.born),
                    max(last.free_at, gap.free_at),
                    last.reason,
                )
                continue
        merged.append(gap)
    return merged


def _joined_pieces(pieces: list[Piece[MapEntry]]) -> list[Piece[MapEntry]]:
    joined: list[Piece[MapEntry]] = []
    for start, end, entry in pieces:
        if joined and joined[-1][1] == start and _alike(joined[-1][2], entry):
            joined[-1] = (joined[-1][0], end, joined[-1][2])
        else:
            joined.append((start, end, entry))
    return joined


def _alike(one: MapEntry, other: MapEntry) -> bool:
    return (one.life, one.number, one.born) == (other.life, other.number, other.born)


def _encoded(pieces: list[Piece[MapEntry]]) -> MapPart:
    owners: dict[tuple[str, str], int] = {}
    spans: list[MapSpan] = []
    for start, end, entry in pieces:
        index = -1
        if entry.life is not None:
            index = owners.setdefault((entry.life.owner, entry.life.url), len(owners))
        spans.append(MapSpan(start, end - 1, entry.number, entry.born, index))
    return MapPart(list(owners), spans)


def _combined(parts: list[MapPart]) -> MapPart:
    """Several changes, in order, as one."""
    if len(parts) == 1:
        return parts[0]
    owners: dict[tuple[str, str], int] = {}
    changes: list[Piece[tuple[int, int, int]]] = []
    for part in parts:
        indices = [owners.setdefault(owner, len(owners)) for owner in part.owners]
        changes += [
            (s.start, s.end, (s.number, s.born, indices[s.owner] if s.owner >= 0 else -1))
            for s in part.spans
        ]
    spans = [MapSpan(start, end - 1, *value) for start, end, value in overlaid(changes)]
    return MapPart(list(owners), spans)
