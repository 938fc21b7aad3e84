"""What runs on one node, and what to do about it. Decides only: no process, no clock, no socket.

A node agent starts what the configuration lists for its node. When something ends, it says so
and leaves the rest to whoever is responsible (peers, an operator): only its own hubs it starts
again unasked, since without hubs nobody could ask. The shell (`roles.node`) performs the actions
in order, and tells what came of them with `started`, `failed` and `exited`.

What always holds:
  A1  An id has at most one process here: `Spawn` comes only when none runs, begins or ends.
  A2  The incarnation of a `Spawn` is greater than any the id is known to have had, and not
      less than the wall clock in milliseconds, so that it holds even where a store was lost.
  A3  What ended is started again unasked only if it is a hub planned for this node, `heal` is
      on, and nobody asked for its end.
  A4  Starts after unasked ends are spaced by `roles.restarts`; none is put off for ever.
  A5  Each end of a process is reported once, in the step in which it is told.
  A6  News of a process that is not the id's present one changes nothing.
  A7  After `stop` nothing is started; what runs is asked to end and, `end_s_max` later, killed.
  A8  At most `processes_max` ids are kept.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from bus.config_shape import HUB, NODE, Planned
from bus.messages import Refused
from roles.endings import spoken
from roles.restarts import Restarts

_NUMBER = re.compile("[1-9][0-9]{0,8}")

SignalName = Literal["term", "kill", "stop", "continue"]
How = Literal["term", "kill"]


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


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for `id`, then tell `started` or `failed`."""

    id: str
    role: str
    incarnation: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to our child `pid`, which has not been reaped."""

    pid: int
    name: SignalName


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the cluster that this process has ended and been reaped."""

    id: str
    incarnation: int
    pid: int
    code: int
    """Its exit code, or minus the number of the signal that ended it."""
    reason: str


Action = Spawn | Signal | Report


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing runs, and nothing will unless asked for."""


@dataclass(frozen=True, slots=True)
class Due:
    """Nothing runs yet; it will be started at `at`."""

    at: float


@dataclass(frozen=True, slots=True)
class Spawning:
    """The shell has been told to start it."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Ending:
    """It was asked to end, and will be killed at `kill_at`; `again`: then start it anew."""

    pid: int
    incarnation: int
    kill_at: float
    again: bool


State = Idle | Due | Spawning | Running | Ending


@dataclass(slots=True)
class _Child:
    role: str
    state: State
    restarts: int
    """How often it was started again; -1 before its first start."""
    planned: bool = False
    """Whether the configuration asks for it on this node."""
    intensity: Restarts = field(default_factory=Restarts)


class Agent:
    def __init__(
        self,
        planned: Iterable[Planned],
        config: AgentConfig,
        *,
        incarnations: Mapping[str, int],
        restarts: int,
        wall_ms: int,
        now: float,
    ) -> None:
        """`incarnations`: the last known of each id; `restarts`: how often this agent itself was
        started again, and with it all of its children; `wall_ms`: the wall clock at `now`."""
        self._roles = config.roles - {NODE}  # An agent is started by its watchdog.
        self._config = config
        self._incarnations = dict(incarnations)
        self._wall_ms = wall_ms
        self._began_at = now
        self._stopping = False
        # Hubs first: everything else looks for them.
        ordered = sorted(planned, key=lambda component: component.role != HUB)
        self._children = {
            component.id: _Child(component.role, Due(now), restarts - 1, planned=True)
            for component in ordered
        }

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

    @property
    def wake_at(self) -> float:
        return min((_due_at(child.state) for child in self._children.values()), default=math.inf)

    def advance(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for component_id, child in self._children.items():
            match child.state:
                case Due(at) if at <= now:
                    actions.append(self._spawn(component_id, child, now))
                case Ending(pid, incarnation, kill_at, again) if kill_at <= now:
                    # Not once and for all: a signal that could not be sent is sent again.
                    next_at = now + self._config.end_s_max
                    child.state = Ending(pid, incarnation, next_at, again)
                    actions.append(Signal(pid, "kill"))
                case _:
                    pass
        return actions

    def start(self, component_id: str, now: float, *, seen: int = 0) -> list[Action] | Refused:
        """Somebody asks for `id` to run here; `seen` is the greatest incarnation heard of it."""
        if self._stopping:  # A7
            return Refused("busy", "this node is ending")
        child = self._children.get(component_id) or self._adopt(component_id)
        if isinstance(child, Refused):
            return child
        self._incarnations[component_id] = max(self._incarnations.get(component_id, 0), seen)
        match child.state:
            case Idle():
                child.state = Due(now + child.intensity.delay_s(now))  # A4
            case Ending(pid, incarnation, kill_at):
                child.state = Ending(pid, incarnation, kill_at, again=True)
            case Due() | Spawning() | Running():
                pass  # A1: there is one, or there will be.
        return self.advance(now)

    def end(self, component_id: str, how: How, now: float) -> list[Action] | Refused:
        """Somebody asks for `id` to end, and to stay ended until it is asked for."""
        child = self._children.get(component_id)
        if child is None:
            return _no_such(component_id)
        match child.state:
            case Idle() | Due():
                child.state = Idle()
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
                case Due():
                    child.state = Idle()
                case Running() as state:
                    actions += self._end(child, state, "term", now)
                case Ending(pid, incarnation, kill_at):
                    child.state = Ending(pid, incarnation, kill_at, again=False)
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
        self._after_end(child, now)
        return [Report(component_id, incarnation, 0, 1, reason), *self.advance(now)]

    def exited(self, component_id: str, pid: int, code: int, now: float) -> list[Action]:
        """Our child `pid` has ended and been reaped."""
        child = self._children.get(component_id)
        match child and child.state:
            case Running(pid=known, incarnation=incarnation) if known == pid:
                asked = False
            case Ending(pid=known, incarnation=incarnation) if known == pid:
                asked = True
            case _:
                return []  # A6
        assert child is not None
        self._after_end(child, now)
        reason = f"{spoken(code)}, as asked" if asked else spoken(code)
        return [Report(component_id, incarnation, pid, code, reason), *self.advance(now)]  # A5

    def _after_end(self, child: _Child, now: float) -> None:
        match child.state:
            case Ending(again=again):
                child.state = Due(now) if again and not self._stopping else Idle()
            case _:
                at = child.intensity.ended(now)  # A4
                unasked = child.planned and child.role == HUB and self._config.heal  # A3
                child.state = Due(at) if unasked and not self._stopping else Idle()

    def _spawn(self, component_id: str, child: _Child, now: float) -> Spawn:
        assert not self._stopping
        wall_ms = self._wall_ms + int((now - self._began_at) * 1000)
        incarnation = max(self._incarnations.get(component_id, 0) + 1, wall_ms)  # A2
        self._incarnations[component_id] = incarnation
        child.restarts += 1
        child.state = Spawning(incarnation)  # A1
        return Spawn(component_id, child.role, incarnation, child.restarts)

    def _end(self, child: _Child, state: Running | Ending, how: How, now: float) -> list[Action]:
        kill_at = now + self._config.end_s_max
        if isinstance(state, Ending):
            kill_at = min(kill_at, state.kill_at)  # A7: to ask again puts nothing off.
        child.state = Ending(state.pid, state.incarnation, kill_at, again=False)
        if how == "kill":
            return [Signal(state.pid, "kill")]
        # A stopped process gets to see "term" only once it continues.
        return [Signal(state.pid, "term"), Signal(state.pid, "continue")]

    def _signal(self, component_id: str, name: SignalName) -> list[Action] | Refused:
        child = self._children.get(component_id)
        if child is None or not isinstance(child.state, Running):
            return _no_such(component_id)
        return [Signal(child.state.pid, name)]

    def _adopt(self, component_id: str) -> _Child | Refused:
        """An id that another node's plan has, or none: any node may run it if it knows the role."""
        role, _, number = component_id.rpartition("-")
        if role not in self._roles or not _NUMBER.fullmatch(number):
            known = ", ".join(sorted(self._roles))
            return Refused(
                "unknown", f'"{component_id}" is no role-n of a role known here ({known})'
            )
        if role == HUB:
            return Refused("unknown", f"{component_id} is at an address of another node")
        if len(self._children) >= self._config.processes_max and not self._forget_one():  # A8
            return Refused("busy", f"this node looks after {len(self._children)} processes already")
        child = self._children[component_id] = _Child(role, Idle(), restarts=-1)
        return child

    def _forget_one(self) -> bool:
        """Make room by forgetting a process that ended and is not planned here."""
        for component_id, child in self._children.items():
            if not child.planned and isinstance(child.state, Idle):
                del self._children[component_id]
                self._incarnations.pop(component_id, None)
                return True
        return False


def _due_at(state: State) -> float:
    match state:
        case Due(at=at) | Ending(kill_at=at):
            return at
        case Idle() | Spawning() | Running():
            return math.inf


def _no_such(component_id: str) -> Refused:
    return Refused("unknown", f"{component_id} does not run on this node")
