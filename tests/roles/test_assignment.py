"""Plans: owners in, a map of the whole key space out."""

from collections import Counter

from roles.assignment import Fixed, Vnodes
from roles.key_range import KEYS_END
from roles.range_map import RangeMap

OWNERS = [f"tcp://10.0.0.{number}:7000" for number in range(1, 11)]


def shares(plan: RangeMap[str]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for start, end, owner in plan.pieces():
        sizes[owner] += end - start
    return sizes


def test_without_owners_nobody_has_anything() -> None:
    for policy in (Vnodes(), Fixed()):
        assert list(policy.plan([]).pieces()) == [(0, KEYS_END, "")]


def test_one_owner_has_everything() -> None:
    for policy in (Vnodes(), Fixed()):
        assert list(policy.plan(["a"]).pieces()) == [(0, KEYS_END, "a")]


def test_the_order_in_which_owners_are_named_changes_nothing() -> None:  # A1
    for policy in (Vnodes(), Fixed()):
        plans = [list(policy.plan(names).pieces()) for names in (OWNERS, OWNERS[::-1])]
        assert plans[0] == plans[1]


def test_everyone_gets_about_as_much() -> None:
    sizes = shares(Vnodes().plan(OWNERS))
    assert set(sizes) == set(OWNERS)
    assert all(0.05 < size / KEYS_END < 0.16 for size in sizes.values())
    assert {round(size / KEYS_END, 6) for size in shares(Fixed().plan(OWNERS)).values()} == {0.1}


def test_no_key_moves_between_two_owners_that_stay() -> None:  # A2
    policy = Vnodes()
    few, many = policy.plan(OWNERS[:-1]), policy.plan(OWNERS)
    moved = [
        (owner, other)
        for start, end, owner in many.pieces()
        for _, _, other in few.pieces(start, end)
        if owner != other
    ]
    assert moved
    assert {owner for owner, _ in moved} == {OWNERS[-1]}
