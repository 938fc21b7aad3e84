"""Positions and ranges: values in, values out."""

import pytest
from xxhash import xxh3_64_intdigest

from roles.key_range import KEYS_END, Key, KeyRange, joined, position


def test_text_and_bytes_are_hashed_and_numbers_are_taken_as_they_are() -> None:
    assert position("ä") == xxh3_64_intdigest("ä".encode())
    assert position(b"ab") == position("ab")
    assert [position(number) for number in (0, 7, KEYS_END - 1)] == [0, 7, KEYS_END - 1]


class Name(str):
    __slots__ = ()


def test_a_subclass_is_the_same_key() -> None:
    assert position(Name("alice")) == position("alice")


@pytest.mark.parametrize("key", [True, False, -1, KEYS_END, 1.0, None, ("a",)])
def test_anything_else_is_no_key(key: Key) -> None:
    with pytest.raises(ValueError, match="a key is"):
        position(key)


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 1), (0, KEYS_END + 1)])
def test_a_range_is_neither_empty_nor_beyond_the_keys(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no range of keys"):
        KeyRange(start, end)


def test_a_range_holds_its_start_and_not_its_end() -> None:
    assert [n in KeyRange(2, 4) for n in (1, 2, 3, 4)] == [False, True, True, False]


def test_ranges_that_touch_or_overlap_are_joined() -> None:
    ranges = [KeyRange(5, 7), KeyRange(0, 2), KeyRange(2, 4), KeyRange(6, 9), KeyRange(6, 7)]
    assert joined(ranges) == [KeyRange(0, 4), KeyRange(5, 9)]
