"""One lookup's decisions: tips, changes and answers in, asks and losses out; no manager, no clock.

Keys are small numbers. `Steady` draws the greatest number each time, so that polls are 3 s apart.
"""

from random import Random

import pytest

from bus.lease_timing import LEASE_PRESETS
from roles.key_range import EVERYTHING, KEYS_END, KeyRange
from roles.lease_messages import AskMap, MapAnswered, MapDelta, MapPart, MapSpan
from roles.lookup_machine import (
    STEPS_MAX,
    Ask,
    LookupAction,
    LookupMachine,
    Lost,
    MapChanged,
    MapSteps,
    Odd,
    Route,
)

TIMING = LEASE_PRESETS["lan"]  # A poll every 3 s.
NEW = AskMap("ns", 0, -1)
ANEW = "its state began anew"

Ranged = tuple[int, int, str, int, int]
"""Start, end, owner (or nobody), number and born."""


class Steady(Random):
    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def part_of(*ranges: Ranged) -> MapPart:
    owners = sorted({(owner, f"tcp://{owner}") for _, _, owner, _, _ in ranges if owner})
    names = [owner for owner, _ in owners]
    return MapPart(
        owners,
        [
            MapSpan(start, end - 1, number, born, names.index(owner) if owner else -1)
            for start, end, owner, number, born in ranges
        ],
    )


def whole(*ranges: Ranged) -> MapPart:
    """These, and nobody's keys after them."""
    end = ranges[-1][1] if ranges else 0
    rest: list[Ranged] = [(end, KEYS_END, "", 0, 0)] if end < KEYS_END else []
    return part_of(*ranges, *rest)


def map_answered(
    term: int, lsn: int, *, by: int | None = None, whole: bool, leading: bool = True
) -> MapAnswered:
    """By the leader that made this version, or by a later one."""
    return MapAnswered(
        "ns", by or term, leading=leading, whole=whole, version_term=term, version_lsn=lsn
    )


def all_of_it(term: int, lsn: int, *, by: int | None = None) -> MapAnswered:
    return map_answered(term, lsn, by=by, whole=True)


def changes_to(term: int, lsn: int, *, by: int | None = None) -> MapAnswered:
    return map_answered(term, lsn, by=by, whole=False)


def delta(after: tuple[int, int], to: tuple[int, int], *ranges: Ranged) -> tuple[MapDelta, MapPart]:
    return MapDelta("ns", *to, *after, b""), part_of(*ranges)


def new_lookup(steps: MapSteps | None = None) -> LookupMachine:
    return LookupMachine("ns", TIMING, Steady(), 10.0, steps)


def lookup_with(*ranges: Ranged) -> LookupMachine:
    """One that has this map, as version 5.1, since 10.0; its next poll is at 13.0."""
    lookup = new_lookup()
    assert lookup.advance(10.0) == [Ask(NEW)]
    [changed] = lookup.answered(all_of_it(5, 1), whole(*ranges), NEW, 10.0)
    assert isinstance(changed, MapChanged)
    return lookup


def losses(actions: list[LookupAction]) -> list[tuple[int, int]]:
    return [
        (lost.start, lost.end)
        for action in actions
        if isinstance(action, Lost)
        for lost in action.ranges
    ]


def owners(lookup: LookupMachine) -> list[tuple[int, str, int]]:
    return [(start, entry.owner, entry.number) for start, _, entry in lookup.view.pieces()]


A_AND_B: tuple[Ranged, Ranged] = ((0, 10, "a", 1, 0), (10, 20, "b", 2, 0))
FOUND = [(0, "a", 1), (10, "b", 2), (20, "", 0)]


def test_first_map_is_told_whole_and_reports_no_loss() -> None:  # L2
    lookup = new_lookup()
    assert lookup.advance(10.0) == [Ask(NEW)]
    part = whole((0, 10, "a", 7, 7), (10, 20, "", 9, 9))
    assert lookup.answered(all_of_it(5, 1), part, NEW, 10.1) == [
        MapChanged([0, 10, 20], [Route("tcp://a", 7), None, None])
    ]
    assert lookup.version == (5, 1)
    assert lookup.wake_at == 13.0


def test_change_of_the_version_it_has_is_applied() -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    routes = [Route("tcp://a", 1), Route("tcp://c", 3), Route("tcp://b", 2), None]
    assert lookup.heard_delta(*delta((5, 1), (5, 2), (5, 12, "c", 3, 0)), 11.0) == [
        MapChanged([0, 5, 12, 20], routes)
    ]
    assert lookup.version == (5, 2)


@pytest.mark.parametrize(
    ("after", "to", "asks"),
    [
        ((5, 2), (5, 3), True),  # One is missing between.
        ((4, 9), (5, 2), True),  # Made from a map that we never had.
        ((5, 0), (5, 1), False),  # The one that made what we have, late or twice.
        ((4, 1), (4, 2), False),  # Of a leader before the one we know.
    ],
)
def test_change_of_another_version_is_not_applied(
    after: tuple[int, int], to: tuple[int, int], *, asks: bool
) -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    assert lookup.heard_delta(*delta(after, to, (5, 12, "c", 3, 3)), 11.0) == []
    assert (lookup.version, owners(lookup)) == ((5, 1), FOUND)
    assert lookup.wake_at == (pytest.approx(11.05) if asks else 13.0)


@pytest.mark.parametrize(
    ("term", "version", "asks"),
    [(5, (5, 1), False), (5, (5, 2), True), (6, (6, 0), True), (4, (4, 7), False)],
)
def test_tip_that_names_another_version_makes_it_ask_soon(
    term: int, version: tuple[int, int], *, asks: bool
) -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    assert lookup.heard_tip(term, version, 11.0) == []
    assert lookup.wake_at == (pytest.approx(11.05) if asks else 13.0)
    assert lookup.advance(11.1) == ([Ask(AskMap("ns", 5, 1, term))] if asks else [])


def test_changes_that_were_asked_for_count_only_from_the_version_asked_about() -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    asked = AskMap("ns", 5, 1)
    part = part_of((0, 5, "c", 4, 0))
    lookup.heard_delta(*delta((5, 1), (5, 2), (5, 10, "c", 3, 0)), 11.0)
    assert lookup.answered(changes_to(5, 3), part, asked, 11.1) == []
    assert lookup.version == (5, 2)
    assert lookup.wake_at == pytest.approx(11.15)
    asked = AskMap("ns", 5, 2)
    assert len(lookup.answered(changes_to(5, 3), part, asked, 11.2)) == 1
    assert owners(lookup) == [(0, "c", 4), (5, "c", 3), (10, "b", 2), (20, "", 0)]


def test_changes_are_of_no_use_to_who_has_no_map() -> None:  # L1
    lookup = new_lookup()
    assert lookup.answered(changes_to(5, 3), part_of((0, 5, "c", 4, 0)), NEW, 10.0) == []
    assert lookup.heard_delta(*delta((5, 1), (5, 2), (5, 10, "c", 3, 0)), 11.0) == []
    assert lookup.version is None


@pytest.mark.parametrize(
    "answer",
    [
        all_of_it(4, 9),  # A lower term.
        all_of_it(5, 0),  # An older one of the same leader, overtaken.
        map_answered(5, 2, whole=True, leading=False),  # A standby knows nothing.
    ],
)
def test_map_of_a_former_leader_or_overtaken_or_of_a_standby_changes_nothing(
    answer: MapAnswered,
) -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    assert lookup.answered(answer, whole((0, 20, "c", 9, 9)), NEW, 11.0) == []
    assert (lookup.version, owners(lookup)) == ((5, 1), FOUND)


def test_older_version_told_by_a_later_leader_counts() -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    actions = lookup.answered(all_of_it(4, 9, by=6), whole(*A_AND_B), NEW, 11.0)
    assert (lookup.version, losses(actions)) == ((4, 9), [])


def test_version_confirmed_by_a_later_leader_is_that_leaders() -> None:  # L1
    lookup = lookup_with(*A_AND_B)
    assert lookup.answered(changes_to(5, 1, by=6), part_of(), AskMap("ns", 5, 1), 11.0) == []
    late = all_of_it(5, 0, by=6)
    assert lookup.answered(late, whole(), NEW, 11.1) == []
    assert owners(lookup) == FOUND


def test_map_with_holes_is_odd_and_changes_nothing() -> None:
    lookup = lookup_with(*A_AND_B)
    for ranges in ([(0, 10, "a", 1, 0)], [(5, KEYS_END, "a", 1, 0)], []):
        holes = part_of(*ranges)
        assert lookup.answered(all_of_it(5, 2), holes, NEW, 11.0) == [Odd("a map with holes")]
    assert (lookup.version, owners(lookup)) == ((5, 1), FOUND)


# Losses. What is known is held by a under number 5, and was born with 3.


@pytest.mark.parametrize(
    ("owner", "number", "born", "is_lost"),
    [
        ("a", 5, 3, False),  # The same.
        ("b", 6, 3, False),  # A clean move.
        ("b", 9, 5, False),  # Born with what we knew: another one's news of it.
        ("b", 6, 6, True),  # Granted with empty state.
        ("", 6, 6, True),  # Nobody has it any more.
        ("b", 9, 6, True),  # A crash, then a clean move: told all the same.
        ("a", 7, 7, True),  # To the same owner, anew.
        ("b", 4, 3, True),  # Back: the store forgot what we knew.
        ("b", 5, 3, True),  # The same number given to another.
        ("", 5, 3, True),
        ("", 0, 0, True),  # Never owned, it says.
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_range_is_lost_if_it_was_born_after_what_was_known_or_its_number_goes_back(
    owner: str, number: int, born: int, *, is_lost: bool, is_whole: bool
) -> None:  # L2
    lookup = lookup_with((0, 10, "a", 5, 3))
    told: Ranged = (0, 10, owner, number, born)
    if is_whole:
        actions = lookup.answered(all_of_it(6, 2), whole(told), NEW, 11.0)
    else:
        actions = lookup.heard_delta(*delta((5, 1), (6, 2), told), 11.0)
    assert isinstance(actions[0], MapChanged)
    assert actions[1:] == ([Lost([KeyRange(0, 10)], ANEW)] if is_lost else [])


def test_loss_is_told_once_though_the_range_is_granted_after_it() -> None:  # L2
    lookup = lookup_with((0, 10, "a", 5, 3))
    steps: list[tuple[Ranged, list[tuple[int, int]]]] = [
        ((0, 10, "", 6, 6), [(0, 10)]),
        ((0, 10, "b", 7, 6), []),
        ((0, 10, "c", 8, 6), []),
        ((0, 10, "c", 9, 9), [(0, 10)]),
    ]
    for lsn, (told, lost) in enumerate(steps, start=1):
        assert losses(lookup.heard_delta(*delta((5, lsn), (5, lsn + 1), told), 11.0)) == lost


def test_parts_that_are_lost_are_told_as_few_ranges_and_no_wider() -> None:  # L2
    lookup = lookup_with((0, 10, "a", 5, 3), (10, 20, "b", 8, 3), (20, 30, "c", 5, 3))
    actions = lookup.heard_delta(*delta((5, 1), (5, 2), (5, 25, "d", 9, 7)), 11.0)
    assert losses(actions) == [(5, 10), (20, 25)]
    actions = lookup.heard_delta(*delta((5, 2), (5, 3), (0, 25, "d", 11, 11)), 11.0)
    assert losses(actions) == [(0, 25)]


# Silence.


def test_three_polls_without_a_leader_report_everything_lost_once() -> None:  # L3
    lookup = lookup_with(*A_AND_B)
    everything = Lost([EVERYTHING], "no manager for 3 polls")
    poll = Ask(AskMap("ns", 5, 1, 5))
    assert [lookup.advance(now) for now in (13.0, 16.0, 18.99)] == [[poll], [poll], []]
    assert lookup.wake_at == 19.0
    assert lookup.advance(19.0) == [everything, poll]
    assert [lookup.advance(now) for now in (19.5, 22.0, 40.0)] == [[], [poll], [poll]]
    assert owners(lookup) == FOUND


def test_who_has_no_map_yet_has_nothing_to_report_lost() -> None:  # L3
    lookup = new_lookup()
    assert [lookup.advance(now) for now in (10.0, 19.0, 60.0)] == [[Ask(NEW)]] * 3


@pytest.mark.parametrize("word", ["tip", "delta", "answer"])
def test_any_word_of_a_leader_ends_the_silence(word: str) -> None:  # L3
    lookup = lookup_with(*A_AND_B)
    lookup.advance(15.0)
    match word:
        case "tip":
            lookup.heard_tip(5, (5, 1), 15.0)
        case "delta":
            lookup.heard_delta(*delta((5, 1), (5, 2), (0, 5, "c", 3, 0)), 15.0)
        case _:
            lookup.answered(changes_to(5, 1), part_of(), AskMap("ns", 5, 1), 15.0)
    assert losses(lookup.advance(23.99)) == []
    assert losses(lookup.advance(24.0)) == [(0, KEYS_END)]
    lookup.heard_tip(5, (5, 2), 25.0)
    assert losses(lookup.advance(33.99)) == []
    assert losses(lookup.advance(34.0)) == [(0, KEYS_END)], "a silence after that is another"


def test_word_of_a_standby_or_of_a_former_leader_does_not_end_it() -> None:  # L3
    lookup = lookup_with(*A_AND_B)
    lookup.answered(MapAnswered("ns", 5, leading=False), part_of(), NEW, 15.0)
    lookup.heard_tip(4, (4, 1), 15.0)
    assert losses(lookup.advance(19.0)) == [(0, KEYS_END)]


# Asking again, and work shared.


def test_poll_that_nobody_answered_is_tried_again_before_the_next_is_due() -> None:
    lookup = new_lookup()
    lookup.advance(10.0)
    lookup.unanswered(10.5)
    assert lookup.wake_at == pytest.approx(11.4)
    lookup.unanswered(12.9)
    assert lookup.wake_at == pytest.approx(11.4), "no later than it was to be"


def test_lookups_of_one_process_share_the_work_of_a_step_and_each_hears_of_losses() -> None:
    steps = MapSteps()
    one, other = new_lookup(steps), new_lookup(steps)
    late = new_lookup(steps)
    for lookup in (one, other):
        lookup.answered(all_of_it(5, 1), whole((0, 10, "a", 1, 0)), NEW, 10.0)
    change = delta((5, 1), (5, 2), (0, 10, "b", 2, 2))
    assert [losses(each.heard_delta(*change, 11.0)) for each in (one, other)] == [[(0, 10)]] * 2
    assert one.view is other.view
    first = late.answered(all_of_it(5, 2), whole((0, 10, "b", 2, 2)), NEW, 11.0)
    assert losses(first) == [], "it came to the same map from none"
    assert owners(late) == owners(one)


def test_only_so_many_steps_are_kept() -> None:
    steps = MapSteps()
    one, other = new_lookup(steps), new_lookup(steps)
    for lookup in (one, other):
        lookup.answered(all_of_it(5, 0), whole((0, 10, "a", 1, 0)), NEW, 10.0)
    changes = [
        delta((5, lsn), (5, lsn + 1), (0, 10, "b", lsn + 2, 0)) for lsn in range(STEPS_MAX + 1)
    ]
    for change in changes:
        one.heard_delta(*change, 11.0)
    shared = []
    for change in changes:
        other.heard_delta(*change, 11.0)
        shared.append(other.view is one.view)
    assert owners(other) == owners(one)
    assert not shared[-1], "worked out anew, one after the other, once the first was forgotten"


@pytest.mark.parametrize("term", [1 << 40, 1 << 62, 1 << 100])
def test_tip_of_a_term_that_nobody_can_have_is_not_believed(term: int) -> None:  # L1
    lookup = new_lookup()
    lookup.heard_tip(term, (term, 1), 11.0)
    assert lookup.term < 1 << 32
