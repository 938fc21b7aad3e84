"""Lease managers, and programs with owners and lookups in them, for `tests.world`: the production
machines behind as little as will connect them, which is what the shells do.

Programs ask the leader they know, and all managers while that is silent; an ask that is not
answered in time is `unanswered`. Frames are the real messages, encoded. What an owner's program and
a lookup's program are told goes to the cluster's `Watch`, which checks it.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Protocol

import msgspec

import roles.manager
from bus.lease_timing import LEASE_PRESETS, LeaseTiming
from bus.messages import Happening
from roles.assignment import Assignment, Fixed, Vnodes
from roles.election import Candidate, Election
from roles.key_range import KEYS_END, KeyRange, position
from roles.lease_messages import (
    NUDGE_TOPIC,
    TIP_TOPIC,
    AskLeases,
    AskMap,
    LeaseNudge,
    LeasesAnswered,
    MapAnswered,
    MapDelta,
    MapTip,
    OwnerAsk,
    decode_part,
    delta_topic,
)
from roles.lease_namespace import Namespace
from roles.lookup_machine import Ask, LookupAction, LookupMachine, Lost, MapChanged, Odd
from roles.manager import (
    AnswerLeases,
    AnswerMap,
    AskStore,
    Broadcast,
    KillHolder,
    Manager,
    ManagerAction,
    Outcome,
    StoreOp,
    Tell,
)
from roles.owner_machine import (
    Changed,
    Ignored,
    OwnerAction,
    OwnerMachine,
    OwnerName,
    RefusedLife,
    SendAsk,
)
from roles.range_map import RangeMap
from tests.simulation.lease_store import STORE, Rows, SimStore
from tests.world import CALM, Actor, Effect, Node, Note, Publish, Send, Weather, World

HUBS = ("hub-1", "hub-2")
AGENT = "agent"
EXITS_TOPIC = "exits"
VOUCH_S_MAX = 0.2
"""An agent tells of an exit within this time."""
ASK_S_MIN, ASK_S_MAX = 0.2, 1.0
ASKED_MAX = 200
TIMINGS = {
    "lan": LEASE_PRESETS["lan"],
    "fast": LEASE_PRESETS["fast"],
    # With next to nothing to spare, and a term that outlasts a store that does not answer.
    "tight": LeaseTiming(
        owner_ttl_s=9.5, manager_ttl_s=10.23, renew_s=1.5, poll_s=4, leader_ttl_s=4
    ).check(),
}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What is under test: the production classes, or a sabotaged one among them."""

    manager: type[Manager] = Manager
    election: type[Election] = Election
    namespace: type[Namespace] = Namespace
    owner: type[OwnerMachine] = OwnerMachine
    lookup: type[LookupMachine] = LookupMachine
    timing: Callable[[LeaseTiming], LeaseTiming] = lambda timing: timing
    """What managers make of the timing."""
    slow_clock: float = 1.0
    """How fast the clock of the first owner runs, against the bound."""


PRODUCTION = Parts()


class Frame(msgspec.Struct, frozen=True, array_like=True):
    token: int
    message: (
        AskLeases
        | AskMap
        | LeasesAnswered
        | MapAnswered
        | MapTip
        | MapDelta
        | LeaseNudge
        | Happening
    )
    body: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Ring:
    """As `Vnodes`, with few points, so that a run is quick."""

    POINTS = 3

    def plan(self, owners: Collection[str]) -> RangeMap[str]:
        ring = sorted(
            (position(f"{owner}/{n}"), owner) for owner in owners for n in range(self.POINTS)
        )
        plan: RangeMap[str] = RangeMap(ring[-1][1] if ring else "")
        starts = [*(at for at, _ in ring), KEYS_END]
        return plan.updated(
            (start, end, owner)
            for (start, owner), end in zip(ring, starts[1:], strict=True)
            if start < end
        )


ASSIGNMENTS: list[Callable[[], Assignment]] = [Fixed, Ring, Vnodes]


def shown(ranges: Sequence[KeyRange]) -> str:
    """Ranges for people: in percent of the key space."""
    parts = [f"{100 * r.start / KEYS_END:.4g}-{100 * r.end / KEYS_END:.4g}" for r in ranges]
    more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
    return "[" + ", ".join(parts[:4]) + more + "]%"


class Said(msgspec.Struct, frozen=True):
    """Something for the transcript, and for the counts by its kind."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Watch(Protocol):
    """Told of everything that a program is told, as it happens."""

    def began(self, node: Node, program: "Program") -> None: ...
    def changed(self, machine: OwnerMachine, change: Changed) -> None: ...
    def heard(self, machine: LookupMachine, now: float) -> None: ...
    def mapped(self, machine: LookupMachine) -> None: ...
    def lost(self, machine: LookupMachine, loss: Lost, now: float) -> None: ...
    def landed(self, before: Rows, after: Rows) -> None: ...
    def spoke(self, manager: str, *, is_trusted: bool) -> None: ...


class ManagerProcess:
    """One life of one manager's process."""

    def __init__(self, cluster: "Cluster", name: str, life: int, now: float) -> None:
        me = Candidate(name, life, "n1")
        self.machine = cluster.parts.manager(me, cluster.manager_timing, cluster.assigned, now)
        self.machine.election = cluster.parts.election(me, cluster.manager_timing)
        self.incarnation = life
        self._cluster = cluster
        self._name = name
        self._tokens: dict[int, tuple[str, int]] = {}
        self._next_token = count()
        self._trusted_at = -math.inf
        self._watch_trust()

    def _watch_trust(self) -> None:
        """Before it steps down a manager may say much, and do both in one call."""
        election = self.machine.election
        step_down = election.step_down

        def note_and_step_down(now: float, *, for_greater_term: bool = False) -> None:
            self._note_trust(now)
            step_down(now, for_greater_term=for_greater_term)

        setattr(election, "step_down", note_and_step_down)  # noqa: B010

    def _note_trust(self, now: float) -> None:
        if self.machine.election.trusted(now):
            self._trusted_at = now

    @property
    def wake_at(self) -> float:
        return self.machine.wake_at

    def advance(self, now: float) -> list[Effect]:
        return self._perform(self.machine.advance(now), now)

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        token = next(self._next_token)
        self._tokens[token] = sender, heard.token
        if len(self._tokens) > ASKED_MAX:
            del self._tokens[next(iter(self._tokens))]
        match heard.message:
            case AskLeases() as asked:
                return self._perform(self.machine.asked_leases(token, asked, now), now)
            case AskMap() as asked_map:
                return self._perform(self.machine.asked_map(token, asked_map, now), now)
            case _:
                raise AssertionError("nobody sends that to a manager")

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        message = _decode(frame).message
        assert isinstance(message, Happening)
        dead, life = message.subject, int(message.reason)
        return self._perform(self.machine.vouched_dead(dead, life, now), now)

    def stored(self, outcome: Outcome, now: float) -> list[Effect]:
        return self._perform(self.machine.stored(outcome, now), now)

    def resign(self, now: float) -> list[Effect]:
        return self._perform(self.machine.resign(now), now)

    def _perform(self, actions: list[ManagerAction], now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._note_trust(now)
        if any(_is_of_a_leader(action) for action in actions):
            self._cluster.watch.spoke(self._name, is_trusted=self._trusted_at == now)
        for action in actions:
            match action:
                case AskStore(op=op):
                    self._ask_store(op)
                case AnswerLeases(token=token, message=message):
                    effects += self._answer(token, message)
                case AnswerMap(token=token, message=map_message, body=body):
                    effects += self._answer(token, map_message, body)
                case Broadcast(message=news):
                    effects.append(Publish(_encode(Frame(0, news)), _topic(news)))
                case Tell(note=note):
                    said = f"{note.subject}: {note.reason}"
                    effects.append(Note(Said(note.kind, said)))
                case KillHolder(process=process):
                    effects.append(Note(Said("kill holder", process)))
                    self._cluster.kill_later(process)
        return effects

    def _answer(
        self, token: int, message: LeasesAnswered | MapAnswered, body: bytes = b""
    ) -> list[Effect]:
        asker = self._tokens.pop(token, None)
        if asker is None:
            return []
        return [Send(asker[0], _encode(Frame(asker[1], message, body)))]

    def _ask_store(self, op: StoreOp) -> None:
        node = self._cluster.world.nodes[self._name]

        def reply(outcome: Outcome) -> None:
            node.do(lambda actor, now: self.stored(outcome, now) if actor is self else [])

        self._cluster.store.ask(self._name, op, reply)


def _is_of_a_leader(action: ManagerAction) -> bool:
    match action:
        case AnswerLeases(message=message):
            return message.leading
        case AnswerMap(message=map_message):
            return map_message.leading
        case _:
            return isinstance(action, Broadcast)


def _topic(news: MapTip | MapDelta | LeaseNudge) -> str:
    match news:
        case MapTip():
            return TIP_TOPIC
        case MapDelta(namespace=namespace):
            return delta_topic(namespace)
        case LeaseNudge():
            return NUDGE_TOPIC


class Plan(msgspec.Struct, frozen=True):
    """What is in a program."""

    owns: dict[str, str]
    """Namespace to the owner's id."""
    looks: list[str]
    """Namespaces it has lookups of."""


class _Asking:
    """Something asked, of whom, and until when that matters."""

    def __init__(self, waiting: set[str], deadline: float, failed: Callable[[float], None]) -> None:
        self.waiting = waiting
        self.deadline = deadline
        self.failed = failed
        self.is_open = True
        self.message: AskMap | None = None
        self.lookup: LookupMachine | None = None


class Program:
    """One life of one process with owners and lookups: what `roles.lease_session` does."""

    def __init__(self, cluster: "Cluster", name: str, plan: Plan, life: int, now: float) -> None:
        chance, parts = cluster.world.chance, cluster.parts
        self.name = name
        self.incarnation = life
        self.owners = {
            namespace: parts.owner(
                OwnerName(
                    namespace=namespace,
                    owner=owner,
                    url=owner,
                    process=name,
                    process_incarnation=life,
                    incarnation=life,
                    nonce=chance.getrandbits(62),
                ),
                cluster.timing,
                chance,
                now,
            )
            for namespace, owner in plan.owns.items()
        }
        self.lookups = {
            namespace: parts.lookup(namespace, cluster.timing, chance, now)
            for namespace in plan.looks
        }
        self._cluster = cluster
        self._watch = cluster.watch
        self._managers = cluster.managers
        self._ask_s = min(max(cluster.timing.renew_s, ASK_S_MIN), ASK_S_MAX)
        self._leader = ""
        self._leader_term = 0
        self._asking: dict[int, _Asking] = {}
        self._open: set[int] = set()
        self._next_token = count(life << 32)  # No answer to a former life is taken for ours.

    @property
    def wake_at(self) -> float:
        wakes = [machine.wake_at for machine in self.owners.values()]
        wakes += [lookup.wake_at for lookup in self.lookups.values()]
        wakes += [self._asking[token].deadline for token in self._open]
        return min(wakes)

    @property
    def released(self) -> bool:
        return all(machine.released for machine in self.owners.values())

    def leave(self, now: float) -> list[Effect]:
        for machine in self.owners.values():
            machine.leave(now)
        return self.advance(now)

    def advance(self, now: float) -> list[Effect]:
        for token in sorted(self._open):
            if now >= self._asking[token].deadline:
                self._fail(token, now)
        effects: list[Effect] = []
        if any(machine.wake_at <= now for machine in self.owners.values()):
            asks: list[OwnerAsk] = []
            for machine in self.owners.values():
                machine.nudged(now)  # All together, as often as the first of them.
                actions = machine.advance(now)
                asks += [action.ask for action in actions if isinstance(action, SendAsk)]
                effects += self._owner(machine, actions)
            if asks:
                effects += self._ask_leases(asks, now)
        for lookup in self.lookups.values():
            if lookup.wake_at <= now:
                effects += self._lookup(lookup, lookup.advance(now), now)
        return effects

    def _ask_leases(self, asks: list[OwnerAsk], now: float) -> list[Effect]:
        def failed(now: float) -> None:
            for ask in asks:
                self.owners[ask.namespace].unanswered(ask.sequence, now)

        return self._ask(AskLeases(asks), failed, now)[0]

    def _ask_map(self, lookup: LookupMachine, message: AskMap, now: float) -> list[Effect]:
        effects, asking = self._ask(message, lookup.unanswered, now)
        asking.message, asking.lookup = message, lookup
        return effects

    def _ask(
        self, message: AskLeases | AskMap, failed: Callable[[float], None], now: float
    ) -> tuple[list[Effect], _Asking]:
        targets = [self._leader] if self._leader else self._managers
        token = next(self._next_token)
        asking = self._asking[token] = _Asking(set(targets), now + self._ask_s, failed)
        self._open.add(token)
        if len(self._asking) > ASKED_MAX:
            self._asking.pop(token - ASKED_MAX, None)
        frame = _encode(Frame(token, message))
        return [Send(target, frame) for target in targets], asking

    def _fail(self, token: int, now: float) -> None:
        asking = self._asking[token]
        self._open.discard(token)
        asking.is_open = False
        self._leader = ""
        asking.failed(now)

    # What comes.

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        asking = self._asking.get(heard.token)
        if asking is None or (self._cluster.drops_late and not asking.is_open):
            return []
        match heard.message:
            case LeasesAnswered(leading=True) as answered:
                self._answered(heard.token, sender, answered.term)
                return self._leases(answered, now)
            case MapAnswered(leading=True) as map_answered:
                self._answered(heard.token, sender, map_answered.term)
                assert asking.lookup is not None
                assert asking.message is not None
                part = decode_part(heard.body)
                self._heard(asking.lookup, map_answered.term, now)
                actions = asking.lookup.answered(map_answered, part, asking.message, now)
                return self._lookup(asking.lookup, actions, now)
            case _:
                asking.waiting.discard(sender)
                if not asking.waiting and asking.is_open:
                    self._fail(heard.token, now)
                return []

    def _answered(self, token: int, sender: str, term: int) -> None:
        self._open.discard(token)
        if term >= self._leader_term:
            self._leader, self._leader_term = sender, term

    def _leases(self, answered: LeasesAnswered, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for answer in answered.answers:
            machine = self.owners[answer.namespace]
            effects += self._owner(machine, machine.answered(answered.term, answer, now))
        return effects

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        message = _decode(frame).message
        match message:
            case MapTip() as tip:
                return self._heard_tip(sender, tip, now)
            case MapDelta() as delta:
                lookup = self.lookups[delta.namespace]
                part = decode_part(delta.part)
                self._heard(lookup, delta.term, now)
                return self._lookup(lookup, lookup.heard_delta(delta, part, now), now)
            case LeaseNudge() as nudge:
                machine = self.owners.get(nudge.namespace)
                if machine is not None and machine.name.owner in nudge.owners:
                    machine.nudged(now)
                return []
            case _:
                raise AssertionError("nobody publishes that to programs")

    def _heard_tip(self, sender: str, tip: MapTip, now: float) -> list[Effect]:
        if tip.term > self._leader_term:
            self._leader, self._leader_term = sender, tip.term
            for machine in self.owners.values():
                machine.nudged(now)
        effects: list[Effect] = []
        for namespace, term, lsn in tip.versions:
            lookup = self.lookups.get(namespace)
            if lookup is not None:
                self._heard(lookup, tip.term, now)
                effects += self._lookup(lookup, lookup.heard_tip(tip.term, (term, lsn), now), now)
        return effects

    def _heard(self, lookup: LookupMachine, term: int, now: float) -> None:
        if term >= lookup.term:
            self._watch.heard(lookup, now)

    # What the machines want.

    def _owner(self, machine: OwnerMachine, actions: list[OwnerAction]) -> list[Effect]:
        effects: list[Effect] = []
        name = machine.name.namespace
        for action in actions:
            match action:
                case Changed() as change:
                    self._watch.changed(machine, change)
                    text = f"{name} +{shown(change.granted)} -{shown(change.revoked)}"
                    effects.append(Note(Said("holds", f"{text} {change.reason}")))
                case RefusedLife(reason=reason):
                    effects.append(Note(Said("refused", f"{name}: {reason}")))
                case Ignored(reason=reason):
                    self._cluster.world.seen[f"ignored: {reason}"] += 1
                case SendAsk():
                    pass
        return effects

    def _lookup(
        self, lookup: LookupMachine, actions: list[LookupAction], now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        for action in actions:
            match action:
                case Ask(message=message):
                    effects += self._ask_map(lookup, message, now)
                case Lost() as loss:
                    self._watch.lost(lookup, loss, now)
                    text = f"{lookup.namespace} {shown(loss.ranges)}: {loss.reason}"
                    effects.append(Note(Said("lost", text)))
                case MapChanged():
                    self._watch.mapped(lookup)
                case Odd(reason=reason):
                    self._cluster.world.seen[f"odd: {reason}"] += 1
        return effects


class Cluster:
    """Managers over one store, programs, two hubs and, now and then, an agent that vouches."""

    def __init__(  # noqa: PLR0913 (all but two by name)
        self,
        seed: int,
        watch: Callable[["Cluster"], Watch],
        *,
        parts: Parts = PRODUCTION,
        timing: str = "lan",
        managers: int = 2,
        assignment: Callable[[], Assignment] = Fixed,
        weather: Weather = CALM,
        transcript_lines: int | None = 60,
    ) -> None:
        self.parts = parts
        self.timing = TIMINGS[timing]
        self.manager_timing = parts.timing(self.timing)
        half = self.timing.skew / 2  # Of any two clocks, one gains at most `skew` on the other.
        self.world = World(
            seed,
            hubs=HUBS,
            weather=weather,
            rates=(1 - half, 1 + half),
            transcript_lines=transcript_lines,
        )
        self.drops_late = False
        """As the real shell does; if not, machines get answers however late they come."""
        self.managers = [f"manager-{n + 1}" for n in range(managers)]
        self.programs: list[str] = []
        self.plans: dict[str, Plan] = {}
        self.kills: Counter[str] = Counter()
        self._assignment = assignment
        self._lives = count(1)
        self.watch = watch(self)
        self.store = SimStore(self.world, self.watch.landed)
        for name in self.managers:
            self._add_manager(name)

    def assigned(self, namespace: str) -> Assignment:
        return self._assignment()

    def _add_manager(self, name: str) -> None:
        def make(now: float) -> Actor:
            return ManagerProcess(self, name, next(self._lives), now)

        self.world.add(name, make, hears=lambda topic: topic == EXITS_TOPIC)

    def add_program(
        self, name: str, owns: dict[str, str], looks: Sequence[str] = (), rate: float | None = None
    ) -> None:
        plan = self.plans[name] = Plan(owns, list(looks))
        self.programs.append(name)

        def make(now: float) -> Actor:
            program = Program(self, name, plan, next(self._lives), now)
            self.watch.began(self.world.nodes[name], program)
            return program

        topics = {TIP_TOPIC, NUDGE_TOPIC, *(delta_topic(namespace) for namespace in looks)}
        self.world.add(name, make, hears=topics.__contains__, rate=rate)

    # Who is there.

    def manager(self, name: str) -> ManagerProcess | None:
        actor = self.world.nodes[name].actor
        assert actor is None or isinstance(actor, ManagerProcess)
        return actor

    def program(self, name: str) -> Program | None:
        actor = self.world.nodes[name].actor
        assert actor is None or isinstance(actor, Program)
        return actor

    def leaders(self) -> list[str]:
        """Managers that lead and trust their term at this instant."""
        found = []
        for name in self.managers:
            node, manager = self.world.nodes[name], self.manager(name)
            if manager and manager.machine.leading and manager.machine.election.trusted(node.now):
                found.append(name)
        return found

    def up(self) -> Iterator[tuple[Node, Program]]:
        for name in self.programs:
            if (program := self.program(name)) is not None:
                yield self.world.nodes[name], program

    # What people and agents do.

    def vouch(self, name: str, incarnation: int) -> None:
        """An agent has reaped that process."""
        frame = _encode(Frame(0, Happening("exited", name, str(incarnation))))
        self.world.log(f"{AGENT}: {name} has exited")
        self.world.perform(AGENT, Publish(frame, EXITS_TOPIC))

    def life(self, name: str) -> int:
        """Which incarnation of that process is up."""
        actor = self.world.nodes[name].actor
        assert isinstance(actor, ManagerProcess | Program)
        return actor.incarnation

    def kill(self, name: str, *, vouched: bool = False) -> None:
        """Kill a process, if it is up."""
        actor = self.world.nodes[name].actor
        self.world.kill(name)
        if vouched and isinstance(actor, ManagerProcess | Program):
            life = actor.incarnation
            delay_s = self.world.chance.uniform(0, VOUCH_S_MAX)
            self.world.after(delay_s, lambda: self.vouch(name, life))

    def start(self, name: str) -> None:
        """Start what is down."""
        if self.world.nodes[name].actor is None:
            self.world.start(name)

    def cut_store(self, name: str, seconds: float) -> None:
        """That manager cannot reach the store."""
        self.world.cut(name, STORE, seconds)

    def resign(self, name: str) -> None:
        """Tell a manager to end in order."""
        manager = self.manager(name)
        self.world.log(f"{name} is told to end")
        self.world.seen["resign"] += 1
        if manager is not None:
            self.world.nodes[name].do(
                lambda actor, now: manager.resign(now) if actor is manager else []
            )
            self.world.after(1.0, lambda: self._end(name, manager))

    def _end(self, name: str, life: Actor) -> None:
        if self.world.nodes[name].actor is life:
            self.kill(name)

    def kill_later(self, name: str) -> None:
        """As an agent that is asked to."""
        delay_s = self.world.chance.uniform(0, VOUCH_S_MAX)
        self.world.after(delay_s, lambda: self.kill(name, vouched=True))
        self.world.after(delay_s + 1, lambda: self.start(name))

    def leave(self, name: str, seconds: float) -> None:
        """Close a program in order, for at most `seconds`; then it ends."""
        self.world.log(f"{name} leaves")
        self.world.seen["leave"] += 1
        leaving = self.program(name)
        if leaving is None:
            return
        self.world.nodes[name].do(lambda actor, now: leaving.leave(now) if actor is leaving else [])
        until = self.world.now + seconds

        def look() -> None:
            if self.program(name) is not leaving:
                return
            if leaving.released or self.world.now >= until:
                self.kill(name)
            else:
                self.world.after(0.1, look)

        self.world.after(0.1, look)

    def must(self, condition: object, problem: str) -> None:
        assert condition, self.world.told(problem)


@contextmanager
def planted(parts: Parts) -> Iterator[None]:
    """Managers make their namespaces of this class: the one part that they make by name."""
    setattr(roles.manager, "Namespace", parts.namespace)  # noqa: B010
    try:
        yield
    finally:
        setattr(roles.manager, "Namespace", Namespace)  # noqa: B010
