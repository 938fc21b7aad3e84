"""The leases of one namespace: asks in, answers and rows out, times written out; no store.

Keys are shared by `Fixed`: equal parts in the order of the owners' names, so that of two owners the
first has the lower half. Leases last 9 s at the manager. `Client` is an owner that says what it is
told to say.
"""

import math

import msgspec
import pytest

from bus.lease_timing import LEASE_PRESETS
from roles.assignment import Fixed
from roles.key_range import KEYS_END
from roles.lease_messages import NUMBER_MAX, AskMap, MapPart, MapSpan, OwnerAnswer, OwnerAsk, Span
from roles.lease_namespace import (
    DECISIONS_MAX,
    GAPS_MAX,
    HOLDS_MAX,
    JUMP,
    LIVES_MAX,
    LOG_S,
    SPANS_MAX,
    Life,
    Namespace,
)
from roles.lease_rows import LifeRow, NamespaceRow, SpanRow, life_key

TIMING = LEASE_PRESETS["lan"]
HALF = KEYS_END // 2
TERM = 3


def new_namespace(*, grace_until: float = -math.inf) -> Namespace:
    return Namespace("ns", Fixed(), TIMING, term=TERM, now=10.0, grace_until=grace_until)


class Client:
    def __init__(
        self, owner: str, incarnation: int = 1, *, process: str = "", nonce: int | None = None
    ) -> None:
        self.owner = owner
        self.incarnation = incarnation
        self.process = process or f"of-{owner}"
        self.nonce = sum(owner.encode()) * 1000 + incarnation if nonce is None else nonce
        self.sequence = 0
        self.seen = (0, 0)
        self.holds: list[Span] = []
        self.leaving = False
        self.number_max = 0
        self.began_at = 10.0

    def ask(self, now: float) -> OwnerAsk:
        self.sequence += 1
        return OwnerAsk(
            "ns",
            self.owner,
            f"tcp://{self.owner}",
            self.process,
            self.incarnation,
            self.incarnation,
            self.nonce,
            self.sequence,
            *self.seen,
            self.seen[0],
            self.number_max,
            now - self.began_at,
            self.leaving,
            self.holds,
        )

    def heard(self, answer: OwnerAnswer, term: int = TERM) -> OwnerAnswer:
        """Acts on it."""
        self.seen = term, answer.revision
        self.holds = answer.ranges
        self.number_max = max([self.number_max, *(span.number for span in answer.ranges)])
        return answer


def asks(namespace: Namespace, ask: OwnerAsk, now: float) -> OwnerAnswer:
    """The answer, once all that follows from the ask is decided."""
    taken = namespace.ask(ask, now)
    decide(namespace, now)
    assert taken is not None
    return namespace.answer(taken, ask.sequence) if isinstance(taken, Life) else taken


def decide(namespace: Namespace, now: float) -> None:
    namespace.expire(now)
    namespace.settle(now)
    namespace.take_rows()
    namespace.stamp_log(now)


def renew(namespace: Namespace, client: Client, now: float) -> OwnerAnswer:
    """It asks, and acts on the answer."""
    return client.heard(asks(namespace, client.ask(now), now), namespace.term)


def one_owner() -> tuple[Namespace, Client]:
    """a has everything, and knows it, since 10.0."""
    namespace, a = new_namespace(), Client("a")
    renew(namespace, a, 10.0)
    renew(namespace, a, 10.0)
    return namespace, a


def two_owners() -> tuple[Namespace, Client, Client]:
    """a has the lower half and b the upper one, and both know it, since 10.0."""
    namespace, a = one_owner()
    b = Client("b")
    for client in (b, a, a, b, b):
        renew(namespace, client, 10.0)
    assert (ranges(a.holds), ranges(b.holds)) == ([(0, HALF)], [(HALF, KEYS_END)])
    return namespace, a, b


def ranges(spans: list[Span]) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def numbers(spans: list[Span]) -> list[tuple[int, int]]:
    return [(span.number, span.born) for span in spans]


def holders(namespace: Namespace) -> list[tuple[int, str]]:
    """Where ranges begin, and whose they are by the map."""
    part = namespace.whole()
    return [
        (span.start, part.owners[span.owner][0] if span.owner >= 0 else "") for span in part.spans
    ]


def restored(before: Namespace, now: float) -> Namespace:
    """As the next leader finds it."""
    lives = [life.row() for life in before.lives.values()]
    return Namespace.restored(before._row(), lives, Fixed(), TIMING, term=before.term + 1, now=now)


# Who gets what.


def test_first_owner_gets_everything() -> None:
    namespace = new_namespace()
    answer = asks(namespace, Client("a").ask(10.0), 10.0)
    assert answer.ranges == [Span(0, KEYS_END - 1, 1, 0)]
    assert answer.refused == ""


def test_range_is_recalled_and_passes_on_when_its_holder_has_given_it_up() -> None:  # N1
    namespace, a = one_owner()
    b = Client("b")
    assert namespace.take_notes()[0] == {"a"}
    assert renew(namespace, b, 11.0).ranges == []
    assert namespace.take_notes()[0] == {"a"}, "it is nudged"
    recall = asks(namespace, a.ask(11.1), 11.1)
    assert ranges(recall.ranges) == [(0, HALF)]
    assert renew(namespace, b, 11.2).ranges == [], "a may still believe"
    assert ranges(asks(namespace, a.ask(11.3), 11.3).ranges) == [(0, HALF)]
    assert renew(namespace, b, 11.4).ranges == [], "a asked before it heard"
    a.heard(recall)
    renew(namespace, a, 11.5)
    assert ranges(renew(namespace, b, 11.6).ranges) == [(HALF, KEYS_END)]


@pytest.mark.parametrize("seen", [0, 1])
def test_what_an_owner_does_not_name_is_free_only_if_it_had_heard_of_it(seen: int) -> None:  # N1
    namespace, a = new_namespace(), Client("a")
    answer = asks(namespace, a.ask(10.0), 10.0)
    a.seen = (TERM, answer.revision) if seen else (0, 0)
    asks(namespace, a.ask(11.0), 11.0)
    [span] = renew(namespace, a, 12.0).ranges
    assert span.number == (3 if seen else 1), "given up and granted anew, or still on its way"


def test_silent_owner_keeps_what_it_has_until_its_time_is_over() -> None:  # N1
    namespace, _, b = two_owners()
    for now in (13.0, 16.0, 18.99):
        assert ranges(renew(namespace, b, now).ranges) == [(HALF, KEYS_END)]
    assert namespace.wake_at == 19.0
    decide(namespace, 19.0)
    assert ranges(renew(namespace, b, 19.0).ranges) == [(0, HALF), (HALF, KEYS_END)]


def test_owner_vouched_dead_loses_everything_at_once_and_is_not_heard_again() -> None:  # N1
    namespace, a, b = two_owners()
    namespace.vouched_dead("of-a", 1)
    assert namespace.ask(a.ask(11.0), 11.0) is None, "sent before it died"
    decide(namespace, 11.0)
    assert ranges(renew(namespace, b, 11.1).ranges) == [(0, HALF), (HALF, KEYS_END)]


@pytest.mark.parametrize(("process", "incarnation"), [("of-a", 2), ("of-c", 1)])
def test_death_of_another_life_or_process_ends_nothing(
    process: str, incarnation: int
) -> None:  # N1
    namespace, _, b = two_owners()
    namespace.vouched_dead(process, incarnation)
    decide(namespace, 11.0)
    assert ranges(renew(namespace, b, 11.1).ranges) == [(HALF, KEYS_END)]


def former_is_silent(namespace: Namespace, _former: Client) -> float:
    decide(namespace, 18.99)
    return 19.0


def former_renews_all_the_time(namespace: Namespace, former: Client) -> float:
    """But does not act on what it hears."""
    for now in (12.0, 15.0, 18.0):
        refused = asks(namespace, former.ask(now), now)
        assert (refused.refused, refused.ranges) == ("replaced by a later life", [])
    return 19.0


def former_gives_up(namespace: Namespace, former: Client) -> float:
    renew(namespace, former, 12.0)
    asks(namespace, former.ask(12.0), 12.0)
    return 12.0


def former_is_vouched_dead(namespace: Namespace, _former: Client) -> float:
    namespace.vouched_dead("of-a", 1)
    return 12.0


@pytest.mark.parametrize(
    "ends",
    [former_is_silent, former_renews_all_the_time, former_gives_up, former_is_vouched_dead],
)
def test_later_life_waits_for_what_its_former_life_has(ends: object) -> None:  # N1
    namespace, former = one_owner()
    later = Client("a", 2)
    assert renew(namespace, later, 11.0).ranges == []
    assert callable(ends)
    free_at = ends(namespace, former)
    if free_at > 12.0:
        assert renew(namespace, later, free_at - 0.01).ranges == []
    decide(namespace, free_at)
    assert ranges(renew(namespace, later, free_at).ranges) == [(0, KEYS_END)]


@pytest.mark.parametrize(
    ("incarnation", "reason"),
    [(1, "a later life has its place"), (2, "two processes use this id")],
)
def test_former_or_equal_life_is_refused(incarnation: int, reason: str) -> None:  # N1
    namespace = new_namespace()
    renew(namespace, Client("a", 2), 10.0)
    refused = asks(namespace, Client("a", incarnation, nonce=99).ask(11.0), 11.0)
    assert (refused.refused, refused.ranges) == (reason, [])
    assert [note.reason for note in namespace.take_notes()[1] if note.kind == "refused"] == [reason]
    assert holders(namespace) == [(0, "a")]


# Which asks count.


def test_ask_that_comes_twice_or_late_is_dropped_and_renews_nothing() -> None:  # N2
    namespace, a = one_owner()
    first, second = a.ask(11.0), a.ask(12.0)
    asks(namespace, second, 12.0)
    for copy in (second, first):
        assert namespace.ask(copy, 15.0) is None
    assert namespace.races == 2
    assert namespace.wake_at == 21.0


def test_what_was_seen_of_another_term_acknowledges_nothing() -> None:  # N2
    namespace, a, b = two_owners()
    c = Client("c")
    renew(namespace, c, 11.0)
    a.seen = (TERM - 1, 1000)
    a.holds = []
    asks(namespace, a.ask(11.1), 11.1)
    b.seen = (TERM + 1, 1000)
    asks(namespace, b.ask(11.2), 11.2)
    assert renew(namespace, c, 11.3).ranges == []


def test_who_has_seen_a_revision_that_was_never_given_is_refused() -> None:  # N2
    namespace, a = one_owner()
    a.seen = (TERM, 1000)
    a.holds = []
    refused = asks(namespace, a.ask(11.0), 11.0)
    assert refused.refused.startswith("it has seen revision 1000 of ")
    assert holders(namespace) == [(0, "a")]


def test_life_that_comes_back_cannot_acknowledge_what_it_saw_before() -> None:  # N2
    namespace, a = one_owner()
    before = a.seen
    decide(namespace, 19.0)
    assert holders(namespace) == [(0, "")]
    a.holds = []
    a.seen = (0, 0)
    answer = asks(namespace, a.ask(20.0), 20.0)
    assert ranges(answer.ranges) == [(0, KEYS_END)]
    assert answer.revision > before[1]
    a.seen = before  # An answer of then, that came late.
    assert asks(namespace, a.ask(20.1), 20.1).ranges == answer.ranges, "it is not taken back"


def test_owner_that_leaves_before_it_hears_of_a_grant_frees_it_with_its_farewell() -> None:  # N2
    namespace, a = new_namespace(), Client("a")
    asks(namespace, a.ask(10.0), 10.0)  # The answer is lost.
    a.leaving = True
    assert renew(namespace, a, 10.1).ranges == []
    assert holders(namespace) == [(0, "a")], "perhaps it has heard"
    renew(namespace, a, 10.2)
    assert holders(namespace) == [(0, "")]
    assert namespace.lives == {}
    assert renew(namespace, a, 10.3) == OwnerAnswer("ns", "a", a.nonce, 4, 0, "", [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"number_max": NUMBER_MAX}, "an ask with absurd numbers"),
        ({"number_max": -1}, "an ask with absurd numbers"),
        ({"age_s": math.nan}, "an ask with absurd numbers"),
        ({"holds": [Span(5, 4, 1, 1)]}, "an ask with malformed ranges"),
        ({"holds": [Span(0, 9, 1, 1), Span(9, 12, 1, 1)]}, "an ask with malformed ranges"),
        (
            {"holds": [Span(n, n, 1, 1) for n in range(HOLDS_MAX + 1)]},
            "an ask with malformed ranges",
        ),
    ],
)
def test_odd_ask_is_refused_and_changes_nothing(change: dict[str, object], reason: str) -> None:
    namespace, a = one_owner()
    odd = msgspec.structs.replace(a.ask(11.0), **change)
    assert asks(namespace, odd, 11.0).refused == reason
    assert holders(namespace) == [(0, "a")]
    assert namespace.wake_at == 19.0


# Numbers.


def test_each_grant_and_each_loss_has_a_greater_number_than_all_before() -> None:  # N3, N6
    namespace, a = new_namespace(), Client("a")
    assert numbers(renew(namespace, a, 10.0).ranges) == [(1, 0)], "nothing was ever lost"
    b = Client("b")
    for client in (a, b, a, a):
        renew(namespace, client, 11.0)
    assert numbers(renew(namespace, b, 11.0).ranges) == [(3, 2)], "2: given up, and state with it"
    renew(namespace, b, 11.5)
    namespace.vouched_dead("of-a", 1)
    decide(namespace, 12.0)
    assert numbers(renew(namespace, b, 12.0).ranges) == [(5, 4), (3, 2)]
    reasons = [row.reason for row in namespace._row().decisions]
    assert reasons == [
        "granted to a: never owned",
        "lost: given up by a",
        "granted to b: given up by a",
        "lost: a: vouched dead",
        "granted to b: a: vouched dead",
    ]


def test_renewals_recalls_and_splits_take_no_number_and_change_no_birth() -> None:  # N3, N6
    namespace, a = one_owner()
    before = numbers(a.holds)
    for now in (11.0, 12.0):
        assert numbers(renew(namespace, a, now).ranges) == before
    renew(namespace, Client("b"), 12.5)
    assert numbers(asks(namespace, a.ask(13.0), 13.0).ranges) == before
    assert namespace._row().number == 1


def test_range_that_nobody_has_carries_the_number_of_its_loss() -> None:  # N6
    namespace, a = one_owner()
    namespace.vouched_dead("of-a", 1)
    decide(namespace, 11.0)
    assert namespace.whole().spans == [MapSpan(0, KEYS_END - 1, 2, 2, -1)]
    again = Client("a", 2)
    assert numbers(renew(namespace, again, 12.0).ranges) == [(3, 2)]
    assert a.number_max == 1


def test_number_that_only_a_rolled_back_store_can_have_forgotten_is_jumped_over() -> None:  # N3
    namespace, a, _ = two_owners()
    c = Client("c")
    c.number_max = 1000
    assert renew(namespace, c, 11.0).ranges == []
    assert "rolled-back" in [note.kind for note in namespace.take_notes()[1]]
    assert namespace._row().number > 1000 + JUMP
    for client in (a, a):
        renew(namespace, client, 11.1)
    assert renew(namespace, c, 20.0).ranges[0].number > 1000 + JUMP


# A takeover, and a store that may be older than the leases.


def test_takeover_moves_nothing_and_takes_no_number() -> None:  # N5
    before, a, b = two_owners()
    namespace = restored(before, 100.0)
    found = namespace.whole()
    assert (namespace.version, found) == (before.version, before.whole())
    for now in (101.0, 102.5):
        for client in (b, a):
            answer = renew(namespace, client, now)
            assert (answer.refused, numbers(answer.ranges)) == ("", numbers(client.holds))
    assert (namespace.whole(), namespace._row().number) == (found, before._row().number)


def test_lease_counts_as_renewed_at_the_takeover() -> None:  # N1, N5
    before, _, b = two_owners()
    namespace = restored(before, 100.0)
    assert namespace.wake_at == 109.0
    for now in (104.0, 108.99):
        assert ranges(renew(namespace, b, now).ranges) == [(HALF, KEYS_END)]
    decide(namespace, 109.0)
    assert ranges(renew(namespace, b, 109.0).ranges) == [(0, HALF), (HALF, KEYS_END)]


def test_what_was_free_in_the_store_is_not_granted_before_every_lease_has_run_out() -> None:  # N4
    before, _ = one_owner()
    before.vouched_dead("of-a", 1)
    decide(before, 11.0)
    namespace = restored(before, 100.0)
    b = Client("b")
    assert renew(namespace, b, 108.99).ranges == []
    assert ranges(renew(namespace, b, 109.0).ranges) == [(0, KEYS_END)]


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("how", ["vouched dead", "given up"])
def test_what_this_term_has_seen_held_is_free_at_once_and_else_after_all_ran_out(
    how: str, *, confirmed: bool
) -> None:  # N4
    before, a, b = two_owners()
    namespace = restored(before, 100.0)
    for now in (101.0, 101.5) if confirmed else (101.5,):
        renew(namespace, a, now)  # The second one has heard of this term, and holds it.
    renew(namespace, b, 101.5)
    if how == "given up":
        a.leaving = True
        a.holds = []
        renew(namespace, a, 102.0)
    else:
        namespace.vouched_dead("of-a", 1)
    decide(namespace, 102.0)
    assert holders(namespace)[0] == (0, "b" if confirmed else "")
    renew(namespace, b, 105.0)
    decide(namespace, 108.99)
    assert holders(namespace)[0] == (0, "b" if confirmed else "")
    decide(namespace, 109.0)
    assert holders(namespace)[0] == (0, "b")


def test_namespace_that_a_new_leader_does_not_know_waits_with_its_first_grant() -> None:  # N4
    namespace, a = new_namespace(grace_until=19.0), Client("a")
    assert renew(namespace, a, 12.0).ranges == []
    assert renew(namespace, a, 18.99).ranges == []
    assert ranges(renew(namespace, a, 19.0).ranges) == [(0, KEYS_END)]


def test_nothing_is_freed_for_a_lease_after_a_store_was_found_rolled_back() -> None:  # N4
    namespace, _, b = two_owners()
    b.number_max = 1000
    renew(namespace, b, 15.0)
    decide(namespace, 19.0)  # When a, silent since 10.0, would have run out.
    renew(namespace, b, 23.99)
    assert holders(namespace) == [(0, "a"), (HALF, "b")]
    decide(namespace, 24.0)
    assert holders(namespace)[0] == (0, "b")


def test_life_that_was_replaced_stays_so_after_a_takeover() -> None:  # N1
    before, former = one_owner()
    renew(before, Client("a", 2), 11.0)
    namespace = restored(before, 100.0)
    refused = asks(namespace, former.ask(101.0), 101.0)
    assert (refused.refused, refused.ranges) == ("replaced by a later life", [])
    later = Client("a", 2)
    later.sequence = 5
    assert renew(namespace, later, 108.99).ranges == []
    decide(namespace, 109.0)
    assert ranges(renew(namespace, later, 109.0).ranges) == [(0, KEYS_END)]


def test_store_whose_ranges_do_not_cover_the_keys_once_is_not_believed() -> None:
    before, _, _ = two_owners()
    before.lives.popitem()
    with pytest.raises(AssertionError, match="do not cover the keys once"):
        restored(before, 100.0)


# Clocks and leaving.


def test_owner_whose_clock_runs_slow_is_refused_and_its_ranges_pass_on() -> None:
    namespace, a = one_owner()
    refused = ""
    for step in range(1, 60):
        ask = msgspec.structs.replace(a.ask(10.0 + step), age_s=step * 0.9)
        refused = asks(namespace, ask, 10.0 + step).refused
        if refused:
            break
    assert refused.startswith("its clock lost ")
    assert refused.endswith("more than the bound of 5%")


def test_who_leaves_is_granted_nothing_more_and_what_it_has_passes_on() -> None:
    namespace, a, b = two_owners()
    a.leaving = True
    assert renew(namespace, a, 11.0).ranges == []
    renew(namespace, a, 11.1)
    assert [life.owner for life in namespace.lives.values()] == ["b"]
    assert ranges(renew(namespace, b, 11.2).ranges) == [(0, HALF), (HALF, KEYS_END)]


def test_last_owner_to_leave_leaves_nobody() -> None:
    namespace, a = one_owner()
    a.leaving = True
    assert renew(namespace, a, 11.0).ranges == []
    renew(namespace, a, 11.1)
    assert holders(namespace) == [(0, "")]
    assert namespace.wake_at == math.inf


# What lookups are told.


def test_lookup_gets_what_changed_since_the_version_it_has_or_all_if_that_is_smaller() -> None:
    namespace, _, _ = two_owners()
    before = namespace.version
    namespace.vouched_dead("of-b", 1)
    namespace.expire(11.0)
    namespace.take_rows()
    changed = MapPart([], [MapSpan(HALF, KEYS_END - 1, 4, 4, -1)])
    assert namespace.since(AskMap("ns", *before)) == (False, changed)
    assert namespace.since(AskMap("ns", *namespace.version)) == (False, MapPart([], []))
    decide(namespace, 11.0)
    whole = MapPart(
        [("a", "tcp://a")],
        [MapSpan(0, HALF - 1, 1, 0, 0), MapSpan(HALF, KEYS_END - 1, 5, 4, 0)],
    )
    assert namespace.since(AskMap("ns", 0, -1)) == (True, whole)
    namespace.vouched_dead("of-a", 1)
    decide(namespace, 11.5)
    assert namespace.since(AskMap("ns", *before)) == (True, namespace.whole())


def test_several_changes_are_told_as_one() -> None:
    namespace = new_namespace()
    clients = [Client(f"{number:02}") for number in range(16)]
    for _ in range(4):
        for client in clients:
            renew(namespace, client, 10.0)
    known = namespace.version
    for process in ("of-03", "of-07"):
        namespace.vouched_dead(process, 1)
        namespace.expire(11.0)
        namespace.take_rows()
        namespace.stamp_log(11.0)
    is_whole, part = namespace.since(AskMap("ns", *known))
    assert not is_whole
    sixteenth = KEYS_END // 16
    lost = [(3 * sixteenth, -1), (7 * sixteenth, -1)]
    assert [(span.start, span.owner) for span in part.spans] == lost


def test_log_forgets_what_is_old() -> None:
    namespace, _ = one_owner()
    after = namespace.log[0].after
    assert namespace.since(AskMap("ns", *after))[1] == namespace.log[0].part
    namespace.vouched_dead("of-a", 1)
    decide(namespace, 10.0 + LOG_S + 0.1)
    assert [logged.at for logged in namespace.log] == [10.0 + LOG_S + 0.1]
    assert namespace.since(AskMap("ns", *after)) == (True, namespace.whole())


def test_key_is_explained_by_who_has_it_and_why() -> None:
    namespace, a = one_owner()
    renew(namespace, Client("b"), 11.0)
    found = namespace.explain(HALF + 5, 12.0)
    assert (found.owner, found.number, found.recalled) == ("a", 1, True)
    assert (found.reason, found.expires_in_s) == ("granted to a: never owned", 7.0)
    assert not namespace.explain(5, 12.0).recalled
    namespace.vouched_dead("of-a", 1)
    namespace.vouched_dead("of-b", 1)
    decide(namespace, 13.0)
    found = namespace.explain(5, 13.0)
    assert (found.owner, found.reason, found.expires_in_s) == ("", "a: vouched dead", 0.0)
    assert a.number_max == 1


# Limits.


def test_only_so_many_lives_have_a_place() -> None:
    namespace = new_namespace()
    for number in range(LIVES_MAX):
        assert isinstance(namespace.ask(Client(f"{number}", nonce=number).ask(10.0), 10.0), Life)
    refused = namespace.ask(Client("one more", nonce=LIVES_MAX).ask(10.0), 10.0)
    assert isinstance(refused, OwnerAnswer)
    assert refused.refused == f"there are {LIVES_MAX} owners already"


@pytest.mark.parametrize("rows_max", [1, 5, 20])
def test_no_more_rows_change_at_once_than_may_and_the_rest_follows(rows_max: int) -> None:
    namespace = new_namespace()
    clients = [Client(f"{number:02}") for number in range(30)]
    for client in clients:
        namespace.ask(client.ask(10.0), 10.0)
    namespace.take_rows()
    rounds = 0
    while any(gap.free_at <= 10.0 for gap in namespace.gaps):
        namespace.settle(10.0, rows_max)
        assert namespace.rows_changed <= rows_max + 1
        namespace.take_rows()
        rounds += 1
    assert rounds >= 30 / (rows_max + 1)
    for name in range(30):
        namespace.vouched_dead(f"of-{name:02}", 1)
    while namespace.lives:
        namespace.expire(11.0, rows_max)
        assert namespace.rows_changed <= rows_max + 1
        namespace.take_rows()
    assert {span.owner for span in namespace.whole().spans} == {-1}


def in_pieces(count: int, *, held: bool) -> Namespace:
    """Restored at 100.0: neighbours with numbers of their own, which a has or nobody."""
    size = KEYS_END // count
    spans = [SpanRow(n * size, (n + 1) * size - 1, n + 1, n) for n in range(count)]
    spans[-1] = SpanRow(spans[-1].start, KEYS_END - 1, count, count - 1)
    row = NamespaceRow("ns", count, 1, 1, [] if held else spans, [])
    life = LifeRow("ns", "a", "tcp://a", "of-a", 1, 1, Client("a").nonce, False, spans)  # noqa: FBT003
    return Namespace.restored(
        row, [life] if held else [], Fixed(), TIMING, term=TERM + 1, now=100.0
    )


@pytest.mark.parametrize(("count", "left"), [(SPANS_MAX, SPANS_MAX), (SPANS_MAX + 1, 1)])
def test_owner_with_too_many_ranges_has_neighbours_merged_under_the_greater_numbers(
    count: int, left: int
) -> None:
    namespace, a = in_pieces(count, held=True), Client("a")
    renew(namespace, a, 101.0)
    renew(namespace, a, 102.0)
    answer = renew(namespace, a, 103.0)
    assert len(answer.ranges) == left
    assert (answer.ranges[-1].number, answer.ranges[-1].born) == (count, count - 1)
    merged = [(0, count, count - 1)] if left == 1 else []
    logged = [each for logged in namespace.log for each in logged.part.spans]
    assert [(span.start, span.number, span.born) for span in logged] == merged


@pytest.mark.parametrize(("count", "left"), [(GAPS_MAX, GAPS_MAX), (GAPS_MAX + 1, 1)])
def test_too_many_ranges_that_nobody_has_are_merged(count: int, left: int) -> None:
    namespace = in_pieces(count, held=False)
    namespace.settle(101.0)
    assert len(namespace.gaps) == left
    assert (namespace.gaps[-1].number, namespace.gaps[-1].born) == (count, count - 1)


def test_decisions_that_are_kept_are_bounded() -> None:
    namespace, a = one_owner()
    for incarnation in range(2, 60):
        namespace.vouched_dead("of-a", incarnation - 1)
        decide(namespace, 11.0)
        a = Client("a", incarnation)
        renew(namespace, a, 11.0)
    kept = namespace._row().decisions
    assert len(kept) == DECISIONS_MAX
    assert kept[-1].number == namespace._row().number


def test_owner_with_a_slow_clock_stays_refused_until_it_was_seen_to_be_right() -> None:  # N1
    """Its clock runs at half our speed, and is put right at 100 s."""
    namespace, a = one_owner()
    held_at = []
    now = own_s = 10.0
    while now < 300:
        now += 1.0
        own_s += 0.5 if now < 100 else 1.0
        a.began_at = now - own_s
        if renew(namespace, a, now).ranges:
            held_at.append(now)
    refused_until = next(at for at in held_at if at > 60)
    assert all(at < 60 or at >= refused_until for at in held_at)
    assert 110 < refused_until < 200


@pytest.mark.parametrize("number", [NUMBER_MAX // 2 + 1, NUMBER_MAX - 1])
def test_claim_of_a_number_that_nobody_can_have_is_refused(number: int) -> None:  # N3
    namespace, a = one_owner()
    liar = Client("z")
    liar.number_max = number
    assert "absurd" in asks(namespace, liar.ask(11.0), 11.0).refused
    assert renew(namespace, a, 11.0).ranges


def test_the_greatest_claim_leaves_room_for_numbers() -> None:  # N3
    namespace, a = one_owner()
    a.number_max = NUMBER_MAX // 2
    for second in range(11, 40):
        renew(namespace, a, float(second))
    assert a.holds
    assert max(span.number for span in a.holds) < NUMBER_MAX // 2 + 4 * JUMP


def test_no_two_lives_share_a_key_whatever_their_names() -> None:
    one = life_key("a/0000000000000001/x", "b", 2)
    assert one != life_key("a", "x/0000000000000002/b", 1)
    assert life_key("a%2F", "b", 1) != life_key("a/", "b", 1)
