"""Who leads, by a row that is shown to it: times written out, and no store.

A term is trusted for 1.5 s; a standby looks every 0.25 s and takes over after 1.825 s.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.lease_timing import LEASE_PRESETS
from roles.election import Candidate, Election, Leading, Taking, Watching
from roles.lease_rows import LEADER, LeaderRow, StoreCorrupt, decode, encode

TIMING = LEASE_PRESETS["lan"]
TTL_S, TAKEOVER_S = TIMING.leader_ttl_s, TIMING.takeover_s
LOOK_S = 0.25


def new_election(name: str = "manager-2") -> Election:
    return Election(Candidate(name, 3, "n2"), TIMING)


def row(term: int, beat: int = 1, *, holder: str = "manager-1", incarnation: int = 7) -> bytes:
    return encode(LeaderRow(term, holder, incarnation, "n1", beat))


def watched(election: Election, shown: bytes | None, since: float, until: float) -> bool:
    """Looks at the same row all the time; whether it may take the lead at the end of that."""
    now, may_take = since, False
    while now < until:
        may_take = election.looked(shown, now)
        now += LOOK_S
    return election.looked(shown, until) or may_take


def leader(asked_at: float = 10.0) -> Election:
    """Leads a new cluster, under term 1."""
    election = new_election()
    assert election.looked(None, asked_at)
    election.take()
    election.taken(asked_at)
    return election


# Taking the lead.


def test_first_to_look_at_an_empty_store_takes_the_first_term_at_once() -> None:  # E2
    election = new_election()
    assert election.look_due(10.0)
    assert election.looked(None, 10.0)
    expect, put = election.take()
    assert expect is None
    assert decode(LeaderRow, LEADER, put) == LeaderRow(1, "manager-2", 3, "n2", 1)
    assert election.state == Taking(put, 1, fresh=True)
    assert election.taken(10.0) == Leading(put, 1, 11.5, 1, fresh=True)


def test_leader_whose_beat_stands_still_is_replaced_and_not_sooner() -> None:  # E1
    election = new_election()
    assert not watched(election, row(4), since=10.0, until=10.0 + TAKEOVER_S - 0.01)
    assert election.looked(row(4), 10.0 + TAKEOVER_S)
    expect, put = election.take()
    assert expect == row(4)
    assert decode(LeaderRow, LEADER, put).term == 5
    assert not election.taken(12.0).fresh


@pytest.mark.parametrize(
    "other", [row(4, beat=2), row(5), row(4, holder="manager-3"), row(4, incarnation=8)]
)
def test_each_change_of_the_row_makes_a_standby_wait_from_the_start(other: bytes) -> None:  # E1
    election = new_election()
    watched(election, row(4), since=10.0, until=11.5)
    assert not watched(election, other, since=11.75, until=11.75 + TAKEOVER_S - 0.01)
    assert election.looked(other, 11.75 + TAKEOVER_S)


def test_beat_that_went_on_and_back_unseen_makes_it_wait_from_the_start() -> None:  # E1
    election = new_election()
    election.looked(row(4), 10.0)
    assert not election.looked(row(4), 10.0 + TAKEOVER_S + 0.01), "it did not look in between"
    assert election.looked(row(4), 10.0 + TAKEOVER_S + 0.01 + TAKEOVER_S)


@given(
    rates=st.tuples(st.floats(0.98, 1.02), st.floats(0.98, 1.02)),
    commit_s=st.floats(0.0, 1.4),
    look_s=st.floats(0.0, 0.5),
)
def test_old_term_has_ended_when_a_standby_may_take_the_next(
    rates: tuple[float, float], commit_s: float, look_s: float
) -> None:  # E1
    """In true time: the leader asks at 0; its beat is in the store at `commit_s`."""
    leads, stands = rates
    old = leader(asked_at=0.0)
    before, after = old.next_row()
    old.committed(after, asked_at=0.0)
    standby = new_election("manager-3")
    standby.looked(before, (commit_s - 0.01) * stands)
    seen_at = commit_s + look_s
    assert not standby.looked(after, seen_at * stands)
    true_s = seen_at
    while not standby.looked(after, true_s * stands):
        true_s += 0.01
    assert not old.trusted(true_s * leads)


# What else ends a term: its holder resigns, or is dead for certain.


@pytest.mark.parametrize("how", ["resigned", "vouched dead"])
def test_term_whose_holder_ended_is_taken_at_once_by_who_looked_all_the_time(how: str) -> None:
    """E1: there was no other leader, or it would have seen it."""
    election = new_election()
    watched(election, row(4), since=10.0, until=11.0)
    watched(election, row(4, beat=2), since=11.25, until=12.0)
    if how == "resigned":
        assert election.looked(row(4, beat=3, holder=""), 12.25)
    else:
        election.vouched_dead("manager-1", 7, 12.1)
        assert election.wake_at == 12.1
        assert election.looked(row(4, beat=2), 12.1)


@pytest.mark.parametrize("ended", [row(4, holder=""), row(4)])
def test_who_has_not_looked_for_long_waits_though_the_holder_ended(ended: bytes) -> None:  # E1
    election = new_election()
    election.vouched_dead("manager-1", 7, 9.0)
    assert not watched(election, ended, since=10.0, until=10.0 + TAKEOVER_S - 0.01)
    assert election.looked(ended, 10.0 + TAKEOVER_S)


def test_row_of_an_ended_holder_is_not_the_last_word_if_a_later_term_is_known() -> None:  # E1
    election = new_election()
    watched(election, row(5), since=10.0, until=13.0)
    back = row(4, holder="")  # The store was rolled back; who holds term 5 does not know it yet.
    assert not watched(election, back, since=13.25, until=13.25 + TAKEOVER_S - 0.01)
    assert election.looked(back, 13.25 + TAKEOVER_S)


@pytest.mark.parametrize(("process", "incarnation"), [("manager-1", 6), ("manager-3", 7)])
def test_death_of_another_life_or_process_is_nothing_to_the_term(
    process: str, incarnation: int
) -> None:  # E1
    election = new_election()
    for beat in range(1, 10):
        election.looked(row(4, beat), 10.0 + beat * LOOK_S)
    election.vouched_dead(process, incarnation, 12.3)
    assert not election.looked(row(4, 9), 12.3)


def test_store_that_lost_its_row_is_not_taken_for_a_new_one() -> None:  # E1, E2
    election = new_election()
    watched(election, row(4), since=10.0, until=11.0)
    assert not watched(election, None, since=11.25, until=11.25 + TAKEOVER_S - 0.01)
    assert election.looked(None, 11.25 + TAKEOVER_S)
    _, put = election.take()
    assert decode(LeaderRow, LEADER, put).term == 5
    assert not election.taken(14.0).fresh


# Terms.


@pytest.mark.parametrize(
    ("in_store", "heard", "next_term"), [(4, 0, 5), (4, 4, 5), (4, 9, 10), (9, 4, 10)]
)
def test_next_term_is_greater_than_all_that_is_known(
    in_store: int, heard: int, next_term: int
) -> None:  # E2
    election = new_election()
    election.heard_of_term(heard)
    assert watched(election, row(in_store), since=10.0, until=12.0)
    expect, put = election.take()
    assert expect == row(in_store)
    assert decode(LeaderRow, LEADER, put).term == next_term


def test_former_leader_does_not_take_its_own_term_again() -> None:  # E2
    election = leader()
    election.step_down(11.0)
    assert not election.looked(None, 11.0)
    assert watched(election, None, since=11.0, until=11.0 + TAKEOVER_S)
    _, put = election.take()
    assert decode(LeaderRow, LEADER, put).term == 2


def test_who_is_still_trusted_may_take_a_greater_term_at_once_and_no_longer_than_that() -> None:
    """E1: nobody else can lead as long as it does."""
    for at, may_take in ((11.49, True), (11.5, False)):
        election = leader(asked_at=10.0)
        mine = election.state
        assert isinstance(mine, Leading)
        election.heard_of_term(8)
        election.step_down(11.0, for_greater_term=True)
        assert not election.trusted(11.0)
        assert election.looked(mine.row, at) == may_take
    election = leader(asked_at=10.0)
    election.step_down(11.0)
    assert not election.looked(row(1), 11.0)


# Leading.


def test_term_is_trusted_from_when_it_was_asked_for() -> None:  # E1
    election = leader(asked_at=10.0)
    assert [election.trusted(now) for now in (10.0, 11.49, 11.5)] == [True, True, False]
    _, after = election.next_row()
    election.committed(after, asked_at=10.5)
    assert [election.trusted(now) for now in (11.5, 11.99, 12.0)] == [True, True, False]


def test_standby_trusts_nothing() -> None:  # E1
    election = new_election()
    assert not election.trusted(10.0)
    election.looked(None, 10.0)
    election.take()
    assert not election.trusted(10.0), "asked for is not given"


def test_leader_beats_a_third_of_a_term_after_it_asked() -> None:
    election = leader(asked_at=10.0)
    assert election.wake_at == 10.5
    assert [election.beat_due(now) for now in (10.49, 10.5)] == [False, True]
    assert not election.look_due(20.0)


def test_row_of_a_commit_is_the_same_until_it_is_known_to_be_made() -> None:  # E3
    election = leader()
    assert isinstance(election.state, Leading)
    first = election.next_row()
    assert first[0] == election.state.row
    assert election.next_row() == first
    election.committed(first[1], asked_at=10.5)
    second = election.next_row()
    assert second[0] == first[1]
    assert [decode(LeaderRow, LEADER, each).beat for each in (*first, second[1])] == [1, 2, 3]


# Looking.


def test_standby_looks_six_times_a_term_and_knows_who_leads() -> None:
    election = new_election()
    assert (election.wake_at, election.term) == (-math.inf, 0)
    election.looked(row(4), 10.0)
    assert (election.wake_at, election.term) == (10.25, 4)
    assert election.holder == LeaderRow(4, "manager-1", 7, "n1", 1)


def test_who_steps_down_looks_at_once_unless_it_is_to_rest() -> None:
    election = leader()
    election.step_down(11.0)
    assert election.state == Watching(None, math.inf)
    assert election.wake_at == 11.0
    election.rest(11.0)
    assert election.wake_at == 12.5


def test_row_that_cannot_be_read_is_corrupt_and_is_looked_at_again() -> None:
    election = new_election()
    with pytest.raises(StoreCorrupt, match="row 'leader'"):
        election.looked(b"\xff", 10.0)
    assert election.wake_at == 10.25


def test_deaths_that_are_remembered_are_bounded() -> None:
    election = new_election()
    for incarnation in range(5000):
        election.vouched_dead("web-1", incarnation, 10.0)
    assert len(election._vouched) <= 1001
