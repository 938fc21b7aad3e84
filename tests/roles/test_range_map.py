"""The map of ranges against an obvious one: a list with a value for each position."""

from hypothesis import given
from hypothesis import strategies as st

from roles.key_range import KEYS_END
from roles.range_map import RangeMap, overlaid

SMALL = 40
cuts = st.lists(st.integers(0, SMALL), min_size=0, max_size=12, unique=True).map(sorted)
updates = st.lists(st.tuples(cuts, st.integers(0, 3)), max_size=6)


def pieces_of(points: list[int], value: int) -> list[tuple[int, int, int]]:
    """Every other gap between the points is a change."""
    pairs = zip(points[::2], points[1::2], strict=False)
    return [(start, end, value + start % 2) for start, end in pairs]


@given(updates)
def test_it_says_what_an_obvious_one_says(rounds: list[tuple[list[int], int]]) -> None:  # M1
    made: RangeMap[int] = RangeMap(9)
    obvious = [9] * (SMALL + 1)
    for points, value in rounds:
        changes = pieces_of(points, value)
        made = made.updated(changes)
        for start, end, new in changes:
            obvious[start:end] = [new] * (end - start)
    assert [made.at(n) for n in range(SMALL + 1)] == obvious
    assert made.at(KEYS_END - 1) == 9
    ends = [*made.starts[1:], KEYS_END]
    assert list(made.pieces()) == list(zip(made.starts, ends, made.values, strict=True))
    assert all(one != other for one, other in zip(made.values, made.values[1:], strict=False))


def test_pieces_are_cut_off_at_both_ends() -> None:
    made = RangeMap("a").updated([(10, 20, "b")])
    assert list(made.pieces(5, 12)) == [(5, 10, "a"), (10, 12, "b")]
    assert list(made.pieces(10, 20)) == [(10, 20, "b")]
    assert list(made.pieces(20, KEYS_END)) == [(20, KEYS_END, "a")]
    assert list(made.pieces(3, 3)) == []


def test_an_update_leaves_the_old_map_as_it_was() -> None:  # M2
    before = RangeMap("a")
    starts = before.starts
    before.updated([(10, 20, "b")])
    assert (starts, before.starts, before.values) == ([0], [0], ["a"])


def test_the_whole_space_can_be_replaced() -> None:
    made = RangeMap("a").updated([(0, 5, "x"), (5, KEYS_END, "y")])
    assert list(made.pieces()) == [(0, 5, "x"), (5, KEYS_END, "y")]


changes = st.lists(
    st.tuples(st.integers(0, SMALL - 1), st.integers(1, 9), st.integers(0, 3)), max_size=12
)


@given(changes)
def test_overlaid_changes_are_what_making_them_one_by_one_comes_to(
    rounds: list[tuple[int, int, int]],
) -> None:
    made: RangeMap[int | None] = RangeMap(None)
    pieces = [(start, start + length, value) for start, length, value in rounds]
    for piece in pieces:
        made = made.updated([piece])
    assert overlaid(pieces) == [each for each in made.pieces() if each[2] is not None]
