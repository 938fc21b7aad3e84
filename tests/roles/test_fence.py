"""The fence in memory, against an obvious one: a dictionary with the greatest number per key.

Method: random operations at both ends of the key space. Below the limit both must agree on every
answer; at the limit ours may refuse more, never admit what the obvious one refuses.
"""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roles.fence import NUMBER_END, RangeFence, check_number
from roles.key_range import EVERYTHING, KEYS_END, KeyRange

KEYS = [*range(12), *range(KEYS_END - 12, KEYS_END)]

Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "admit_range", "learn"]),
        st.sampled_from(KEYS),
        st.sampled_from(KEYS),
        st.integers(1, 9),
    ),
    max_size=60,
)


class Obvious:
    def __init__(self) -> None:
        self.seen = dict.fromkeys(KEYS, 0)

    def do(self, what: str, keys: KeyRange, number: int) -> bool:
        touched = [key for key in KEYS if key in keys]
        if what != "learn" and any(self.seen[key] > number for key in touched):
            return False
        for key in touched:
            self.seen[key] = max(self.seen[key], number)
        return True


def do(fence: RangeFence, what: str, keys: KeyRange, number: int) -> bool:
    if what == "learn":
        fence.learn(keys, number)
        return True
    if what == "admit_range":
        return fence.admit_range(keys, number)
    return fence.admit(keys.start, number)


def keys_of(step: Step) -> KeyRange:
    what, one, other, _ = step
    start, last = min(one, other), max(one, other)
    return KeyRange(start, start + 1 if what == "admit" else last + 1)


def seen_by(fence: RangeFence) -> dict[int, int]:
    return {key: fence.greatest(key) for key in KEYS}


def is_minimal(fence: RangeFence) -> bool:
    in_order = all(before < after for before, after in pairwise(fence._starts))
    distinct = all(before != after for before, after in pairwise(fence._numbers))
    return fence._starts[0] == 0 and in_order and distinct


@given(steps)
@example([("learn", 0, KEYS_END - 1, 5), ("admit", 3, 3, 4), ("admit_range", 2, 4, 5)])
def test_below_its_limit_it_answers_as_the_obvious_fence(script: list[Step]) -> None:  # F1 F2 F3
    fence, obvious = RangeFence(), Obvious()
    refused = 0
    for step in script:
        what, _, _, number = step
        admitted = do(fence, what, keys_of(step), number)
        assert admitted == obvious.do(what, keys_of(step), number), step
        assert seen_by(fence) == obvious.seen
        assert is_minimal(fence)
        refused += not admitted
    assert (fence.refused, fence.joined) == (refused, 0)


@given(steps)
def test_at_its_limit_it_never_admits_what_the_obvious_fence_refuses(  # F1 F4
    script: list[Step],
) -> None:
    fence, obvious = RangeFence(ranges_max=8), Obvious()
    for step in script:
        what, _, _, number = step
        admitted = do(fence, what, keys_of(step), number)
        if admitted:
            assert obvious.do(what, keys_of(step), number), step
        seen = seen_by(fence)
        assert all(seen[key] >= number for key, number in obvious.seen.items())
        assert len(fence) <= 8
        assert is_minimal(fence)


def test_the_limit_is_met_and_joins_the_narrowest_ranges() -> None:  # F4
    fence = RangeFence(ranges_max=8)
    fence.learn(EVERYTHING, 1)
    for key in (100, 102, 10_000):
        assert fence.admit(key, 2)
    assert (len(fence), fence.joined) == (7, 0)
    assert fence.admit(20_000, 2)  # The ninth range; 8 - 8 // 8 are left.
    assert (len(fence), fence.joined) == (7, 2)
    assert fence.greatest(101) == 2, "between 100 and 102 is one key: the cheapest to raise"
    assert [fence.greatest(key) for key in (99, 103, 9_999, 10_001, 20_001)] == [1] * 5
    assert not fence.admit(101, 1), "wrongly refused, and that is the side to err on"


def test_delayed_write_of_a_replaced_owner_is_refused_also_where_nothing_was_written() -> None:
    fence = RangeFence()
    assert fence.admit("alice", 7)
    fence.learn(EVERYTHING, 8)  # The next owner says hello.
    assert not fence.admit("alice", 7)
    assert not fence.admit("bob", 7)
    assert fence.admit("bob", 8)
    assert fence.admit(b"bob", 8)
    assert (fence.refused, len(fence)) == (2, 1)


def test_refused_operation_on_a_range_leaves_all_of_it_as_it_was() -> None:  # F2
    fence = RangeFence()
    fence.learn(KeyRange(10, 20), 5)
    assert not fence.admit_range(KeyRange(0, 11), 4)
    assert fence.greatest(0) == 0
    assert fence.admit_range(KeyRange(0, 10), 4)


@pytest.mark.parametrize("number", [0, -1, NUMBER_END, True, 1.0, "1", None])
def test_what_is_no_number_of_a_lease_is_an_error(number: int) -> None:
    fence = RangeFence()
    for attempt in (
        lambda: fence.admit(1, number),
        lambda: fence.admit_range(EVERYTHING, number),
        lambda: fence.learn(EVERYTHING, number),
    ):
        with pytest.raises(ValueError, match=re.escape(f"not {number!r}")):
            attempt()
    assert fence.greatest(1) == 0


def test_the_least_and_the_greatest_number_are_numbers() -> None:
    assert check_number(1) == 1
    assert check_number(NUMBER_END - 1) == NUMBER_END - 1
