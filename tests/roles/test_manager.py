"""The lease manager's decisions: asks and the store's answers in, whole lists of actions out.

`Rows` is a store in miniature: it carries out what is asked, when the test says so. A term is
trusted for 1.5 s from when it was asked for; leases last 9 s. `Desk` passes what the manager asks
on to the rows at once, and keeps what it says.
"""

import math

import msgspec
import pytest

from bus.lease_timing import LEASE_PRESETS
from roles.assignment import Fixed
from roles.election import Candidate, Leading, Taking
from roles.key_range import KEYS_END
from roles.lease_messages import (
    ASKS_MAX,
    NUMBER_MAX,
    AskLeases,
    AskMap,
    LeaseNudge,
    LeasesAnswered,
    MapAnswered,
    MapDelta,
    MapPart,
    MapSpan,
    MapTip,
    OwnerAnswer,
    OwnerAsk,
    Span,
    decode_part,
)
from roles.lease_namespace import JUMP, Noted
from roles.lease_rows import LEADER, LIFE, LeaderRow, decode, encode
from roles.manager import (
    ANSWERED_MAX,
    INBOX_MAX,
    NAME_LENGTH_MAX,
    NAMESPACES_MAX,
    URL_LENGTH_MAX,
    AnswerLeases,
    AnswerMap,
    AskStore,
    Broadcast,
    Commit,
    Done,
    Failed,
    InDoubt,
    KillHolder,
    Manager,
    ManagerAction,
    Outcome,
    ReadAll,
    ReadLeader,
    StoreOp,
    Tell,
)

TIMING = LEASE_PRESETS["lan"]
TAKEOVER_S = TIMING.takeover_s
HALF = KEYS_END // 2
OPERATIONS_MAX = 128  # Of etcd, in one transaction.
DOWN = Failed("the disk is full")
REPLACED = "another manager leads, or the store was rolled back"


def new_manager(name: str = "manager-1") -> Manager:
    return Manager(Candidate(name, 1, "n1"), TIMING, lambda _: Fixed(), 10.0)


def owner_ask(owner: str = "a", sequence: int = 1, **changes: object) -> OwnerAsk:
    ask = OwnerAsk(
        namespace="ns",
        owner=owner,
        url=f"tcp://{owner}",
        process=f"of-{owner}",
        process_incarnation=1,
        incarnation=1,
        nonce=sum(owner.encode()),
        sequence=sequence,
        seen_term=0,
        seen_revision=0,
        term_max=0,
        number_max=0,
        age_s=0.0,
        leaving=False,
        holds=[],
    )
    return msgspec.structs.replace(ask, **changes)


def after(answer: OwnerAnswer, term: int = 1, **changes: object) -> OwnerAsk:
    """The next ask of who has acted on that answer."""
    number_max = max([0, *(span.number for span in answer.ranges)])
    fields: dict[str, object] = {
        "seen_term": term,
        "seen_revision": answer.revision,
        "term_max": term,
        "number_max": number_max,
        "holds": answer.ranges,
    }
    return owner_ask(answer.owner, answer.sequence + 1, **{**fields, **changes})


class Rows(dict[str, bytes]):
    def do(self, op: StoreOp) -> Done:
        match op:
            case ReadLeader():
                return Done(row=self.get(LEADER))
            case ReadAll():
                return Done(rows=dict(self))
            case Commit(expect=expect, put=put, delete=delete):
                if any(self.get(key) != value for key, value in expect.items()):
                    return Done(committed=False)
                self.update(put)
                for key in delete:
                    self.pop(key, None)
                return Done(committed=True)

    @property
    def leader(self) -> LeaderRow:
        return decode(LeaderRow, LEADER, self[LEADER])


class Desk:
    def __init__(self, manager: Manager | None = None, rows: Rows | None = None) -> None:
        self.manager = manager or new_manager()
        self.rows = Rows() if rows is None else rows
        self.token = 0

    def perform(self, actions: list[ManagerAction], now: float) -> list[ManagerAction]:
        """What is said, once the store has answered all."""
        said: list[ManagerAction] = []
        for action in actions:
            if isinstance(action, AskStore):
                said += self.perform(self.manager.stored(self.rows.do(action.op), now), now)
            else:
                said.append(action)
        return said

    def advance(self, now: float) -> list[ManagerAction]:
        return self.perform(self.manager.advance(now), now)

    def until(self, now: float, until: float) -> list[ManagerAction]:
        """Advances as often as it wants to, and every 0.2 s."""
        said: list[ManagerAction] = []
        while now < until:
            said += self.advance(now)
            now = min(max(now + 0.01, self.manager.wake_at), now + 0.2)
        return said + self.advance(until)

    def asked(self, now: float, *asks: OwnerAsk) -> list[ManagerAction]:
        """Handed over, and no more."""
        self.token += 1
        return self.manager.asked_leases(self.token, AskLeases(list(asks)), now)

    def answered(self, now: float, *asks: OwnerAsk) -> list[OwnerAnswer]:
        said = self.perform(self.asked(now, *asks), now)
        [answer] = [each.message for each in said if isinstance(each, AnswerLeases)]
        return answer.answers

    def one(self, now: float, ask: OwnerAsk) -> OwnerAnswer:
        [answer] = self.answered(now, ask)
        return answer


def leading(rows: Rows | None = None) -> Desk:
    """Leads a new cluster since 10.0."""
    desk = Desk(rows=rows)
    said = desk.advance(10.0)
    assert said == [Tell(Noted("leading", "manager-1", "term 1")), Broadcast(MapTip(1, []))]
    return desk


def op_of(actions: list[ManagerAction]) -> StoreOp:
    [op] = [action.op for action in actions if isinstance(action, AskStore)]
    return op


def commit_of(actions: list[ManagerAction]) -> Commit:
    op = op_of(actions)
    assert isinstance(op, Commit)
    return op


def standby_said(token: int, term: int) -> AnswerLeases:
    return AnswerLeases(token, LeasesAnswered(term, leading=False, answers=[]))


def told(actions: list[ManagerAction], kind: str) -> list[str]:
    return [
        action.note.reason
        for action in actions
        if isinstance(action, Tell) and action.note.kind == kind
    ]


# What may be said, and when.


def test_nothing_is_said_before_it_is_committed_and_all_of_it_after() -> None:  # G1
    desk = leading()
    actions = desk.asked(10.1, owner_ask())
    op = commit_of(actions)
    assert actions == [AskStore(op)]
    assert desk.manager.asked_map(7, AskMap("ns", 0, -1), 10.2) == []
    assert desk.manager.wake_at == math.inf
    whole = MapPart([("a", "tcp://a")], [MapSpan(0, KEYS_END - 1, 1, 0, 0)])
    said = desk.perform(desk.manager.stored(desk.rows.do(op), 10.3), 10.3)
    answer = OwnerAnswer("ns", "a", 97, 1, 3, "", [Span(0, KEYS_END - 1, 1, 0)])
    body = msgspec.msgpack.encode(whole)
    assert said == [
        Broadcast(MapDelta("ns", 1, 1, 1, 0, body)),
        Broadcast(LeaseNudge(1, "ns", ["a"])),
        Tell(Noted("joined", "a", "owner of ns, at tcp://a")),
        AnswerLeases(1, LeasesAnswered(1, leading=True, answers=[answer])),
        AnswerMap(
            7,
            MapAnswered("ns", 1, leading=True, whole=True, version_term=1, version_lsn=1),
            body,
        ),
    ]


@pytest.mark.parametrize(("late", "leads"), [(11.59, True), (11.6, False), (20.0, False)])
def test_commit_that_outlasts_the_term_is_not_spoken_of(late: float, *, leads: bool) -> None:  # G1
    desk = leading()
    commit = commit_of(desk.asked(10.1, owner_ask()))
    said = desk.manager.stored(desk.rows.do(commit), late)
    assert desk.manager.leading == leads
    if not leads:
        assert said == [
            standby_said(1, 1),
            Tell(Noted("stepped-down", "manager-1", "the commit took longer than the term lasts")),
        ]


@pytest.mark.parametrize(("now", "leads"), [(11.49, True), (11.5, False)])
def test_leader_that_slept_through_its_term_says_nothing_more(now: float, *, leads: bool) -> None:
    """G1: not even what takes no commit."""
    desk = leading()
    said = desk.perform(desk.manager.asked_map(7, AskMap("ns", 0, -1), now), now)
    said += desk.advance(now)
    assert [each.message.leading for each in said if isinstance(each, AnswerMap)] == [leads]
    slept = [] if leads else ["the store did not answer in time"]
    assert told(said, "stepped-down") == slept


def test_renewal_takes_no_commit() -> None:
    desk = leading()
    first = desk.one(10.1, owner_ask())
    [action] = desk.asked(10.2, after(first))
    assert isinstance(action, AnswerLeases)
    assert action.message.answers[0].ranges == first.ranges


# The store, and who may write to it.


def test_every_commit_names_the_row_it_expects_and_puts_the_next() -> None:  # G2
    desk = leading()
    for number, now in enumerate((10.1, 10.2, 10.3)):
        before = desk.rows[LEADER]
        commit = commit_of(desk.asked(now, owner_ask(f"{number}")))
        assert commit.expect == {LEADER: before}
        beat = decode(LeaderRow, LEADER, commit.put[LEADER]).beat
        assert beat == decode(LeaderRow, LEADER, before).beat + 1
        desk.perform(desk.manager.stored(desk.rows.do(commit), now), now)


def test_leader_that_was_replaced_commits_nothing_and_all_who_wait_hear_so() -> None:  # G2
    desk = leading()
    first = commit_of(desk.asked(10.1, owner_ask("a")))
    assert desk.manager.asked_map(7, AskMap("ns", 0, -1), 10.1) == []
    assert desk.asked(10.1, owner_ask("b")) == []
    second = commit_of(desk.manager.stored(desk.rows.do(first), 10.2))
    desk.rows[LEADER] = encode(LeaderRow(2, "manager-2", 1, "n2", 1))
    kept = dict(desk.rows)
    assert desk.manager.stored(desk.rows.do(second), 10.3) == [
        standby_said(2, 1),
        AnswerMap(7, MapAnswered("ns", 1, leading=False), b""),
        Tell(Noted("stepped-down", "manager-1", REPLACED)),
    ]
    assert desk.rows == kept
    assert desk.advance(10.3) == []
    assert desk.manager.election.term == 2


def test_leader_beats_though_nothing_changes() -> None:
    desk = leading()
    desk.until(10.0, 20.0)
    assert desk.manager.leading
    assert desk.rows.leader.beat >= 20


# A takeover.


def test_new_leader_reads_the_store_after_it_took_the_term() -> None:  # G3
    manager, rows = new_manager(), Rows()
    assert manager.advance(10.0) == [AskStore(ReadLeader())]
    take = commit_of(manager.stored(rows.do(ReadLeader()), 10.1))
    assert take.expect == {LEADER: None}
    assert list(take.put) == [LEADER]
    assert manager.stored(rows.do(take), 10.2) == [AskStore(ReadAll())]
    assert not manager.leading
    assert manager.asked_leases(1, AskLeases([owner_ask()]), 10.2) == []
    manager.stored(rows.do(ReadAll()), 10.3)
    assert manager.leading
    assert leads_until(manager) == 11.6, "from when it asked for the term"


@pytest.mark.parametrize(("late", "leads"), [(11.59, True), (11.6, False)])
def test_reading_that_outlasts_the_term_ends_it(late: float, *, leads: bool) -> None:  # G1
    manager, rows = new_manager(), Rows()
    manager.advance(10.0)
    take = op_of(manager.stored(rows.do(ReadLeader()), 10.1))
    manager.stored(rows.do(take), 10.2)
    said = manager.stored(rows.do(ReadAll()), late)
    assert manager.leading == leads
    assert told(said, "leading") == (["term 1"] if leads else [])


def leading_with_two_owners() -> Desk:
    """a has the lower half and b the upper one, since 10.1."""
    desk = leading()
    a, b = desk.one(10.1, owner_ask("a")), desk.one(10.1, owner_ask("b"))
    a = desk.one(10.1, after(a))
    a = desk.one(10.1, after(a))
    b = desk.one(10.1, after(b))
    assert [span.start for span in (*a.ranges, *b.ranges)] == [0, HALF]
    return desk


def test_store_holds_all_that_a_new_leader_has_to_know() -> None:  # G3
    desk = leading_with_two_owners()
    as_in_the_store(desk)
    desk.answered(10.2, owner_ask("c"), owner_ask("d", namespace="other"))
    as_in_the_store(desk)
    desk.perform(desk.manager.vouched_dead("of-b", 1, 10.3), 10.3)
    as_in_the_store(desk)
    desk.one(10.4, owner_ask("a", incarnation=2, nonce=7))
    as_in_the_store(desk)
    desk.until(10.4, 30.0)
    as_in_the_store(desk)


def as_in_the_store(desk: Desk) -> None:
    successor = Desk(new_manager("manager-2"), Rows(desk.rows))
    successor.until(100.0, 102.0)
    assert successor.manager.leading
    for name, namespace in desk.manager.namespaces.items():
        found = successor.manager.namespaces[name]
        assert (found.version, found.whole()) == (namespace.version, namespace.whole())
        assert found._row() == namespace._row()
        lives = {key: life.superseded for key, life in namespace.lives.items()}
        assert {key: life.superseded for key, life in found.lives.items()} == lives


def test_store_that_cannot_be_understood_is_led_by_nobody() -> None:  # G3
    rows = leading_with_two_owners().rows
    rows[next(key for key in rows if key.startswith(LIFE))] = b"garbage"
    desk = Desk(new_manager("manager-2"), rows)
    said = desk.until(100.0, 100.0 + TAKEOVER_S + 0.2)
    assert not desk.manager.leading
    [reason] = told(said, "degraded")
    assert reason.startswith("the store cannot be understood: row 'life/ns/")
    assert desk.manager.wake_at > 103.0, "it rests, so that another may try"


# A store in trouble.


def test_failure_is_told_once_and_tried_again_until_the_term_ends() -> None:  # G5
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    assert desk.manager.stored(DOWN, 10.2) == [
        Tell(Noted("degraded", "manager-1", "the disk is full"))
    ]
    now = 10.2
    while now < 11.45:
        assert desk.manager.wake_at == pytest.approx(now + 0.05)
        assert desk.manager.advance(now + 0.04) == []
        now += 0.05
        assert desk.manager.advance(now) == [AskStore(op)]
        assert desk.manager.stored(DOWN, now) == []
        assert desk.manager.leading
    assert desk.manager.advance(11.51) == [
        standby_said(1, 1),
        Tell(Noted("stepped-down", "manager-1", "the disk is full")),
    ]


def test_term_counts_from_the_try_that_succeeded() -> None:  # G5
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    desk.manager.stored(DOWN, 10.5)
    desk.manager.advance(10.6)
    desk.manager.stored(desk.rows.do(op), 10.7)
    assert leads_until(desk.manager) == 12.1


def leads_until(manager: Manager) -> float:
    assert isinstance(manager.election.state, Leading)
    return manager.election.state.trusted_until


@pytest.mark.parametrize("first_was_made", [True, False])
def test_commit_in_doubt_is_tried_again_unchanged_and_counts_from_its_first_try(
    *, first_was_made: bool
) -> None:  # E3, G1
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    if first_was_made:
        desk.rows.do(op)
    assert desk.manager.stored(InDoubt(), 10.3) == [
        Tell(Noted("degraded", "manager-1", "the store did not answer"))
    ]
    assert desk.manager.advance(10.4) == [AskStore(op)]
    actions = desk.manager.stored(desk.rows.do(op), 10.5)
    if first_was_made:
        assert actions == [AskStore(ReadLeader())], "was it ours that made this one fail?"
        actions = desk.manager.stored(desk.rows.do(ReadLeader()), 10.5)
    [answer] = [each.message for each in actions if isinstance(each, AnswerLeases)]
    assert answer.leading
    assert leads_until(desk.manager) == 11.6


def test_commit_in_doubt_that_another_prevented_ends_the_term() -> None:  # E3, G2
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    desk.rows[LEADER] = encode(LeaderRow(2, "manager-2", 1, "n2", 1))
    desk.manager.stored(InDoubt(), 10.3)
    desk.manager.advance(10.4)
    assert desk.manager.stored(desk.rows.do(op), 10.5) == [AskStore(ReadLeader())]
    said = desk.manager.stored(desk.rows.do(ReadLeader()), 10.5)
    assert said == [standby_said(1, 1), Tell(Noted("stepped-down", "manager-1", REPLACED))]


def test_doubt_does_not_outlast_the_term() -> None:  # E3, G1
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    desk.rows.do(op)
    desk.manager.stored(InDoubt(), 10.3)
    desk.manager.advance(10.4)
    desk.manager.stored(desk.rows.do(op), 10.5)
    said = desk.manager.stored(desk.rows.do(ReadLeader()), 11.6)
    assert said[0] == standby_said(1, 1)
    assert not desk.manager.leading


def test_standby_whose_look_fails_looks_again_and_waits_from_the_start() -> None:  # G5
    rows = Rows({LEADER: encode(LeaderRow(4, "manager-2", 1, "n2", 1))})
    desk = Desk(rows=rows)
    desk.until(10.0, 11.0)
    now = desk.manager.wake_at
    assert desk.manager.advance(now) == [AskStore(ReadLeader())]
    desk.manager.stored(DOWN, now)
    desk.until(now, now + TAKEOVER_S - 0.01)
    assert not desk.manager.leading
    desk.until(now + TAKEOVER_S, now + TAKEOVER_S + 0.5)
    assert desk.manager.leading


def test_lead_is_not_tried_for_ever_from_a_store_that_is_full() -> None:  # G5
    manager, rows = new_manager(), Rows()
    manager.advance(10.0)
    op = op_of(manager.stored(rows.do(ReadLeader()), 10.0))
    now = 10.0
    while isinstance(manager.election.state, Taking):
        manager.stored(DOWN, now)
        now += 0.5
        assert now < 42.0
        manager.advance(now)
    assert now >= 40.0
    assert isinstance(op, Commit)


def test_stopped_process_that_locks_the_store_is_killed_once_and_again_if_that_did_not_help() -> (
    None
):
    rows = Rows({LEADER: encode(LeaderRow(4, "manager-2", 9, "n2", 1))})
    desk = Desk(rows=rows)
    now = 10.0
    while not isinstance(desk.manager.election.state, Taking):
        actions = desk.manager.advance(now)
        if actions:
            desk.manager.stored(rows.do(op_of(actions)), now)
        now += 0.25
    killed = []
    for _ in range(100):
        actions = desk.manager.stored(Failed("locked", locked=True), now)
        killed += [(each, now) for each in actions if isinstance(each, KillHolder)]
        now += 0.05
        desk.manager.advance(now)
    kills = [kill for kill, _ in killed]
    assert kills == [KillHolder("manager-2", "n2")] * 3
    assert killed[1][1] - killed[0][1] >= TIMING.leader_ttl_s


# A store that was rolled back.


@pytest.mark.parametrize(("term_max", "next_term"), [(1, 2), (5, 6)])
def test_term_that_an_owner_obeyed_elsewhere_is_exceeded_at_once(
    term_max: int, next_term: int
) -> None:  # G6
    desk = leading()
    said = desk.perform(desk.asked(10.1, owner_ask(term_max=term_max)), 10.1)
    said += desk.advance(10.1)
    assert told(said, "stepped-down") == [
        "the store was rolled back: others know this term, or a greater one"
    ]
    assert told(said, "leading") == [f"term {next_term}"]
    assert desk.rows.leader.term == next_term
    assert desk.one(10.2, owner_ask(sequence=2, term_max=term_max)).ranges == [], "not at once: N4"
    assert desk.rows.leader.term == next_term


@pytest.mark.parametrize("term_max", [NUMBER_MAX, 1 << 63])
def test_absurd_term_is_ignored(term_max: int) -> None:  # G6
    desk = leading()
    assert desk.answered(10.1, owner_ask(term_max=term_max)) == []
    assert (desk.manager.leading, desk.manager.ignored) == (True, 1)


def test_number_that_the_store_forgot_is_jumped_over() -> None:  # G6
    desk = leading()
    said = desk.perform(desk.asked(10.1, owner_ask(number_max=1000)), 10.1)
    assert told(said, "rolled-back") == ["a knows number 1000, the store only 0"]
    desk.until(10.2, 19.2)
    [span] = desk.one(19.2, owner_ask(sequence=2)).ranges
    assert span.number > 1000 + JUMP


@pytest.mark.parametrize(
    ("known", "term", "rolled_back"),
    [
        ((1, 1), 1, 0),  # The very version that we have.
        ((1, 9), 2, 1),  # Of our own term, and we never made it: it takes another.
        ((4, 1), 5, 1),
        ((0, 9), 1, 1),  # Of an earlier term than ours.
        ((0, -1), 1, 0),
        ((NUMBER_MAX, 1), 1, 0),
    ],
)
def test_version_that_a_lookup_knows_was_committed_once(
    known: tuple[int, int], term: int, rolled_back: int
) -> None:  # G6
    desk = leading()
    desk.one(10.1, owner_ask())
    said: list[ManagerAction] = []
    for now in (10.2, 10.3, 10.4):
        said += desk.perform(desk.manager.asked_map(7, AskMap("ns", *known), now), now)
        said += desk.advance(now)
    assert desk.rows.leader.term == term
    assert len(told(said, "rolled-back")) == rolled_back


def test_owner_that_obeyed_another_leader_of_this_very_term_is_believed() -> None:  # G6
    """Though the store knows its life: it had no answer of ours."""
    desk = Desk(new_manager("manager-2"), leading_with_two_owners().rows)
    desk.until(100.0, 102.0)
    assert desk.rows.leader.term == 2
    desk.perform(desk.asked(102.0, owner_ask("a", sequence=9, term_max=2)), 102.0)
    desk.advance(102.0)
    assert desk.rows.leader.term == 3


def strangers(desk: Desk, first: int, count: int) -> None:
    """Owners that have left already: they are answered, and not kept."""
    for nonce in range(first, first + count, ASKS_MAX):
        asks = [owner_ask("x", nonce=nonce + n, leaving=True) for n in range(ASKS_MAX)]
        assert len(desk.answered(10.2, *asks)) == ASKS_MAX


def test_life_that_is_refused_is_known_as_long_as_it_asks() -> None:  # G6
    desk = leading()
    desk.one(10.1, owner_ask("a"))
    for sequence in range(1, 5):
        term_max = 1 if sequence > 1 else 0
        double = owner_ask("a", sequence=sequence, nonce=7, term_max=term_max)
        assert desk.one(10.2, double).refused == "two processes use this id"
        strangers(desk, 1000 + sequence * ANSWERED_MAX, ANSWERED_MAX // 2)
    assert desk.rows.leader.term == 1


def test_owner_of_this_term_is_known_by_its_answer_however_many_came_after() -> None:  # G6
    desk = leading()
    stays = desk.one(10.1, owner_ask("stays"))
    gone = desk.one(10.1, owner_ask("gone", leaving=True))
    strangers(desk, 1000, ANSWERED_MAX)
    assert len(desk.manager._answered) <= ANSWERED_MAX
    assert desk.one(10.3, after(stays)).ranges == stays.ranges
    assert desk.rows.leader.term == 1
    desk.perform(desk.asked(10.3, after(gone, leaving=True)), 10.3)
    desk.advance(10.3)
    assert desk.rows.leader.term == 2, "one that is gone is forgotten, and costs a term"


# Limits.


def test_what_waits_is_bounded_and_the_rest_is_counted() -> None:  # G4
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    for _ in range(INBOX_MAX + 5):
        assert desk.manager.asked_map(7, AskMap("ns", 0, -1), 10.2) == []
    assert desk.manager.ignored == 5
    said = desk.perform(desk.manager.stored(desk.rows.do(op), 10.3), 10.3)
    assert sum(isinstance(each, AnswerMap) for each in said) == INBOX_MAX


def test_crowd_is_committed_in_parts_that_any_store_takes() -> None:  # G4
    desk = leading()
    op: StoreOp = op_of(desk.asked(10.1, owner_ask()))
    for message in range(20):
        asks = [owner_ask(f"{message}/{n}", nonce=message * 100 + n) for n in range(ASKS_MAX)]
        desk.asked(10.1, *asks)
    commits, answered = 0, 0
    while True:
        assert isinstance(op, Commit)
        assert len(op.expect) + len(op.put) + len(op.delete) <= OPERATIONS_MAX
        commits += 1
        actions = desk.manager.stored(desk.rows.do(op), 10.2)
        answered += sum(isinstance(each, AnswerLeases) for each in actions)
        if not any(isinstance(each, AskStore) for each in actions):
            break
        op = op_of(actions)
    assert answered == 21
    assert commits >= 20 * ASKS_MAX / OPERATIONS_MAX
    assert len(desk.manager.namespaces["ns"].lives) == 20 * ASKS_MAX + 1


def test_end_of_many_namespaces_owners_is_committed_in_parts_too() -> None:  # G4
    desk = leading()
    count = 5 * ASKS_MAX
    for first in range(0, count, ASKS_MAX):
        numbers = range(first, first + ASKS_MAX)
        desk.answered(10.1, *(owner_ask(namespace=f"{n}", nonce=n) for n in numbers))
    desk.until(10.1, 19.0)
    actions = desk.manager.advance(19.1)
    commits = 0
    while any(isinstance(each, AskStore) for each in actions):
        commit = commit_of(actions)
        assert len(commit.expect) + len(commit.put) + len(commit.delete) <= OPERATIONS_MAX
        commits += 1
        actions = desk.manager.stored(desk.rows.do(commit), 19.1)
    assert commits >= 2 * count / OPERATIONS_MAX
    assert [key for key in desk.rows if key.startswith(LIFE)] == []


def test_message_with_too_many_asks_is_answered_in_part() -> None:  # G4
    desk = leading()
    asks = [owner_ask(f"{n}", nonce=n) for n in range(ASKS_MAX + 3)]
    assert len(desk.answered(10.1, *asks)) == ASKS_MAX
    assert desk.manager.ignored == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "x" * (NAME_LENGTH_MAX + 1)},
        {"url": "x" * (URL_LENGTH_MAX + 1)},
        {"namespace": "x" * (NAME_LENGTH_MAX + 1)},
        {"namespace": ""},
    ],
)
def test_names_that_are_too_long_or_empty_get_no_answer(changes: dict[str, object]) -> None:  # G4
    desk = leading()
    assert desk.answered(10.1, msgspec.structs.replace(owner_ask(), **changes)) == []
    assert (desk.manager.ignored, desk.manager.namespaces) == (1, {})


def test_only_so_many_namespaces_begin() -> None:  # G4
    desk = leading()
    names = [f"{number}" for number in range(NAMESPACES_MAX + 1)]
    answers: list[OwnerAnswer] = []
    for first in range(0, len(names), ASKS_MAX):
        batch = [owner_ask(namespace=name, nonce=int(name)) for name in names[first:][:ASKS_MAX]]
        answers += desk.answered(10.1, *batch)
    assert [answer.namespace for answer in answers] == names
    assert [answer.refused for answer in answers[:-1]] == [""] * NAMESPACES_MAX
    assert "namespaces already" in answers[-1].refused


def test_lookups_leave_room_for_the_namespaces_of_owners() -> None:  # G4
    desk = leading()
    for number in range(NAMESPACES_MAX):
        desk.manager.asked_map(number, AskMap(f"junk-{number}", 0, 1), 10.1)
        desk.manager.advance(10.1)
    assert len(desk.manager.namespaces) <= NAMESPACES_MAX // 2


# What is broadcast, and what standbys say.


def test_tip_names_every_version_twice_a_second() -> None:
    desk = leading()
    desk.one(10.1, owner_ask())
    tips = [each for each in desk.until(10.2, 12.2) if isinstance(each, Broadcast)]
    assert tips == [Broadcast(MapTip(1, [("ns", 1, 1)]))] * 4


def test_standby_answers_that_it_does_not_lead_and_who_does_is_known_by_its_term() -> None:
    rows = Rows({LEADER: encode(LeaderRow(4, "manager-2", 1, "n2", 1))})
    desk = Desk(rows=rows)
    desk.advance(10.0)
    assert desk.asked(10.1, owner_ask()) == [standby_said(1, 4)]
    answer = MapAnswered("ns", 4, leading=False)
    assert desk.manager.asked_map(7, AskMap("ns", 0, -1), 10.1) == [AnswerMap(7, answer, b"")]
    assert desk.manager.explain("ns", 0, 10.1) is None


def test_map_of_a_namespace_without_owners_is_empty_and_whole() -> None:
    desk = leading()
    [answer] = desk.manager.asked_map(7, AskMap("none", 0, -1), 10.1)
    assert isinstance(answer, AnswerMap)
    assert answer.message == MapAnswered("none", 1, leading=True, whole=True)
    assert decode_part(answer.body) == MapPart([], [MapSpan(0, KEYS_END - 1, 0, 0, -1)])
    assert desk.manager.namespaces == {}


def test_keys_of_an_owner_vouched_dead_pass_on_at_once() -> None:
    desk = leading_with_two_owners()
    said = desk.perform(desk.manager.vouched_dead("of-b", 1, 10.2), 10.2)
    assert told(said, "expired") == ["vouched dead, in ns"]
    explained = desk.manager.explain("ns", HALF, 10.2)
    assert explained is not None
    assert explained.owner == "a"


# Resigning: whatever the store is at.


def test_leader_that_resigns_gives_the_lead_to_the_next_at_once() -> None:  # E1
    desk = leading()
    standby = Desk(new_manager("manager-2"), desk.rows)
    for step in range(30):
        standby.advance(10.1 + step / 10)
        desk.advance(10.1 + step / 10)
    actions = desk.manager.resign(13.1)
    assert told(actions, "stepped-down") == ["told to end"]
    op = op_of(actions)
    assert not desk.manager.election.trusted(13.1), "from before the store has it"
    assert not desk.manager.resigned
    assert desk.manager.stored(desk.rows.do(op), 13.2) == []
    assert (desk.manager.resigned, desk.manager.wake_at) == (True, math.inf)
    assert desk.rows.leader.holder == ""
    standby.until(13.2, 13.5)
    assert standby.manager.leading


def test_resigned_manager_answers_as_a_standby_and_never_stands_again() -> None:
    desk = leading()
    desk.perform(desk.manager.resign(10.1), 10.1)
    [answer] = desk.asked(10.2, owner_ask())
    assert isinstance(answer, AnswerLeases)
    assert not answer.message.leading
    assert desk.until(10.2, 20.0) == []
    assert desk.rows.leader.holder == ""
    assert desk.manager.resign(20.0) == []
    assert desk.manager.resigned


def test_standby_that_resigns_has_nothing_to_give_away() -> None:
    desk = Desk(rows=Rows({LEADER: encode(LeaderRow(4, "manager-2", 1, "n2", 1))}))
    desk.advance(10.0)
    kept = dict(desk.rows)
    assert desk.manager.resign(10.1) == []
    assert desk.manager.resigned
    assert desk.until(10.1, 20.0) == []
    assert desk.rows == kept


def test_commit_that_is_under_way_is_made_and_answered_before_the_lead_is_given_away() -> None:
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    assert desk.manager.resign(10.2) == []
    assert not desk.manager.resigned
    actions = desk.manager.stored(desk.rows.do(op), 10.3)
    [answer] = [each.message for each in actions if isinstance(each, AnswerLeases)]
    assert (answer.leading, len(answer.answers)) == (True, 1)
    assert desk.perform([AskStore(op_of(actions))], 10.3) == []
    assert desk.manager.resigned
    assert desk.rows.leader.holder == ""
    assert any(key.startswith(LIFE) for key in desk.rows)


@pytest.mark.parametrize("outcome", [DOWN, InDoubt(), Done(committed=False)])
def test_commit_that_goes_wrong_while_it_resigns_ends_in_peace(outcome: Outcome) -> None:
    desk = leading()
    op = op_of(desk.asked(10.1, owner_ask()))
    desk.manager.resign(10.2)
    said = desk.manager.stored(outcome, 10.3)
    now = 10.3
    while not desk.manager.resigned:
        now += 0.05
        assert now < 12.0
        actions = desk.manager.advance(now)
        said += actions
        for each in actions:
            if isinstance(each, AskStore):
                assert each.op == op, "the same until it is known"
                said += desk.manager.stored(outcome, now)
    answers = [each for each in said if isinstance(each, AnswerLeases)]
    assert answers == [standby_said(1, 1)]
    assert desk.until(now, 20.0) == []


def test_lead_that_cannot_be_given_away_is_tried_for_a_term_and_no_longer() -> None:  # G5
    desk = leading()
    op = op_of(desk.manager.resign(10.1))
    desk.manager.stored(DOWN, 10.2)
    now = 10.2
    while not desk.manager.resigned:
        now += 0.05
        assert now < 11.7
        if desk.manager.advance(now) == [AskStore(op)]:
            desk.manager.stored(DOWN, now)
    assert now > 11.5


@pytest.mark.parametrize("outcome", [Done(), DOWN, InDoubt()])
def test_look_that_is_under_way_leads_to_nothing_once_it_resigned(outcome: Outcome) -> None:
    desk = Desk()
    assert desk.manager.advance(10.0) == [AskStore(ReadLeader())]
    desk.manager.resign(10.1)
    desk.manager.stored(outcome, 10.2)
    assert desk.until(10.3, 15.0) == []
    assert (desk.manager.resigned, desk.rows) == (True, {})


@pytest.mark.parametrize("stage", [1, 2])
def test_lead_that_was_just_being_taken_is_given_away(stage: int) -> None:
    """1: the store is asked for it; 2: it is given, and the rows are read."""
    desk = Desk()
    op = op_of(desk.manager.advance(10.0))
    for _ in range(stage):
        op = op_of(desk.manager.stored(desk.rows.do(op), 10.0))
    assert desk.manager.resign(10.1) == []
    said = desk.perform([AskStore(op)], 10.2)
    assert told(said, "leading") == []
    assert desk.manager.resigned
    assert (desk.rows.leader.holder, desk.rows.leader.term) == ("", 1)


def test_lead_that_is_being_taken_in_vain_is_given_up_once_it_resigned() -> None:
    desk = Desk()
    op = op_of(desk.manager.advance(10.0))
    desk.manager.stored(desk.rows.do(op), 10.0)
    desk.manager.resign(10.1)
    desk.manager.stored(DOWN, 10.2)
    assert desk.until(10.25, 15.0) == []
    assert (desk.manager.resigned, desk.rows) == (True, {})


@pytest.mark.parametrize(
    "ask",
    [
        AskMap("ns", 1, 1 << 33),
        AskMap("ns", 1 << 40, 1),
        AskMap("ns", 0, -1, 1 << 40),
        AskMap("ns", 1 << 62, 1 << 62, 1 << 62),
    ],
)
def test_what_a_lookup_cannot_know_is_ignored_and_counted(ask: AskMap) -> None:  # G6
    desk = leading()
    term, ignored = desk.manager.election.term, desk.manager.ignored
    desk.manager.asked_map(7, ask, 10.1)
    desk.manager.advance(10.1)
    assert desk.manager.leading
    assert desk.manager.election.term == term
    assert desk.manager.ignored == ignored + 1
