"""Goal: what is to be judged can be judged, and the catalogue says nothing twice.

Method: read it.
"""

import pytest

from bus.config import installed_roles
from pinpoint.catalogue import BRICK, DERIVED, VITALS, Judged, judged_of
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
