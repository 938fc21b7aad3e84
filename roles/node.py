"""Run a node agent for real: start and end processes, answer for them, tell of their ends.

A thin shell around `roles.agent`, which decides. It also keeps the newest events, describes the
cluster to whoever asks, and tells the cluster what the liveness table noticed, when that is its
turn (`roles.telling`).

What always holds:
  N1  The agent lives as its loop does: what breaks the loop ends the process, and one that stands
      still is silent, so that its watchdog ends it.
  N2  Nothing that cannot be said keeps a process from being started or ended.
  N3  What is held is on disk before anybody is told that it is.
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import gevent
from gevent.event import Event as Flag

from bus.clock import now
from bus.config import NODE, Config
from bus.events import Event, EventRing
from bus.headers import News
from bus.held import HeldTable
from bus.member import BEACON_TOPIC, EVENT_TOPIC, EXIT_TOPIC, Member
from bus.messages import Beacon, Exited, Happening, Message, Refused
from bus.peer_watch import PeerWatch
from bus.peers import Change
from bus.process_orders import (
    CONTROL,
    HELD_TOPIC,
    EndProcess,
    PauseProcess,
    ProcessDescribed,
    ProcessesHeld,
    RestartProcess,
    ResumeProcess,
    StartProcess,
)
from bus.replies import Answer
from bus.server import Call
from roles import node_vitals
from roles.agent import Agent
from roles.agent_states import (
    Action,
    Due,
    Ending,
    Hold,
    Offline,
    Report,
    Running,
    Signal,
    Spawn,
    Spawning,
    Tell,
    Waiting,
)
from roles.incarnations import remember, remember_holds
from roles.invoke import environment, softstate
from roles.messages import (
    ClusterDescribed,
    DescribeCluster,
    EventRows,
    EventsDescribed,
    PastEvent,
    RecentEvents,
    encode_rows,
)
from roles.output import Output
from roles.process import Children
from roles.telling import Telling
from roles.view import cluster_rows, ready_line, told_of

M = TypeVar("M", bound=Message)

WAIT_S_MAX = 1.0
CAUSE_LENGTH_MAX = 400  # Of what others order; the rest would not fit where it is passed on.
HELD_MAX = 150
"""How many are told: a message has no room for more. Who is not told of one and asks is refused."""

END_S_MAX = 5.0  # More than the children are granted; if it takes longer, something is wrong.
SETTLE_PERIODS = 1.25  # By then everybody has said once more that he is there.

log = logging.getLogger(__name__)


class NodeShell:
    def __init__(
        self,
        member: Member,
        agent: Agent,
        output: Output,
        children: Children,
        store: Path,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`store`: a file for incarnations; that of holds is beside it. `beat` is called at least
        once a second, as long as all is well."""
        self._member = member
        self._agent = agent
        self._output = output
        self._children = children
        self._store = store
        self._holds_store = holds_beside(store)
        self._troubles: dict[Path, str] = {}
        self._holds: list[Hold] | None = None
        """As they are on disk."""
        self._keeps_holds = False
        self._beat = beat
        self._events = EventRing()
        self._telling = Telling(turn_s=2 * member.config.beacons.period_s)
        self._news = Flag()
        self._ready_said = False
        self._began_at = now()
        self._held = HeldTable(member.config.beacons.period_s)
        self._holding = False
        self._hold_at = -math.inf
        self._heard_at: float | None = None
        self._watch = PeerWatch(member, self._restart_ours)
        member.subscribe(EVENT_TOPIC, Happening, self._heard_event)
        member.subscribe(HELD_TOPIC, ProcessesHeld, self._heard_held)
        member.subscribe(BEACON_TOPIC, Beacon, self._heard_beacon)
        member.on_change(self._changed)
        node_vitals.declare(member.statistics)
        self._serve()

    def run(self) -> None:
        """Serve until this process is told to end; then end every child first."""
        loop = gevent.spawn(self._loop)
        loop.link_exception(self._broke)
        try:
            self._member.live()
            self._watch.start()
            self._member.wait()
        except BaseException:
            self._keeps_holds = True
            raise
        finally:
            # Of one that resigns, they are a later agent's by now.
            self._keeps_holds |= self._member.resigned
            self._watch.close()
            loop.kill()
            self._end_children()

    def _broke(self, loop: "gevent.Greenlet[..., None]") -> None:
        assert loop.exception is not None
        self._member.fail(loop.exception)  # N1

    def _loop(self) -> None:
        while True:
            self._beat()  # N1
            self._settle()
            self._perform(self._agent.advance(now()))
            self._say_held()
            for kind, subject, reason in self._telling.due(now()):
                self._member.event(kind, subject, reason)
            self._say_ready()
            self._news.clear()
            wake_at = min(self._agent.wake_at, self._telling.wake_at)
            self._news.wait(min(max(wake_at - now(), 0.001), WAIT_S_MAX))

    def _end_children(self) -> None:
        self._member.drain()  # At once: nobody is to bring back what ends now.
        self._perform(self._agent.stop(now()))
        end_at = now() + END_S_MAX
        while not self._agent.finished:
            if now() < end_at:
                self._beat()  # N1
            self._news.clear()
            self._news.wait(min(max(self._agent.wake_at - now(), 0.001), WAIT_S_MAX))
            self._perform(self._agent.advance(now()))
        self._children.close()

    # What the machine wants done.

    def _perform(self, actions: list[Action]) -> None:
        if any(isinstance(action, Spawn) for action in actions):
            self._remember()  # Before it is used: no later life may have it again.
        self._remember_holds()  # N3
        words: list[Report | Tell] = []
        for action in actions:
            match action:
                case Spawn():
                    self._spawn(action)
                case Signal(pid=pid, name=name):
                    self._children.signal(pid, name)
                case _:
                    words.append(action)  # N2
        for word in words:
            match word:
                case Report():
                    self._report(word)
                case Tell(kind=kind, subject=subject, reason=reason):
                    self._member.event(kind, subject, reason)
        if actions:
            self._hold_at = -math.inf  # Others should know at once.
            self._news.set()

    def _spawn(self, spawn: Spawn) -> None:
        command = softstate(
            spawn.role,
            *("--id", spawn.id),
            *("--node", self._member.identity.node),
            *("--config", self._member.config.source),
            *("--incarnation", str(spawn.incarnation)),
            *("--restarts", str(spawn.restarts)),
        )

        def exited(pid: int, code: int) -> None:
            # We are inside the event loop here.
            gevent.spawn(self._exited, spawn.id, pid, code).link_exception(self._broke)

        try:
            pid = self._children.spawn(spawn.id, command, environment(), exited)
        except OSError as error:
            reason = f"could not be started: {error.strerror}"
            self._perform(self._agent.failed(spawn.id, spawn.incarnation, reason, now()))
        else:
            self._perform(self._agent.started(spawn.id, spawn.incarnation, pid, now()))

    def _exited(self, component_id: str, pid: int, code: int) -> None:
        self._perform(self._agent.exited(component_id, pid, code, now()))
        self._news.set()

    def _report(self, report: Report) -> None:
        life = report.id, report.incarnation
        exited = Exited(*life, report.pid, report.code, report.reason, report.asked)
        self._member.publish(EXIT_TOPIC, exited)
        # The hubs may be what has ended: our own table is told directly.
        self._member.exited(exited)
        self._member.event("exited", report.id, report.reason)

    def _settle(self) -> None:
        """Before what an earlier agent had is started: does it live elsewhere by now?"""
        node = self._member.identity.node
        others = (peer for peer in self._member.peers() if peer.node != node)
        self._agent.elsewhere({peer.id: peer.incarnation for peer in others}, now())
        settle_s = SETTLE_PERIODS * self._member.config.beacons.period_s
        if self._heard_at is not None and now() >= self._heard_at + settle_s:
            self._agent.settled(now())

    def _say_held(self) -> None:
        """Once a period while we hold anything, and once more when that is over."""
        held = self._agent.held(now())
        if (held or self._holding) and now() >= self._hold_at:
            self._hold_at = now() + self._member.config.beacons.period_s
            self._holding = bool(held)
            self._member.publish(HELD_TOPIC, ProcessesHeld(held[:HELD_MAX]))

    def _remember(self) -> None:
        incarnations = {**self._agent.incarnations, **self._own_incarnation()}
        self._complain(self._store, remember(self._store, incarnations))

    def _remember_holds(self) -> None:
        holds = self._agent.holds()
        if self._keeps_holds or holds == self._holds:
            return
        trouble = remember_holds(self._holds_store, holds)
        self._holds = None if trouble else holds
        self._complain(self._holds_store, trouble)

    def _complain(self, store: Path, trouble: str) -> None:
        if trouble and trouble != self._troubles.get(store):
            self._member.event("degraded", self._member.identity.id, trouble)
        self._troubles[store] = trouble

    def _own_incarnation(self) -> dict[str, int]:
        return {self._member.identity.id: self._member.identity.incarnation}

    # What others ask.

    def _serve(self) -> None:
        on = self._member.server.on
        on(StartProcess, self._start, permission=CONTROL)
        on(RestartProcess, self._restart, permission=CONTROL)
        on(EndProcess, self._end, permission=CONTROL)
        on(PauseProcess, self._pause, permission=CONTROL)
        on(ResumeProcess, self._resume, permission=CONTROL)
        on(DescribeCluster, self._describe)
        on(RecentEvents, self._recent_events)

    def _start(self, call: Call[StartProcess]) -> Message | Refused:
        component_id = call.message.id
        seen = self._seen(component_id)
        return self._asked(call, component_id, self._agent.start(component_id, now(), seen=seen))

    def _restart(self, call: Call[RestartProcess]) -> Message | Refused:
        return self._restarted(call.message, call.sender)

    def _restart_ours(self, message: RestartProcess) -> ProcessDescribed | Refused:
        """What we find missing ourselves."""
        return self._restarted(message, self._member.identity.id)

    def _restarted(self, message: RestartProcess, by: str) -> ProcessDescribed | Refused:
        component_id = message.id
        cause = f"{message.cause[:CAUSE_LENGTH_MAX]}; asked for by {by}"
        self._settle()  # Lest a late order starts a second one.
        seen = self._seen(component_id)
        life = message.incarnation
        answer = self._agent.restart(component_id, life, cause, now(), seen=seen)
        if isinstance(answer, Refused):
            # No event: who finds it dead finds so again and again, and says it himself.
            log.info("%s of %s refused to %s: %s", "restart", component_id, by, answer.detail)
            return answer
        self._perform(answer)
        return self._process(component_id)

    def _seen(self, component_id: str) -> int:
        """The greatest incarnation that was heard of it."""
        peer = self._member.liveness.peer(component_id)
        return 0 if peer is None else peer.incarnation

    def _end(self, call: Call[EndProcess]) -> Message | Refused:
        component_id, how = call.message.id, call.message.how
        return self._asked(call, component_id, self._agent.end(component_id, how, now()))

    def _pause(self, call: Call[PauseProcess]) -> Message | Refused:
        return self._asked(call, call.message.id, self._agent.pause(call.message.id))

    def _resume(self, call: Call[ResumeProcess]) -> Message | Refused:
        return self._asked(call, call.message.id, self._agent.resume(call.message.id))

    def _asked(
        self, call: Call[M], component_id: str, answer: list[Action] | Refused
    ) -> Message | Refused:
        verb = type(call.message).__name__
        if isinstance(answer, Refused):
            self._member.event("refused", component_id, f"{verb} of {call.sender}: {answer.detail}")
            return answer
        log.info("%s %s, asked by %s", verb, component_id, call.sender)
        self._perform(answer)
        return self._process(component_id)

    def _process(self, component_id: str) -> ProcessDescribed:
        last = self._agent.incarnations.get(component_id, 0)
        match self._agent.states().get(component_id):
            case (
                Running(pid=pid, incarnation=incarnation) | Ending(pid=pid, incarnation=incarnation)
            ):
                return ProcessDescribed(component_id, pid, incarnation)
            case Spawning(incarnation=incarnation):
                return ProcessDescribed(component_id, 0, incarnation)
            case Due(at=at) | Waiting(until=at) | Offline(try_at=at):
                return ProcessDescribed(component_id, 0, last, max(at - now(), 0.0))
            case _:
                return ProcessDescribed(component_id, 0, last)

    def _describe(self, call: Call[DescribeCluster]) -> Answer:
        asked_at = now()
        held = self._held.held(asked_at)
        rows = cluster_rows(self._member, held, asked_at - self._began_at, asked_at)
        return Answer(ClusterDescribed(len(rows.components)), encode_rows(rows))

    def _recent_events(self, call: Call[RecentEvents]) -> Answer:
        asked_at = now()
        events = [
            PastEvent(
                event.kind,
                event.subject,
                event.reason,
                event.by,
                event.incarnation,
                event.sequence,
                age_s=asked_at - event.heard_at,
            )
            for event in self._events.recent(max(0, call.message.count))
        ]
        return Answer(EventsDescribed(len(events)), encode_rows(EventRows(events)))

    # What is heard.

    def _heard_event(self, header: News, happening: Happening) -> None:
        self._telling.heard(happening.kind, happening.subject)
        self._events.add(
            Event(
                happening.kind,
                happening.subject,
                happening.reason,
                header.sender,
                header.incarnation,
                header.sequence,
                heard_at=now(),
            )
        )

    def _heard_held(self, header: News, held: ProcessesHeld) -> None:
        teller = self._member.liveness.peer(header.sender)
        ours = header.sender == self._member.identity.id
        if ours or (teller is not None and teller.role == NODE):
            self._held.heard(header.sender, held, now())

    def _heard_beacon(self, header: News, beacon: Beacon) -> None:
        if beacon.state == "live":
            self._agent.live(header.sender, header.incarnation, now())
        if self._heard_at is None and header.sender == self._member.identity.id:
            self._heard_at = now()  # A hub is there: from here on we hear who lives.

    def _changed(self, change: Change) -> None:
        self._news.set()
        told = told_of(change)
        if told is not None:
            self._telling.noticed(told, self._rank(), now())

    def _rank(self) -> int:
        """How many live agents come before us in the configuration."""
        live = {peer.id for peer in self._member.peers(NODE)}
        agents = [each.id for each in self._member.config.components() if each.role == NODE]
        me = self._member.identity.id
        before = agents[: agents.index(me)] if me in agents else agents
        return sum(agent in live for agent in before)

    def _say_ready(self) -> None:
        if self._ready_said or not is_first_node(self._member.config, self._member.identity.node):
            return
        line = ready_line(self._member, now() - self._began_at)
        if line:
            self._ready_said = True
            self._output.say(line)


def holds_beside(store: Path) -> Path:
    """Where an agent that keeps its incarnations there keeps what it holds."""
    return store.with_name(store.name.replace("incarnations", "holds"))


def is_first_node(config: Config, node: str) -> bool:
    return next(iter(config.nodes), "") == node
