"""Goal: what askers see counts, one that lies does not, and no number breaks it.

Method: three askers, or one or two, tell of six bricks, each with its own way of seeing things;
the shares are compared with sums over everything told.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages import PeerSeen
from pinpoint import outside
from pinpoint.catalogue import BRICK, Judged
from pinpoint.deviation import Reference
from pinpoint.outside import ASKERS_MAX, HELD_TICKS, PRIOR, Outside, Seen
from pinpoint.samples import StubSaw

IDS = [f"brick-{number}" for number in range(1, 7)]
LIVES = dict.fromkeys(IDS, 1)
BY_NAME = {judged.name: judged for judged in BRICK}
SILENT, WAIT = BY_NAME["stub_silent_share"], BY_NAME["stub_wait_s"]
ROOM, WORK = BY_NAME["stub_tightness"], BY_NAME["stub_asked_per_s"]


def well(component_id: str) -> PeerSeen:
    return PeerSeen(component_id, 1, 60, 60, 0, 0, 0.001, 20.0)


def losing(component_id: str) -> PeerSeen:
    return PeerSeen(component_id, 1, 20, 6, 0, 14, 0.001, 1.0)


def saw(asker: int, odd: dict[str, PeerSeen], see: Callable[[str], PeerSeen] = well) -> StubSaw:
    return StubSaw(f"web-{asker}", "brick", 1.0, [odd.get(each) or see(each) for each in IDS])


def seen(judged: Judged, told: Outside, unsaid: Counter[str] | None = None) -> list[str]:
    found = outside.look(
        judged, told.told_of(LIVES.keys()), Counter() if unsaid is None else unsaid
    )
    return [each.component_id for each in found]


def after(*ticks: list[StubSaw], unsaid: Counter[str] | None = None) -> Outside:
    told = Outside()
    for tick in ticks:
        told.hear(tick, LIVES, Counter() if unsaid is None else unsaid)
    return told


def test_all_see_who_loses_most_answers() -> None:
    told = after([saw(asker, {"brick-2": losing("brick-2")}) for asker in (1, 2, 3)])
    found = outside.look(SILENT, told.told_of(LIVES.keys()), Counter())
    assert found == [Seen("brick-2", 14 / (20 + PRIOR), Reference(0.0, 0.05, 6))]
    assert seen(ROOM, told) == seen(WORK, told) == ["brick-2"]
    assert seen(WAIT, told) == []


def test_each_asker_is_compared_with_itself() -> None:
    def from_afar(component_id: str) -> PeerSeen:
        return PeerSeen(component_id, 1, 60, 60, 0, 0, 0.2, 3.0)

    told = after([saw(1, {}), saw(2, {}, from_afar), saw(3, {})])
    assert [seen(judged, told) for judged in (SILENT, WAIT, ROOM, WORK)] == [[]] * 4


@pytest.mark.parametrize("liar", [losing, lambda each: PeerSeen(each, 1, 60, 60, 0, 0, 9e9, 1e-9)])
@pytest.mark.parametrize("askers", [2, 3, 4, 5])
def test_one_that_lies_condemns_nobody(liar: Callable[[str], PeerSeen], askers: int) -> None:
    told = after(
        [saw(1, {"brick-2": liar("brick-2")}), *(saw(n, {}) for n in range(2, askers + 1))]
    )
    assert [seen(judged, told) for judged in (SILENT, WAIT, ROOM, WORK)] == [[]] * 4


@pytest.mark.parametrize("askers", [3, 4, 5])
def test_one_that_lies_saves_nobody(askers: int) -> None:
    bad = {"brick-2": losing("brick-2")}
    told = after([saw(1, {}), *(saw(n, bad) for n in range(2, askers + 1))])
    assert [seen(judged, told) for judged in (SILENT, ROOM, WORK)] == [["brick-2"]] * 3


def test_two_of_two_are_chance_and_seventy_of_a_hundred_are_not() -> None:
    few = PeerSeen("brick-2", 1, 2, 0, 0, 2, 0.0, 20.0)
    many = PeerSeen("brick-3", 1, 100, 30, 0, 70, 0.001, 20.0)
    told = after([saw(asker, {"brick-2": few, "brick-3": many}) for asker in (1, 2, 3)])
    assert seen(SILENT, told) == ["brick-3"]


def test_whom_nobody_asks_any_more_stays_as_it_was_for_a_while() -> None:
    bad = {"brick-2": losing("brick-2")}
    first = [saw(asker, bad) for asker in (1, 2, 3)]
    later = [
        StubSaw(each.asker, each.role, 1.0, [well(i) for i in IDS if i != "brick-2"])
        for each in first
    ]
    assert seen(SILENT, after(first, *[later] * (HELD_TICKS - 1))) == ["brick-2"]
    assert seen(SILENT, after(first, *[later] * HELD_TICKS)) == []


def test_what_was_told_of_another_life_is_dropped_and_counted() -> None:
    unsaid: Counter[str] = Counter()
    former = {"brick-2": PeerSeen("brick-2", 0, 20, 6, 0, 14, 0.001, 1.0)}
    told = after([saw(asker, former) for asker in (1, 2, 3)], unsaid=unsaid)
    assert (seen(SILENT, told), unsaid) == ([], Counter({"another life": 3}))


def test_numbers_that_cannot_be_are_dropped_and_counted() -> None:
    unsaid: Counter[str] = Counter()
    cannot_be = [
        PeerSeen("brick-1", 1, -5, 0, 0, 0, 0.0, 1.0),
        PeerSeen("brick-2", 1, 5, 5, 0, 10**12, 0.0, 1.0),
        PeerSeen("brick-3", 1, 5, 5, 0, 0, math.nan, 1.0),
        PeerSeen("brick-4", 1, 5, 5, 0, 0, math.inf, 1.0),
        PeerSeen("brick-5", 1, 5, 5, 0, 0, 0.0, math.nan),
        PeerSeen("brick-6", 1, 5, 5, 0, 0, 0.0, -1.0),
        PeerSeen("brick-6", 1, 5, 5, 0, 0, 0.0, math.inf),
    ]
    told = after(
        [
            StubSaw("web-1", "brick", 1.0, cannot_be),
            StubSaw("web-2", "brick", math.nan, [well("brick-1")]),
        ],
        unsaid=unsaid,
    )
    assert unsaid == Counter({"not finite": 8})
    assert list(told.told_of(LIVES.keys())) == []


def test_an_asker_of_two_says_nothing() -> None:
    unsaid: Counter[str] = Counter()
    told = after([StubSaw("web-1", "brick", 1.0, [well("brick-1"), losing("brick-2")])])
    assert seen(SILENT, told, unsaid) == []
    assert unsaid == Counter({"asker of too few": 1})


def test_a_crowd_of_askers_is_bounded() -> None:
    unsaid: Counter[str] = Counter()
    crowd = [StubSaw(f"web-{n}", "brick", 1.0, [well("brick-1")]) for n in range(ASKERS_MAX + 3)]
    told = after(crowd, unsaid=unsaid)
    assert (len(told.told_of(LIVES.keys())), unsaid) == (ASKERS_MAX, Counter({"too much told": 3}))


@pytest.mark.parametrize("row", [well("brick-1"), PeerSeen("nobody", 1, 1, 1, 0, 0, 0.001, 1.0)])
@pytest.mark.parametrize("tellings", [1, 19])
def test_who_tells_too_much_silences_nobody_else(row: PeerSeen, tellings: int) -> None:
    unsaid: Counter[str] = Counter()
    loud = [StubSaw("web-0", "brick", 1.0, [row] * 18_000)] * tellings
    told = after(
        [*loud, *(saw(n, {"brick-2": losing("brick-2")}) for n in (1, 2, 3))], unsaid=unsaid
    )
    assert [seen(judged, told) for judged in (SILENT, ROOM, WORK)] == [["brick-2"]] * 3
    assert unsaid["too much told"] == tellings


lines = st.builds(
    PeerSeen,
    id=st.sampled_from(IDS),
    incarnation=st.just(1),
    asked=st.integers(0, 200),
    answered=st.integers(0, 200),
    refused=st.integers(0, 200),
    silent=st.integers(0, 200),
    wait_s=st.floats(0, 1),
    room=st.floats(0, 1e6),
)


@given(st.lists(lines, min_size=1, max_size=40))
def test_several_tellings_of_a_tick_are_one(told: list[PeerSeen]) -> None:
    """Slowly: all that was told, summed up."""

    def asked(line: PeerSeen) -> int:
        return max(line.asked, line.answered + line.refused + line.silent)

    heard = after([StubSaw("web-1", "brick", 1.0, [line]) for line in told])
    (lately,) = heard.told_of(LIVES.keys())
    of = {each: [line for line in told if line.id == each] for each in IDS}
    silent = {each: sum(line.silent for line in lines) for each, lines in of.items() if lines}
    whole = {each: sum(map(asked, of[each])) for each in silent}
    usual = statistics.median(silent[each] / max(whole[each], 1) for each in silent)
    assert outside.MEASURES["stub_silent_share"](lately) == pytest.approx(
        {each: (silent[each] + PRIOR * usual) / (whole[each] + PRIOR) for each in silent}
    )
