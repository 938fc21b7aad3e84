"""Which bricks a stub asks: chosen by chance, with room, on two nodes; and what became of copies.

Method: views of made-up peers; thousands of choices are counted.
"""

from collections import Counter
from random import Random

import msgspec
import pytest

from bus.peers import Peer
from roles.brick_view import FULL_S, HAND_OVER_S, SILENT_S, Brick, BrickView, Fate, number_of
from roles.limiter import Aimd


def peer(number: int, node: str = "n1", incarnation: int = 1, data: int = 7) -> Peer:
    return Peer(
        id=f"brick-{number}",
        incarnation=incarnation,
        state="live",
        heard_at=100.0,
        role="brick",
        node=node,
        pid=1,
        endpoint=f"tcp://127.0.0.1:{number}",
        linked=False,
        restarts=0,
        age_s=1.0,
        metrics_url="",
        statistics={"data_incarnation": float(data)},
    )


def view(*peers: Peer) -> BrickView:
    bricks = BrickView(lambda: Aimd(0.06), Random(1))
    bricks.update(peers)
    return bricks


def test_choices_are_different_bricks_and_fair() -> None:  # B1
    bricks = view(*(peer(number) for number in range(1, 7)))
    counts: Counter[int] = Counter()
    for _ in range(6000):
        chosen = [brick.number for brick in bricks.choose(3)]
        assert len(set(chosen)) == 3
        counts.update(chosen)
    assert all(2700 < counts[number] < 3300 for number in range(1, 7))


def test_choices_span_two_nodes_where_there_are_two() -> None:  # B1
    bricks = view(*(peer(number) for number in range(1, 6)), peer(6, "n2"))
    for _ in range(500):
        assert 6 in [brick.number for brick in bricks.choose(3)]
        kept = [bricks.live[1], bricks.live[2]]
        assert [brick.number for brick in bricks.choose(3, kept)] == [1, 2, 6]


def test_choices_can_be_kept_to_the_nodes_of_a_site() -> None:
    bricks = view(*(peer(number, f"n{number % 3}") for number in range(1, 10)))
    for _ in range(100):
        chosen = bricks.choose(2, nodes={"n0", "n1"})
        assert {brick.node for brick in chosen} == {"n0", "n1"}


def test_all_on_one_node_is_better_than_too_few() -> None:
    bricks = view(*(peer(number) for number in range(1, 4)), peer(4, "n2"))
    while bricks.live[4].limiter.acquire():
        pass
    assert len(bricks.choose(3)) == 3


def test_bricks_without_room_are_left_out() -> None:  # B1
    bricks = view(*(peer(number) for number in range(1, 5)))
    while bricks.live[2].limiter.acquire():
        pass
    for _ in range(100):
        assert {brick.number for brick in bricks.choose(3)} == {1, 3, 4}
    assert len(bricks.choose(4)) == 3


def test_the_suspect_and_the_full_get_new_copies_only_if_others_are_too_few() -> None:  # B4
    suspect = msgspec.structs.replace(peer(1), state="suspect")
    bricks = view(suspect, *(peer(number) for number in range(2, 6)))
    bricks.note_full(bricks.live[2], 100.0)
    assert set(bricks.live) == {1, 2, 3, 4, 5}
    for _ in range(100):
        assert {brick.number for brick in bricks.choose(3)} == {3, 4, 5}
    assert {brick.number for brick in bricks.choose(5)} == {1, 2, 3, 4, 5}
    kept = [bricks.live[1], bricks.live[2]]
    assert bricks.choose(3, kept)[:2] == kept
    assert bricks.any_full
    bricks.forgive(100.0 + FULL_S)
    assert not bricks.any_full
    assert any(bricks.live[2] in bricks.choose(3) for _ in range(100))
    assert not any(bricks.live[1] in bricks.choose(3) for _ in range(100))


def test_who_is_full_and_on_another_node_does_not_keep_a_place_free() -> None:  # B4
    bricks = view(*(peer(number) for number in range(1, 5)), peer(5, "n2"))
    bricks.note_full(bricks.live[5], 100.0)
    for _ in range(100):
        assert 5 not in [brick.number for brick in bricks.choose(3)]


def draining(number: int, node: str = "n1") -> Peer:
    statistics = {"data_incarnation": 7.0, "draining": 1.0}
    return msgspec.structs.replace(peer(number, node), state="draining", statistics=statistics)


def test_who_drains_gets_no_new_copy_and_keeps_no_place_free() -> None:  # B5
    bricks = view(peer(1), peer(2), draining(3), draining(4, "n2"))
    assert bricks.any_draining
    for _ in range(100):
        assert {brick.number for brick in bricks.choose(3)} == {1, 2}
        kept = [bricks.live[1]]
        assert [brick.number for brick in bricks.choose(2, kept)] == [1, 2]
    assert bricks.fate((4, 7), None, is_over=False, now=0.0) == "here"
    bricks.update([peer(1), peer(2), peer(3)])
    assert not bricks.any_draining
    assert len(bricks.choose(3)) == 3


def test_who_drains_is_chosen_when_a_write_could_not_be_done_without() -> None:  # B5
    bricks = BrickView(lambda: Aimd(0.06), Random(1), enough=2)
    bricks.update([peer(1), draining(2), draining(3)])
    for _ in range(100):
        assert len({brick.number for brick in bricks.choose(3)} & {1, 2, 3}) == 2
        assert bricks.live[1] in bricks.choose(3)


def filled(at: float) -> Brick:
    """One that has all it may have, asked at that moment."""
    brick = view(peer(1)).live[1]
    while brick.limiter.acquire():
        brick.asked(at)
    return brick


def test_a_brick_hangs_that_has_all_it_may_have_and_says_nothing() -> None:
    brick = filled(100.0)
    assert not brick.is_stuck(0.03, 100.02)
    assert brick.is_stuck(0.03, 100.04)
    brick.limiter.release("answered", 0.0, 100.04)
    assert not brick.is_stuck(0.03, 100.04), "it has room"
    brick.heard(100.04)
    while brick.limiter.acquire():
        brick.asked(100.05)
    assert not brick.is_stuck(0.03, 100.06)
    assert brick.is_stuck(0.03, 100.08)
    brick.heard(100.08)
    brick.is_suspect = True
    assert brick.is_stuck(0.03, 100.08)


def test_a_brick_that_answers_what_it_was_asked_later_has_lost_the_former() -> None:
    brick = filled(100.0)
    brick.passed_at = 100.001
    assert not brick.has_lost(100.0, 100.01), "at the same time, as good as"
    assert not brick.is_stuck(0.03, 100.01)
    brick.passed_at = 100.01
    assert brick.has_lost(100.0, 100.02)
    assert brick.is_stuck(0.03, 100.02), "for it may lose more"
    assert brick.has_lost(100.015, 103.0), "for a while its silence tells nothing"
    assert not brick.has_lost(100.02, 103.03)
    brick.limiter.release("answered", 0.0, 100.9)
    assert not brick.is_stuck(0.03, 100.9), "it has room"


def test_a_brick_that_was_not_asked_for_long_does_not_hang_for_that() -> None:
    brick = filled(100.0)
    while brick.limiter.in_flight:
        brick.limiter.release("answered", 0.0, 100.01)
        brick.heard(100.01)
    while brick.limiter.acquire():
        brick.asked(200.0)
    assert not brick.is_stuck(0.03, 200.01)
    while brick.limiter.in_flight:
        brick.limiter.release("silent", 0.0, 200.06)
    brick.limiter.limit = 1.0
    brick.limiter.acquire()
    brick.asked(200.07)
    assert brick.is_stuck(0.03, 200.08), "it was silent a moment ago"
    brick.limiter.release("silent", 0.0, 200.13)
    brick.limiter.acquire()
    brick.asked(300.0)
    assert not brick.is_stuck(0.03, 300.01)


def test_a_new_life_begins_with_a_new_limiter_and_the_same_life_keeps_it() -> None:  # B2
    bricks = view(peer(1))
    first = bricks.live[1]
    bricks.update([peer(1)])
    assert bricks.live[1] is first
    bricks.update([peer(1, incarnation=2)])
    assert bricks.live[1].limiter is not first.limiter


@pytest.mark.parametrize(
    ("state", "silent_s", "is_over", "fate"),
    [
        ("dead", 1.0, False, "away"),
        ("dead", SILENT_S + 1, False, "gone"),
        ("dead", 1.0, True, "gone"),
        ("offline", 1.0, False, "away"),
        ("offline", HAND_OVER_S + 1, False, "gone"),
        ("starting", 1.0, False, "away"),
        ("draining", 1.0, False, "away"),
        ("suspect", 1.0, False, "away"),
    ],
)
def test_a_copy_is_gone_only_if_that_is_known(
    state: str, silent_s: float, *, is_over: bool, fate: Fate
) -> None:  # B3
    seen = msgspec.structs.replace(peer(1), state=state)
    found = view().fate((1, 7), seen, is_over=is_over, now=100.0 + silent_s)
    assert found == fate


def test_a_live_brick_whose_tables_began_anew_has_lost_its_copies() -> None:  # B3
    bricks = view(peer(1, data=8))
    assert bricks.fate((1, 7), peer(1), is_over=False, now=100.0) == "gone"
    assert bricks.fate((1, 8), peer(1), is_over=False, now=100.0) == "here"


@pytest.mark.parametrize("name", ["brick", "brick-", "brick-x", "hub-1", "brick-1234567890", ""])
def test_what_is_no_brick_has_no_number(name: str) -> None:
    assert number_of(name) is None
    assert number_of("brick-12") == 12
