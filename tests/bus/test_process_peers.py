"""Who has what brought back, when and where. Method: a table written out by hand, looked at by one
healer at written-out times; whole lists of orders compared. A period is 1 s, and no jitter."""

from itertools import pairwise

import msgspec
import pytest

from bus.config import NodeConfig, local
from bus.held import AGENTS_MAX, HeldTable
from bus.identity import BELIEVED_MAX, Identity
from bus.messages import Exited, State
from bus.peers import Peer
from bus.process_orders import Held, ProcessDescribed, ProcessesHeld
from bus.process_peers import ProcessPeers, Restart

RUN = {"hub": 3, "manager": 2, "brick": 3}
NODE_GONE_S = 4.0


def peer(
    peer_id: str,
    state: State = "live",
    *,
    node: str = "",
    incarnation: int = 5,
    linked: bool = False,
) -> Peer:
    role, _, number = peer_id.rpartition("-")
    return Peer(
        id=peer_id,
        incarnation=incarnation,
        state=state,
        heard_at=0.0,
        role=role,
        node=node or f"n{number}",
        pid=1,
        endpoint="tcp://127.0.0.1:1",
        linked=linked,
        restarts=0,
        age_s=1.0,
        metrics_url="",
        statistics={},
    )


class Watched:
    """The table of one healer, all live at first, and what it orders."""

    def __init__(self, me: str, config_changes: dict[str, object] | None = None) -> None:
        config = local("/tmp", nodes=3, run=RUN, preset="lan")
        config = msgspec.structs.replace(config, **(config_changes or {}))
        self.now = 100.0
        self.peers = ProcessPeers(Identity(me, me.rpartition("-")[0], "n1", 9), config, self.now)
        self.table = {each.id: peer(each.id, node=each.node) for each in config.components()}
        del self.table[me]
        self.blind = False

    def set(self, *peers: Peer) -> None:
        self.table.update({each.id: each for each in peers})

    def look(self, room: int = 16) -> list[Restart]:
        return self.peers.look(
            self.table.values(), blind=self.blind, now=self.now, draw=lambda: 0.0, room=room
        )

    def after(self, seconds: float, step_s: float = 0.25) -> list[tuple[float, Restart]]:
        """Time passes; what was ordered meanwhile, and how long after the beginning."""
        began_at, ordered = self.now, []
        while self.now < began_at + seconds - 1e-9:
            self.now += step_s
            ordered += [(self.now - began_at, order) for order in self.look()]
        return ordered

    def ids(self, seconds: float) -> list[tuple[str, str]]:
        """The same as pairs of node and id, each once."""
        pairs = [(order.node, order.id) for _, order in self.after(seconds)]
        return list(dict.fromkeys(pairs))


def settled(me: str, config_changes: dict[str, object] | None = None) -> Watched:
    watched = Watched(me, config_changes)
    assert watched.after(3.0) == []
    return watched


def exited(component_id: str, incarnation: int = 5, *, asked: bool = False) -> Exited:
    return Exited(component_id, incarnation, 1, -9, "killed by SIGKILL", asked)


def test_all_is_well_and_nothing_is_ordered() -> None:
    assert settled("manager-1").after(60.0) == []


def test_the_first_healer_acts_at_once_at_the_agent_of_the_node_that_the_plan_says() -> None:
    watched = settled("manager-1")
    watched.peers.exited(exited("brick-2"))
    watched.set(peer("brick-2", "dead"))
    assert watched.look() == [Restart("n2", "brick-2", 5, "noticed dead (killed by SIGKILL)")]
    assert watched.peers.missing == 1


def test_what_does_not_come_back_is_ordered_again_less_and_less_often() -> None:  # P4
    watched = settled("manager-1")
    watched.set(peer("brick-2", "dead"))
    assert len(watched.look()) == 1
    times = [at for at, _ in watched.after(80.0)]
    assert times == [1.0, 3.0, 7.0, 15.0, 30.0, 45.0, 60.0, 75.0]


@pytest.mark.parametrize(
    ("me", "turns"), [("manager-1", 0), ("manager-2", 1), ("node-1", 2), ("node-2", 3)]
)
def test_each_healer_waits_a_turn_for_each_live_one_before_it(me: str, turns: int) -> None:  # P5
    watched = settled(me)
    watched.set(peer("brick-2", "dead"))
    before = watched.look()
    first = 0.0 if before else watched.after(10.0)[0][0]
    assert first == turns


def test_who_is_missing_itself_has_no_turn() -> None:  # P5
    watched = settled("node-1")
    watched.set(peer("manager-1", "dead"), peer("manager-2", "suspect"))
    assert watched.look() == [
        Restart("n1", "manager-1", 5, "noticed dead (silent, and answers no ping)")
    ]


def test_many_healers_before_it_do_not_hold_it_up_for_long() -> None:  # P5
    config = local("/tmp", nodes=3, run={**RUN, "manager": 30}, preset="lan")
    watched = settled("node-1", {"nodes": config.nodes})
    for number in range(1, 31):
        watched.set(peer(f"manager-{number}", node=f"n{(number - 1) % 3 + 1}"))
    watched.set(peer("brick-2", "dead"))
    watched.look()
    assert watched.after(10.0)[0][0] == 5.0


def test_what_another_had_restarted_is_given_time_to_come() -> None:
    watched = settled("manager-2")
    watched.set(peer("brick-2", "dead"))
    watched.look()
    watched.after(0.5)
    watched.peers.restarted("brick-2", watched.now)
    assert watched.after(2.75) == []
    watched.set(peer("brick-2", incarnation=6))
    assert watched.after(10.0) == []


def test_whoever_has_just_come_does_nothing_until_it_has_heard_everybody() -> None:  # P1
    watched = Watched("manager-1")
    watched.set(peer("brick-2", "dead"))
    ordered = watched.after(4.0)
    assert ordered[0][0] == 3.0


def test_who_is_blind_does_nothing_and_begins_anew_when_it_sees_again() -> None:  # P1
    watched = settled("manager-1")
    watched.set(peer("brick-2", "dead"), peer("node-3", "dead"), peer("brick-3", "dead"))
    watched.blind = True
    assert watched.after(60.0) == []
    watched.blind = False
    assert [(at, order.id) for at, order in watched.after(3.5)][:1] == [(3.0, "brick-2")]


def test_time_in_which_we_did_not_look_is_nobodys_absence() -> None:  # P1
    watched = settled("manager-1")
    watched.set(peer("node-3", "dead"), peer("brick-3", "dead"))
    assert watched.look() == []
    watched.now += 600.0
    assert watched.look() == []
    assert watched.after(2.75) == []


def test_what_was_ended_on_purpose_is_left_alone() -> None:  # P2
    watched = settled("manager-1")
    watched.set(peer("brick-2", "offline"), peer("brick-3", "dead"))
    watched.peers.exited(exited("brick-2", asked=True))
    watched.peers.exited(exited("brick-3", asked=True))
    for _ in range(60):
        for number in (2, 3):
            held = ProcessesHeld([Held(f"brick-{number}", "disabled", "", 1.0)])
            watched.peers.held(f"node-{number}", held, watched.now)
        assert watched.after(1.0) == []
    watched.peers.held("node-3", ProcessesHeld([]), watched.now)
    watched.peers.exited(exited("brick-3", 6))  # It was started since, and failed.
    assert watched.look() == [Restart("n3", "brick-3", 6, "noticed dead (killed by SIGKILL)")]


@pytest.mark.parametrize("life", [5, 10**9])
def test_an_end_that_was_asked_for_counts_until_its_agent_can_have_said_more(life: int) -> None:
    """P2: it was started since, and hangs before anybody heard of it; or somebody lied."""
    watched = settled("manager-1")
    watched.peers.exited(exited("brick-2", life, asked=True))
    watched.set(peer("brick-2", "offline"))
    ordered = watched.after(7.5)
    cause = "noticed gone (it said goodbye, unasked)"
    assert ordered == [(7.0, Restart("n2", "brick-2", 5, cause))]


def test_what_was_ended_on_purpose_stays_so_when_its_node_is_lost() -> None:  # P2
    for says_so in (False, True):
        watched = settled("manager-1")
        watched.peers.exited(exited("brick-2", asked=True))
        watched.set(peer("brick-2", "dead"))
        if says_so:
            held = ProcessesHeld([Held("brick-2", "disabled", "", 1.0)])
            watched.peers.held("node-2", held, watched.now)
        assert watched.after(1.0) == []
        watched.set(*lost_node(), peer("manager-2", "dead"))
        assert watched.ids(30.0) == [("n1", "manager-2")]
        watched.set(peer("brick-2", node="n3", incarnation=8))  # A person started it.
        assert watched.ids(1.0) == []
        watched.set(peer("brick-2", "dead", node="n3", incarnation=8))
        assert watched.ids(1.0) == [("n3", "brick-2")]


def test_news_of_a_life_that_nobody_can_have_had_is_nobodys() -> None:  # P3
    for life in (BELIEVED_MAX + 1, 2**64 - 1):
        watched = settled("manager-1")
        watched.peers.exited(exited("brick-2", life))
        watched.set(peer("brick-2", "dead"))
        assert [order.incarnation for order in watched.look()] == [5]
        for _ in range(40):
            watched.peers.answered("brick-2", ProcessDescribed("brick-2", 7, life), watched.now)
            assert {order.incarnation for _, order in watched.after(1.0)} <= {5}


def test_an_end_of_a_life_to_come_is_forgotten_when_the_process_is_there() -> None:
    watched = settled("manager-1")
    watched.peers.exited(exited("brick-2", 10**9))
    assert watched.look() == []
    watched.peers.exited(exited("brick-2"))
    watched.set(peer("brick-2", "dead"))
    assert [order.incarnation for order in watched.look()] == [5]


def test_words_of_others_are_cut_and_printable_before_they_are_passed_on() -> None:
    watched = settled("manager-1")
    watched.peers.exited(msgspec.structs.replace(exited("brick-2"), reason="\n" + 9999 * "x"))
    watched.set(peer("brick-2", "dead"))
    assert [order.cause for order in watched.look()] == [f"noticed dead (·{399 * 'x'}…)"]


def test_more_than_there_is_room_for_stays_due_and_is_not_put_off() -> None:  # P4
    watched = settled("manager-1")
    for number in (1, 2, 3):
        watched.peers.exited(exited(f"brick-{number}"))
        watched.set(peer(f"brick-{number}", "dead"))
    assert watched.look(room=0) == []
    assert [[order.id for order in watched.look(room=1)] for _ in range(4)] == [
        ["brick-1"],
        ["brick-2"],
        ["brick-3"],
        [],
    ]
    watched.now += 1.25  # They are due again, and for longer than who has just died.
    watched.peers.exited(exited("hub-2"))
    watched.set(peer("hub-2", "dead"))
    watched.look(room=0)
    assert [order.id for order in watched.look(room=3)] == ["brick-1", "brick-2", "brick-3"]


def test_what_an_agent_holds_is_left_alone_as_long_as_it_says_so() -> None:  # P2
    watched = settled("manager-1")
    watched.set(peer("brick-2", "dead"))
    held = ProcessesHeld([Held("brick-2", "offline", "it fails", 1.0)])
    for _ in range(20):
        watched.peers.held("node-2", held, watched.now)
        assert watched.after(1.0) == []
    assert watched.after(3.75) == []
    assert watched.ids(2.0) == [("n2", "brick-2")]


def test_a_goodbye_that_nobody_asked_for_is_brought_back_once_that_is_known() -> None:
    watched = settled("manager-1")
    watched.set(peer("brick-2", "offline"))
    assert watched.look() == []
    assert [at for at, _ in watched.after(2.5)] == [2.0]

    watched = settled("manager-1")
    watched.set(peer("brick-2", "offline"))
    watched.peers.exited(exited("brick-2"))
    assert len(watched.look()) == 1


def test_a_goodbye_is_waited_upon_no_longer_than_its_agent_takes_to_explain_it() -> None:
    watched = settled("manager-1")
    watched.set(peer("brick-2", "offline"))
    assert watched.after(0.5) == []
    watched.peers.exited(exited("brick-2"))
    assert [(at, order.id) for at, order in watched.after(0.5)] == [(0.25, "brick-2")]


def test_silence_is_taken_for_death_only_after_a_while_however_short_the_period() -> None:
    beacons = local("/tmp", nodes=3, run=RUN, preset="fast").beacons
    watched = settled("manager-1", {"beacons": beacons})
    watched.set(peer("brick-2", "dead"))  # For 0.8 s.
    assert [at for at, _ in watched.after(3.0)] == [2.5]


def test_what_was_never_heard_of_may_just_be_starting() -> None:
    watched = settled("manager-1")
    del watched.table["brick-2"]
    assert watched.look() == []
    ordered = watched.after(5.5)
    assert ordered == [
        (5.0, Restart("n2", "brick-2", 0, "noticed missing (never heard of)")),
    ]


def test_what_runs_and_was_never_heard_of_is_ended_after_a_while() -> None:  # P6
    watched = settled("manager-1")
    del watched.table["brick-2"]
    lives = []
    for _ in range(80):
        for _, order in watched.after(1.0):
            lives.append(order.incarnation)
            watched.peers.answered("brick-2", ProcessDescribed("brick-2", 77, 8), watched.now)
    assert lives[0] == 0
    assert 8 in lives
    assert lives.index(8) >= 4


def slow_start(watched: Watched, ids: list[str], seconds: int) -> list[tuple[int, str]]:
    """All of them run, and none is heard of: which of them are ended, and when. Each next life is
    a greater one."""
    lives = dict.fromkeys(ids, 8)
    for each in ids:
        watched.table.pop(each, None)
    ended = []
    for second in range(seconds):
        for _, order in watched.after(1.0):
            if order.incarnation == lives.get(order.id):
                ended.append((second, order.id))
                watched.peers.exited(exited(order.id, lives[order.id]))
                lives[order.id] += 1
            if order.id in lives:
                answer = ProcessDescribed(order.id, 77, lives[order.id])
                watched.peers.answered(order.id, answer, watched.now)
    return ended


def test_each_life_that_ended_unheard_gives_the_next_one_twice_the_time() -> None:  # P6
    times = [at for at, _ in slow_start(settled("manager-1"), ["brick-2"], 400)]
    waits = [after - before for before, after in pairwise([0, *times])]
    assert len(waits) >= 4
    assert all(20.0 * 2**n <= wait < 20.0 * 2**n + 32.0 for n, wait in enumerate(waits))


def test_what_was_never_heard_of_is_ended_one_at_a_time() -> None:  # P6
    ended = slow_start(settled("manager-1"), ["brick-1", "brick-2"], 80)
    assert {component_id for _, component_id in ended[:2]} == {"brick-1", "brick-2"}
    assert ended[1][0] - ended[0][0] >= 20


def test_a_slow_machine_is_not_made_slower() -> None:  # P6
    watched = settled("manager-1")  # A plan of 11: more than two of them are more than a quarter.
    assert slow_start(watched, ["brick-1", "brick-2", "brick-3"], 600) == []
    watched.set(peer("brick-1", incarnation=9))
    assert {component_id for _, component_id in slow_start(watched, ["brick-2"], 60)} == {"brick-2"}


@pytest.mark.parametrize("state", ["starting", "live", "suspect", "draining", "disabled"])
def test_what_may_yet_answer_is_left_alone(state: State) -> None:
    watched = settled("manager-1")
    watched.set(peer("brick-2", state))
    assert watched.after(60.0) == []


def test_what_lives_on_another_node_than_planned_is_left_there() -> None:
    watched = settled("manager-1")
    watched.set(peer("brick-2", node="n3"))
    assert watched.after(60.0) == []


# Elsewhere.


def lost_node() -> tuple[Peer, ...]:
    return tuple(peer(each, "dead", node="n2") for each in ("node-2", "hub-2", "brick-2"))


def test_of_a_node_that_is_gone_all_but_hub_and_agent_is_started_elsewhere() -> None:  # P3
    watched = settled("manager-1")
    watched.set(*lost_node(), peer("manager-2", "dead", node="n2"))
    watched.look()
    ordered = watched.after(4.0)
    cause = "noticed dead (silent, and answers no ping), and n2 is gone"
    assert ordered == [
        (NODE_GONE_S, Restart("n1", "manager-2", 5, cause)),
        (NODE_GONE_S, Restart("n1", "brick-2", 5, cause)),
    ]


def test_all_healers_choose_the_same_node() -> None:  # P3
    chosen = []
    for me in ("manager-1", "node-1", "node-3"):
        watched = settled(me)
        watched.peers = ProcessPeers(
            Identity(me, me.rpartition("-")[0], f"n{me[-1]}", 9), watched.peers._config, watched.now
        )
        watched.after(3.0)
        watched.set(*lost_node())
        chosen.append(watched.ids(12.0))
    assert chosen == [[("n1", "brick-2")]] * 3


def test_overflow_nodes_come_last() -> None:  # P3
    config = local("/tmp", nodes=3, run=RUN, preset="lan")
    spare = {**config.nodes, "o1": NodeConfig(overflow=True)}
    watched = settled("manager-1", {"nodes": spare})
    watched.set(*lost_node(), peer("node-4", node="o1"))
    assert watched.ids(10.0) == [("n1", "brick-2")]
    watched = settled("manager-1", {"nodes": spare})
    watched.set(peer("node-4", node="o1"), *(peer(f"node-{n}", "dead") for n in (1, 3)))
    watched.after(5.0)
    watched.set(*lost_node())
    assert watched.ids(10.0) == [("o1", "brick-2")]


def test_a_manager_moves_only_to_where_it_finds_the_same_store() -> None:  # P3
    config = local("/tmp", nodes=3, run=RUN, preset="lan")
    far = {
        name: msgspec.structs.replace(node, address="10.0.0." + name[1:])
        for name, node in config.nodes.items()
    }
    for kind, moved in (("sqlite", []), ("etcd", [("n1", "manager-2")])):
        store = msgspec.structs.replace(config.store, kind=kind)
        watched = settled("manager-1", {"nodes": far, "store": store, "allow_plain": True})
        watched.set(peer("node-2", "dead"), peer("manager-2", "dead", node="n2"))
        assert watched.ids(10.0) == moved


def test_a_node_that_comes_back_in_time_gets_its_own_again() -> None:  # P3
    watched = settled("manager-1")
    watched.set(*lost_node())
    assert watched.after(3.0) == []
    watched.set(peer("node-2", "suspect"))
    assert watched.after(10.0) == []
    watched.set(peer("node-2", incarnation=6))
    assert watched.ids(1.0) == [("n2", "hub-2"), ("n2", "brick-2")]


def test_nothing_is_done_for_a_node_whose_agent_ends_in_good_order() -> None:  # P2
    states: tuple[State, ...] = ("draining", "offline")
    for state in states:
        watched = settled("manager-1")
        watched.set(*lost_node(), peer("node-2", state))
        assert watched.after(60.0) == []


def test_nothing_is_done_for_a_node_that_was_never_heard_of() -> None:  # P3
    watched = Watched("manager-1")
    for each in lost_node():
        del watched.table[each.id]
    assert watched.after(1000.0) == []


def test_a_node_that_was_forgotten_in_long_blindness_is_gone_once_that_ends() -> None:  # G2
    watched = settled("manager-1")
    watched.blind = True
    watched.set(*(msgspec.structs.replace(each, state="suspect") for each in lost_node()))
    assert watched.after(600.0) == []
    for each in lost_node():
        del watched.table[each.id]
    assert watched.after(10.0) == []
    watched.blind = False
    assert [(at, order.node, order.id) for at, order in watched.after(9.0)][:1] == [
        (8.0, "n1", "brick-2")  # 3 s to settle, and 5 s for what was never heard of.
    ]


def test_a_node_that_ended_in_good_order_does_not_become_gone_when_it_is_forgotten() -> None:  # G2
    watched = settled("manager-1")
    watched.set(*(msgspec.structs.replace(each, state="offline") for each in lost_node()))
    assert watched.after(10.0) == []
    for each in lost_node():
        del watched.table[each.id]
    assert watched.after(60.0) == []
    assert watched.peers.missing == 0


def test_a_hiccup_does_not_make_us_forget_which_nodes_are_gone() -> None:  # G2
    watched = settled("manager-1")
    watched.set(*lost_node())
    watched.after(10.0)
    for each in lost_node():
        del watched.table[each.id]
    watched.now += 600.0
    assert watched.ids(10.0) == [("n1", "brick-2")]


def test_what_was_moved_goes_on_from_there_if_that_node_is_lost_as_well() -> None:  # G1
    watched = settled("manager-2")
    watched.set(peer("node-2", "dead"))
    watched.after(10.0)
    watched.set(peer("brick-2", node="n1", incarnation=8))
    del watched.table["node-2"]
    watched.after(5.0)
    watched.now += 600.0
    watched.after(10.0)
    moved = peer("brick-2", "dead", node="n1", incarnation=8)
    watched.set(peer("node-1", "dead"), moved, peer("brick-1", "dead"))
    cause = "noticed dead (silent, and answers no ping), and "
    assert [order for _, order in watched.after(4.9)][-2:] == [
        Restart("n3", "brick-1", 5, cause + "n1 is gone"),
        Restart("n3", "brick-2", 8, cause + "n2 is gone"),
    ]


def test_a_new_healer_brings_back_what_was_moved_to_a_node_that_is_gone_too() -> None:  # G1
    watched = Watched("manager-1", None)
    for each in lost_node():
        del watched.table[each.id]
    watched.set(peer("brick-2", node="n3", incarnation=8))
    watched.after(4.0)
    watched.set(peer("brick-2", "dead", node="n3", incarnation=8), peer("node-3", "dead"))
    assert ("n1", "brick-2") in watched.ids(10.0)


def test_the_smaller_part_of_what_is_there_gives_up_nobody() -> None:  # G3
    watched = settled("manager-1")
    gone = [peer(each, "dead", node=f"n{each[-1]}") for each in ("node-2", "brick-2", "node-3")]
    watched.set(*gone)
    assert watched.after(60.0) == []
    watched.set(peer("node-3", incarnation=6))  # Two of three: that is not the smaller part.
    assert watched.ids(1.0) == [("n1", "brick-2")]
    watched.set(peer("brick-2", node="n1", incarnation=8), peer("node-3", "dead", incarnation=6))
    watched.set(peer("brick-3", "dead"))  # And one of two is no smaller than the other.
    assert watched.ids(10.0) == [("n1", "brick-3")]


def test_who_ended_in_good_order_is_not_missed_when_nodes_are_counted() -> None:  # G3
    watched = settled("manager-1")
    watched.set(peer("node-3", "offline"), peer("brick-3", "offline"))
    watched.set(*lost_node())
    assert watched.ids(10.0) == [("n1", "brick-2")]


def test_a_node_that_is_forgotten_stays_gone() -> None:  # P3
    watched = settled("manager-1")
    watched.set(*lost_node())
    watched.after(6.0)
    watched.set(peer("brick-2", node="n1", incarnation=8))
    del watched.table["node-2"]
    del watched.table["hub-2"]
    assert watched.after(60.0) == []
    watched.set(peer("brick-2", "dead", node="n1", incarnation=8))
    assert watched.ids(1.0) == [("n1", "brick-2")]


def test_who_never_heard_of_a_node_restarts_what_was_moved_where_it_was() -> None:  # P3
    watched = settled("manager-1")
    for each in lost_node():
        del watched.table[each.id]
    watched.set(peer("brick-2", "dead", node="n3"))
    assert watched.ids(1.0) == [("n3", "brick-2")]
    watched.set(peer("node-2", "offline", node="n2"))  # Which ends without it, in good order.
    assert watched.ids(1.0) == [("n3", "brick-2")]


def test_linked_programs_and_what_nobody_planned_are_none_of_our_business() -> None:  # P3
    watched = settled("manager-1")
    watched.set(peer("brick-9", "dead"), peer("cron-1", "dead", linked=True))
    watched.peers.exited(exited("brick-9"))
    assert watched.after(60.0) == []


# What is held.


def test_an_agents_newest_word_is_what_it_holds_and_only_for_a_while() -> None:  # H1
    table = HeldTable(period_s=1.0)
    first, second = (Held(each, "disabled", "", 0.0) for each in ("brick-1", "brick-2"))
    table.heard("node-1", ProcessesHeld([first, second]), 10.0)
    assert table.held(14.9) == {"brick-1": first, "brick-2": second}
    table.heard("node-1", ProcessesHeld([second]), 14.9)
    assert table.held(19.8) == {"brick-2": second}
    assert table.held(19.9) == {}
    table.heard("node-1", ProcessesHeld([second]), 20.0)
    table.heard("node-1", ProcessesHeld([]), 20.1)
    assert table.held(20.1) == {}


def test_the_last_word_of_an_agent_that_is_not_there_stands_until_what_it_held_runs() -> None:  # H1
    table = HeldTable(period_s=1.0)
    first, second = (Held(each, "disabled", "", 0.0) for each in ("brick-1", "brick-2"))
    table.heard("node-1", ProcessesHeld([first, second]), 10.0)
    assert table.held(1000.0, {"node-1"}) == {"brick-1": first, "brick-2": second}
    table.runs("brick-1")
    assert table.held(1000.0, {"node-1"}) == {"brick-2": second}
    assert table.held(1000.0, {"node-2"}) == {}


def test_many_liars_take_no_memory() -> None:  # H2
    table = HeldTable(period_s=1.0)
    for number in range(2 * AGENTS_MAX):
        table.heard(f"node-{number}", ProcessesHeld([Held("brick-1", "disabled", "", 0.0)]), 10.0)
    assert len(table._said) == AGENTS_MAX
    assert table.held(20.0) == {}
    assert table._said == {}
