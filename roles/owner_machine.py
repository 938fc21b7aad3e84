"""What one owner holds, and for how long it may believe so. Decides only.

The owner asks every `renew_s`, or at once when nudged; every answer is the complete set of its
leases. All of them end together, `owner_ttl_s` after the ask that was last answered was *sent*.

What always holds:
  O1  Nothing is held longer than `owner_ttl_s` after the last answered ask was sent.
  O2  An answer counts once, in the order of the asks, from the newest term known, for this life.
  O3  What we do not hold is taken on only under a number greater than all we have ever heard: a
      number that we gave up, or that a former life had, never comes back.
  O4  A piece is continuous from the number under which it was taken on; a renewal, a split or a
      merge keeps that, and whatever ends it for an instant ends it for ever.
  O5  Every change of what is held is told, once, in order, as an exact difference.
"""

import math
from bisect import bisect_right
from random import Random

import msgspec

from bus.lease_timing import LeaseTiming
from roles.key_range import KeyRange, joined
from roles.lease_messages import OwnerAnswer, OwnerAsk, Span, spans_in_order
from roles.range_map import RangeMap

ASKED_MAX = 64
"""Asks whose answers may still come."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to act for a range of keys, as of the check that returned it."""

    range: KeyRange
    number: int
    """Greater than that of any earlier lease on these keys: the fencing token."""
    born: int
    """The number as of which the state of these keys began empty."""
    since: int
    """The number under which this owner took them on."""


class Held:
    """What is held, for any thread to read: never changed but for `until`."""

    __slots__ = ("leases", "starts", "until")

    def __init__(self, pieces: list[Lease], until: float) -> None:
        self.starts = [0]
        self.leases: list[Lease | None] = [None]
        for lease in pieces:
            self._add(lease.range.start, lease)
            self._add(lease.range.end, None)
        self.until = until
        """Believe none of it from here on."""

    def _add(self, start: int, lease: Lease | None) -> None:
        if self.starts[-1] == start:
            self.leases[-1] = lease
        else:
            self.starts.append(start)
            self.leases.append(lease)

    def at(self, position: int) -> Lease | None:
        """The lease on that position, should `until` not have come."""
        return self.leases[bisect_right(self.starts, position) - 1]

    def pieces(self) -> list[Lease]:
        return [lease for lease in self.leases if lease is not None]


class OwnerName(msgspec.Struct, frozen=True, kw_only=True):
    """Who an owner is: see `OwnerAsk`."""

    namespace: str
    owner: str
    url: str
    process: str
    process_incarnation: int
    incarnation: int
    nonce: int


class SendAsk(msgspec.Struct, frozen=True):
    ask: OwnerAsk


class Changed(msgspec.Struct, frozen=True):
    """What is held is different from now on."""

    granted: list[KeyRange]
    revoked: list[KeyRange]
    reason: str


class Ignored(msgspec.Struct, frozen=True):
    """An answer was dropped: for the counters and the log."""

    reason: str


class RefusedLife(msgspec.Struct, frozen=True):
    """The manager lets this life hold nothing."""

    reason: str


OwnerAction = SendAsk | Changed | Ignored | RefusedLife


class OwnerMachine:
    def __init__(self, name: OwnerName, timing: LeaseTiming, chance: Random, now: float) -> None:
        self.name = name
        self.held = Held([], -math.inf)
        self.leaving = False
        self._timing = timing
        self._chance = chance
        self._born_at = now
        self._asked: dict[int, float] = {}
        self._sequence = 0
        self._answered_sequence = 0
        self._leaving_sequence = 0  # The first ask that said: leaving.
        self._farewell_sequence = 0  # The first, after its answer, that said: and nothing held.
        self._seen = (0, 0)
        self._term = 0
        self._number_max = 0
        self._ask_at = now

    @property
    def wake_at(self) -> float:
        return min(self._ask_at, self.held.until if self._holds_any() else math.inf)

    @property
    def released(self) -> bool:
        """Whether we are leaving, and the manager knows that we hold nothing."""
        return 0 < self._farewell_sequence <= self._answered_sequence

    def advance(self, now: float, *, may_renew: bool = True) -> list[OwnerAction]:
        """Pass `may_renew=False` while the program we live in does not turn its event loop."""
        actions = self._expire(now)
        if now >= self._ask_at and may_renew:
            actions.append(self._ask(now))
        elif now >= self._ask_at:
            self._ask_at = now + self._timing.renew_s / 4
        return actions

    def nudged(self, now: float) -> None:
        """The manager has something new."""
        self._ask_at = min(self._ask_at, now)

    def unanswered(self, sequence: int, now: float) -> None:
        """No manager answered that ask: ask again after a random while."""
        if sequence == self._sequence and self._answered_sequence < sequence:
            delay_s = self._timing.renew_s * self._chance.uniform(0.02, 0.3)
            self._ask_at = min(self._ask_at, now + delay_s)

    def leave(self, now: float) -> None:
        """Ask to have everything taken; `released` says when that is done."""
        self.leaving = True
        self._ask_at = now

    def drop(self, reason: str, now: float) -> list[OwnerAction]:
        """Give everything up at once, and say so to the manager."""
        self._ask_at = now
        return self._become([], -math.inf, reason)

    def answered(self, term: int, answer: OwnerAnswer, now: float) -> list[OwnerAction]:
        actions = self._expire(now)
        asked_at = self._asked.get(answer.sequence)
        why = self._why_not(term, answer, asked_at)
        if why:
            return [*actions, Ignored(why)]
        assert asked_at is not None
        self._answered_sequence = answer.sequence
        self._term = term
        self._seen = (term, answer.revision)
        for sequence in [each for each in self._asked if each <= answer.sequence]:
            del self._asked[sequence]
        until = asked_at + self._timing.owner_ttl_s  # O1
        if answer.refused:
            actions += [RefusedLife(answer.refused), *self._become([], -math.inf, answer.refused)]
            self._ask_at = now if self._owes_farewell() else now + self._timing.renew_s
            return actions
        if until <= now:
            # Too late to hold anything by. From here on we say that we have seen it and hold none
            # of it, so it is given up: another answer that names it must be no grant to us (O3).
            self._heard(answer.ranges)
            self._ask_at = min(self._ask_at, now)
            return [*actions, Ignored("late")]
        actions += self._take(answer.ranges, until, now)
        return actions

    def _why_not(self, term: int, answer: OwnerAnswer, asked_at: float | None) -> str:
        """O2: why this answer does not count; empty if it does."""
        if answer.nonce != self.name.nonce or answer.owner != self.name.owner:
            return "for another life"
        if term < self._term:
            return "lower term"
        if asked_at is None or answer.sequence <= self._answered_sequence:
            return "race"
        if not spans_in_order(answer.ranges):
            return "malformed"
        return ""

    def _ask(self, now: float) -> SendAsk:
        self._sequence += 1
        self._asked[self._sequence] = now
        while len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._ask_at = now + self._timing.renew_s * self._chance.uniform(0.9, 1.0)
        name = self.name
        holds = [
            Span(lease.range.start, lease.range.end - 1, lease.number, lease.born)
            for lease in self.held.pieces()
        ]
        if not self.leaving or holds:
            self._farewell_sequence = 0
        elif self._owes_farewell():
            self._farewell_sequence = self._sequence
        if self.leaving and not self._leaving_sequence:
            self._leaving_sequence = self._sequence
        ask = OwnerAsk(
            name.namespace,
            name.owner,
            name.url,
            name.process,
            name.process_incarnation,
            name.incarnation,
            name.nonce,
            self._sequence,
            *self._seen,
            self._term,
            self._number_max,
            now - self._born_at,
            self.leaving,
            holds,
        )
        return SendAsk(ask)

    def _owes_farewell(self) -> bool:
        """Before the manager knows that we leave, it may have granted what we never heard of: only
        an ask after that says that we have none of it."""
        is_known = 0 < self._leaving_sequence <= self._answered_sequence
        return is_known and not self._farewell_sequence and not self._holds_any()

    def _expire(self, now: float) -> list[OwnerAction]:
        if self._holds_any() and now >= self.held.until:  # O1
            self._ask_at = now
            return self._become([], -math.inf, "ran out")
        return []

    def _take(self, spans: list[Span], until: float, now: float) -> list[OwnerAction]:
        """Hold what the manager says, as far as O3 lets us."""
        actions: list[OwnerAction] = []
        pieces: list[Lease] = []
        for span in spans:
            for start, end, lease in self._known(span):
                if lease is not None and lease.number <= span.number <= self._number_max:
                    since = lease.since  # O4: renewed, split or merged.
                elif span.number > self._number_max:  # O3
                    since = span.number
                else:
                    actions.append(Ignored("not a grant"))
                    continue
                pieces.append(Lease(KeyRange(start, end), span.number, span.born, since))
        self._heard(spans)
        changed = self._become(pieces, until, "as the manager says")
        revoked = any(isinstance(action, Changed) and action.revoked for action in changed)
        if revoked or self._owes_farewell():
            self._ask_at = now  # What we gave up is free as soon as the manager knows.
        return actions + changed

    def _heard(self, spans: list[Span]) -> None:
        self._number_max = max([self._number_max, *(span.number for span in spans)])

    def _known(self, span: Span) -> list[tuple[int, int, Lease | None]]:
        """The parts of `span`, each with what we hold there."""
        found: list[tuple[int, int, Lease | None]] = []
        held, start = self.held, span.start
        index = bisect_right(held.starts, start) - 1
        while start < span.end:
            index += 1
            next_start = held.starts[index] if index < len(held.starts) else span.end
            end = min(next_start, span.end)
            found.append((start, end, held.leases[index - 1]))
            start = end
        return found

    def _become(self, pieces: list[Lease], until: float, reason: str) -> list[OwnerAction]:
        before, pieces = self.held, _merged(pieces)
        if before.pieces() == pieces:
            before.until = until
            return []
        self.held = Held(pieces, until)
        before.until = -math.inf  # A check that read it just now must not believe it.
        granted, revoked = _differences(before, self.held)
        return [Changed(granted, revoked, reason)] if granted or revoked else []  # O5

    def _holds_any(self) -> bool:
        return len(self.held.starts) > 1 or self.held.leases[0] is not None


def _merged(pieces: list[Lease]) -> list[Lease]:
    """Neighbours that differ in nothing but their place become one."""
    merged: list[Lease] = []
    for lease in pieces:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.range.end == lease.range.start
            and (last.number, last.born, last.since) == (lease.number, lease.born, lease.since)
        ):
            whole = KeyRange(last.range.start, lease.range.end)
            merged[-1] = Lease(whole, lease.number, lease.born, lease.since)
        else:
            merged.append(lease)
    return merged


def _differences(before: Held, after: Held) -> tuple[list[KeyRange], list[KeyRange]]:
    """Ranges taken on and ranges given up; one that was lost and granted anew is in both."""
    then: RangeMap[int | None] = _since(before)
    granted, revoked = [], []
    for start, end, since in _since(after).pieces():
        for from_, until, was in then.pieces(start, end):
            if was == since:
                continue
            if since is not None:
                granted.append(KeyRange(from_, until))
            if was is not None:
                revoked.append(KeyRange(from_, until))
    return joined(granted), joined(revoked)


def _since(held: Held) -> RangeMap[int | None]:
    pieces = [(lease.range.start, lease.range.end, lease.since) for lease in held.pieces()]
    nothing: RangeMap[int | None] = RangeMap(None)
    return nothing.updated(pieces)
