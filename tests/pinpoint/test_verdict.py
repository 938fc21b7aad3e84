"""When anomalies make a verdict, and what it says.

Method: looks written out one by one. Three groups are needed, at 3 of the last 5 looks, a second
apart.
"""

from collections.abc import Iterable

import msgspec

from bus.events import REASON_LENGTH_MAX
from pinpoint.anomalies import Anomaly
from pinpoint.verdict import EVIDENCE_MAX, Evidence, Verdict, Verdicts
from tests.pinpoint.crowd import anomaly, brick, crowd

SICK = (anomaly("service_s"), anomaly("queue_s"), anomaly("cpu"))
ODD = (anomaly("service_s"),)
WELL = ()


def verdicts() -> Verdicts:
    return Verdicts(anomalies=3, persist=3, window=5, period_s=1.0)


def looks(*each: tuple[Anomaly, ...]) -> list[list[str]]:
    """Who persists at each look, of six bricks of which the second is as said."""
    machine = verdicts()
    return [
        [verdict.id for verdict in machine.look({"brick-2": odd}, crowd(6)).persisting]
        for odd in each
    ]


def test_three_groups_at_three_of_five_looks_are_a_verdict() -> None:
    assert looks(SICK, WELL, SICK, ODD, SICK) == [[], [], [], [], ["brick-2"]]


def test_three_of_six_looks_are_none() -> None:
    assert looks(SICK, WELL, SICK, WELL, WELL, SICK) == [[]] * 6


def test_who_is_well_at_this_look_has_no_verdict() -> None:
    assert looks(SICK, SICK, SICK, WELL, SICK) == [[], [], ["brick-2"], [], ["brick-2"]]


def test_statistics_of_one_group_count_once() -> None:
    same = (anomaly("a", "work"), anomaly("b", "work"), anomaly("c", "work"), anomaly("d"))
    assert looks(same, same, same, same) == [[]] * 4


def test_one_that_decides_alone_is_enough_if_it_stays() -> None:
    much = (msgspec.structs.replace(anomaly("overhead_bytes"), decisive=True),)
    assert looks(much, WELL, much, much) == [[], [], [], ["brick-2"]]


def test_who_is_one_group_short_within_the_window_leans() -> None:
    machine = verdicts()
    machine.look({"brick-2": ODD, "brick-3": ODD}, crowd(6))
    flags = machine.look({"brick-2": (anomaly("queue_s"),), "brick-3": ODD}, crowd(6))
    assert flags.leaning == {"brick-2"}


def test_next_life_begins_with_a_clean_slate() -> None:
    machine = verdicts()
    for _ in range(2):
        machine.look({"brick-2": SICK}, crowd(6))
    later = crowd(6, but=[brick(2, incarnation=2)])
    assert machine.look({"brick-2": SICK}, later).persisting == ()


def test_who_nearly_persists_is_named_as_well() -> None:
    machine = verdicts()
    machine.look({"brick-2": SICK, "brick-3": SICK}, crowd(6))
    machine.look({"brick-2": SICK}, crowd(6))
    flags = machine.look({"brick-2": SICK, "brick-4": SICK}, crowd(6))
    assert [set(flags.flagged), set(flags.nearly)] == [{"brick-2", "brick-4"}, {"brick-2"}]


def test_anomalies_of_who_is_not_in_the_tick_are_dropped() -> None:
    machine = verdicts()
    for _ in range(4):
        flags = machine.look({"brick-9": SICK}, crowd(6))
        assert (flags.flagged, flags.persisting) == (frozenset(), ())


def test_verdict_carries_each_statistic_the_strongest_first_and_for_how_long() -> None:
    machine = verdicts()
    machine.look({"brick-2": ODD}, crowd(6))
    strong = (anomaly("queue_s", score=4.0), anomaly("service_s", score=-7.0), anomaly("cpu"))
    for _ in range(2):
        machine.look({"brick-2": strong}, crowd(6))
    found = machine.look({"brick-2": strong}, crowd(6)).persisting
    evidence = (
        Evidence(strong[2], seen_s=3.0),
        Evidence(strong[1], seen_s=4.0),
        Evidence(strong[0], seen_s=3.0),
    )
    assert found == (Verdict("brick-2", 1, "brick", "n1", evidence, flagged_s=3.0, window_s=5.0),)
    assert found[0].sentence == (
        "unlike its peers for 3 of the last 5 s: cpu 10, median of 6 1 (9 scales, 3 s); "
        "service_s 10, median of 6 1 (7 scales, 4 s); queue_s 10, median of 6 1 (4 scales, 3 s)"
    )


def test_sentence_names_one_statistic_of_each_group_and_is_not_too_long() -> None:
    def sentence(odd: Iterable[Anomaly]) -> str:
        evidence = tuple(Evidence(each, 1.0) for each in odd)
        return Verdict("brick-1", 1, "brick", "n1", evidence, 3.0, 5.0).sentence

    twice = sentence([anomaly("a", "work"), anomaly("b", "work")])
    assert twice.endswith(": a 10, median of 6 1 (9 scales, 1 s); and 1 more")
    assert len(sentence(anomaly("x" * 200 + letter) for letter in "abcdef")) == REASON_LENGTH_MAX


def test_evidence_is_bounded() -> None:
    machine = verdicts()
    odd = tuple(anomaly(f"s{number}") for number in range(40))
    looks = [machine.look({"brick-1": odd}, crowd(6)) for _ in range(3)]
    assert len(looks[-1].persisting[0].evidence) == EVIDENCE_MAX
