"""What runs on one node, and what to do about it. Decides only: no process, no clock, no socket.

A node agent starts what the configuration lists for its node. When something ends, it says so
and leaves the rest to whoever notices (peers, Pinpoint, a person): only its own hubs it starts
again unasked, since without hubs nobody could ask. What somebody ended on purpose, and what
failed again after each restart, it holds back from those who find it dead. The shell
(`roles.node`) performs the actions, and tells what came of them with `started`, `failed` and
`exited`. Holds survive an agent that dies; one that ends in good order begins with the plan.

What always holds:
  A1  An id has at most one process here: `Spawn` comes only when none runs, begins or ends.
  A2  The incarnation of a `Spawn` is greater than any the id is known to have had, and not
      less than the wall clock in milliseconds, so that it holds even where a store was lost.
      No number of the far future is known: no later life could have a greater one.
  A3  What ended is started again unasked only if it is a hub planned for this node, `heal` is
      on, and nobody asked for its end; or once, when it was offline for `probation_s`.
  A4  Starts after unasked ends are spaced by `roles.restarts`; none is put off for ever.
  A5  Each end of a process is reported once, in the step in which it is told.
  A6  News of a process that is not the id's present one changes nothing.
  A7  After `stop` nothing is started; what runs is asked to end and, `end_s_max` later, killed.
  A8  At most `processes_max` ids are kept.
  A9  A restart is of one life: a later one that runs, begins or is due, here or on another node,
      is left alone, so a restart asked for twice, late, or by several is one restart.
  A10 What is held is started for nobody but a person, until its time of probation. Hubs are
      never offline.
  A11 What runs here, and in a later life on another node, is killed if it does not end by itself.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from bus.config_shape import HUB, NODE, Planned, RestartsConfig
from bus.identity import BELIEVED_MAX, next_incarnation
from bus.messages import Refused
from bus.process_orders import Held
from roles.agent_states import (
    Action,
    Disabled,
    Due,
    Ending,
    Hold,
    How,
    Idle,
    Offline,
    Report,
    Running,
    Signal,
    SignalName,
    Spawn,
    Spawning,
    State,
    Tell,
    Then,
    Waiting,
)
from roles.endings import spoken
from roles.restart_budget import RestartBudget
from roles.restarts import Restarts

NAME_LENGTH_MAX = 100  # What is longer, is no id.

_NUMBER = re.compile("[1-9][0-9]{0,8}")


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    roles: frozenset[str]
    """The roles that processes can have here."""
    heal: bool = True
    """Start the hubs of this node again when they end."""
    end_s_max: float = 3.5
    """How long a process may take to end before it is killed: longer than the process grants
    its role (3 s), less than the agent's watchdog grants the agent."""
    processes_max: int = 1000
    """How many ids one agent looks after; a start beyond that is refused."""
    restarts: RestartsConfig = RestartsConfig()
    """When restarts are given up."""


@dataclass(slots=True)
class _Child:
    role: str
    state: State
    budget: RestartBudget
    restarts: int
    """How often it was started again; -1 before its first start."""
    planned: bool = False
    """Whether the configuration asks for it on this node."""
    intensity: Restarts = field(default_factory=Restarts)


class Agent:
    def __init__(  # noqa: PLR0913 (all but two are keywords)
        self,
        planned: Iterable[Planned],
        config: AgentConfig,
        *,
        incarnations: Mapping[str, int],
        restarts: int,
        wall_ms: int,
        now: float,
        settle_s: float = 0.0,
        holds: Iterable[Hold] = (),
    ) -> None:
        """`incarnations`: the last known of each id; `restarts`: how often this agent itself was
        started again, and with it all of its children; `wall_ms`: the wall clock at `now`;
        `settle_s`: how long at most to wait for news of what may live elsewhere; `holds`: what
        the agent before held when it died."""
        self._roles = config.roles - {NODE}  # An agent is started by its watchdog.
        self._config = config
        self._incarnations = dict(incarnations)
        self._wall_ms = wall_ms
        self._began_at = now
        self._stopping = False
        self._elsewhere: Mapping[str, int] = {}
        # Hubs first: everything else looks for them.
        ordered = sorted(planned, key=lambda component: component.role != HUB)
        self._children: dict[str, _Child] = {}
        for each in ordered:
            at_once = each.role == HUB or not settle_s
            state = Due(now) if at_once else Waiting(now + settle_s)
            budget = RestartBudget(config.restarts)
            self._children[each.id] = _Child(each.role, state, budget, restarts - 1, planned=True)
        for hold in holds:
            self._hold_again(hold, now)

    @property
    def incarnations(self) -> Mapping[str, int]:
        """The last incarnation given to, or heard of, each id: to be kept for the next agent."""
        return self._incarnations

    @property
    def finished(self) -> bool:
        """Whether `stop` was called and nothing runs any more."""
        return self._stopping and all(
            isinstance(child.state, Idle) for child in self._children.values()
        )

    def states(self) -> dict[str, State]:
        """How each id stands: for the shell, which answers questions from it."""
        return {component_id: child.state for component_id, child in self._children.items()}

    def held(self, now: float) -> list[Held]:
        """What is not run, on purpose."""
        held = []
        for component_id, child in self._children.items():
            match child.state:
                case Disabled(since):
                    why = "it was ended as asked"
                    held.append(Held(component_id, "disabled", why, max(0.0, now - since)))
                case Offline(since, reason):
                    held.append(Held(component_id, "offline", reason, max(0.0, now - since)))
                case _:
                    pass
        return held

    def holds(self) -> list[Hold]:
        """The same for the agent's next life, should this one die: it changes only when what is
        held does."""
        holds = []
        for component_id, child in self._children.items():
            match child.state:
                case Disabled(since):
                    holds.append(Hold(component_id, "disabled", self._at_ms(since)))
                case Ending(kill_at=kill_at, then="stay") if not self._stopping:
                    since = kill_at - self._config.end_s_max
                    holds.append(Hold(component_id, "disabled", self._at_ms(since)))
                case Offline(since, reason, try_at):
                    times = self._at_ms(since), reason, self._at_ms(try_at)
                    holds.append(Hold(component_id, "offline", *times))
                case _:
                    pass
        return holds

    def _at_ms(self, at: float) -> int:
        return self._wall_ms + int((at - self._began_at) * 1000)

    def _hold_again(self, hold: Hold, now: float) -> None:
        child = self._children.get(hold.id) or self._adopt(hold.id)
        if isinstance(child, Refused):
            return  # A role that is no longer known.
        # The wall clock may have been set meanwhile: nothing is held for longer than it was to be.
        since = now - max(0, self._wall_ms - hold.since_ms) / 1000
        if hold.why == "disabled":
            child.state = Disabled(since)
        elif child.role != HUB:  # A10
            left_s = max(0, hold.try_at_ms - self._wall_ms) / 1000
            try_at = now + min(left_s, self._config.restarts.probation_s)
            child.state = Offline(since, hold.reason, try_at)
            child.budget.failed = self._config.restarts.offline_after

    @property
    def wake_at(self) -> float:
        return min((_due_at(child.state) for child in self._children.values()), default=math.inf)

    def advance(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for component_id, child in self._children.items():
            match child.state:
                case Due(at, again) if at <= now:
                    actions.append(self._spawn(component_id, child, now, again=again))
                case Waiting(until) if until <= now:
                    actions.append(self._spawn(component_id, child, now, again=False))
                case Offline(try_at=try_at) if try_at <= now:
                    actions.append(self._spawn(component_id, child, now, again=True))  # A3
                case Ending(pid, incarnation, kill_at, then) if kill_at <= now:
                    # Not once and for all: a signal that could not be sent is sent again.
                    next_at = now + self._config.end_s_max
                    child.state = Ending(pid, incarnation, next_at, then)
                    actions.append(Signal(pid, "kill"))
                case _:
                    pass
        return actions

    def elsewhere(self, lives: Mapping[str, int], now: float) -> None:
        """These live on other nodes, in these incarnations: none of our business any more."""
        self._elsewhere = lives
        for component_id, incarnation in lives.items():
            child = self._children.get(component_id)
            match child and child.state:
                case Waiting() | Disabled() | Offline():
                    assert child is not None
                    child.state = Idle()
                case Running(pid, ours) if ours < incarnation:
                    assert child is not None
                    # Unless it hangs, it hears of the other as well, and resigns.
                    kill_at = now + self._config.end_s_max
                    child.state = Ending(pid, ours, kill_at, "yield")  # A11
                case _:
                    pass

    def settled(self, now: float) -> None:
        """Whoever lives elsewhere has been heard: no reason to wait any longer."""
        for child in self._children.values():
            if isinstance(child.state, Waiting):
                child.state = Due(now)

    def live(self, component_id: str, incarnation: int, now: float) -> None:
        """That process says that it is ready for work."""
        child = self._children.get(component_id)
        match child and child.state:
            case Running(incarnation=known) if known == incarnation:
                assert child is not None
                child.budget.live(now)
            case _:
                pass  # A6

    def start(self, component_id: str, now: float, *, seen: int = 0) -> list[Action] | Refused:
        """A person asks for `id` to run here; `seen` is the greatest incarnation heard of it."""
        child = self._child(component_id, seen)
        if isinstance(child, Refused):
            return child
        child.budget.forgive()
        match child.state:
            case Idle() | Waiting() | Disabled() | Offline():
                child.state = Due(now + child.intensity.delay_s(now))  # A4
            case Ending(pid, incarnation, kill_at):
                child.state = Ending(pid, incarnation, kill_at, "start")
            case Due() | Spawning() | Running():
                pass  # A1: there is one, or there will be.
        return self.advance(now)

    def restart(
        self, component_id: str, incarnation: int, cause: str, now: float, *, seen: int = 0
    ) -> list[Action] | Refused:
        """Somebody found that life of `id` dead, hung or sick."""
        incarnation = _believed(incarnation)
        child = self._child(component_id, max(_believed(seen), incarnation))
        if isinstance(child, Refused):
            return child
        why_not = _held_back(component_id, child.state)
        if why_not:
            return Refused("failed", why_not)  # A10
        match child.state:
            case Idle() if self._elsewhere.get(component_id, 0) > incarnation:
                return []  # A9
            case Idle():
                child.state = Due(now + child.intensity.delay_s(now), again=True)  # A4
                return [Tell("restarted", component_id, cause), *self.advance(now)]
            case Running(pid, known) if known <= incarnation:
                kill_at = now + self._config.end_s_max
                child.state = Ending(pid, known, kill_at, "restart")
                return [Tell("restarted", component_id, cause), Signal(pid, "kill")]
            case _:
                return []  # A9

    def end(self, component_id: str, how: How, now: float) -> list[Action] | Refused:
        """Somebody asks for `id` to end, and to stay ended until it is asked for."""
        child = self._children.get(component_id)
        if child is None:
            return _no_such(component_id)
        match child.state:
            case Idle() | Waiting() | Due() | Disabled() | Offline():
                child.state = Idle() if self._stopping else Disabled(now)
                return []
            case Spawning():
                return Refused("busy", f"{component_id} is just being started", retry_after_s=0.1)
            case Running() | Ending() as state:
                return self._end(child, state, how, now)

    def pause(self, component_id: str) -> list[Action] | Refused:
        return self._signal(component_id, "stop")

    def resume(self, component_id: str) -> list[Action] | Refused:
        return self._signal(component_id, "continue")

    def stop(self, now: float) -> list[Action]:
        """End everything. `finished` once all is reaped."""
        self._stopping = True
        actions: list[Action] = []
        for child in self._children.values():
            match child.state:
                case Due() | Waiting() | Disabled() | Offline():
                    child.state = Idle()
                case Running() as state:
                    actions += self._end(child, state, "term", now)
                case Ending(pid, incarnation, kill_at):
                    child.state = Ending(pid, incarnation, kill_at, "stay")
                case Idle() | Spawning():
                    pass  # A process just being started is ended by `started`.
        return actions

    def started(self, component_id: str, incarnation: int, pid: int, now: float) -> list[Action]:
        """The shell did as `Spawn` said."""
        child = self._children[component_id]
        assert child.state == Spawning(incarnation), f"{component_id}: {child.state}"
        child.state = state = Running(pid, incarnation)
        return self._end(child, state, "term", now) if self._stopping else []

    def failed(self, component_id: str, incarnation: int, reason: str, now: float) -> list[Action]:
        """The shell could not do as `Spawn` said: as good as a process that ended at once."""
        child = self._children[component_id]
        assert child.state == Spawning(incarnation), f"{component_id}: {child.state}"
        told = self._after_end(component_id, child, reason, now)
        return [Report(component_id, incarnation, 0, 1, reason), *told, *self.advance(now)]

    def exited(self, component_id: str, pid: int, code: int, now: float) -> list[Action]:
        """Our child `pid` has ended and been reaped."""
        child = self._children.get(component_id)
        then: Then | None = None
        match child and child.state:
            case Running(pid=known, incarnation=incarnation) if known == pid:
                pass
            case Ending(pid=known, incarnation=incarnation, then=then) if known == pid:
                pass
            case _:
                return []  # A6
        assert child is not None
        asked = then in ("stay", "start")
        reason = spoken(code)
        told = self._after_end(component_id, child, reason, now)
        said = f"{reason}, as asked" if asked else reason
        if then == "yield":
            said += "; a later life of it is on another node"
        report = Report(component_id, incarnation, pid, code, said, asked)  # A5
        return [report, *told, *self.advance(now)]

    def _after_end(self, component_id: str, child: _Child, reason: str, now: float) -> list[Action]:
        state = child.state
        match state:
            case Ending(then="stay" | "start" as then):
                child.budget.ended_as_asked()
                child.state = Disabled(now) if then == "stay" else Due(now)
            case Ending(then="yield"):
                child.budget.ended_as_asked()
                child.state = Idle()
            case _:
                found_sick = isinstance(state, Ending)
                at = child.intensity.ended(now)  # A4
                given_up = child.budget.ended(now, sick=found_sick)
                if self._stopping:
                    pass
                elif child.role == HUB and not found_sick:
                    return self._after_hub(component_id, child, reason, at)
                elif given_up and child.role != HUB:  # A10
                    return self._give_up(component_id, child, reason, now)
                else:
                    child.state = Due(at, again=True) if found_sick else Idle()
        if self._stopping:
            child.state = Idle()  # A7
        return []

    def _after_hub(self, component_id: str, child: _Child, reason: str, at: float) -> list[Action]:
        if not (child.planned and self._config.heal):
            child.state = Idle()
            return []
        child.state = Due(at, again=True)  # A3
        return [Tell("restarted", component_id, f"noticed dead ({reason}); its node's own hub")]

    def _give_up(self, component_id: str, child: _Child, reason: str, now: float) -> list[Action]:
        times = child.budget.failed
        probation_s = self._config.restarts.probation_s
        why = f"{times} restarts in a row did not help; the last life: {reason}"
        child.state = Offline(now, why, now + probation_s)
        what_next = f"it is tried once more in {probation_s:.0f} s"
        return [
            Tell("offline", component_id, f"{why}; {what_next}"),
            Tell(
                "alert",
                component_id,
                f"it is offline: {why}. See why in its log; {what_next}, and at once with "
                f"`softstate start {component_id}`",
            ),
        ]

    def _spawn(self, component_id: str, child: _Child, now: float, *, again: bool) -> Spawn:
        assert not self._stopping
        known = self._incarnations.get(component_id, 0)
        incarnation = next_incarnation(known, self._at_ms(now))  # A2
        self._incarnations[component_id] = incarnation
        child.restarts += 1
        child.budget.began(now, restart=again)
        child.state = Spawning(incarnation)  # A1
        return Spawn(component_id, child.role, incarnation, child.restarts)

    def _end(self, child: _Child, state: Running | Ending, how: How, now: float) -> list[Action]:
        kill_at = now + self._config.end_s_max
        if isinstance(state, Ending):
            kill_at = min(kill_at, state.kill_at)  # A7: to ask again puts nothing off.
        child.state = Ending(state.pid, state.incarnation, kill_at, "stay")
        if how == "kill":
            return [Signal(state.pid, "kill")]
        # A stopped process gets to see "term" only once it continues.
        return [Signal(state.pid, "term"), Signal(state.pid, "continue")]

    def _signal(self, component_id: str, name: SignalName) -> list[Action] | Refused:
        child = self._children.get(component_id)
        if child is None or not isinstance(child.state, Running):
            return _no_such(component_id)
        return [Signal(child.state.pid, name)]

    def _child(self, component_id: str, seen: int) -> _Child | Refused:
        """Whom a start or restart is about, known from now on."""
        if self._stopping:  # A7
            return Refused("busy", "this node is ending")
        child = self._children.get(component_id) or self._adopt(component_id)
        if not isinstance(child, Refused):
            known = self._incarnations.get(component_id, 0)
            self._incarnations[component_id] = max(known, _believed(seen))  # A2
        return child

    def _adopt(self, component_id: str) -> _Child | Refused:
        """An id that another node's plan has, or none: any node may run it if it knows the role."""
        role, _, number = component_id.rpartition("-")
        if role not in self._roles or not _NUMBER.fullmatch(number):
            known, name = ", ".join(sorted(self._roles)), component_id[:NAME_LENGTH_MAX]
            return Refused("unknown", f'"{name}" is no role-n of a role known here ({known})')
        if role == HUB:
            return Refused("unknown", f"{component_id} is at an address of another node")
        if len(self._children) >= self._config.processes_max and not self._forget_one():  # A8
            return Refused("busy", f"this node looks after {len(self._children)} processes already")
        child = self._children[component_id] = _Child(
            role, Idle(), RestartBudget(self._config.restarts), restarts=-1
        )
        return child

    def _forget_one(self) -> bool:
        """Make room by forgetting a process that ended and is not planned here."""
        for component_id, child in self._children.items():
            if not child.planned and isinstance(child.state, Idle | Disabled | Offline):
                del self._children[component_id]
                self._incarnations.pop(component_id, None)
                return True
        return False


def _due_at(state: State) -> float:
    match state:
        case Due(at=at) | Ending(kill_at=at) | Waiting(until=at) | Offline(try_at=at):
            return at
        case Idle() | Spawning() | Running() | Disabled():
            return math.inf


def _believed(incarnation: int) -> int:
    """What somebody says was an incarnation, if it can have been one."""
    return incarnation if incarnation <= BELIEVED_MAX else 0


def _held_back(component_id: str, state: State) -> str:
    """Why it is restarted for nobody who finds it dead; empty if it is."""
    match state:
        case Disabled():
            return f"{component_id} is disabled: it was ended as asked"
        case Ending(then="stay"):
            return f"{component_id} is being ended, as asked"
        case Offline(reason=reason):
            return f"{component_id} is offline: {reason}"
        case _:
            return ""


def _no_such(component_id: str) -> Refused:
    name = component_id[:NAME_LENGTH_MAX]
    return Refused("unknown", f"{name} does not run on this node")
