"""The node agent's decisions: events in, whole lists of actions out, times written out."""

import math

from hypothesis import given
from hypothesis import strategies as st

from bus.config import Planned
from bus.messages import Refused
from roles.agent import Action, Agent, AgentConfig, Due, Idle, Report, Running, Signal, Spawn

WALL_MS = 5000
PLANNED = [Planned("brick-1", "brick", "n1"), Planned("hub-1", "hub", "n1")]
ROLES = frozenset({"hub", "node", "brick"})


def new_agent(
    *,
    heal: bool = True,
    incarnations: dict[str, int] | None = None,
    restarts: int = 0,
    processes_max: int = 10,
) -> Agent:
    return Agent(
        PLANNED,
        AgentConfig(roles=ROLES, heal=heal, end_s_max=3.0, processes_max=processes_max),
        incarnations=incarnations or {},
        restarts=restarts,
        wall_ms=WALL_MS,
        now=10.0,
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
        report, *spawns = agent.exited("hub-1", pid, 1, now)
        assert isinstance(report, Report)
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
        Report("hub-1", 5000, 101, -9, "killed by SIGKILL, as asked")
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
        Report("brick-1", 5000, 102, -9, "killed by SIGKILL, as asked"),
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
        Report("hub-1", 5000, 101, 0, "ended by itself, as asked")
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


EVENTS = st.sampled_from(["start", "term", "kill", "exit", "pause", "advance", "fail", "stop"])
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
