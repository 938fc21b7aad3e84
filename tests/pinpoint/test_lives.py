"""Goal: what is remembered of a component is of its present life, sound and bounded.

Method: samples written out by hand, one or two a test.
"""

import math
from collections import Counter

import msgspec
import pytest

from pinpoint import lives
from pinpoint.catalogue import BEACONS_MISSED, OVERHEAD_BYTES, RSS_GROWTH
from pinpoint.lives import RECENT, Life, Lives
from pinpoint.samples import Sample

WELL = Sample("brick-1", "brick", "n1", 1, "live", 100.0, 0.25, {"service_s": 0.0001})


def last_of(seen: list[tuple[float, Sample]]) -> Life:
    """What is kept of the one component, after ticks at those instants."""
    kept = Lives(1.0)
    return [kept.see([sample], at, Counter())["brick-1"] for at, sample in seen][-1]


def aged(beacon_age_s: float) -> Sample:
    return msgspec.structs.replace(WELL, beacon_age_s=beacon_age_s)


def at_each(*statistics: dict[str, float]) -> tuple[dict[str, float], Counter[str]]:
    """What is known after one tick a second with these beacons; and what was left unsaid."""
    unsaid: Counter[str] = Counter()
    kept = Lives(1.0)
    samples = [msgspec.structs.replace(WELL, statistics=each) for each in statistics]
    seen = [kept.see([each], float(second), unsaid) for second, each in enumerate(samples)]
    return seen[-1]["brick-1"].values, unsaid


def test_memory_beyond_what_is_held_is_worked_out_and_how_it_grows() -> None:
    values, _ = at_each(
        {"rss_bytes": 50e6, "memory_bytes": 1e6},
        {"rss_bytes": 55e6, "memory_bytes": 6e6},
        {"rss_bytes": 75e6, "memory_bytes": 6e6},
    )
    assert values[OVERHEAD_BYTES] == 69e6
    assert values[RSS_GROWTH] == pytest.approx(10e6)


def test_memory_that_shrinks_is_growth_of_nothing() -> None:
    values, unsaid = at_each({"rss_bytes": 50e6, "memory_bytes": 1e6}, {"rss_bytes": 5e6})
    assert (values[RSS_GROWTH], +unsaid) == (0.0, Counter())
    values, _ = at_each({"rss_bytes": 5e6, "memory_bytes": 50e6})
    assert values[OVERHEAD_BYTES] == 0.0


def test_one_that_lies_about_its_numbers_is_judged_by_the_others() -> None:
    values, unsaid = at_each(
        {
            "service_s": math.nan,
            "queue_s": math.inf,
            "busy_ratio": -1.0,
            "cpu": 1e300,
            "loop_lag_s": 0.5,
            "unheard_of": 1.0,
        }
    )
    assert values == {"loop_lag_s": 0.5, BEACONS_MISSED: 0.0}
    assert unsaid == Counter({"not finite": 4})


def test_a_beacon_seen_in_three_ticks_is_one() -> None:
    life = last_of([(10.25, aged(0.25)), (11.25, aged(1.25)), (12.25, aged(2.25))])
    assert (len(life.recent), life.is_new, life.before("service_s")) == (1, False, [])
    assert life.values[BEACONS_MISSED] == pytest.approx(1 / 6)


def test_a_beacon_that_was_lost_between_two_ticks_is_missed() -> None:
    life = last_of([(10.0, aged(0.25)), (11.0, aged(1.25)), (12.0, aged(0.25))])
    assert life.values[BEACONS_MISSED] == pytest.approx(1 / 6)


def test_a_new_incarnation_begins_anew() -> None:
    kept = Lives(1.0)
    first = kept.see([WELL], 10.0, Counter())["brick-1"]
    again = msgspec.structs.replace(WELL, incarnation=2)
    assert kept.see([again], 11.0, Counter())["brick-1"] is not first


def test_the_gone_are_forgotten_and_a_crowd_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "LIVES_MAX", 3)
    unsaid: Counter[str] = Counter()
    crowd = [msgspec.structs.replace(WELL, id=f"brick-{number}") for number in range(5)]
    kept = Lives(1.0)
    assert set(kept.see(crowd, 1.0, unsaid)) == {"brick-0", "brick-1", "brick-2"}
    assert unsaid["too many components"] == 2
    assert set(kept.see(crowd[3:], 2.0, unsaid)) == {"brick-3", "brick-4"}


def test_only_the_last_beacons_are_kept() -> None:
    assert len(last_of([(float(second), WELL) for second in range(10)]).recent) == RECENT


def test_clocks_that_stand_still_or_go_back_break_nothing() -> None:
    sample = msgspec.structs.replace(WELL, statistics={"rss_bytes": 1e6})
    life = last_of([(at, sample) for at in (5.0, 5.0, 3.0, -1.0)])
    assert RSS_GROWTH not in life.values
