"""One owner's decisions: asks out, answers in, times written out; no manager and no clock.

Keys are small numbers. `Steady` draws the greatest number each time, so that asks are 1.5 s apart.
"""

import math
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.lease_timing import LEASE_PRESETS
from roles.key_range import KEYS_END, KeyRange, joined
from roles.lease_messages import OwnerAnswer, OwnerAsk, Span
from roles.owner_machine import (
    ASKED_MAX,
    Changed,
    Ignored,
    Lease,
    OwnerAction,
    OwnerMachine,
    OwnerName,
    RefusedLife,
    SendAsk,
)

TIMING = LEASE_PRESETS["lan"]  # 8 s from the ask; asks every 1.5 s.
NAME = OwnerName(
    namespace="ns",
    owner="a",
    url="tcp://a",
    process="web-1",
    process_incarnation=5,
    incarnation=7,
    nonce=77,
)
SAYS = "as the manager says"

Held = tuple[int, int, int]
"""Start, end and number."""


class Steady(Random):
    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def new_owner() -> OwnerMachine:
    return OwnerMachine(NAME, TIMING, Steady(), now=10.0)


def asked(owner: OwnerMachine, now: float) -> OwnerAsk:
    """What it asks when nudged."""
    owner.nudged(now)
    [ask] = [action.ask for action in owner.advance(now) if isinstance(action, SendAsk)]
    return ask


def answer(ask: OwnerAsk, *ranges: Held, revision: int = 1, refused: str = "") -> OwnerAnswer:
    spans = [Span(start, end - 1, number, 1) for start, end, number in ranges]
    return OwnerAnswer("ns", "a", 77, ask.sequence, revision, refused, spans)


def told(owner: OwnerMachine, now: float, *ranges: Held) -> list[OwnerAction]:
    """It asks, and is answered in no time."""
    return owner.answered(1, answer(asked(owner, now), *ranges), now)


def holder(*ranges: Held) -> OwnerMachine:
    """One that asked at 10.0, and holds these until 18.0."""
    owner = new_owner()
    told(owner, 10.0, *ranges)
    return owner


def held(owner: OwnerMachine) -> list[Held]:
    return [(each.range.start, each.range.end, each.number) for each in owner.held.pieces()]


def changed(
    granted: list[tuple[int, int]], revoked: list[tuple[int, int]], reason: str = SAYS
) -> Changed:
    return Changed(
        [KeyRange(*each) for each in granted], [KeyRange(*each) for each in revoked], reason
    )


def test_first_ask_says_who_it_is_and_that_it_holds_nothing() -> None:
    owner = new_owner()
    assert owner.wake_at == 10.0
    ask = asked(owner, 10.0)
    assert [getattr(ask, name) for name in NAME.__struct_fields__] == list(
        msgspec.structs.astuple(NAME)
    )
    assert (ask.sequence, ask.seen_term, ask.seen_revision, ask.term_max) == (1, 0, 0, 0)
    assert (ask.number_max, ask.age_s, ask.leaving, ask.holds) == (0, 0.0, False, [])
    assert owner.wake_at == 11.5
    assert owner.advance(11.0) == []


def test_later_ask_says_what_it_holds_and_what_it_has_seen() -> None:
    owner = new_owner()
    owner.answered(3, answer(asked(owner, 10.0), (0, 10, 4), revision=9), 10.2)
    ask = asked(owner, 11.0)
    assert (ask.sequence, ask.seen_term, ask.seen_revision) == (2, 3, 9)
    assert (ask.term_max, ask.number_max, ask.age_s) == (3, 4, 1.0)
    assert ask.holds == [Span(0, 9, 4, 1)]


# How long.


def test_lease_counts_from_the_ask_not_from_the_answer() -> None:  # O1
    owner = new_owner()
    ask = asked(owner, 10.0)
    assert owner.answered(1, answer(ask, (0, 10, 1)), 12.0) == [changed([(0, 10)], [])]
    assert owner.held.until == 18.0
    owner.advance(17.99, may_renew=False)
    assert held(owner) == [(0, 10, 1)]
    assert owner.advance(18.0, may_renew=False) == [changed([], [(0, 10)], "ran out")]
    assert held(owner) == []


@pytest.mark.parametrize("late_s", [0.0, 0.01, 100.0])
def test_answer_that_took_longer_than_a_lease_gives_nothing(late_s: float) -> None:  # O1
    owner = new_owner()
    ask = asked(owner, 10.0)
    assert owner.answered(1, answer(ask, (0, 10, 1)), 18.0 + late_s) == [Ignored("late")]
    assert held(owner) == []
    assert owner.wake_at == 11.5  # It has been time to ask for long.


def test_all_that_is_held_ends_together_and_a_renewal_puts_it_off_together() -> None:  # O1
    owner = holder((0, 10, 1))
    assert told(owner, 12.0, (0, 10, 1), (20, 30, 2)) == [changed([(20, 30)], [])]
    assert owner.held.until == 20.0
    ran_out, ask = owner.advance(20.0)
    assert ran_out == changed([], [(0, 10), (20, 30)], "ran out")
    assert isinstance(ask, SendAsk)


def test_machine_wakes_when_its_leases_end_if_that_is_sooner_than_the_next_ask() -> None:  # O1
    owner = new_owner()
    first = asked(owner, 10.0)
    asked(owner, 17.0)
    owner.answered(1, answer(first, (0, 10, 1)), 17.5)
    assert owner.wake_at == 18.0


def test_program_that_does_not_turn_its_loop_is_not_renewed() -> None:  # O1
    owner = holder((0, 10, 1))
    for now in (11.5, 13.0, 15.0, 17.0):
        assert owner.advance(now, may_renew=False) == []
        assert now < owner.wake_at <= now + 1.5
    assert owner.advance(18.0, may_renew=False) == [changed([], [(0, 10)], "ran out")]


def test_who_looks_at_what_was_held_before_a_change_finds_it_ended() -> None:  # O1
    owner = holder((0, 10, 1))
    before = owner.held
    told(owner, 11.0, (0, 5, 1))
    assert before.until == -math.inf
    assert owner.held.until == 19.0


# Which answers count.


def a_holder_that_asked_again() -> tuple[OwnerMachine, OwnerAsk]:
    """Under term 5, until 18.0; and asked once more at 11.0."""
    owner = new_owner()
    owner.answered(5, answer(asked(owner, 10.0), (0, 10, 1)), 10.0)
    return owner, asked(owner, 11.0)


@pytest.mark.parametrize(
    ("term", "changes", "why"),
    [
        (5, {"nonce": 78}, "for another life"),
        (5, {"owner": "b"}, "for another life"),
        (4, {}, "lower term"),
        (5, {"sequence": 1}, "race"),  # Answered already.
        (5, {"sequence": 3}, "race"),  # Never asked.
        (5, {"ranges": [Span(5, 9, 1, 1), Span(0, 4, 1, 1)]}, "malformed"),
        (5, {"ranges": [Span(0, 9, 1, 1), Span(9, 12, 1, 1)]}, "malformed"),
        (5, {"ranges": [Span(0, KEYS_END, 1, 1)]}, "malformed"),
        (5, {"ranges": [Span(0, 9, 1, 2)]}, "malformed"),  # Born after its number.
        (5, {"ranges": [Span(0, 9, 1 << 62, 1)]}, "malformed"),
    ],
)
def test_answer_that_does_not_count_changes_nothing(
    term: int, changes: dict[str, object], why: str
) -> None:  # O2
    owner, ask = a_holder_that_asked_again()
    fields = {"sequence": 2, "nonce": 77, "owner": "a", "ranges": [Span(0, 19, 9, 1)], **changes}
    odd = OwnerAnswer(namespace="ns", revision=2, refused="", **fields)  # type: ignore[arg-type]
    assert owner.answered(term, odd, 11.1) == [Ignored(why)]
    assert held(owner) == [(0, 10, 1)]
    assert owner.held.until == 18.0
    assert owner.answered(5, answer(ask, (0, 10, 1)), 11.2) == []
    assert owner.held.until == 19.0


def test_answers_count_in_the_order_of_the_asks_and_once() -> None:  # O2
    owner = new_owner()
    first, second = asked(owner, 10.0), asked(owner, 11.0)
    assert owner.answered(1, answer(second, (0, 10, 1)), 11.1) == [changed([(0, 10)], [])]
    for copy in (first, second):
        assert owner.answered(1, answer(copy, (0, 20, 2)), 11.2) == [Ignored("race")]
    assert held(owner) == [(0, 10, 1)]


def test_only_so_many_asks_wait_for_their_answers() -> None:  # O2
    owner = new_owner()
    asks = [asked(owner, 10.0 + number / 100) for number in range(ASKED_MAX + 1)]
    assert owner.answered(1, answer(asks[0], (0, 10, 1)), 11.0) == [Ignored("race")]
    assert owner.answered(1, answer(asks[1], (0, 10, 1)), 11.0) == [changed([(0, 10)], [])]


def test_greater_term_is_obeyed_from_then_on() -> None:  # O2
    owner, ask = a_holder_that_asked_again()
    assert owner.answered(6, answer(ask, (0, 10, 1)), 11.1) == []
    assert owner.answered(5, answer(asked(owner, 12.0)), 12.1) == [Ignored("lower term")]
    assert held(owner) == [(0, 10, 1)]


# What is a grant.


def give_up_by_running_out(owner: OwnerMachine) -> None:
    owner.advance(18.0, may_renew=False)


def give_up_by_dropping(owner: OwnerMachine) -> None:
    assert owner.drop("asked to", 11.0) == [changed([], [(0, 10)], "asked to")]
    assert owner.wake_at == 11.0, "the manager is to know at once"


def give_up_as_told(owner: OwnerMachine) -> None:
    assert told(owner, 11.0) == [changed([], [(0, 10)])]
    assert owner.wake_at == 11.0, "what is given up is free as soon as the manager knows"


def give_up_as_refused(owner: OwnerMachine) -> None:
    refused = answer(asked(owner, 11.0), refused="two processes use this id")
    assert owner.answered(1, refused, 11.0) == [
        RefusedLife("two processes use this id"),
        changed([], [(0, 10)], "two processes use this id"),
    ]
    assert owner.wake_at == 12.5, "it may be taken back, but not by asking at once"


@pytest.mark.parametrize(
    "give_up",
    [give_up_by_running_out, give_up_by_dropping, give_up_as_told, give_up_as_refused],
)
def test_number_that_was_given_up_never_comes_back(give_up: object) -> None:  # O3
    owner = holder((0, 10, 4))
    assert callable(give_up)
    give_up(owner)
    assert held(owner) == []
    assert told(owner, 19.0, (0, 10, 4)) == [Ignored("not a grant")]
    assert told(owner, 20.0, (0, 10, 3)) == [Ignored("not a grant")]
    assert told(owner, 21.0, (0, 10, 5)) == [changed([(0, 10)], [])]


def test_number_heard_too_late_or_of_other_keys_is_no_grant_later() -> None:  # O3
    owner = new_owner()
    owner.answered(1, answer(asked(owner, 10.0), (0, 10, 4)), 18.0)
    assert told(owner, 19.0, (0, 10, 4)) == [Ignored("not a grant")]
    assert told(owner, 20.0, (50, 60, 6)) == [changed([(50, 60)], [])]
    assert told(owner, 21.0, (0, 10, 6), (50, 60, 6)) == [Ignored("not a grant")]


def test_piece_that_is_lost_and_granted_in_one_answer_is_both() -> None:  # O3, O4
    owner = holder((0, 10, 1))
    assert told(owner, 11.0, (0, 10, 2)) == [changed([(0, 10)], [(0, 10)])]
    assert owner.held.at(5) == Lease(KeyRange(0, 10), 2, 1, since=2)


def test_number_may_not_go_back_even_of_what_is_held() -> None:  # O3
    owner = holder((0, 10, 4))
    assert told(owner, 11.0, (0, 10, 3)) == [Ignored("not a grant"), changed([], [(0, 10)])]


# Continuity.


@pytest.mark.parametrize(
    ("ranges", "since"),
    [
        ([(0, 10, 1), (10, 20, 2)], {0: 1, 15: 2}),  # Renewed.
        ([(0, 4, 1), (4, 10, 1), (10, 20, 2)], {0: 1, 5: 1, 15: 2}),  # Split.
        ([(0, 20, 2)], {0: 1, 15: 2}),  # Merged: the greater number, where each began.
        ([(0, 4, 1), (12, 20, 2)], {0: 1, 15: 2}),  # Made smaller.
        ([(0, 30, 3)], {0: 3, 15: 3, 25: 3}),  # Granted anew, all of it.
    ],
)
def test_piece_is_continuous_as_long_as_it_is_kept(
    ranges: list[Held], since: dict[int, int]
) -> None:  # O4
    owner = holder((0, 10, 1), (10, 20, 2))
    told(owner, 11.0, *ranges)
    found = {at: owner.held.at(at) for at in since}
    assert {at: lease.since for at, lease in found.items() if lease} == since


def test_lease_that_lapsed_begins_anew_though_nobody_was_looking() -> None:  # O4
    owner = holder((0, 10, 1))
    ask = asked(owner, 11.0)
    actions = owner.answered(1, answer(ask, (0, 10, 1), (20, 30, 2)), 18.5)
    assert actions == [
        changed([], [(0, 10)], "ran out"),
        Ignored("not a grant"),
        changed([(20, 30)], []),
    ]


# What is told.


@pytest.mark.parametrize(
    ("before", "after", "granted", "revoked"),
    [
        ([], [], [], []),
        ([(0, 10, 1)], [(0, 10, 1)], [], []),
        ([(0, 10, 1)], [(0, 4, 1), (4, 10, 1)], [], []),
        ([(0, 5, 1), (5, 10, 2)], [(0, 10, 2)], [], []),
        ([(0, 10, 1)], [(0, 4, 1)], [], [(4, 10)]),
        ([(0, 10, 1)], [(2, 4, 1), (6, 8, 1)], [], [(0, 2), (4, 6), (8, 10)]),
        ([(0, 10, 1)], [(0, 10, 1), (10, 20, 2)], [(10, 20)], []),
        ([(0, 10, 1)], [(5, 10, 1), (10, 20, 2), (30, 40, 2)], [(10, 20), (30, 40)], [(0, 5)]),
        ([(0, 10, 1)], [(5, 15, 2)], [(5, 15)], [(0, 10)]),
        ([(0, KEYS_END, 1)], [(0, KEYS_END - 1, 1)], [], [(KEYS_END - 1, KEYS_END)]),
    ],
)
def test_change_is_told_as_an_exact_difference(
    before: list[Held],
    after: list[Held],
    granted: list[tuple[int, int]],
    revoked: list[tuple[int, int]],
) -> None:  # O5
    owner = holder(*before)
    expected = [changed(granted, revoked)] if granted or revoked else []
    assert told(owner, 11.0, *after) == expected


def test_lease_is_found_from_its_first_to_its_last_key() -> None:
    owner = holder((0, 10, 1), (10, 20, 2), (30, KEYS_END, 3))
    found = [owner.held.at(at) for at in (0, 9, 10, 19, 20, 29, 30, KEYS_END - 1)]
    assert [lease and lease.number for lease in found] == [1, 1, 2, 2, None, None, 3, 3]


class Told:
    """Believes the upcalls alone, and checks O1, O3 and O4 against what it has heard."""

    def __init__(self) -> None:
        self.owner = new_owner()
        self.now = 10.0
        self.ranges: list[KeyRange] = []
        self.number_max = 0
        self.answered_at = -math.inf  # When the last ask that was answered was sent.

    def step(self, wait_s: float, trip_s: float, ranges: list[Held]) -> None:
        self.now += wait_s
        self.replay(self.owner.advance(self.now, may_renew=False))
        asked_at, ask = self.now, asked(self.owner, self.now)
        self.now += trip_s
        before = {each.range.start: each for each in self.owner.held.pieces()}
        self.replay(self.owner.answered(1, answer(ask, *ranges), self.now))
        self.answered_at = asked_at
        for lease in self.owner.held.pieces():
            is_new = lease.since > self.number_max
            assert is_new or any(each.since == lease.since for each in before.values())  # O3, O4
        self.number_max = max([self.number_max, *(number for *_, number in ranges)])

    def replay(self, actions: list[OwnerAction]) -> None:
        for change in actions:
            if isinstance(change, Changed):
                for gone in change.revoked:
                    self.ranges = _without(self.ranges, gone)
                assert not any(
                    new.start < each.end and each.start < new.end
                    for new in change.granted
                    for each in self.ranges
                )
                self.ranges += change.granted


def _without(ranges: list[KeyRange], gone: KeyRange) -> list[KeyRange]:
    kept = [
        part
        for each in ranges
        for part in ((each.start, min(each.end, gone.start)), (max(each.start, gone.end), each.end))
        if part[0] < part[1]
    ]
    size = sum(each.end - each.start for each in ranges) - sum(end - start for start, end in kept)
    assert size == gone.end - gone.start, "revoked, but not held"
    return [KeyRange(*part) for part in kept]


sets = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=8).map(
    lambda cuts: [
        (one[0], other[0], one[1])
        for one, other in zip(sorted(cuts), sorted(cuts)[1:], strict=False)
        if one[0] < other[0] and one[1] != 5
    ]
)
steps = st.lists(st.tuples(st.sampled_from([0.5, 3.0, 9.0]), st.sampled_from([0.0, 4.0]), sets))


@given(steps)
def test_upcalls_replayed_are_what_is_held_whatever_the_answers(
    rounds: list[tuple[float, float, list[Held]]],
) -> None:  # O1, O3, O4, O5
    world = Told()
    for number, (wait_s, trip_s, ranges) in enumerate(rounds):
        world.step(wait_s, trip_s, [(start, end, n + number) for start, end, n in ranges])
        assert joined(world.ranges) == joined(each.range for each in world.owner.held.pieces())
        if world.owner.held.pieces():
            assert world.owner.held.until == world.answered_at + 8.0


# Asking again, and leaving.


def test_ask_that_nobody_answered_is_asked_again_before_the_next_is_due() -> None:
    owner = new_owner()
    first, second = asked(owner, 10.0), asked(owner, 10.1)
    owner.unanswered(first.sequence, 10.2)
    assert owner.wake_at == 11.6, "a later one is on its way"
    owner.unanswered(second.sequence, 10.2)
    assert owner.wake_at == pytest.approx(10.65)
    owner.answered(1, answer(second), 10.3)
    owner.advance(10.65)
    owner.unanswered(second.sequence, 10.7)
    assert owner.wake_at == pytest.approx(12.15), "it was answered after all"


def test_owner_that_leaves_is_released_once_the_manager_knows_it_holds_nothing() -> None:
    owner = holder((0, 10, 1))
    before = asked(owner, 11.0)
    owner.leave(11.5)
    [sent] = owner.advance(11.5)
    assert isinstance(sent, SendAsk)
    assert (sent.ask.leaving, sent.ask.holds) == (True, [Span(0, 9, 1, 1)])
    owner.answered(1, answer(before, (0, 10, 1)), 11.6)
    owner.answered(1, answer(sent.ask), 11.7)
    assert not owner.released, "it gave everything up; the manager has not heard"
    farewell = asked(owner, 11.7)
    assert (farewell.leaving, farewell.holds) == (True, [])
    again = asked(owner, 12.0)
    owner.answered(1, answer(again), 12.1)
    assert owner.released


def test_owner_that_leaves_with_an_answer_under_way_says_that_it_has_none_of_that() -> None:
    """Else what was granted meanwhile is kept for an owner that is no more."""
    owner = new_owner()
    asked(owner, 10.0)  # Answered with a grant, which is lost on the way.
    owner.leave(10.1)
    [sent] = owner.advance(10.1)
    assert isinstance(sent, SendAsk)
    owner.answered(1, answer(sent.ask, revision=4), 10.2)
    assert not owner.released
    assert owner.wake_at == 10.2
    farewell = asked(owner, 10.2)
    assert (farewell.leaving, farewell.holds, farewell.seen_revision) == (True, [], 4)
    owner.answered(1, answer(farewell, revision=5), 10.3)
    assert owner.released
    assert owner.wake_at == 11.7, "and there is no more to say"


def test_owner_that_leaves_while_it_is_refused_is_released_without_delay() -> None:
    owner = new_owner()
    owner.leave(10.0)
    owner.answered(1, answer(asked(owner, 10.0), refused="two processes use this id"), 10.1)
    assert owner.wake_at == 10.1
    owner.answered(1, answer(asked(owner, 10.1), refused="two processes use this id"), 10.2)
    assert owner.released
