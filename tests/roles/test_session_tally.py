"""When a request to several bricks is decided: quorums, the arbiter, what counts as a value.

Method: answers are added one by one in the order of each case.
"""

import pytest

from bus.messages import Refused
from bus.replies import Reply
from roles.brick_view import Brick
from roles.limiter import Unlimited
from roles.session_messages import FULL, HANDING_OVER, SessionAnswer, checksum_of
from roles.session_tally import Quorum, ReadTally, Stage, WriteTally
from roles.sightings import Sighting
from tests.roles.test_brick_view import peer

BUSY = Refused("busy")
A, B, C, D = (
    Brick(peer(number, node), number, Unlimited(), Sighting(f"brick-{number}", 1))
    for number, node in ((1, "n1"), (2, "n1"), (3, "n2"), (4, "n1"))
)


def said(
    outcome: str, version: int = 0, body: bytes = b"", checksum: bytes = b""
) -> Reply[SessionAnswer]:
    answer = SessionAnswer(outcome, 7, version, 10.0, checksum)  # type: ignore[arg-type]
    return Reply(answer, body, 0.0)


STORED = said("stored")


def write(*arbiters: Brick, need: int = 2, nodes: int = 1) -> WriteTally:
    tally = WriteTally(Quorum(need), "stored", arbiters=arbiters, nodes=nodes)
    tally.awaited = 3
    return tally


def add(
    tally: WriteTally | ReadTally, brick: Brick, outcome: Reply[SessionAnswer] | Refused
) -> bool:
    tally.awaited -= 1
    tally.add(brick, outcome)
    return tally.is_settled


def test_a_write_is_done_when_enough_have_it() -> None:  # T1
    tally = write()
    assert not add(tally, A, STORED)
    assert not tally.is_met
    assert add(tally, B, STORED)
    assert tally.is_met
    assert tally.copies == {A: 7, B: 7}


def leaving(*, here: tuple[str, ...] = ()) -> WriteTally:
    """Of A, B and C, the first drains and is asked for its word alone."""
    quorum = Quorum(2, here=here)
    quorum.leaving = [A]
    tally = WriteTally(quorum, "stored", arbiters=[B, A])
    tally.awaited = 3
    for brick in (A, B, C):
        tally.asked(brick)
    return tally


@pytest.mark.parametrize("here", [(), ("n1", "n2")], ids=["anywhere", "by-site"])
def test_a_copy_of_who_drains_is_not_one_of_those_needed(here: tuple[str, ...]) -> None:  # T1
    tally = leaving(here=here)
    add(tally, A, STORED)
    add(tally, B, STORED)
    assert not tally.is_met
    assert add(tally, C, STORED)
    assert tally.is_met
    failing = leaving(here=here)
    add(failing, A, STORED)
    assert add(failing, C, BUSY)
    assert not failing.is_met


def test_who_drains_is_an_arbiter_still() -> None:  # T2
    tally = leaving()
    add(tally, B, STORED)
    assert not add(tally, C, STORED), "its word is waited for"
    assert add(tally, A, said("conflict", version=9))
    assert tally.conflict is not None
    slow = leaving()
    add(slow, B, STORED)
    add(slow, C, STORED)
    slow.reach(Stage.HALF, [])
    assert slow.is_settled
    assert slow.is_met


def test_a_write_that_cannot_be_done_is_settled_at_once() -> None:
    tally = write()
    assert not add(tally, A, BUSY)
    assert add(tally, B, BUSY)
    assert not tally.is_met


@pytest.mark.parametrize(("late", "soon"), [(A, B), (B, A)])
def test_both_arbiters_must_have_it_until_half_of_the_time(late: Brick, soon: Brick) -> None:  # T2
    tally = write(A, B)
    assert not add(tally, soon, STORED)
    assert not add(tally, C, STORED)
    tally.stage = Stage.HALF
    assert tally.is_settled
    assert tally.is_met
    whole = write(A, B)
    add(whole, soon, STORED)
    assert add(whole, late, STORED)


@pytest.mark.parametrize(
    "refused",
    [
        Refused("busy", FULL + "no memory for a longer version"),
        Refused("busy", f"brick-1 {HANDING_OVER}"),
        Refused("failed", "its memory is damaged"),
        Refused("unreachable"),
    ],
)
def test_a_first_arbiter_that_cannot_leaves_it_to_the_second(refused: Refused) -> None:  # T2
    tally = write(A, B)
    assert not add(tally, A, refused)
    assert not add(tally, C, STORED)
    assert add(tally, B, STORED)
    assert tally.is_met


@pytest.mark.parametrize("refused", [BUSY, Refused("late")])
def test_without_the_word_of_a_busy_first_arbiter_nothing_is_done(refused: Refused) -> None:  # T2
    tally = write(A, B)
    add(tally, B, STORED)
    add(tally, C, STORED)
    assert add(tally, A, refused)
    assert not tally.is_met
    assert not tally.needs_others


def test_a_busy_second_arbiter_is_done_without() -> None:  # T2
    tally = write(A, B)
    assert not add(tally, B, BUSY)
    assert not add(tally, C, STORED)
    assert add(tally, A, STORED)
    assert tally.is_met


def test_without_a_busy_second_arbiter_the_word_of_the_first_is_indispensable() -> None:  # T2
    tally = write(A, B)
    add(tally, B, BUSY)
    add(tally, C, STORED)
    tally.add(D, STORED)
    tally.stage = Stage.HALF
    assert not tally.is_met
    assert not tally.is_settled
    assert add(tally, A, STORED)
    assert tally.is_met


@pytest.mark.parametrize("refused", [BUSY, Refused("busy", f"{FULL}no memory")])
def test_without_the_word_of_any_arbiter_nothing_is_done(refused: Refused) -> None:  # T2
    tally = write(A, B)
    add(tally, B, BUSY)
    assert add(tally, A, refused)
    tally.add(C, STORED)
    tally.add(D, STORED)
    assert not tally.is_met
    assert not tally.needs_others


def test_an_arbiter_that_is_silent_but_answers_others_is_waited_for() -> None:  # T2
    for late in (A, B):
        tally = write(A, B)
        add(tally, B if late is A else A, STORED)
        add(tally, C, STORED)
        tally.reach(Stage.HALF, [late])
        assert not tally.is_settled
        assert tally.is_met == (late is B), "only the first is indispensable"
        add(tally, late, STORED)
        assert tally.is_settled
        assert tally.is_met
    hung = write(A, B)
    add(hung, B, STORED)
    add(hung, C, STORED)
    hung.reach(Stage.HALF, [A])
    hung.reach(Stage.END, [])
    assert hung.is_settled
    assert hung.is_met


def test_an_arbiter_that_lost_it_is_not_waited_for_but_then_the_other_must_have_it() -> None:  # T2
    tally = write(A, B)
    add(tally, B, STORED)
    add(tally, C, STORED)
    tally.reach(Stage.HALF, [], [A])
    assert tally.is_settled
    assert tally.is_met
    without = write(A, B)
    without.awaited = 4
    add(without, C, STORED)
    add(without, D, STORED)
    without.reach(Stage.HALF, [], [A])
    assert not without.is_met
    assert not without.is_settled
    assert add(without, B, STORED)
    assert without.is_met
    alone = write(A)
    add(alone, B, STORED)
    add(alone, C, STORED)
    alone.reach(Stage.HALF, [], [A])
    assert alone.is_met, "as if it hung: there is no other"


def test_who_is_left_when_one_was_left_out_must_have_it() -> None:  # T2
    tally = WriteTally(Quorum(2), "stored", arbiters=[B], needs_word=True)
    tally.awaited, tally.stage = 3, Stage.HALF
    add(tally, C, STORED)
    assert not add(tally, D, STORED)
    assert not tally.is_met
    assert add(tally, B, STORED)
    assert tally.is_met


def test_others_are_needed_when_those_asked_cannot_do_it() -> None:
    tally = write()
    add(tally, A, BUSY)
    assert not tally.needs_others
    add(tally, B, BUSY)
    assert tally.needs_others
    add(tally, C, said("conflict", 4))
    assert not tally.needs_others


def test_one_conflict_settles_whatever_the_others_say() -> None:  # T2
    tally = write(A, B)
    add(tally, B, STORED)
    assert add(tally, A, said("conflict", 4))
    assert tally.conflict is not None
    assert tally.conflict[1].version == 4


def test_a_mark_of_deletion_settles() -> None:
    tally = write()
    assert add(tally, A, said("deleted"))
    assert tally.is_deleted


def test_two_nodes_are_wanted_at_first_and_not_for_ever() -> None:
    tally = write(nodes=2)
    add(tally, A, STORED)
    assert not add(tally, B, STORED)
    tally.stage = Stage.HALF
    assert tally.is_settled
    other = write(nodes=2)
    add(other, A, STORED)
    assert add(other, C, STORED)


def test_with_sites_one_copy_elsewhere_is_wanted_until_the_end() -> None:  # T1
    tally = WriteTally(Quorum(2, here={"n1"}, remote=True), "stored")
    tally.awaited = 3
    add(tally, A, STORED)
    assert not add(tally, B, STORED)
    tally.stage = Stage.HALF
    assert not tally.is_settled
    tally.awaited, tally.stage = 0, Stage.END
    assert tally.is_settled
    assert tally.is_met
    remote = WriteTally(Quorum(2, here={"n1"}, remote=True), "stored")
    remote.awaited = 3
    add(remote, A, STORED)
    add(remote, C, STORED)
    assert add(remote, B, STORED)
    assert remote.is_met


def by_sites(*asked: Brick) -> WriteTally:
    tally = WriteTally(Quorum(2, here={"n1"}, remote=True), "stored")
    for brick in asked:
        tally.asked(brick)
    tally.awaited = len(asked)
    return tally


def test_a_copy_elsewhere_does_not_stand_for_one_of_this_site() -> None:  # T1
    tally = by_sites(A, B, C)
    add(tally, C, STORED)
    assert not tally.needs_others
    add(tally, A, BUSY)
    assert tally.needs_others
    waiting = by_sites(A, B, C)
    add(waiting, A, BUSY)
    assert waiting.needs_others, "though two may still answer"


def test_copies_of_this_site_will_do_when_the_other_refuses() -> None:  # T1
    tally = by_sites(A, B, C)
    add(tally, C, BUSY)
    assert not add(tally, A, STORED)
    assert add(tally, B, STORED)
    assert tally.is_met


VALUE = b"cart"
SID = b"s" * 16
GOOD = checksum_of(SID, 3, VALUE)


def read() -> ReadTally:
    tally = ReadTally(SID, 3, GOOD)
    tally.awaited = 2
    return tally


def test_the_first_good_value_counts() -> None:
    tally = read()
    assert add(tally, A, said("value", 3, VALUE, GOOD))
    assert (tally.value, tally.brick) == (VALUE, A)


@pytest.mark.parametrize(
    "answer",
    [
        said("value", 3, b"other", checksum_of(SID, 3, b"other")),
        said("value", 4, b"other", checksum_of(b"t" * 16, 4, b"other")),  # Another session's.
        said("value", 3, b"other", GOOD),
        said("value", 2, VALUE, GOOD),
        said("value", 4, b"other", GOOD),
    ],
)
def test_a_value_that_was_never_written_so_does_not_count(
    answer: Reply[SessionAnswer],
) -> None:  # T3
    tally = read()
    assert not add(tally, A, answer)
    assert tally.corrupted == 1
    assert add(tally, B, said("value", 3, VALUE, GOOD))
    assert tally.value == VALUE


def test_a_newer_version_counts() -> None:  # T3
    tally = read()
    assert add(tally, A, said("value", 4, b"more", checksum_of(SID, 4, b"more")))
    assert tally.value == b"more"


def test_missing_and_refused_are_waited_out() -> None:
    tally = read()
    assert not add(tally, A, said("missing"))
    assert add(tally, B, BUSY)
    assert tally.answer is None
    assert tally.missing == [A]


@pytest.mark.parametrize("outcome", [said("missing"), BUSY, said("value", 3, b"other", GOOD)])
def test_a_read_asks_others_when_one_has_nothing_to_give(
    outcome: Reply[SessionAnswer] | Refused,
) -> None:
    tally = read()
    assert not tally.needs_others
    add(tally, A, outcome)
    assert tally.needs_others
    add(tally, B, said("value", 3, VALUE, GOOD))
    assert not tally.needs_others


def test_what_a_failed_write_left_at_no_arbiter_is_no_conflict() -> None:  # T2
    tally = WriteTally(Quorum(2), "stored", arbiters=[A, B], version=3)
    tally.awaited = 3
    assert not add(tally, C, said("conflict", 2))
    assert tally.conflict is None
    assert add(tally, A, said("conflict", 2))
    assert tally.conflict is not None
    newer = WriteTally(Quorum(2), "stored", arbiters=[A, B], version=3)
    newer.awaited = 3
    assert add(newer, C, said("conflict", 3))
