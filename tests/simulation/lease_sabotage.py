"""Faults planted in the lease machines, and by which promise the simulation must notice each.

A fault is a line or two, planted by subclassing one class; all else is what runs in production. It
counts as caught only if the promise named here is what breaks: the other checks are switched off.
Letters and numbers are those of the invariants in the docstrings of the machines.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from bus.lease_timing import LeaseTiming
from roles.assignment import Assignment
from roles.election import Election, Leading, Watching
from roles.key_range import KeyRange
from roles.lease_messages import (
    AskMap,
    MapAnswered,
    MapDelta,
    MapPart,
    OwnerAnswer,
    OwnerAsk,
    Span,
)
from roles.lease_namespace import ROWS_MAX, Gap, LeasedSpan, Life, MapEntry, Namespace, Noted
from roles.lease_rows import LEADER, LifeRow, NamespaceRow, life_key
from roles.lookup_machine import Entry, LookupAction, LookupMachine, Lost, Version
from roles.manager import (
    Broadcast,
    Commit,
    Done,
    Failed,
    InDoubt,
    Manager,
    ManagerAction,
    Outcome,
    StoreOp,
    _Asked,
)
from roles.owner_machine import Changed, Lease, OwnerAction, OwnerMachine
from roles.range_map import Piece
from tests.simulation import lease_promises as promises
from tests.simulation.lease_cluster import PRODUCTION, Parts
from tests.simulation.lease_promises import Options, Promise

SEEDS_MAX = 150


# Owners.


class CountsFromTheAnswer(OwnerMachine):  # O1
    def answered(self, term: int, answer: OwnerAnswer, now: float) -> list[OwnerAction]:
        if answer.sequence in self._asked:
            self._asked[answer.sequence] = now
        return super().answered(term, answer, now)


class GoesOnAfterALapse(OwnerMachine):  # O1, O4
    @property
    def wake_at(self) -> float:
        return self._ask_at

    def _expire(self, now: float) -> list[OwnerAction]:
        return []


class TakesAnswersInAnyOrder(OwnerMachine):  # O2
    def answered(self, term: int, answer: OwnerAnswer, now: float) -> list[OwnerAction]:
        asked, self._answered_sequence = dict(self._asked), 0
        actions = super().answered(term, answer, now)
        self._asked = asked
        return actions


class TakesOldNumbers(OwnerMachine):  # O3
    def _heard(self, spans: list[Span]) -> None:
        pass


class IsContinuousForEver(OwnerMachine):  # O4
    def _become(self, pieces: list[Lease], until: float, reason: str) -> list[OwnerAction]:
        old = [msgspec.structs.replace(lease, since=0) for lease in pieces]
        return super()._become(old, until, reason)


class TellsNothingOfALapse(OwnerMachine):  # O5
    def _expire(self, now: float) -> list[OwnerAction]:
        super()._expire(now)
        return []


class TellsAllItHasEachTime(OwnerMachine):  # O5
    def _become(self, pieces: list[Lease], until: float, reason: str) -> list[OwnerAction]:
        actions = super()._become(pieces, until, reason)
        granted = [lease.range for lease in self.held.pieces()]
        return [Changed(granted, [], reason) if isinstance(a, Changed) else a for a in actions]


class GivesUpWithoutSaying(OwnerMachine):
    """A recall is heard of with the next renewal only, not at once."""

    def _take(self, spans: list[Span], until: float, now: float) -> list[OwnerAction]:
        ask_at = self._ask_at
        actions = super()._take(spans, until, now)
        self._ask_at = ask_at
        return actions


# The leases of a namespace.


class RecallsWithoutAnAcknowledgement(Namespace):  # N1
    def _recall_misplaced(self, life: Life) -> None:
        super()._recall_misplaced(life)
        gone = [span for span in life.spans if span.recalled]
        life.spans = [span for span in life.spans if not span.recalled]
        for span in gone:
            self._free(life, [span], "recalled", -math.inf)


class FreesAFormerLifeAtOnce(Namespace):  # N1
    def _supersede(self, former: Life) -> None:
        former.vouched_dead, former.expires_at = True, -math.inf
        super()._supersede(former)


class TakesTheDeathOfAFormerLifeForTheDeathOfAll(Namespace):  # N1
    def vouched_dead(self, process: str, incarnation: int) -> None:
        for life in list(self.lives.values()):
            if life.process == process:
                super().vouched_dead(process, life.process_incarnation)


class TakesAcknowledgementsOfAnOldTerm(Namespace):  # N2
    def ask(self, ask: OwnerAsk, now: float) -> OwnerAnswer | Life | None:
        life = self.lives.get(life_key(self.name, ask.owner, ask.nonce))
        seen = min(ask.seen_revision, life.revision if life else 0)
        newer = msgspec.structs.replace(ask, seen_term=self.term, seen_revision=seen)
        return super().ask(newer, now)


class TakesEveryAskForAnAcknowledgement(Namespace):  # N2: whatever it has seen.
    def _acknowledge(self, life: Life, holds: list[Span], seen: int, now: float) -> None:
        super()._acknowledge(life, holds, life.revision, now)


class CountsRevisionsOfEachLife(Namespace):  # N2: one that comes back is given them twice.
    def _revise(self, life: Life) -> None:
        self._revision = life.revision
        super()._revise(life)


class GrantsUnderTheSameNumber(Namespace):  # N3
    def _next_number(self, reason: str) -> int:
        number = super()._next_number(reason)
        if reason.startswith("granted"):
            self._number -= 1
        return number


class ForgetsNumbersOfARolledBackStore(Namespace):  # N3
    def rolled_back(self, reason: str, number_max: int, now: float) -> None:
        number = self._number
        super().rolled_back(reason, number_max, now)
        self._number = number + 1


class TrustsTheStoreAtOnce(Namespace):  # N4
    def _free(self, life: Life, spans: list[LeasedSpan], reason: str, now: float) -> None:
        self._grace_until = -math.inf
        super()._free(life, spans, reason, now)

    def settle(self, now: float, rows_max: int = ROWS_MAX) -> None:
        self.gaps = [msgspec.structs.replace(gap, free_at=now) for gap in self.gaps]
        super().settle(now, rows_max)


class FreesWhatIsSilentAtATakeover(Namespace):  # N5
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
    ) -> Namespace:
        made = super().restored(row, lives, assignment, timing, term=term, now=now)
        for life in made.lives.values():
            life.expires_at = now + 0.5
        return made


class RecallsEverythingAtATakeover(Namespace):  # N5
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
    ) -> Namespace:
        made = super().restored(row, lives, assignment, timing, term=term, now=now)
        for life in made.lives.values():
            life.leaving = True  # Until it says that it is not.
        return made


class KeepsTheBirthOfWhatIsLost(Namespace):  # N6
    def _free(self, life: Life, spans: list[LeasedSpan], reason: str, now: float) -> None:
        gaps, changes = len(self.gaps), len(self._changes)
        super()._free(life, spans, reason, now)
        self.gaps[gaps:] = [
            Gap(gap.start, gap.end, gap.number, span.born, gap.free_at, reason)
            for gap, span in zip(self.gaps[gaps:], spans, strict=True)
        ]
        self._changes[changes:] = [
            (gap.start, gap.end, MapEntry(None, gap.number, gap.born)) for gap in self.gaps[gaps:]
        ]


class IsBornWithEachGrant(Namespace):  # N6
    def _grant_free(self, now: float, rows_max: int) -> None:
        number = self._number + 1
        self.gaps = [msgspec.structs.replace(gap, number=number, born=number) for gap in self.gaps]
        super()._grant_free(now, rows_max)


class NeverLooksAtClocks(Namespace):
    def _set_refused(self, life: Life, slow: str) -> None:
        super()._set_refused(life, "")


class NudgesNobody(Namespace):
    def take_notes(self) -> tuple[set[str], list[Noted]]:
        return set(), super().take_notes()[1]


# Lookups.


class TakesChangesOfAnyVersion(LookupMachine):  # L1
    def heard_delta(self, delta: MapDelta, part: MapPart, now: float) -> list[LookupAction]:
        if self.version is not None:
            self.version = (delta.after_term, delta.after_lsn)
        return super().heard_delta(delta, part, now)


class ListensToLowerTerms(LookupMachine):  # L1
    def _heard_leader(self, term: int, now: float) -> bool:
        self.term = self._version_term = 0
        return super()._heard_leader(term, now)


class TakesOlderMaps(LookupMachine):  # L1
    def answered(
        self, answer: MapAnswered, part: MapPart, asked: AskMap, now: float
    ) -> list[LookupAction]:
        self._version_term = -1
        return super().answered(answer, part, asked, now)


class TellsNoLossByAWholeMap(LookupMachine):  # L2
    def _apply(
        self, part: MapPart, version: Version, term: int, *, whole: bool
    ) -> list[LookupAction]:
        actions = super()._apply(part, version, term, whole=whole)
        return [each for each in actions if not (whole and isinstance(each, Lost))]


class TellsLossesOfItsFirstMap(LookupMachine):  # L2
    def _apply(
        self, part: MapPart, version: Version, term: int, *, whole: bool
    ) -> list[LookupAction]:
        self.version = self.version or (0, 0)
        return super()._apply(part, version, term, whole=whole)


class TellsEveryMoveAsALoss(LookupMachine):  # L2
    def _lost(self, changes: list[Piece[Entry]]) -> list[KeyRange]:
        moved = [
            (start, end, msgspec.structs.replace(entry, born=entry.number))
            for start, end, entry in changes
        ]
        return super()._lost(moved)


class NeverTellsOfSilence(LookupMachine):  # L3
    @property
    def _silent_at(self) -> float:
        return math.inf


class TellsOfSilenceAgainAndAgain(LookupMachine):  # L3
    def advance(self, now: float) -> list[LookupAction]:
        actions = super().advance(now)
        if self._reported_silence:
            self._reported_silence, self._heard_at = False, now
        return actions


class NeverPolls(LookupMachine):
    def advance(self, now: float) -> list[LookupAction]:
        actions = super().advance(now)
        if self.version is not None:
            self._ask_at = math.inf
        return actions


# Managers.


class AnswersWhetherTrustedOrNot(Manager):  # G1
    def _committed(self, commit: Commit, asked_at: float, now: float) -> list[ManagerAction]:
        if not isinstance(self.election.state, Leading):
            return super()._committed(commit, asked_at, now)
        self.election.committed(commit.put[LEADER], asked_at)
        return [*self._say(now), *self.advance(now)]


class AnswersBeforeItIsCommitted(Manager):  # G1
    def _lead(self, now: float) -> list[ManagerAction]:
        actions = super()._lead(now)
        return [*self._say(now), *actions] if self.leading else actions


class CommitsWhoeverLeads(Manager):  # G2
    def _ask_store(self, op: StoreOp, now: float) -> list[ManagerAction]:
        if isinstance(op, Commit) and self.leading:
            op = Commit({}, op.put, op.delete)
        return super()._ask_store(op, now)


class BeginsWithWhatItKnew(Manager):  # G3
    _read: Mapping[str, bytes] | None = None

    def _begin(self, rows: Mapping[str, bytes], now: float) -> list[ManagerAction]:
        self._read = self._read or rows
        return super()._begin(self._read, now)


class TakesDoubtForSuccess(Manager):  # E3
    def stored(self, outcome: Outcome, now: float) -> list[ManagerAction]:
        sure = Done(committed=True) if isinstance(outcome, InDoubt) else outcome
        return super().stored(sure, now)


class TakesDoubtForFailure(Manager):  # E3: the term counts from the second try.
    def stored(self, outcome: Outcome, now: float) -> list[ManagerAction]:
        if isinstance(outcome, InDoubt):
            outcome = Failed("surely not done")
        if isinstance(outcome, Done) and self._op is not None:
            self._op.in_doubt = True
        return super().stored(outcome, now)


class BelievesNoGreaterTerm(Manager):  # G6
    def _ask(self, ask: OwnerAsk, now: float) -> OwnerAnswer | Life | None:
        return super()._ask(msgspec.structs.replace(ask, term_max=0), now)

    def _heard_version(self, ask: AskMap, now: float) -> None:
        if ask.term < self.election.term:
            super()._heard_version(msgspec.structs.replace(ask, term_max=0), now)


class BelievesNoLookup(Manager):  # G6
    def _heard_version(self, ask: AskMap, now: float) -> None:
        pass


class PublishesNothing(Manager):
    def _say(self, now: float) -> list[ManagerAction]:
        return [each for each in super()._say(now) if not isinstance(each, Broadcast)]


class CountsItsTermFromTheAnswer(Manager):  # E1
    def _committed(self, commit: Commit, asked_at: float, now: float) -> list[ManagerAction]:
        return super()._committed(commit, now, now)


class WatchesFromWhenItAsked(Manager):  # E1
    def _done(self, asked: _Asked, done: Done, now: float) -> list[ManagerAction]:
        actions = super()._done(asked, done, now)
        state = self.election.state
        if isinstance(state, Watching) and state.since == now:
            self.election.state = Watching(state.row, asked.asked_at)
        return actions


class TakesOverTooSoon(Election):  # E1
    def _may_take(self, now: float) -> bool:
        return super()._may_take(now + 0.5 * self._timing.takeover_s)


class TakesOverFromAnyLifeVouchedDead(Election):  # E1
    def vouched_dead(self, process: str, incarnation: int, now: float) -> None:
        for life in range(incarnation - 5, incarnation + 50):
            super().vouched_dead(process, life, now)


class TrustsAnEmptyRow(Election):  # E1: though a rolled back store may have forgotten a leader.
    def _may_take(self, now: float) -> bool:
        self._looking_since, self.term_floor = -math.inf, 0
        return super()._may_take(now)


class NeverDoubtsItsTerm(Election):  # E1
    def trusted(self, now: float) -> bool:
        return isinstance(self.state, Leading)


class NeverTakesOver(Election):
    def _may_take(self, now: float) -> bool:
        assert isinstance(self.state, Watching)
        return self.state.row is None


# All of them.


def keeps_leases_too_short(timing: LeaseTiming) -> LeaseTiming:  # T1
    return msgspec.structs.replace(timing, manager_ttl_s=0.6 * timing.owner_ttl_s)


class Sabotage(msgspec.Struct, frozen=True):
    """A fault, the promise that it breaks, and what has to happen for that."""

    name: str
    parts: Parts
    breaks: str
    when: Promise

    def caught_by(self, seed: int) -> str:
        """What the simulation says; empty if it notices nothing."""
        try:
            self.when(seed, Options(self.parts, frozenset({self.breaks})))
        except Exception as error:  # noqa: BLE001 (whatever the fault does: the promise must notice)
            said = str(error).partition("\n")[0]
            return said if f"{self.breaks}:" in said else ""
        return ""


Machine = type[OwnerMachine | Namespace | LookupMachine | Manager | Election]


def _planted(fault: Machine, breaks: str, when: Promise) -> Sabotage:
    fields = {
        OwnerMachine: "owner",
        Namespace: "namespace",
        LookupMachine: "lookup",
        Manager: "manager",
        Election: "election",
    }
    field = next(name for machine, name in fields.items() if issubclass(fault, machine))
    parts = msgspec.structs.replace(PRODUCTION, **{field: fault})
    return Sabotage(fault.__name__, parts, breaks, when)


_any = promises.all_is_well_after_any_trouble
_slow = promises.no_race_of_slow_answers_is_lost
_late = promises.no_straggler_does_harm
_store = promises.no_trouble_of_the_store_does_harm
_back = promises.no_store_rolled_back_does_harm
_dead = promises.keys_of_the_dead_are_owned_again_in_time
_failover = promises.a_failover_moves_nothing
_leaves = promises.keys_of_who_leaves_are_owned_again_within_a_second
_hubs = promises.hubs_are_not_needed
_former = promises.a_former_life_is_waited_for
_backup = promises.a_backup_loses_no_number_and_no_loss
_clock = promises.a_clock_beyond_the_bound_is_refused
_race = promises.a_race_costs_nothing
_cut = promises.who_is_cut_off_gives_up_in_time
_lead = promises.no_two_managers_lead_at_once
_silence = promises.silence_of_all_managers_is_told_once

SABOTAGES = [
    Sabotage(
        "LeasesShorterThanTheirOwnersThink",
        Parts(timing=keeps_leases_too_short),
        "one_owner",
        _cut,
    ),
    Sabotage(
        "AClockThatLosesThreeTenthsUnwatched",
        Parts(namespace=NeverLooksAtClocks, slow_clock=0.7),
        "one_owner",
        _cut,
    ),
    _planted(NeverLooksAtClocks, "clock", _clock),
    _planted(CountsFromTheAnswer, "one_owner", _cut),
    _planted(GoesOnAfterALapse, "continuous", _any),
    _planted(TakesAnswersInAnyOrder, "kept", _race),
    _planted(TakesOldNumbers, "continuous", _slow),
    _planted(IsContinuousForEver, "continuous", _any),
    _planted(TellsNothingOfALapse, "diffs", _any),
    _planted(TellsAllItHasEachTime, "diffs", _any),
    _planted(GivesUpWithoutSaying, "owned", _leaves),
    _planted(RecallsWithoutAnAcknowledgement, "one_owner", _any),
    _planted(FreesAFormerLifeAtOnce, "one_owner", _former),
    _planted(TakesTheDeathOfAFormerLifeForTheDeathOfAll, "one_owner", _former),
    _planted(TakesAcknowledgementsOfAnOldTerm, "one_owner", _race),
    _planted(TakesEveryAskForAnAcknowledgement, "one_owner", _any),
    _planted(CountsRevisionsOfEachLife, "one_owner", _late),
    _planted(GrantsUnderTheSameNumber, "numbers", _any),
    _planted(ForgetsNumbersOfARolledBackStore, "numbers", _backup),
    _planted(TrustsTheStoreAtOnce, "one_owner", _backup),
    _planted(FreesWhatIsSilentAtATakeover, "one_owner", _any),
    _planted(RecallsEverythingAtATakeover, "failover", _failover),
    _planted(KeepsTheBirthOfWhatIsLost, "losses", _dead),
    _planted(IsBornWithEachGrant, "losses", _any),
    _planted(NudgesNobody, "owned", _dead),
    _planted(TakesChangesOfAnyVersion, "find_right", _any),
    _planted(ListensToLowerTerms, "losses", _any),
    _planted(TakesOlderMaps, "losses", _late),
    _planted(TellsNoLossByAWholeMap, "losses", _any),
    _planted(TellsLossesOfItsFirstMap, "losses", _any),
    _planted(TellsEveryMoveAsALoss, "losses", _any),
    _planted(NeverTellsOfSilence, "losses", _silence),
    _planted(TellsOfSilenceAgainAndAgain, "losses", _silence),
    _planted(NeverPolls, "losses", _hubs),
    _planted(AnswersWhetherTrustedOrNot, "single_trust", _store),
    _planted(AnswersBeforeItIsCommitted, "numbers", _store),
    _planted(CommitsWhoeverLeads, "numbers", _store),
    _planted(BeginsWithWhatItKnew, "numbers", _any),
    _planted(TakesDoubtForSuccess, "single_trust", _lead),
    _planted(TakesDoubtForFailure, "single_trust", _lead),
    _planted(BelievesNoGreaterTerm, "owned", _backup),
    _planted(BelievesNoLookup, "numbers", _backup),
    _planted(PublishesNothing, "losses", _dead),
    _planted(CountsItsTermFromTheAnswer, "single_trust", _lead),
    _planted(WatchesFromWhenItAsked, "single_trust", _lead),
    _planted(TakesOverTooSoon, "single_trust", _lead),
    _planted(TakesOverFromAnyLifeVouchedDead, "single_trust", _any),
    _planted(TrustsAnEmptyRow, "single_trust", _backup),
    _planted(NeverDoubtsItsTerm, "single_trust", _back),
    _planted(NeverTakesOver, "failover", _failover),
]
