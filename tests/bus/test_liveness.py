"""Who is there, who is suspect, who is dead: one rule a test.

Method: no fixture but a table and hand-written times. Everyone's period is 1 s, so a peer is
missing after 2.5 s, suspect after 3 s, dead after 4 s; `Observer` beats the drum: it lets time
pass in the steps the table asks for, and lets chosen peers beacon meanwhile.
"""

import math
from collections.abc import Iterable

import msgspec
import pytest

from bus import liveness
from bus.identity import INCARNATION_MAX
from bus.liveness import FORGET_S, PEERS_MAX, PINGS_MAX, Liveness
from bus.messages import Beacon, State
from bus.peers import (
    Appeared,
    Died,
    Forgotten,
    HubsSuspected,
    HubsTrusted,
    Left,
    Output,
    Peer,
    PingPeer,
    Replaced,
    ResignTo,
    Returned,
    StateChanged,
    Suspected,
)

ME = "stub-1"
BEACON = Beacon(
    "brick",
    "n1",
    77,
    "tcp://127.0.0.1:9",
    "live",
    5.0,
    0,
    linked=False,
    period_s=1.0,
    metrics_url="",
    statistics={},
)


def beacon(state: State = "live", **changed: object) -> Beacon:
    return msgspec.structs.replace(BEACON, state=state, **changed)


class Observer:
    """A table, the present time, and all it has said so far, each with its time."""

    def __init__(self, peers: Iterable[str] = (), *, echo: bool = True) -> None:
        self.now = 100.0
        self.echo = echo
        self.table = Liveness(ME, 50, period_s=1.0, now=self.now)
        self.said: list[tuple[float, Output]] = []
        self.said_by: dict[str, Beacon] = {}  # By a peer, if not the plain beacon.
        for peer in peers:
            self.table.heard(peer, 1, BEACON, self.now)

    def pass_time(
        self, seconds: float, *, beating: Iterable[str] = (), answering: str = ""
    ) -> None:
        """Wake the table when it asks; `beating` beacon every second, `answering` answers pings."""
        beating = [*beating, *([ME] if self.echo else [])]
        end, beat_at = self.now + seconds, self.now + 1.0
        while min(beat_at, self.table.wake_at) <= end + 1e-9:
            self.now = max(self.now, min(beat_at, self.table.wake_at))  # Late, after a stop.
            if self.now >= beat_at:
                for peer in beating:
                    life = 50 if peer == ME else 1
                    said = self.said_by.get(peer, BEACON)
                    self._note(self.table.heard(peer, life, said, self.now))
                beat_at += 1.0
            for output in self._note(self.table.advance(self.now)):
                if isinstance(output, PingPeer) and output.id == answering:
                    self._note(self.table.answered(answering, 1, self.now))
        self.now = end

    def _note(self, outputs: list[Output]) -> list[Output]:
        self.said += [(self.now - 100.0, output) for output in outputs]
        return outputs

    def changes(self) -> list[Output]:
        return [output for _, output in self.said if not isinstance(output, PingPeer)]

    def state(self, peer_id: str) -> str:
        peer = self.table.peer(peer_id)
        return "unknown" if peer is None else peer.state


OTHERS = ("hub-1", "hub-2", "node-1")


def test_first_beacon_makes_a_peer_known_with_all_it_says() -> None:
    observer = Observer()
    said = beacon(
        "starting", statistics={"cpu": 0.5}, restarts=2, metrics_url="http://127.0.0.1:1/"
    )
    assert observer.table.heard("brick-1", 7, said, 101.0) == [Appeared("brick-1", 7)]
    assert observer.table.peers() == [
        Peer(
            id="brick-1",
            incarnation=7,
            state="starting",
            heard_at=101.0,
            role="brick",
            node="n1",
            pid=77,
            endpoint="tcp://127.0.0.1:9",
            linked=False,
            restarts=2,
            age_s=5.0,
            metrics_url="http://127.0.0.1:1/",
            statistics={"cpu": 0.5},
        )
    ]


def test_peers_that_beacon_stay_live_and_nothing_is_said() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(60, beating=[*OTHERS, "brick-1"])
    assert observer.said == []
    assert [peer.state for peer in observer.table.peers()] == ["live"] * 4


def test_silent_peer_is_suspect_and_pinged_after_three_periods_and_dead_one_later() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(6, beating=OTHERS)
    endpoint = BEACON.endpoint
    reason = "silent for 4.0 s, ping unanswered"
    assert [output for _, output in observer.said] == [
        Suspected("brick-1", 1),
        PingPeer("brick-1", endpoint),
        PingPeer("brick-1", endpoint),
        Died("brick-1", 1, reason, vouched=False),
    ]
    times = [at for at, _ in observer.said]
    assert times == pytest.approx([3.0, 3.0, 3.5, 4.0], abs=0.13)
    assert observer.state("brick-1") == "dead"


def test_peer_that_promises_a_slower_pace_is_awaited_at_that_pace() -> None:
    observer = Observer(OTHERS)
    observer.table.heard("slow-1", 1, beacon(period_s=5.0), observer.now)
    observer.pass_time(14.9, beating=OTHERS)
    assert observer.changes() == []
    observer.pass_time(5.5, beating=OTHERS)
    assert [type(change) for change in observer.changes()] == [Suspected, Died]


def test_peer_that_changes_its_pace_is_awaited_at_the_new_one() -> None:
    observer = Observer([*OTHERS, "slow-1"])
    observer.table.heard("slow-1", 1, beacon(period_s=5.0), observer.now)
    observer.pass_time(14.9, beating=OTHERS)
    assert observer.changes() == []


@pytest.mark.parametrize(("promised_s", "dead_s"), [(1e-9, 0.2), (1e9, 240.0)])
def test_absurd_pace_is_not_taken_at_its_word(promised_s: float, dead_s: float) -> None:
    observer = Observer(OTHERS)
    observer.table.heard("liar-1", 1, beacon(period_s=promised_s), observer.now)
    observer.pass_time(dead_s - 0.1, beating=OTHERS)
    assert not any(isinstance(change, Died) for change in observer.changes())
    observer.pass_time(1.1, beating=OTHERS)
    assert any(isinstance(change, Died) for change in observer.changes())


def test_silent_peer_that_answers_pings_is_not_suspect_and_is_pinged_each_period() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(10, beating=OTHERS, answering="brick-1")
    assert observer.changes() == [Suspected("brick-1", 1), Returned("brick-1", 1, "ping")]
    pings = [at for at, output in observer.said if isinstance(output, PingPeer)]
    assert pings == pytest.approx([3, 4, 5, 6, 7, 8, 9, 10], abs=0.2 * 8)
    assert 7 <= len(pings) <= 8
    assert observer.state("brick-1") == "live"


def test_peer_that_answered_and_then_stops_is_suspect_again_and_dies() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(5, beating=OTHERS, answering="brick-1")
    observer.pass_time(4, beating=OTHERS)
    assert [type(change) for change in observer.changes()] == [Suspected, Returned, Suspected, Died]


def test_beacon_after_pings_restores_trust_without_more_words() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(4, beating=OTHERS, answering="brick-1")
    said = len(observer.said)
    assert observer.table.heard("brick-1", 1, BEACON, observer.now) == []
    observer.pass_time(5, beating=[*OTHERS, "brick-1"])
    assert observer.said[said:] == []


def test_pong_of_another_life_at_the_same_endpoint_does_not_save_the_silent_one() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(3.2, beating=OTHERS)
    assert observer.table.answered("brick-1", 2, observer.now) == []
    assert observer.table.answered("nobody-1", 1, observer.now) == []
    observer.pass_time(1.2, beating=OTHERS)
    assert observer.state("brick-1") == "dead"


def test_suspect_that_beacons_has_returned() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(3.5, beating=OTHERS)
    assert observer.state("brick-1") == "suspect"
    said = observer.table.heard("brick-1", 1, BEACON, observer.now)
    assert said == [Returned("brick-1", 1, "beacon")]
    assert observer.state("brick-1") == "live"


@pytest.mark.parametrize("by", ["beacon", "ping"])
def test_peer_dead_by_silence_returns_when_it_is_heard_after_all(by: str) -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(5, beating=OTHERS)
    table, now = observer.table, observer.now
    if by == "beacon":
        assert table.heard("brick-1", 1, BEACON, now) == [Returned("brick-1", 1, "beacon")]
    else:
        assert table.answered("brick-1", 1, now) == [Returned("brick-1", 1, "ping")]
    assert observer.state("brick-1") == "live"


def test_peer_without_an_endpoint_is_judged_by_its_silence() -> None:
    observer = Observer(OTHERS)
    observer.table.heard("mute-1", 1, beacon(endpoint=""), observer.now)
    observer.pass_time(5, beating=OTHERS)
    assert observer.changes() == [
        Suspected("mute-1", 1),
        Died("mute-1", 1, "silent for 4.0 s, ping unanswered", vouched=False),
    ]
    assert not any(isinstance(output, PingPeer) for _, output in observer.said)


def test_vouched_exit_is_a_death_at_once_and_final_for_that_life() -> None:
    observer = Observer(["brick-1"])
    table, now = observer.table, observer.now
    died = Died("brick-1", 1, "exit code 1", vouched=True)
    assert table.exited("brick-1", 1, "exit code 1", now) == [died]
    assert table.exited("brick-1", 1, "exit code 1", now) == []
    assert table.heard("brick-1", 1, BEACON, now) == []  # Was under way when it died.
    assert table.answered("brick-1", 1, now) == []
    assert (observer.state("brick-1"), table.outdated) == ("dead", 1)
    assert table.heard("brick-1", 2, BEACON, now) == [Replaced("brick-1", 2, 1)]


def test_exit_of_another_life_or_of_a_stranger_changes_nothing() -> None:
    observer = Observer(["brick-1"])
    table, now = observer.table, observer.now
    assert table.exited("brick-1", 0, "late news", now) == []
    assert table.exited("brick-1", 2, "not heard of yet", now) == []
    assert table.exited("nobody-1", 1, "", now) == []
    assert observer.state("brick-1") == "live"


def test_death_from_silence_is_told_again_once_it_is_vouched_for() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(5, beating=OTHERS)
    died = Died("brick-1", 1, "killed", vouched=True)
    assert observer.table.exited("brick-1", 1, "killed", observer.now) == [died]


def test_greater_incarnation_replaces_and_a_lesser_one_is_ignored() -> None:
    observer = Observer()
    table = observer.table
    assert table.heard("brick-1", 3, beacon(age_s=900.0), 100.0) == [Appeared("brick-1", 3)]
    assert table.heard("brick-1", 4, beacon(age_s=0.1), 100.5) == [Replaced("brick-1", 4, 3)]
    assert table.heard("brick-1", 3, beacon(age_s=901.0), 101.0) == []
    assert table.outdated == 1
    assert [(peer.incarnation, peer.heard_at) for peer in table.peers()] == [(4, 100.5)]


def test_older_beacon_of_the_same_life_that_comes_late_is_ignored() -> None:
    observer = Observer()
    table = observer.table
    table.heard("brick-1", 1, beacon("draining", age_s=9.0), 100.0)
    assert table.heard("brick-1", 1, beacon("live", age_s=8.0), 100.1) == []
    assert (observer.state("brick-1"), table.outdated) == ("draining", 1)


def test_change_of_what_a_peer_says_of_itself_is_told() -> None:
    observer = Observer(["brick-1"])
    said = observer.table.heard("brick-1", 1, beacon("draining"), 101.0)
    assert said == [StateChanged("brick-1", 1, "live", "draining")]


def test_goodbye_is_no_death_and_final_for_that_life() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    table = observer.table
    assert table.heard("brick-1", 1, beacon("offline", age_s=6.0), 100.5) == [Left("brick-1", 1)]
    assert table.heard("brick-1", 1, beacon("live", age_s=7.0), 100.6) == []
    assert table.exited("brick-1", 1, "exit code 0", 100.7) == []
    observer.pass_time(10, beating=OTHERS)
    assert observer.said == []
    assert observer.state("brick-1") == "offline"


def test_goodbye_of_a_stranger_is_not_worth_an_entry() -> None:
    observer = Observer()
    assert observer.table.heard("brick-1", 1, beacon("offline"), 100.0) == []
    assert observer.table.peers() == []


def test_lesser_of_two_processes_with_our_id_is_told_to_resign_once() -> None:
    table = Observer().table  # Ours is incarnation 50.
    assert table.heard(ME, 49, BEACON, 100.0) == []
    assert table.heard(ME, 50, BEACON, 100.0) == []
    assert table.heard(ME, 51, beacon("offline"), 100.0) == []
    assert table.heard(ME, 51, BEACON, 100.0) == [ResignTo(51)]
    assert table.heard(ME, 51, BEACON, 101.0) == []
    assert table.peers() == []


def heard_twin(*, age_s: float, node: str, pid: int, state: State = "live") -> list[Output]:
    """What a table of 10 s on n2, pid 77, is told when a twin speaks three times."""
    table = Liveness(ME, 50, period_s=1.0, place=("n2", 77), now=100.0)
    twin = beacon(state, age_s=age_s, node=node, pid=pid)
    return [output for _ in range(3) for output in table.heard(ME, 50, twin, 110.0)]


def test_of_two_lives_with_one_incarnation_the_younger_resigns_once() -> None:  # L7
    assert heard_twin(age_s=12.0, node="n1", pid=1) == [ResignTo(50)]
    assert heard_twin(age_s=8.0, node="n3", pid=99) == []


def test_of_two_such_lives_of_one_age_those_agree_who_resigns() -> None:  # L7
    assert heard_twin(age_s=10.1, node="n1", pid=78) == []
    assert heard_twin(age_s=9.9, node="n3", pid=76) == [ResignTo(50)]
    assert heard_twin(age_s=9.9, node="n2", pid=78) == [ResignTo(50)]


def test_nobody_resigns_to_itself_nor_to_one_that_leaves() -> None:  # L7
    assert heard_twin(age_s=10.0, node="n2", pid=77) == []
    assert heard_twin(age_s=30.0, node="n1", pid=1, state="offline") == []


def test_what_a_twin_says_is_no_sign_that_the_hubs_carry_what_we_say() -> None:
    table = Liveness(ME, 50, period_s=1.0, place=("n2", 77), now=100.0)
    table.heard("hub-1", 1, BEACON, 100.0)
    for quarter in range(40):
        now = 100.0 + quarter / 4
        table.heard(ME, 50, beacon(age_s=quarter / 4, node="n1", pid=1), now)
        table.advance(now)
    assert table.blind


def test_when_more_than_half_are_missing_nobody_dies_but_the_hubs_are_suspected() -> None:
    observer = Observer([*OTHERS, "brick-1", "brick-2"])
    observer.pass_time(30, beating=["hub-1", "hub-2"])
    missing = ["node-1", "brick-1", "brick-2"]
    assert observer.changes() == [HubsSuspected(3, 5), *[Suspected(peer, 1) for peer in missing]]
    pinged = {output.id for _, output in observer.said[-6:] if isinstance(output, PingPeer)}
    assert pinged == set(missing), "pings go on"


def test_when_exactly_half_are_missing_they_die() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(6, beating=["hub-1", "hub-2"])
    assert [type(change) for change in observer.changes()] == [Suspected, Suspected, Died, Died]


def test_whoever_was_heard_first_does_not_die_before_the_rest_are_missed_too() -> None:
    """All fall silent at once, but the last beacon of one came over a period before the rest."""
    observer = Observer(["brick-1"])
    observer.pass_time(1.2, beating=[])
    for peer in OTHERS:
        observer.table.heard(peer, 1, BEACON, observer.now)
    observer.pass_time(20)
    assert not any(isinstance(change, Died) for change in observer.changes())


def test_vouched_exit_counts_even_while_blind() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(10)
    assert observer.table.blind
    said = observer.table.exited("brick-1", 1, "killed", observer.now)
    assert said == [Died("brick-1", 1, "killed", vouched=True)]


def test_once_hubs_are_trusted_again_who_is_still_missing_gets_its_whole_time_anew() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(10)
    observer.said.clear()
    observer.pass_time(8, beating=OTHERS)
    others = [Returned(peer, 1, "beacon") for peer in OTHERS]
    died = Died("brick-1", 1, "silent for 4.0 s, ping unanswered", vouched=False)
    assert observer.changes() == [*others, HubsTrusted(), died]
    at = {type(output): at for at, output in observer.said}
    assert at[Died] - at[HubsTrusted] == pytest.approx(4.0, abs=0.26)


def test_while_blind_suspects_are_still_relied_on() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(10)
    assert observer.state("brick-1") == "suspect"
    assert len(observer.table.live("brick")) == 4


def test_suspects_starting_and_dead_peers_and_other_roles_are_not_relied_on() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    table = observer.table
    table.heard("brick-2", 1, beacon("starting"), observer.now)
    observer.said_by["stub-2"] = beacon(role="stub")
    table.exited("node-1", 1, "", observer.now)
    observer.pass_time(3.4, beating=["hub-1", "hub-2", "stub-2"])
    assert observer.state("brick-1") == "suspect"
    assert [peer.id for peer in table.live("brick")] == ["hub-1", "hub-2"]
    assert [peer.id for peer in table.live("stub")] == ["stub-2"]
    assert [peer.id for peer in table.live()] == ["hub-1", "hub-2", "stub-2"]


@pytest.mark.parametrize("peers", [["brick-1"], ["brick-1", "brick-2"]])
def test_in_a_group_of_one_or_two_who_hears_itself_trusts_the_hubs(peers: list[str]) -> None:
    observer = Observer(peers, echo=True)
    observer.pass_time(6)
    assert {observer.state(peer) for peer in peers} == {"dead"}
    observer = Observer(peers, echo=False)
    observer.pass_time(60)
    assert {observer.state(peer) for peer in peers} == {"suspect"}


def test_with_three_peers_hearing_ourselves_is_not_enough() -> None:
    observer = Observer(OTHERS, echo=True)
    observer.pass_time(60)
    assert {peer.state for peer in observer.table.peers()} == {"suspect"}


def test_crowd_of_linked_programs_that_leaves_at_once_says_nothing_about_the_hubs() -> None:
    observer = Observer(OTHERS)
    for n in range(20):
        observer.table.heard(f"load-{n}", 1, beacon(linked=True), observer.now)
    observer.pass_time(6, beating=OTHERS)
    assert not any(isinstance(change, HubsSuspected) for change in observer.changes())
    assert sum(isinstance(change, Died) for change in observer.changes()) == 20


@pytest.mark.parametrize("stopped_s", [1.0, 3.5, 20.0, 86400.0])
def test_who_was_stopped_condemns_nobody_for_what_it_did_not_hear(stopped_s: float) -> None:
    observer = Observer([*OTHERS, "brick-1"])
    observer.pass_time(10, beating=[*OTHERS, "brick-1"])
    observer.now += stopped_s  # Neither `heard` nor `advance` is called meanwhile.
    observer.pass_time(10, beating=[*OTHERS, "brick-1"])
    assert observer.said == []


def test_early_and_repeated_calls_of_advance_change_nothing() -> None:
    observer = Observer([*OTHERS, "brick-1"])
    eager = Observer([*OTHERS, "brick-1"])
    for tick in range(600):
        eager.table.advance(100.0 + tick / 100)
        for peer in OTHERS if tick % 100 == 0 else ():
            eager.table.heard(peer, 1, BEACON, 100.0 + tick / 100)
        eager.table.advance(100.0 + tick / 100)
    observer.pass_time(6, beating=OTHERS)
    assert eager.state("brick-1") == observer.state("brick-1") == "dead"


def test_table_asks_to_be_woken_a_few_times_a_period_however_many_beacons_come() -> None:
    observer = Observer()
    woken = 0
    for tick in range(10_000):  # 1,000 peers at 1 Hz, each in its own phase, for ten seconds.
        now = 100.0 + tick / 1000
        observer.table.heard(f"brick-{tick % 1000}", 1, BEACON, now)
        if now >= observer.table.wake_at:
            woken += 1
            observer.table.advance(now)
    assert 19 <= woken <= 80


def test_dead_and_departed_are_forgotten_after_a_while() -> None:
    observer = Observer([*OTHERS, "brick-1", "brick-2"])
    observer.table.exited("brick-1", 1, "", observer.now)
    observer.table.heard("brick-2", 1, beacon("offline", age_s=6.0), observer.now)
    observer.pass_time(FORGET_S - 1, beating=OTHERS)
    assert observer.changes() == []
    observer.pass_time(2, beating=OTHERS)
    assert observer.changes() == [Forgotten("brick-1", 1), Forgotten("brick-2", 1)]
    assert observer.state("brick-1") == "unknown"


def test_who_is_missing_while_we_are_blind_is_forgotten_in_the_end_not_condemned() -> None:
    observer = Observer(OTHERS, echo=False)
    observer.pass_time(FORGET_S + 5)
    ended = [change for change in observer.changes() if isinstance(change, Died | Forgotten)]
    assert ended == [Forgotten(peer, 1) for peer in OTHERS]
    assert observer.table.blind, "nobody left to hear is no reason to trust the hubs"
    observer.table.heard("hub-1", 2, BEACON, observer.now)
    observer.pass_time(1, beating=[])
    assert not observer.table.blind


def test_full_table_forgets_the_longest_gone_and_else_refuses_newcomers() -> None:
    table = Observer(f"brick-{n}" for n in range(PEERS_MAX)).table
    assert table.heard("late-1", 1, BEACON, 101.0) == []
    assert (len(table.peers()), table.refused) == (PEERS_MAX, 1)
    table.exited("brick-7", 1, "", 101.0)
    table.exited("brick-3", 1, "", 102.0)
    said = table.heard("late-1", 1, BEACON, 103.0)
    assert said == [Forgotten("brick-7", 1), Appeared("late-1", 1)]
    assert len(table.peers()) == PEERS_MAX


def test_pings_are_bounded_and_nobody_dies_before_its_ping_had_its_turn() -> None:
    silent = [f"brick-{n}" for n in range(3 * PINGS_MAX)]
    beating = [f"hub-{n}" for n in range(3 * PINGS_MAX)]
    observer = Observer([*silent, *beating])
    observer.pass_time(8, beating=beating)
    first_ping: dict[str, float] = {}
    for at, output in observer.said:
        if isinstance(output, PingPeer):
            first_ping.setdefault(output.id, at)
        if isinstance(output, Died):
            assert at >= first_ping[output.id] + 1.0 - 1e-6
    at_once = [at for at, output in observer.said if isinstance(output, PingPeer)]
    assert max(at_once.count(at) for at in at_once) == PINGS_MAX
    assert {observer.state(peer) for peer in silent} == {"dead"}


def test_everyone_missing_gets_its_turn_to_be_pinged_however_many_they_are() -> None:
    missing = [f"brick-{n}" for n in range(8 * PINGS_MAX)]
    observer = Observer(missing)
    observer.pass_time(5)
    assert {output.id for _, output in observer.said if isinstance(output, PingPeer)} == {*missing}


def test_call_of_advance_before_its_time_does_not_put_off_the_next() -> None:
    table = Observer(OTHERS).table
    wake_at = table.wake_at
    assert table.advance(wake_at - 0.01) == []
    assert table.wake_at == wake_at


def test_version_grows_with_each_change_and_not_with_plain_beacons() -> None:
    observer = Observer(["brick-1"])
    version = observer.table.version
    observer.table.heard("brick-1", 1, BEACON, 101.0)
    assert observer.table.version == version
    observer.table.heard("brick-1", 1, beacon("draining"), 102.0)
    assert observer.table.version > version


def test_goodbye_is_a_state_that_the_wire_knows() -> None:
    assert msgspec.convert(liveness.GOODBYE, State) == "offline"


@pytest.mark.parametrize(
    "changed",
    [
        {"age_s": math.nan},
        {"age_s": math.inf},
        {"age_s": -1.0},
        {"period_s": math.nan},
        {"period_s": math.inf},
        {"period_s": 0.0},
        {"statistics": {"cpu": 0.5, "rss_bytes": math.nan}},
        {"statistics": {"cpu": math.inf, "rss_bytes": -math.inf}},
        {"statistics": {"rss_bytes": 1e300}},
        {"endpoint": "inproc://zeromq.zap.01"},
        {"endpoint": "127.0.0.1:9"},
    ],
    ids=str,
)
def test_beacon_that_cannot_be_changes_nothing_and_is_counted(changed: dict[str, object]) -> None:
    table = Observer(["brick-1"]).table  # L10
    before = table.peers()
    bad = msgspec.structs.replace(beacon(age_s=6.0), **changed)
    for sender, incarnation in (("brick-1", 1), ("brick-1", 2), ("brick-2", 1), (ME, 99)):
        assert table.heard(sender, incarnation, bad, 100.5) == []
    assert (table.peers(), table.unsound) == (before, 4)


@pytest.mark.parametrize("incarnation", [-1, INCARNATION_MAX + 1, 2**64 - 1])
def test_life_of_the_far_future_is_no_life(incarnation: int) -> None:  # L10
    table = Observer(["brick-1"]).table
    before = table.peers()
    for sender in ("brick-1", "brick-2", ME):
        assert table.heard(sender, incarnation, beacon(age_s=6.0), 100.5) == []
    assert (table.peers(), table.unsound) == (before, 3)
    assert table.heard("brick-1", INCARNATION_MAX, beacon(age_s=6.0), 100.5)
