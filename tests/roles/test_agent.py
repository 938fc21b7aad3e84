"""The node agent's decisions: events in, whole lists of actions out, times written out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.config import Planned
from bus.identity import BELIEVED_MAX, INCARNATION_MAX
from bus.messages import Refused
from bus.process_orders import Held
from roles.agent import Agent, AgentConfig
from roles.agent_states import (
    Action,
    Disabled,
    Due,
    Ending,
    Hold,
    Idle,
    Offline,
    Report,
    Running,
    Signal,
    Spawn,
    Tell,
)

WALL_MS = 5000
PLANNED = [Planned("brick-1", "brick", "n1"), Planned("hub-1", "hub", "n1")]
ROLES = frozenset({"hub", "node", "brick"})


def new_agent(  # noqa: PLR0913 (all are keywords)
    *,
    heal: bool = True,
    incarnations: dict[str, int] | None = None,
    restarts: int = 0,
    processes_max: int = 10,
    settle_s: float = 0.0,
    wall_ms: int = WALL_MS,
    holds: list[Hold] | None = None,
) -> Agent:
    return Agent(
        PLANNED,
        AgentConfig(roles=ROLES, heal=heal, end_s_max=3.0, processes_max=processes_max),
        incarnations=incarnations or {},
        restarts=restarts,
        wall_ms=wall_ms,
        now=10.0,
        settle_s=settle_s,
        holds=holds or [],
    )


def running_agent(*, heal: bool = True, processes_max: int = 10) -> Agent:
    """hub-1 runs as process 101 and brick-1 as process 102, both since 10.0."""
    agent = new_agent(heal=heal, processes_max=processes_max)
    assert agent.advance(10.0) == [
        Spawn("hub-1", "hub", 5000, restarts=0),
        Spawn("brick-1", "brick", 5000, restarts=0),
    ]
    assert agent.started("hub-1", 5000, 101, now=10.0) == []
    assert agent.started("brick-1", 5000, 102, now=10.0) == []
    return agent


def test_everything_planned_is_started_at_once_and_once_hubs_first() -> None:
    agent = running_agent()
    assert agent.advance(10.0) == []
    assert agent.wake_at == math.inf


def test_a_hub_that_ends_is_reported_and_started_again_unasked() -> None:
    agent = running_agent()
    assert agent.exited("hub-1", 101, -9, now=12.0) == [
        Report("hub-1", 5000, 101, -9, "killed by SIGKILL"),
        Tell("restarted", "hub-1", "noticed dead (killed by SIGKILL); its node's own hub"),
        Spawn("hub-1", "hub", 7000, restarts=1),
    ]


def test_a_hub_is_left_alone_when_heal_is_off() -> None:
    agent = running_agent(heal=False)
    assert agent.exited("hub-1", 101, 1, now=12.0) == [Report("hub-1", 5000, 101, 1, "exit code 1")]
    assert agent.wake_at == math.inf


def test_anything_else_that_ends_is_reported_and_waits_to_be_asked_for() -> None:
    agent = running_agent()
    assert agent.exited("brick-1", 102, -11, now=12.0) == [
        Report("brick-1", 5000, 102, -11, "killed by SIGSEGV")
    ]
    assert agent.wake_at == math.inf
    assert agent.start("brick-1", now=13.0) == [Spawn("brick-1", "brick", 8000, restarts=1)]


def test_what_runs_or_is_being_started_is_not_started_twice() -> None:  # A1
    agent = running_agent()
    assert agent.start("brick-1", now=11.0) == []
    agent.exited("brick-1", 102, 1, now=12.0)
    assert agent.start("brick-1", now=12.0) == [Spawn("brick-1", "brick", 7000, restarts=1)]
    assert agent.start("brick-1", now=12.0) == []


def test_an_incarnation_exceeds_the_stored_one_the_one_heard_of_and_the_wall_clock() -> None:  # A2
    agent = new_agent(incarnations={"hub-1": 9000, "brick-1": 4000})
    assert agent.advance(10.0) == [
        Spawn("hub-1", "hub", 9001, restarts=0),
        Spawn("brick-1", "brick", 5000, restarts=0),
    ]
    agent.started("brick-1", 5000, 102, now=10.0)
    agent.exited("brick-1", 102, 1, now=10.0)
    assert agent.start("brick-1", now=10.0, seen=20_000) == [
        Spawn("brick-1", "brick", 20_001, restarts=1)
    ]
    assert agent.incarnations == {"hub-1": 9001, "brick-1": 20_001}


def test_two_starts_within_a_millisecond_get_different_incarnations() -> None:  # A2
    agent = running_agent()
    actions = agent.exited("hub-1", 101, 1, now=10.0)
    assert actions[-1] == Spawn("hub-1", "hub", 5001, restarts=1)


@pytest.mark.parametrize("claimed", [BELIEVED_MAX + 1, INCARNATION_MAX, 2**64 - 1])
def test_an_incarnation_of_the_far_future_is_not_believed(claimed: int) -> None:  # A2
    agent = running_agent()
    agent.exited("brick-1", 102, 1, now=100.0)
    assert agent.restart("brick-1", claimed, "noticed dead", 100.0, seen=claimed) == [
        Tell("restarted", "brick-1", "noticed dead"),
        Spawn("brick-1", "brick", 95_000, restarts=1),
    ]
    agent.started("brick-1", 95_000, 103, now=100.0)
    agent.exited("brick-1", 103, 1, now=200.0)
    assert agent.start("brick-1", now=200.0, seen=claimed) == [
        Spawn("brick-1", "brick", 195_000, restarts=2)
    ]
    assert agent.incarnations == {"hub-1": 5000, "brick-1": 195_000}


def test_after_the_last_that_is_believed_there_is_room_for_more() -> None:  # A2
    agent = new_agent(wall_ms=2**50)  # A clock gone mad.
    assert [each.incarnation for each in spawned(agent.advance(10.0))] == [BELIEVED_MAX] * 2
    agent.started("hub-1", BELIEVED_MAX, 101, now=10.0)
    [spawn] = spawned(agent.exited("hub-1", 101, 1, now=20.0))
    assert BELIEVED_MAX < spawn.incarnation < INCARNATION_MAX


def test_children_of_an_agent_that_was_itself_restarted_count_as_restarted() -> None:
    agent = new_agent(restarts=2)
    assert [action.restarts for action in agent.advance(10.0) if isinstance(action, Spawn)] == [
        2,
        2,
    ]


def test_a_hub_that_keeps_ending_is_started_less_often_but_never_given_up() -> None:  # A4
    agent = running_agent()
    now, pid, waits = 10.0, 101, []
    for _ in range(12):
        report, told, *spawns = agent.exited("hub-1", pid, 1, now)
        assert isinstance(report, Report)
        assert isinstance(told, Tell)
        if not spawns:
            waits.append(agent.wake_at - now)
            now = agent.wake_at
            assert agent.advance(now - 0.01) == []
            spawns = agent.advance(now)
        [spawn] = spawns
        assert isinstance(spawn, Spawn)
        pid += 1
        agent.started("hub-1", spawn.incarnation, pid, now)
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_one_who_asks_for_a_process_that_keeps_ending_has_to_wait_too() -> None:  # A4
    agent = running_agent()
    agent.exited("brick-1", 102, 1, now=10.0)
    for pid in range(103, 108):
        [spawn] = spawned(agent.start("brick-1", now=10.0))
        agent.started("brick-1", spawn.incarnation, pid, now=10.0)
        agent.exited("brick-1", pid, 1, now=10.0)
    assert agent.start("brick-1", now=10.0) == []
    assert agent.states()["brick-1"] == Due(10.25)


def test_news_of_a_former_process_changes_nothing() -> None:  # A6
    agent = running_agent()
    assert agent.exited("hub-1", 99, -9, now=12.0) == []
    assert agent.exited("brick-7", 99, -9, now=12.0) == []
    agent.exited("brick-1", 102, 0, now=12.0)
    assert agent.exited("brick-1", 102, 0, now=12.0) == []  # A5: not a second time.


def test_what_was_asked_to_end_is_killed_when_it_does_not_and_stays_ended() -> None:  # A3
    agent = running_agent()
    assert agent.end("hub-1", "term", now=20.0) == [Signal(101, "term"), Signal(101, "continue")]
    assert agent.wake_at == 23.0
    assert agent.advance(22.9) == []
    assert agent.advance(23.0) == [Signal(101, "kill")]
    assert agent.advance(23.0) == []
    assert agent.exited("hub-1", 101, -9, now=23.1) == [
        Report("hub-1", 5000, 101, -9, "killed by SIGKILL, as asked", asked=True)
    ]
    assert agent.wake_at == math.inf


def test_asking_again_for_an_end_does_not_put_the_kill_off() -> None:
    agent = running_agent()
    agent.end("brick-1", "term", now=20.0)
    agent.end("brick-1", "term", now=22.0)
    assert agent.wake_at == 23.0
    assert agent.end("brick-1", "kill", now=22.5) == [Signal(102, "kill")]


def test_a_start_asked_for_while_it_ends_follows_the_end_without_a_wait() -> None:
    agent = running_agent()
    agent.end("brick-1", "kill", now=20.0)
    assert agent.start("brick-1", now=20.0) == []
    assert agent.exited("brick-1", 102, -9, now=20.1) == [
        Report("brick-1", 5000, 102, -9, "killed by SIGKILL, as asked", asked=True),
        Spawn("brick-1", "brick", 15_100, restarts=1),
    ]


def test_ending_what_does_not_run_cancels_a_start_that_was_due() -> None:
    agent = new_agent()
    assert agent.end("brick-1", "term", now=10.0) == []
    assert agent.advance(10.0) == [Spawn("hub-1", "hub", 5000, restarts=0)]


def test_ending_what_is_just_being_started_is_refused_for_a_moment() -> None:
    agent = new_agent()
    agent.advance(10.0)
    assert agent.end("hub-1", "term", now=10.0) == Refused(
        "busy", "hub-1 is just being started", retry_after_s=0.1
    )


def test_pause_and_resume_reach_running_processes_only() -> None:
    agent = running_agent()
    assert agent.pause("brick-1") == [Signal(102, "stop")]
    assert agent.resume("brick-1") == [Signal(102, "continue")]
    agent.exited("brick-1", 102, 1, now=12.0)
    refused = Refused("unknown", "brick-1 does not run on this node")
    assert [agent.pause("brick-1"), agent.resume("brick-1")] == [refused, refused]
    assert agent.pause("brick-9") == Refused("unknown", "brick-9 does not run on this node")


def test_an_id_of_another_node_is_started_if_its_role_is_known() -> None:
    agent = running_agent()
    assert agent.start("brick-9", now=11.0) == [Spawn("brick-9", "brick", 6000, restarts=0)]


def test_ids_of_no_known_role_and_hubs_of_other_nodes_and_agents_are_refused() -> None:
    agent = running_agent()
    for component_id in (
        "cache-1",
        "brick",
        "brick-",
        "brick-0",
        "brick-01",
        "brick-x",
        "",
        "node-2",
    ):
        assert agent.start(component_id, now=11.0) == Refused(
            "unknown", f'"{component_id}" is no role-n of a role known here (brick, hub)'
        )
    assert agent.start("hub-2", now=11.0) == Refused(
        "unknown", "hub-2 is at an address of another node"
    )


def test_a_full_node_forgets_what_ended_before_it_refuses() -> None:  # A8
    agent = running_agent(processes_max=3)
    [spawn] = spawned(agent.start("brick-8", now=11.0))
    agent.started("brick-8", spawn.incarnation, 103, now=11.0)
    assert agent.start("brick-9", now=11.0) == Refused(
        "busy", "this node looks after 3 processes already"
    )
    agent.exited("brick-8", 103, 0, now=12.0)
    assert agent.start("brick-9", now=12.0) == [Spawn("brick-9", "brick", 7000, restarts=0)]
    assert list(agent.states()) == ["hub-1", "brick-1", "brick-9"]


def test_a_process_that_could_not_be_started_is_as_one_that_ended_at_once() -> None:
    agent = new_agent()
    agent.advance(10.0)
    assert agent.failed("brick-1", 5000, "out of memory", now=10.0) == [
        Report("brick-1", 5000, 0, 1, "out of memory")
    ]
    assert agent.failed("hub-1", 5000, "out of memory", now=10.0) == [
        Report("hub-1", 5000, 0, 1, "out of memory"),
        Tell("restarted", "hub-1", "noticed dead (out of memory); its node's own hub"),
        Spawn("hub-1", "hub", 5001, restarts=1),
    ]


def test_stop_ends_everything_and_starts_nothing() -> None:  # A7
    agent = running_agent()
    assert agent.stop(now=20.0) == [
        Signal(101, "term"),
        Signal(101, "continue"),
        Signal(102, "term"),
        Signal(102, "continue"),
    ]
    assert agent.start("brick-1", now=20.0) == Refused("busy", "this node is ending")
    assert agent.exited("hub-1", 101, 0, now=20.1) == [
        Report("hub-1", 5000, 101, 0, "ended by itself, as asked", asked=True)
    ]
    assert not agent.finished
    assert agent.advance(23.0) == [Signal(102, "kill")]
    agent.exited("brick-1", 102, -9, now=23.1)
    assert agent.finished
    assert agent.wake_at == math.inf


def test_what_is_being_started_when_the_node_stops_is_ended_once_it_runs() -> None:  # A7
    agent = new_agent()
    agent.advance(10.0)
    assert agent.stop(now=10.0) == []
    assert not agent.finished
    assert agent.started("hub-1", 5000, 101, now=10.1) == [
        Signal(101, "term"),
        Signal(101, "continue"),
    ]


def test_stop_forgets_a_promised_restart() -> None:  # A7
    agent = running_agent()
    agent.end("brick-1", "term", now=20.0)
    agent.start("brick-1", now=20.0)
    agent.stop(now=20.0)
    agent.exited("brick-1", 102, 0, now=20.1)
    assert agent.states()["brick-1"] == Idle()


# Restarts, as peers and Pinpoint order them.


def test_what_peers_find_dead_is_started_and_said() -> None:
    agent = running_agent()
    agent.exited("brick-1", 102, -9, now=20.0)
    assert agent.restart("brick-1", 5000, "noticed dead", now=21.0) == [
        Tell("restarted", "brick-1", "noticed dead"),
        Spawn("brick-1", "brick", 16_000, restarts=1),
    ]


def test_a_restart_asked_for_twice_late_or_by_several_is_one_restart() -> None:  # A9
    agent = running_agent()
    agent.exited("brick-1", 102, -9, now=20.0)
    [_, spawn] = acted(agent.restart("brick-1", 5000, "noticed dead", now=21.0))
    assert agent.restart("brick-1", 5000, "noticed dead", now=21.0) == []
    assert isinstance(spawn, Spawn)
    agent.started("brick-1", spawn.incarnation, 103, now=21.0)
    assert agent.restart("brick-1", 5000, "noticed dead", now=22.0) == []
    assert agent.states()["brick-1"] == Running(103, spawn.incarnation)


def test_a_life_that_runs_and_is_to_be_over_is_killed_and_followed_by_the_next() -> None:  # A9
    agent = running_agent()
    assert agent.restart("brick-1", 5000, "it hangs", now=90.0) == [
        Tell("restarted", "brick-1", "it hangs"),
        Signal(102, "kill"),
    ]
    assert agent.restart("brick-1", 5000, "it hangs", now=90.0) == []
    assert agent.exited("brick-1", 102, -9, now=90.1) == [
        Report("brick-1", 5000, 102, -9, "killed by SIGKILL"),
        Spawn("brick-1", "brick", 85_100, restarts=1),
    ]


def test_a_life_older_than_the_one_to_be_over_is_killed_too() -> None:  # A9
    agent = running_agent()
    [_, signal] = acted(agent.restart("brick-1", 7000, "noticed dead", now=20.0))
    assert signal == Signal(102, "kill")
    assert agent.exited("brick-1", 102, -9, now=20.0)[-1] == Spawn(
        "brick-1", "brick", 15_000, restarts=1
    )


def test_what_was_ended_on_purpose_is_held_back_from_peers_until_a_person_starts_it() -> None:
    agent = running_agent()  # A10
    agent.end("brick-1", "term", now=20.0)
    ending = Refused("failed", "brick-1 is being ended, as asked")
    assert agent.restart("brick-1", 5000, "noticed gone", now=20.0) == ending
    agent.exited("brick-1", 102, 0, now=20.5)
    disabled = Refused("failed", "brick-1 is disabled: it was ended as asked")
    assert agent.restart("brick-1", 5000, "noticed gone", now=21.0) == disabled
    assert agent.held(22.5) == [Held("brick-1", "disabled", "it was ended as asked", 2.0)]
    assert agent.start("brick-1", now=23.0) == [Spawn("brick-1", "brick", 18_000, restarts=1)]
    assert agent.held(23.0) == []


def test_what_fails_again_after_each_restart_is_offline_after_the_third() -> None:  # A10
    agent, now = failing_agent(times=3)
    why = "3 restarts in a row did not help; the last life: exit code 1"
    assert agent.states()["brick-1"] == Offline(now, why, now + 600.0)
    assert agent.restart("brick-1", 99, "noticed dead", now) == Refused(
        "failed", f"brick-1 is offline: {why}"
    )
    assert agent.held(now + 5.0) == [Held("brick-1", "offline", why, 5.0)]


def test_a_person_is_told_what_is_offline_why_and_what_to_do() -> None:
    agent, now = failing_agent(times=2)
    [_, spawn] = acted(agent.restart("brick-1", 99, "noticed dead", now))
    assert isinstance(spawn, Spawn)
    agent.started("brick-1", spawn.incarnation, 999, now)
    why = "3 restarts in a row did not help; the last life: killed by SIGSEGV"
    assert agent.exited("brick-1", 999, -11, now + 1.0)[1:] == [
        Tell("offline", "brick-1", f"{why}; it is tried once more in 600 s"),
        Tell(
            "alert",
            "brick-1",
            f"it is offline: {why}. See why in its log; it is tried once more in 600 s, and at "
            "once with `softstate start brick-1`",
        ),
    ]


def test_what_is_offline_is_tried_once_after_its_probation_and_once_more_after_the_next() -> None:
    agent, now = failing_agent(times=3)  # A3
    for _ in range(3):
        assert agent.wake_at == now + 600.0
        assert agent.advance(now + 599.0) == []
        [spawn] = spawned(agent.advance(now + 600.0))
        now += 601.0
        agent.started("brick-1", spawn.incarnation, 900, now)
        agent.exited("brick-1", 900, 1, now)
        assert isinstance(agent.states()["brick-1"], Offline)


def test_a_trial_that_lasts_clears_all_that_was_before() -> None:
    agent, now = failing_agent(times=3)
    [spawn] = spawned(agent.advance(now + 600.0))
    now += 600.0
    agent.started("brick-1", spawn.incarnation, 900, now)
    agent.live("brick-1", spawn.incarnation, now)
    agent.exited("brick-1", 900, 1, now + 6.0)
    assert agent.states()["brick-1"] == Idle()


def test_a_person_who_starts_what_is_offline_clears_all_that_was_before() -> None:
    agent, now = failing_agent(times=3)
    [spawn] = spawned(agent.start("brick-1", now + 60.0))
    agent.started("brick-1", spawn.incarnation, 900, now + 60.0)
    agent.exited("brick-1", 900, 1, now + 60.0)
    assert agent.states()["brick-1"] == Idle()


def test_what_is_killed_again_and_again_by_somebody_is_not_offline_if_it_lives_in_between() -> None:
    agent, pid, incarnation, now = running_agent(), 102, 5000, 10.0
    for _ in range(20):
        agent.live("brick-1", incarnation, now + 1.0)
        now += 6.5
        agent.exited("brick-1", pid, -9, now)
        [spawn] = spawned(agent.restart("brick-1", incarnation, "noticed dead", now))
        pid, incarnation = pid + 1, spawn.incarnation
        agent.started("brick-1", incarnation, pid, now)
    assert agent.states()["brick-1"] == Running(pid, incarnation)


def test_a_hub_that_hangs_after_each_restart_is_never_offline() -> None:  # A10
    agent, pid, incarnation, now = running_agent(), 101, 5000, 20.0
    for _ in range(5):
        agent.restart("hub-1", incarnation, "it hangs", now)
        [spawn] = spawned(agent.exited("hub-1", pid, -9, now))
        pid, incarnation = pid + 100, spawn.incarnation
        agent.started("hub-1", incarnation, pid, now)
    assert agent.states()["hub-1"] == Running(pid, incarnation)


def test_after_its_own_restart_it_waits_for_news_of_what_may_live_elsewhere() -> None:
    agent = new_agent(settle_s=3.0)
    assert spawned(agent.advance(10.0)) == [Spawn("hub-1", "hub", 5000, restarts=0)]
    assert agent.restart("brick-1", 4000, "noticed dead", now=11.0) == []
    assert agent.advance(12.9) == []
    assert agent.wake_at == 13.0
    assert agent.advance(13.0) == [Spawn("brick-1", "brick", 8000, restarts=0)]


def test_after_its_own_restart_it_leaves_alone_what_lives_elsewhere() -> None:
    agent = new_agent(settle_s=3.0)
    agent.advance(10.0)
    agent.elsewhere({"brick-1": 4000, "brick-7": 4000}, 10.0)
    assert agent.advance(13.0) == []
    assert agent.states()["brick-1"] == Idle()


def test_it_waits_no_longer_than_until_everybody_was_heard() -> None:
    agent = new_agent(settle_s=3.0)
    agent.advance(10.0)
    agent.settled(11.0)
    assert agent.advance(11.0) == [Spawn("brick-1", "brick", 6000, restarts=0)]


def test_a_restart_asked_for_late_starts_no_second_one_of_what_lives_elsewhere() -> None:  # A9
    agent = new_agent(settle_s=3.0)
    agent.advance(10.0)
    agent.elsewhere({"brick-1": 7000}, 10.0)
    assert agent.restart("brick-1", 5000, "noticed dead", 11.0, seen=7000) == []
    assert agent.restart("brick-1", 7000, "noticed dead", 11.0, seen=7000) == [
        Tell("restarted", "brick-1", "noticed dead"),
        Spawn("brick-1", "brick", 7001, restarts=0),
    ]


def test_what_lived_elsewhere_and_is_no_longer_live_there_may_be_restarted_here() -> None:
    agent = new_agent(settle_s=3.0)
    agent.advance(10.0)
    agent.elsewhere({"brick-1": 7000}, 10.0)
    agent.elsewhere({}, 11.0)
    answer = agent.restart("brick-1", 5000, "noticed dead", 11.0, seen=7000)
    assert spawned(answer) == [Spawn("brick-1", "brick", 7001, restarts=0)]


def test_what_hangs_here_and_lives_elsewhere_is_killed_and_not_held() -> None:  # A11
    agent = running_agent()
    agent.elsewhere({"brick-1": 4999}, 20.0)
    assert agent.states()["brick-1"] == Running(102, 5000), "the other one resigns"
    agent.elsewhere({"brick-1": 5001}, 21.0)
    agent.elsewhere({"brick-1": 5001}, 22.0)
    assert (agent.advance(23.9), agent.wake_at) == ([], 24.0)
    assert agent.restart("brick-1", 5000, "noticed dead", 23.9) == []
    assert agent.advance(24.0) == [Signal(102, "kill")]
    why = "killed by SIGKILL; a later life of it is on another node"
    assert agent.exited("brick-1", 102, -9, 24.1) == [Report("brick-1", 5000, 102, -9, why)]
    assert (agent.states()["brick-1"], agent.held(24.1), agent.wake_at) == (Idle(), [], math.inf)


def test_what_a_person_stopped_is_held_by_the_agents_next_life_too() -> None:
    agent = running_agent()
    agent.end("brick-1", "term", now=20.0)
    kept = [Hold("brick-1", "disabled", 15_000)]
    assert agent.holds() == kept, "from the moment it was asked for"
    agent.exited("brick-1", 102, 0, now=21.0)
    assert agent.holds() == [Hold("brick-1", "disabled", 16_000)]
    later = new_agent(wall_ms=25_000, holds=kept, settle_s=3.0)
    assert spawned(later.advance(10.0)) == [Spawn("hub-1", "hub", 25_000, restarts=0)]
    later.settled(11.0)
    why = "it was ended as asked"
    assert later.held(12.0) == [Held("brick-1", "disabled", why, for_s=12.0)]
    assert later.holds() == kept
    assert later.restart("brick-1", 5000, "noticed dead", now=12.0) == Refused(
        "failed", f"brick-1 is disabled: {why}"
    )
    assert spawned(later.start("brick-1", now=12.0)) == [
        Spawn("brick-1", "brick", 27_000, restarts=0)
    ]
    assert later.holds() == []


def test_what_is_offline_has_the_rest_of_its_probation_in_the_agents_next_life() -> None:
    agent, now = failing_agent(3)
    [hold] = agent.holds()
    since_ms = WALL_MS + round((now - 10) * 1000)
    assert (hold.why, hold.since_ms, hold.try_at_ms) == ("offline", since_ms, since_ms + 600_000)
    later = new_agent(wall_ms=hold.since_ms + 400_000, holds=[hold])
    assert spawned(later.advance(10.0)) == [
        Spawn("hub-1", "hub", hold.since_ms + 400_000, restarts=0)
    ]
    assert later.states()["brick-1"] == Offline(10.0 - 400.0, hold.reason, 10.0 + 200.0)
    [trial] = spawned(later.advance(210.0))
    later.started("brick-1", trial.incarnation, 105, 210.0)
    later.exited("brick-1", 105, 1, 210.5)
    assert isinstance(later.states()["brick-1"], Offline), "one more that does not help is enough"


@pytest.mark.parametrize("wall_ms", [0, 10**15])
def test_a_wall_clock_that_was_set_holds_nothing_for_longer(wall_ms: int) -> None:
    hold = Hold("brick-1", "offline", 50_000, "it fails", 650_000)
    state = new_agent(wall_ms=wall_ms, holds=[hold]).states()["brick-1"]
    assert isinstance(state, Offline)
    assert 10.0 <= state.try_at <= 610.0
    assert state.since <= 10.0


def test_what_another_nodes_plan_has_is_held_again_and_unknown_roles_are_not() -> None:
    holds = [Hold("brick-7", "disabled", 1000), Hold("ghost-1", "disabled", 1000)]
    assert [each.id for each in new_agent(holds=holds).held(10.0)] == ["brick-7"]


def test_an_agent_that_ends_in_good_order_leaves_nothing_held() -> None:
    agent = running_agent()
    agent.end("brick-1", "kill", now=20.0)
    agent.stop(20.1)
    assert isinstance(agent.states()["brick-1"], Ending)
    assert agent.holds() == []


def test_what_is_held_here_and_lives_elsewhere_is_no_longer_held() -> None:
    agent = running_agent()
    agent.end("brick-1", "kill", now=20.0)
    agent.exited("brick-1", 102, -9, now=20.0)
    assert agent.states()["brick-1"] == Disabled(20.0)
    agent.elsewhere({"brick-1": 4000}, 20.0)
    assert agent.states()["brick-1"] == Idle()


def failing_agent(times: int) -> tuple[Agent, float]:
    """brick-1 failed at once after each of so many restarts; and when that was."""
    agent, pid, now = running_agent(), 102, 10.0
    agent.exited("brick-1", pid, 1, now)
    for _ in range(times):
        now += 40.0  # So far apart that no start has to wait.
        pid += 1
        [spawn] = spawned(agent.restart("brick-1", 5000, "noticed dead", now))
        agent.started("brick-1", spawn.incarnation, pid, now)
        agent.live("brick-1", spawn.incarnation, now + 1.0)
        now += 2.0
        agent.exited("brick-1", pid, 1, now)
    return agent, now


def acted(answer: list[Action] | Refused) -> list[Action]:
    assert isinstance(answer, list)
    return answer


def spawned(answer: list[Action] | Refused) -> list[Spawn]:
    assert isinstance(answer, list)
    return [action for action in answer if isinstance(action, Spawn)]


class Shell:
    """A shell in miniature: performs each action at once, and checks A1, A2 and A7 as it does."""

    def __init__(self) -> None:
        self.agent = new_agent()
        self.now = 10.0
        self.pids: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.stopped = False
        self.spawns_fail = False
        self._pid_last = 100

    def happen(self, event: str, component_id: str) -> None:
        self.spawns_fail = event == "fail"
        match event:
            case "start":
                self.perform(self.agent.start(component_id, self.now))
            case "restart":
                self.restart(component_id, self.newest.get(component_id, 0) - 1)
            case "sick":
                self.restart(component_id, self.newest.get(component_id, 0))
            case "term":
                self.perform(self.agent.end(component_id, "term", self.now))
            case "kill":
                self.perform(self.agent.end(component_id, "kill", self.now))
            case "pause":
                self.perform(self.agent.pause(component_id))
            case "exit":
                self.exit(component_id)
            case "stop":
                self.stopped = True
                self.perform(self.agent.stop(self.now))
            case _:
                self.perform(self.agent.advance(self.now))

    def restart(self, component_id: str, incarnation: int) -> None:
        before = self.pids.get(component_id)
        held = {each.id for each in self.agent.held(self.now)}
        answer = self.agent.restart(component_id, incarnation, "found sick", self.now)
        assert isinstance(answer, Refused) or component_id not in held  # A10
        if incarnation < self.newest.get(component_id, 0) and before is not None:
            assert answer == [] or isinstance(answer, Refused)  # A9
        self.perform(answer)

    def exit(self, component_id: str) -> None:
        if pid := self.pids.pop(component_id, None):
            self.perform(self.agent.exited(component_id, pid, 1, self.now))

    def perform(self, actions: list[Action] | Refused) -> None:
        for action in actions if isinstance(actions, list) else []:
            match action:
                case Spawn():
                    self._spawn(action)
                case Signal(pid=pid):
                    assert pid in self.pids.values()
                case Report(id=component_id, incarnation=incarnation):
                    assert component_id not in self.pids
                    assert incarnation == self.newest[component_id]
                case Tell():
                    pass

    def _spawn(self, spawn: Spawn) -> None:
        assert not self.stopped
        assert spawn.id not in self.pids
        assert spawn.incarnation > self.newest.get(spawn.id, 0)
        self.newest[spawn.id] = spawn.incarnation
        if self.spawns_fail:
            self.perform(self.agent.failed(spawn.id, spawn.incarnation, "no memory", self.now))
            return
        self._pid_last += 1
        self.pids[spawn.id] = self._pid_last
        self.perform(self.agent.started(spawn.id, spawn.incarnation, self._pid_last, self.now))


EVENTS = st.sampled_from(
    ["start", "restart", "sick", "term", "kill", "exit", "pause", "advance", "fail", "stop"]
)
IDS = st.sampled_from(["hub-1", "brick-1", "brick-9"])


@given(st.lists(st.tuples(EVENTS, IDS, st.floats(0.0, 2.0)), max_size=60))
def test_whatever_happens_an_id_has_one_process_and_its_incarnation_only_grows(
    events: list[tuple[str, str, float]],
) -> None:
    shell = Shell()
    for event, component_id, wait_s in [("advance", "", 0.0), *events]:
        shell.now += wait_s
        shell.happen(event, component_id)
        states = shell.agent.states()
        running = {name: state.pid for name, state in states.items() if isinstance(state, Running)}
        assert running.items() <= shell.pids.items()
    shell.happen("stop", "")
    for component_id in list(shell.pids):
        shell.exit(component_id)
    assert shell.agent.finished
