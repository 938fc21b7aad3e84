"""How one id stands at its node agent, and what the agent wants done. Shapes only."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

SignalName = Literal["term", "kill", "stop", "continue"]
How = Literal["term", "kill"]

# Actions.


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
    asked: bool = False
    """Somebody wanted it to end: nobody has to bring it back."""


@dataclass(frozen=True, slots=True)
class Tell:
    """An event, for people."""

    kind: Literal["restarted", "offline", "alert"]
    subject: str
    reason: str


Action = Spawn | Signal | Report | Tell

# States.


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing runs, and nothing will unless asked for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An earlier agent may have had it, and it may live on another node by now: it is started at
    `until` if nobody has heard of that."""

    until: float


@dataclass(frozen=True, slots=True)
class Due:
    """Nothing runs yet; it will be started at `at`. `again`: because it ended, not by a person."""

    at: float
    again: bool = False


@dataclass(frozen=True, slots=True)
class Spawning:
    """The shell has been told to start it."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    incarnation: int


Then = Literal["stay", "start", "restart", "yield"]
"""What follows an end that was asked for: nothing; a start, as a person wants; a restart, as it
was found hung or sick; or nothing here, as a later life of it is on another node."""


@dataclass(frozen=True, slots=True)
class Ending:
    """It was asked to end, and will be killed at `kill_at`."""

    pid: int
    incarnation: int
    kill_at: float
    then: Then


@dataclass(frozen=True, slots=True)
class Disabled:
    """Somebody ended it on purpose: it is held back until somebody starts it."""

    since: float


@dataclass(frozen=True, slots=True)
class Offline:
    """It failed again after each restart: it is held back, and tried once more at `try_at`."""

    since: float
    reason: str
    try_at: float


State = Idle | Waiting | Due | Spawning | Running | Ending | Disabled | Offline


# What survives the agent.


_WallMs = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


class Hold(msgspec.Struct, frozen=True):
    """Why one id is not run, for the agent's next life. By the wall clock, as no other survives."""

    id: str
    why: Literal["disabled", "offline"]
    since_ms: _WallMs
    reason: str = ""
    try_at_ms: _WallMs = 0
