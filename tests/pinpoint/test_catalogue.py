"""Goal: what is to be judged can be judged, and the catalogue says nothing twice.

Method: read it.
"""

import pytest

from bus.config import installed_roles
from bus.config_shape import RoleConfig
from pinpoint.catalogue import (
    BEACONS_MISSED,
    BRICK,
    DERIVED,
    MB,
    OVERHEAD_BYTES,
    RSS_GROWTH,
    VITALS,
    Judged,
    ended_of,
    judged_of,
)
from pinpoint.outside import MEASURES


@pytest.mark.parametrize("judged", [BRICK, VITALS], ids=["brick", "vitals"])
def test_each_statistic_is_judged_once_to_one_side(judged: tuple[Judged, ...]) -> None:
    names = [each.name for each in judged]
    assert len(set(names)) == len(names)
    assert all(each.low != each.high for each in judged if each.kind != "state")
    assert all(each.floor > 0 or each.is_count or each.least > 0 for each in judged)


def test_whatever_is_seen_from_outside_can_be_measured() -> None:
    assert {each.name for each in BRICK if each.kind == "outside"} == MEASURES.keys()


def test_bricks_are_judged_in_more_groups_than_it_takes() -> None:
    assert len({each.group for each in BRICK}) >= 12
    assert {each.name for each in BRICK} >= DERIVED


def test_a_role_that_nobody_knows_is_judged_by_its_vitals_alone() -> None:
    assert "brick" in installed_roles()
    assert {judged_of(role) for role in ("manager", "greeter", "")} == {VITALS}


def test_only_roles_that_we_know_or_that_ask_for_it_may_be_ended() -> None:
    roles = {
        "report": RoleConfig(main="report:main"),
        "greeter": RoleConfig(main="greeter:main", judge=True),
    }
    assert set(ended_of(roles)) == {"brick", "manager", "greeter"}


@pytest.mark.parametrize(
    "one_fact",
    [
        {"minor_faults_per_s", RSS_GROWTH, OVERHEAD_BYTES},
        {"loop_lag_s", "queue_s", BEACONS_MISSED},
    ],
    ids=["memory", "loop"],
)
def test_vitals_that_tell_one_fact_are_one_group(one_fact: set[str]) -> None:
    assert len({each.group for each in VITALS if each.name in one_fact}) == 1


def test_what_a_brick_holds_comes_with_its_work_and_is_no_sign_beside_it() -> None:
    held = {"items", "memory_bytes", "allocated_blocks", "writes_per_s", "stub_asked_per_s"}
    assert {each.group for each in BRICK if each.name in held} == {"work"}


@pytest.mark.parametrize(
    ("value", "median", "decides"),
    [
        (310 * MB, 60 * MB, True),
        (250 * MB, 60 * MB, False),
        (310 * MB, 100 * MB, False),
        (90 * MB, 10 * MB, False),
    ],
)
def test_memory_that_nothing_explains_decides_alone(
    value: float, median: float, *, decides: bool
) -> None:
    (overhead,) = (each for each in BRICK if each.name == OVERHEAD_BYTES)
    assert overhead.decides(value, median) is decides
    assert not any(each.decides(1e18, 1.0) for each in BRICK if each is not overhead)
