"""A node agent's shell does what its machine wants whatever can be said, and ends if its loop does.

Method: the production shell and machine, with a member that hears nobody and notes what is said,
and children that are not started but noted.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import gevent
import pytest
from gevent.event import Event as Flag

from bus.clock import now
from bus.config import HUB, NODE, local
from bus.frames import encode_header, raw
from bus.headers import News
from bus.identity import Identity
from bus.liveness import Liveness
from bus.member import Member
from bus.messages import Exited, Message
from bus.peers import Peer
from bus.process_orders import ProcessDescribed, ProcessesHeld, RestartProcess
from bus.statistics import Statistics
from roles.agent import Agent, AgentConfig
from roles.agent_states import Offline, Running
from roles.incarnations import recall_holds
from roles.node import CAUSE_LENGTH_MAX, HELD_MAX, NodeShell
from roles.output import Output
from roles.process import Children
from tests.waiting import until

PATIENCE_S = 5.0
BRICKS = 300


class QuietMember:
    """What a shell needs of a member: it hears nobody, and what is said must fit on the wire."""

    def __init__(self, directory: Path) -> None:
        self.config = local(directory, 1, {HUB: 1, "brick": BRICKS}, preset="fast")
        self.identity = Identity("node-1", NODE, "n1", 5)
        self.statistics = Statistics()
        self.liveness = Liveness("node-1", 5, period_s=0.2, now=now())
        self.server = SimpleNamespace(on=lambda *_, **__: None)
        self.resigned = False
        self.said: list[Message] = []
        self.told: list[tuple[str, str, str]] = []
        self.is_mute = False
        self.is_broken = False
        self.ended = Flag()
        self.failure: BaseException | None = None

    def publish(self, topic: str, message: Message) -> None:
        if self.is_mute:
            raise ValueError("message of 30000 bytes: put bulk into the body")
        encode_header(News("node-1", 5, 1, 1, raw(message)))
        self.said.append(message)

    def event(self, kind: str, subject: str, reason: str) -> None:
        self.told.append((kind, subject, reason))
        if self.is_mute:
            raise ValueError("message of 30000 bytes: put bulk into the body")

    def peers(self, role: str = "") -> list[Peer]:
        if self.is_broken:
            raise RuntimeError("a mistake of ours")
        return []

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.ended.set()

    def wait(self) -> None:
        self.ended.wait()
        if self.failure is not None:
            raise self.failure

    def exited(self, exited: Exited) -> None:
        pass

    def live(self) -> None:
        pass

    drain = live

    def subscribe(self, *_: object) -> None:
        pass

    on_change = off_change = on_exit = subscribe


class NotedChildren:
    def __init__(self) -> None:
        self.started: dict[int, str] = {}
        self.signals: list[tuple[int, str]] = []
        self._exits: dict[int, Callable[[int, int], None]] = {}

    def spawn(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        exited: Callable[[int, int], None],
    ) -> int:
        pid = 1_000_000 + len(self.started)
        self.started[pid] = name
        self._exits[pid] = exited
        return pid

    def signal(self, pid: int, name: str) -> None:
        self.signals.append((pid, name))
        if name in ("term", "kill"):
            self.end(pid, -9)

    def end(self, pid: int, code: int) -> None:
        if exited := self._exits.pop(pid, None):
            exited(pid, code)

    def close(self) -> None:
        pass


class Scene:
    def __init__(self, directory: Path) -> None:
        self.member = QuietMember(directory)
        self.children = NotedChildren()
        self.beats = 0
        self.store = directory / "incarnations-n1.json"
        self.agent = Agent(
            [each for each in self.member.config.components() if each.role != NODE],
            AgentConfig(roles=frozenset({HUB, "brick"})),
            incarnations={},
            restarts=0,
            wall_ms=1000,
            now=now(),
        )
        output = Output(os.open(os.devnull, os.O_WRONLY))
        member, children = cast("Member", self.member), cast("Children", self.children)
        self.shell = NodeShell(member, self.agent, output, children, self.store, self._beat)
        self.runner = gevent.spawn(self.shell.run)
        until(lambda: len(self.children.started) == BRICKS + 1, PATIENCE_S, "all children")

    def _beat(self) -> None:
        self.beats += 1

    def pid_of(self, component_id: str) -> int:
        state = self.agent.states()[component_id]
        assert isinstance(state, Running)
        return state.pid

    def restart(self, component_id: str, incarnation: int, cause: str) -> ProcessDescribed:
        order = RestartProcess(component_id, incarnation, cause)
        answer = self.shell._restarted(order, "manager-1")
        assert isinstance(answer, ProcessDescribed)
        return answer

    def stop(self, component_id: str) -> None:
        answer = self.agent.end(component_id, "kill", now())
        assert isinstance(answer, list)
        self.shell._perform(answer)

    def holds(self) -> list[str]:
        return [hold.id for hold in recall_holds(self.store.with_name("holds-n1.json"))[0]]

    def end(self) -> None:
        self.member.is_mute = self.member.is_broken = False
        self.member.ended.set()
        self.runner.join(PATIENCE_S)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.end()


def test_loop_that_breaks_ends_the_process(scene: Scene) -> None:  # N1
    scene.member.is_broken = True
    scene.shell._news.set()
    scene.runner.join(PATIENCE_S)
    assert isinstance(scene.runner.exception, RuntimeError)


def test_heart_beats_with_the_loop_and_not_without(scene: Scene) -> None:  # N1
    beats = scene.beats
    scene.shell._news.set()
    until(lambda: scene.beats > beats, PATIENCE_S, "a beat")
    beats = scene.beats
    scene.shell._news = Flag()  # Nobody sets the one that the loop waits for.
    for _ in range(100):
        scene.shell._news.set()
        gevent.sleep(0)
    assert scene.beats == beats


def test_process_is_started_though_nothing_can_be_said(scene: Scene) -> None:  # N2
    pid, hung = scene.pid_of("brick-1"), scene.pid_of("brick-2")
    for each in (pid, hung):
        del scene.children._exits[each]  # The shell hears of their ends from us.
    scene.member.is_mute = True
    with pytest.raises(ValueError, match="bulk"):
        scene.shell._exited("brick-1", pid, -9)
    with pytest.raises(ValueError, match="bulk"):
        scene.restart("brick-1", 2000, "noticed dead")
    assert scene.pid_of("brick-1") != pid
    with pytest.raises(ValueError, match="bulk"):
        scene.restart("brick-2", 2000, "noticed hung")
    assert scene.children.signals == [(hung, "kill")]
    scene.member.is_mute = False
    scene.shell._exited("brick-2", hung, -9)
    assert scene.pid_of("brick-2") != hung


def test_long_cause_is_cut_before_it_is_passed_on(scene: Scene) -> None:  # N2
    scene.restart("brick-1", 2000, "x" * 24_490)
    said = f"{'x' * CAUSE_LENGTH_MAX}; asked for by manager-1"
    assert ("restarted", "brick-1", said) in scene.member.told


def test_more_is_held_than_fits_into_a_message(scene: Scene) -> None:
    why = "3 restarts in a row did not help; the last life: killed by SIGKILL"
    for number in range(1, BRICKS + 1):
        scene.agent._children[f"brick-{number}"].state = Offline(now(), why, now() + 600)
    scene.shell._perform([])
    scene.shell._hold_at = 0.0
    scene.shell._say_held()
    held = [each for each in scene.member.said if isinstance(each, ProcessesHeld)]
    assert [len(each.held) for each in held] == [HELD_MAX]


def test_what_is_held_is_on_disk_at_once_and_forgotten_in_good_order(scene: Scene) -> None:  # N3
    assert scene.holds() == []
    scene.stop("brick-1")
    assert scene.holds() == ["brick-1"]
    scene.end()
    assert scene.runner.successful()
    assert scene.holds() == []


@pytest.mark.parametrize("how", ["broken", "resigned"])
def test_what_is_held_survives_an_agent_that_ends_otherwise(scene: Scene, how: str) -> None:
    scene.stop("brick-1")
    if how == "broken":
        scene.member.failure = RuntimeError("a mistake of ours")
    else:
        scene.member.resigned = True
    scene.end()
    assert scene.holds() == ["brick-1"]
