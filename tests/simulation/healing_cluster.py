"""Nodes whose agents start processes that watch each other, for `tests.world`: the production
agents, process peers and liveness tables behind as little as will connect them.

A process is `brick-1@n2` in the world, whatever node it was planned for; a hub, which never moves,
is `hub-1`, and its relay shares its fate. What `softstate up` does is done here: a watchdog starts
an agent again a second after it died, and kills one that has stood still for 4.5 s.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import msgspec

from bus.config import HUB, NODE, Config, local
from bus.config_shape import RestartsConfig
from bus.identity import Identity
from bus.liveness import Liveness
from bus.messages import Beacon, Exited, Happening, Message, Ping, Pong, Refused, State
from bus.peers import Output, PingPeer, ResignTo
from bus.process_orders import ProcessDescribed, ProcessesHeld, RestartProcess
from bus.process_peers import ProcessPeers, Restart
from bus.window import DeliveryWindows
from roles.agent import Agent, AgentConfig
from roles.agent_states import Action, Ending, Report, Running, Signal, Spawn, Tell
from tests.world import CALM, Actor, Effect, Note, Publish, Send, Weather, World

PERIOD_S = 1.0
LOOK_S = 0.25
DIRECT = "tcp://"
RESIGNED = 3
WATCHDOG_S = 1.0
STANDS_STILL_S = 4.5
START_S = (0.3, 1.5)  # From its start to its first beacon.
HEALERS = ("manager", NODE)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    id: str
    incarnation: int
    sequence: int
    message: (
        Beacon
        | Exited
        | Happening
        | Ping
        | Pong
        | ProcessesHeld
        | RestartProcess
        | ProcessDescribed
    )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Restarted(msgspec.Struct, frozen=True):
    id: str
    cause: str


@dataclass(frozen=True)
class Kinds:
    """The classes under test: planted faults take their places."""

    peers: type[ProcessPeers] = ProcessPeers
    agent: type[Agent] = Agent
    settle_periods: float = 1.25


class Process:
    """One life of one process."""

    def __init__(
        self, cluster: "Cluster", name: str, me: Identity, begins_at: float, now: float
    ) -> None:
        self.me = me
        self.state: State = "live"
        self.table = Liveness(me.id, me.incarnation, period_s=PERIOD_S, now=now)
        self.cluster = cluster
        self._name = name
        self._born_at = now
        self._beat_at = begins_at
        self._look_at = begins_at
        self._sequence = count()
        self._windows = DeliveryWindows()
        self.peers: ProcessPeers | None = None
        if me.role in HEALERS:
            self.peers = cluster.kinds.peers(me, cluster.config, begins_at)

    @property
    def wake_at(self) -> float:
        wakes = [self._beat_at, self.table.wake_at]
        return min([*wakes, self._look_at] if self.peers else wakes)

    def advance(self, now: float) -> list[Effect]:
        effects = self._judged(self.table.advance(now))
        if now >= self._beat_at:
            self._beat_at = now + PERIOD_S
            effects.append(self.publish(self._beacon(now)))
        if self.peers is not None and now >= self._look_at:
            self._look_at = now + LOOK_S
            draw = self.cluster.world.chance.random
            table = self.table
            for order in self.peers.look(table.peers(), blind=table.blind, now=now, draw=draw):
                effects += self._order(order, now)
        return effects

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        match heard.message:
            case Ping():
                return [Send(sender, self.frame(Pong(self.me.id, self.me.incarnation)))]
            case Pong(id=peer_id, incarnation=incarnation):
                return self._judged(self.table.answered(peer_id, incarnation, now))
            case ProcessDescribed(id=component_id) as answer if self.peers is not None:
                self.peers.answered(component_id, answer, now)
                return []
            case RestartProcess() as order:
                return self.asked(sender, order, heard.id, now)
            case _:
                return []

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        if not self._windows.first_time(heard.id, heard.incarnation, heard.sequence):
            return []
        match heard.message:
            case Beacon() as beacon:
                self.beacon_came(heard, beacon, now)
                return self._judged(self.table.heard(heard.id, heard.incarnation, beacon, now))
            case Exited() as exited:
                if self.peers is not None:
                    self.peers.exited(exited)
                life = exited.id, exited.incarnation
                return self._judged(self.table.exited(*life, exited.reason, now))
            case ProcessesHeld() as held if self.peers is not None:
                self.peers.held(heard.id, held, now)
            case Happening(subject=subject) if self.peers is not None:
                self.peers.restarted(subject, now)
            case _:
                pass
        return []

    def publish(self, message: Message) -> Publish:
        return Publish(self.frame(message))

    def frame(self, message: Message) -> bytes:
        sequence = next(self._sequence)
        return _encode(Frame(self.me.id, self.me.incarnation, sequence, message))  # type: ignore[arg-type]

    def asked(self, sender: str, order: RestartProcess, by: str, now: float) -> list[Effect]:
        raise AssertionError("only agents are asked")

    def beacon_came(self, heard: Frame, beacon: Beacon, now: float) -> None:
        """For agents."""

    def goodbye(self, now: float) -> Publish:
        self.state = "offline"
        return self.publish(self._beacon(now))

    def _order(self, order: Restart, now: float) -> list[Effect]:
        agent_id = self.cluster.agents[order.node]
        message = RestartProcess(order.id, order.incarnation, order.cause)
        if agent_id == self.me.id:
            return self.asked("", message, self.me.id, now)
        peer = self.table.peer(agent_id)
        assert peer is not None
        return [Send(peer.endpoint.removeprefix(DIRECT), self.frame(message))]

    def _judged(self, outputs: list[Output]) -> list[Effect]:
        effects: list[Effect] = []
        for output in outputs:
            if isinstance(output, PingPeer):
                to = output.endpoint.removeprefix(DIRECT)
                effects.append(Send(to, self.frame(Ping())))
            elif isinstance(output, ResignTo):
                self.cluster.end(self._name, RESIGNED)
        return effects

    def _beacon(self, now: float) -> Beacon:
        return Beacon(
            role=self.me.role,
            node=self.me.node,
            pid=1,
            endpoint=DIRECT + self._name,
            state=self.state,
            age_s=now - self._born_at,
            restarts=0,
            linked=False,
            period_s=PERIOD_S,
            metrics_url="",
            statistics={},
        )


class AgentProcess(Process):
    """A node agent: what `roles.node` is in earnest."""

    def __init__(self, cluster: "Cluster", name: str, me: Identity, now: float) -> None:
        super().__init__(cluster, name, me, now, now)
        store = cluster.stores[me.node]
        planned = [each for each in cluster.config.components() if each.node == me.node]
        self.agent = cluster.kinds.agent(
            [each for each in planned if each.role != NODE],
            AgentConfig(
                roles=frozenset({"hub", "manager", "brick"}), restarts=cluster.config.restarts
            ),
            incarnations=store,
            restarts=bool(store),
            wall_ms=cluster.wall_ms(),
            now=now,
            settle_s=10.0 if store and cluster.kinds.settle_periods else 0.0,
        )
        store[me.id] = me.incarnation
        self._heard_at: float | None = None
        self._hold_at = now

    @property
    def wake_at(self) -> float:
        return min(super().wake_at, self.agent.wake_at)

    def advance(self, now: float) -> list[Effect]:
        effects = super().advance(now)
        node = self.me.node
        others = (peer for peer in self.table.live() if peer.node != node)
        self.agent.elsewhere({peer.id: peer.incarnation for peer in others}, now)
        settle_s = self.cluster.kinds.settle_periods * PERIOD_S
        if self._heard_at is not None and now >= self._heard_at + settle_s:
            self.agent.settled(now)
        effects += self.perform(self.agent.advance(now), now)
        held = self.agent.held(now)
        if held and now >= self._hold_at:
            self._hold_at = now + PERIOD_S
            effects.append(self.publish(ProcessesHeld(held)))
        return effects

    def beacon_came(self, heard: Frame, beacon: Beacon, now: float) -> None:
        self.agent.live(heard.id, heard.incarnation, now)
        if heard.id == self.me.id and self._heard_at is None:
            self._heard_at = now

    def asked(self, sender: str, order: RestartProcess, by: str, now: float) -> list[Effect]:
        peer = self.table.peer(order.id)
        seen = 0 if peer is None else peer.incarnation
        answer = self.agent.restart(order.id, order.incarnation, order.cause, now, seen=seen)
        if isinstance(answer, Refused):
            return []
        effects = self.perform(answer, now)
        state = self.agent.states()[order.id]
        if sender and isinstance(state, Running | Ending):
            described = ProcessDescribed(order.id, state.pid, state.incarnation)
            effects.append(Send(sender, self.frame(described)))
        return effects

    def perform(self, actions: list[Action], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for action in actions:
            match action:
                case Spawn(id=component_id, incarnation=incarnation):
                    self.cluster.stores[self.me.node][component_id] = incarnation
                    pid = self.cluster.spawn(self.me.node, action)
                    started = self.agent.started(component_id, incarnation, pid, now)
                    effects += self.perform(started, now)
                case Signal(pid=pid, name=signal):
                    self.cluster.signal(pid, signal)
                case Report():
                    life = action.id, action.incarnation
                    exited = Exited(*life, action.pid, action.code, action.reason, action.asked)
                    effects += [self.publish(exited)]
                    effects += self._judged(self.table.exited(*life, action.reason, now))
                case Tell(kind="restarted", subject=subject, reason=reason):
                    effects.append(Note(Restarted(subject, reason)))
                    effects.append(self.publish(Happening("restarted", subject, reason)))
                case Tell():
                    pass
        return effects


class Cluster:
    """Nodes, with hubs, two managers and three bricks on them."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: Kinds | None = None,
        weather: Weather = CALM,
        restarts: RestartsConfig | None = None,
        nodes: int = 3,
        hubs: int = 2,
    ) -> None:
        self.kinds = kinds or Kinds()
        config = local(
            "/tmp", nodes=nodes, run={"hub": hubs, "manager": 2, "brick": 3}, preset="lan"
        )
        patient = RestartsConfig(offline_after=100)  # Chance may hit one thing again and again.
        self.config: Config = msgspec.structs.replace(config, restarts=restarts or patient)
        self.plan = {each.id: each for each in self.config.components()}
        self.agents = {each.node: each.id for each in self.plan.values() if each.role == NODE}
        names = [each.id for each in self.plan.values() if each.role == HUB]
        self.world = World(seed, hubs=names, weather=weather)
        self.stores: dict[str, dict[str, int]] = {node: {} for node in self.agents}
        self.lost: set[str] = set()
        """Nodes that are gone: no watchdog is there either."""
        self.pids: dict[str, int] = {}
        """Of the processes that run, by their names in the world."""
        self._identities: dict[str, Identity] = {}
        self._pid = count(100)
        for hub in names:
            self.world.kill(hub)  # Until its agent starts it.
        for node in self.agents:
            self.start_agent(node)

    # What an operating system does.

    def wall_ms(self) -> int:
        return 1_000_000 + int(self.world.now * 1000)

    def name(self, component_id: str, node: str) -> str:
        return (
            component_id
            if self.plan[component_id].role in (HUB, NODE)
            else f"{component_id}@{node}"
        )

    def spawn(self, node: str, spawn: Spawn) -> int:
        name = self.name(spawn.id, node)
        assert name not in self.pids, f"A1: {name} runs already"
        me = Identity(spawn.id, spawn.role, node, spawn.incarnation)
        delay_s = self.world.chance.uniform(*START_S)
        self._begin(name, me, lambda now: Process(self, name, me, now + delay_s, now))
        return self.pids[name]

    def _begin(self, name: str, me: Identity, make: Callable[[float], Actor]) -> None:
        self.pids[name] = next(self._pid)
        self._identities[name] = me
        if name in self.world.hubs:
            self.world.start(name)
        self.world.add(name, make)
        self.world.log(f"{name} begins, incarnation {me.incarnation}")

    def start_agent(self, node: str) -> None:
        agent_id = self.agents[node]
        if agent_id in self.pids or node in self.lost:
            return
        incarnation = max(self.stores[node].get(agent_id, 0) + 1, self.wall_ms())
        me = Identity(agent_id, NODE, node, incarnation)
        self._begin(agent_id, me, lambda now: AgentProcess(self, agent_id, me, now))

    def signal(self, pid: int, signal: str) -> None:
        for name, running in list(self.pids.items()):
            if running == pid and signal in ("kill", "term"):
                self.end(name, -9 if signal == "kill" else 0)

    def end(self, name: str, code: int) -> None:
        """A moment later, since whoever wants it is in the middle of something."""
        pid = self.pids.get(name)

        def over() -> None:
            if self.pids.get(name) == pid:
                self.kill(name, code)

        self.world.after(0.01, over)

    def kill(self, name: str, code: int = -9) -> None:
        """That process is over; so are an agent's children; its parent is told."""
        pid, me = self.pids.pop(name), self._identities.pop(name)
        actor = self.world.nodes[name].actor
        if code == 0 and isinstance(actor, Process):
            self.world.perform(name, actor.goodbye(self.world.nodes[name].now))
        self.world.kill(name)
        del self.world.nodes[name]
        if me.role == NODE:
            for child in [
                each for each, other in self._identities.items() if other.node == me.node
            ]:
                self.kill(child)
            self.world.after(WATCHDOG_S, lambda: self.start_agent(me.node))
            return
        parent = self.world.nodes.get(self.agents[me.node])
        if parent is not None:
            parent.do(lambda agent, now: self._reaped(agent, me.id, pid, code, now))

    def _reaped(
        self, actor: Actor, component_id: str, pid: int, code: int, now: float
    ) -> list[Effect]:
        assert isinstance(actor, AgentProcess)
        return actor.perform(actor.agent.exited(component_id, pid, code, now), now)

    def pause(self, name: str, seconds: float) -> None:
        pid = self.pids[name]
        self.world.pause(name, seconds)

        def watchdog() -> None:
            if self.pids.get(name) == pid:
                self.kill(name)

        if name in self.agents.values() and seconds > STANDS_STILL_S:
            self.world.after(STANDS_STILL_S, watchdog)

    def lose(self, node: str, seconds: float) -> None:
        """The machine is gone, for so long."""
        self.lost.add(node)
        if self.agents[node] in self.pids:
            self.kill(self.agents[node])

        def back() -> None:
            self.lost.discard(node)
            self.start_agent(node)

        self.world.after(seconds, back)

    def find_nodes(self) -> None:
        """Whatever was lost is there again."""
        for node in sorted(self.lost):
            self.lost.discard(node)
            self.start_agent(node)

    # What tests ask.

    def run_of(self, component_id: str) -> list[str]:
        """The processes that run under that id."""
        return [name for name, me in self._identities.items() if me.id == component_id]

    def running(self) -> list[Identity]:
        return list(self._identities.values())

    def have_asked(self, healer: str, agent_id: str, order: RestartProcess) -> None:
        actor = self.world.nodes[healer].actor
        assert isinstance(actor, Process)
        self.world.perform(healer, Send(agent_id, actor.frame(order)))

    def node_names(self, node: str) -> list[str]:
        return [name for name, me in self._identities.items() if me.node == node]

    def agent(self, node: str) -> AgentProcess:
        actor = self.world.nodes[self.agents[node]].actor
        assert isinstance(actor, AgentProcess)
        return actor

    def restarted(self) -> list[str]:
        return [what.id for _, _, what in self.world.noted if isinstance(what, Restarted)]

    def must(self, condition: object, problem: str) -> None:
        assert condition, self.world.told(problem)

    def trouble(self) -> str:
        """What keeps it from being whole; empty if it is."""
        for component_id in self.plan:
            names = self.run_of(component_id)
            if len(names) != 1:
                return f"{component_id} runs as {names}"
            for agent_id in self.agents.values():
                actor = self.world.nodes[agent_id].actor if agent_id in self.pids else None
                if not isinstance(actor, AgentProcess):
                    return f"{agent_id} is not there"
                peer = actor.table.peer(component_id)
                state = "live" if component_id == agent_id else peer and peer.state
                if state != "live":
                    return f"{agent_id} sees {component_id} as {state}"
        return ""

    def all_must_live_once(self) -> None:
        trouble = self.trouble()
        self.must(not trouble, trouble)

    def must_be_whole_within(self, seconds: float) -> None:
        deadline = self.world.now + seconds
        while self.trouble() and self.world.now < deadline:
            self.world.run(1.0)
        self.all_must_live_once()
