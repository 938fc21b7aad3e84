"""The simulation has teeth: for each invariant of the liveness table, a fault it must catch.

Method: a fault of a line or two is planted by subclassing; some seed of the named promise must
then fail. (The same promises hold for every seed of the real table.)
"""

import math

import pytest

from bus.liveness import Liveness
from bus.messages import Beacon
from bus.peers import Output
from bus.standing import Answering, Entry, Suspect
from tests.simulation import liveness_promises as promises
from tests.simulation.liveness_promises import PROMISES, Promise


class DiesWithoutWaitingForThePong(Liveness):  # L1
    def _grace_s(self, entry: Entry) -> float:
        return 0.0


class SuspectsTooSoon(Liveness):  # L1
    def _is_suspect(self, entry: Entry, clock: float) -> bool:
        return super()._is_suspect(entry, clock + 1.0)

    def advance(self, now: float) -> list[Output]:
        self._missing_after = 1.0
        return super().advance(now)


class TakesNoPongForAnAnswer(Liveness):  # L2
    def answered(self, peer_id: str, incarnation: int, now: float) -> list[Output]:
        return []


class NeverPingsAgainWhoAnsweredOnce(Liveness):  # L2
    def _is_ping_due(self, entry: Entry, clock: float) -> bool:
        return isinstance(entry.standing, Suspect) and super()._is_ping_due(entry, clock)


class NeverThinksItselfBlind(Liveness):  # L3
    def _is_blind(self, known: int, lost: int, clock: float) -> bool:
        return False


class IsBlindOnlyOnceMostAreSuspect(Liveness):  # L3: without the half period of margin.
    def _is_blind(self, known: int, lost: int, clock: float) -> bool:
        silent = [e for e in self._present.values() if clock - e.silent_from >= 3.25]
        return len(silent) * 2 > known


class ForgetsThatItWasBlind(Liveness):  # L3: no time anew for who is still missing.
    def _judge_hubs(self, missing: list[Entry], clock: float) -> list[Output]:
        kept = list(missing)
        before = [(e.silent_from, e.standing, e.pinged_at) for e in kept]
        outputs = super()._judge_hubs(missing, clock)
        if not missing:
            missing += kept
            for entry, (silent_from, standing, pinged_at) in zip(kept, before, strict=True):
                entry.silent_from, entry.standing = silent_from, standing
                entry.pinged_at = pinged_at
        return outputs


class StaysBlind(Liveness):  # L3
    def _is_blind(self, known: int, lost: int, clock: float) -> bool:
        return self.blind or super()._is_blind(known, lost, clock)


class CountsTheTimeItDidNotListen(Liveness):  # L4
    def _clock(self, now: float) -> float:
        return self._listened_s + now - self._advanced_at


class TakesOldBeacons(Liveness):  # L5
    def heard(self, sender: str, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        entry = self._present.get(sender)
        if entry is not None and entry.incarnation == incarnation:
            entry.beacon = beacon
        return super().heard(sender, incarnation, beacon, now)


class GoesBackToAnOlderLife(Liveness):  # L5
    def heard(self, sender: str, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        entry = self._present.get(sender)
        if entry is not None:
            entry.incarnation = min(entry.incarnation, incarnation)
        return super().heard(sender, incarnation, beacon, now)


class RaisesTheDead(Liveness):  # L5
    def _is_old(self, entry: Entry, incarnation: int, beacon: Beacon) -> bool:
        return incarnation < entry.incarnation or beacon.age_s < entry.beacon.age_s


class DoubtsTheAgentWhileBlind(Liveness):  # L6
    def exited(self, peer_id: str, incarnation: int, reason: str, now: float) -> list[Output]:
        return [] if self.blind else super().exited(peer_id, incarnation, reason, now)


class NeverResigns(Liveness):  # L7
    def _heard_own_id(self, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        return []


class ResignsToItsElder(Liveness):  # L7
    def _heard_own_id(self, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        return super()._heard_own_id(2 * self._incarnation - incarnation, beacon, now)


class NeverForgets(Liveness):  # L8
    def _forget(self, missing: list[Entry], clock: float, now: float) -> list[Output]:
        return []


class NeverCondemns(Liveness):  # L9
    def _is_dead(self, entry: Entry, clock: float) -> bool:
        return False


class WaitsForeverForAPong(Liveness):  # L9
    def _pinged(self, entry: Entry, clock: float) -> None:
        super()._pinged(entry, clock)
        if isinstance(entry.standing, Suspect):
            entry.standing = Suspect(judged_at=math.inf)


class TrustsForeverWhoAnsweredOnce(Liveness):  # L9
    def _is_suspect(self, entry: Entry, clock: float) -> bool:
        return not isinstance(entry.standing, Answering) and super()._is_suspect(entry, clock)


SABOTAGES: list[tuple[type[Liveness], Promise]] = [
    (DiesWithoutWaitingForThePong, promises.hub_trouble_kills_nobody),
    (SuspectsTooSoon, promises.one_hub_of_two_is_not_missed),
    (TakesNoPongForAnAnswer, promises.hub_trouble_kills_nobody),
    (NeverPingsAgainWhoAnsweredOnce, promises.the_killed_are_dead_within_the_bound),
    (NeverThinksItselfBlind, promises.who_is_cut_off_condemns_nobody),
    (IsBlindOnlyOnceMostAreSuspect, promises.who_is_cut_off_condemns_nobody),
    (ForgetsThatItWasBlind, promises.who_is_cut_off_condemns_nobody),
    (StaysBlind, promises.both_hubs_down_and_back_kill_nobody),
    (CountsTheTimeItDidNotListen, promises.who_was_stopped_suspects_nobody),
    (TakesOldBeacons, promises.all_is_well_after_any_trouble),
    (GoesBackToAnOlderLife, promises.all_is_well_after_any_trouble),
    (RaisesTheDead, promises.all_is_well_after_any_trouble),
    (DoubtsTheAgentWhileBlind, promises.a_vouched_exit_counts_even_when_blind),
    (NeverResigns, promises.the_lesser_of_two_with_one_id_resigns),
    (ResignsToItsElder, promises.the_lesser_of_two_with_one_id_resigns),
    (NeverForgets, promises.the_dead_are_forgotten),
    (NeverCondemns, promises.the_killed_are_dead_within_the_bound),
    (WaitsForeverForAPong, promises.the_killed_are_dead_within_the_bound),
    (TrustsForeverWhoAnsweredOnce, promises.the_killed_are_dead_within_the_bound),
]


@pytest.mark.parametrize(
    ("sabotaged", "promise"), SABOTAGES, ids=[table.__name__ for table, _ in SABOTAGES]
)
def test_planted_fault_breaks_its_promise(sabotaged: type[Liveness], promise: Promise) -> None:
    assert any(_is_broken(promise, seed, sabotaged) for seed in range(PROMISES[promise])), (
        f"no seed of {promise.__name__} noticed: the simulation has lost a tooth"
    )


def _is_broken(promise: Promise, seed: int, table: type[Liveness]) -> bool:
    try:
        promise(seed, table)
    except AssertionError:
        return True
    return False
