"""How a node agent is asked to start and end processes, and what it says of those it holds back.

The rules for adding and changing a message are in `bus.messages`. An agent answers at its
endpoint; find one as any peer with the role `node`.
"""

from typing import Literal

import msgspec

from bus.messages import Message

CONTROL = "control"
"""The permission for all orders."""

HELD_TOPIC = "held"


class StartProcess(Message, frozen=True, tag="start-process"):
    """Have `id` run on your node. What runs already is left alone. Permission: control."""

    id: str


class EndProcess(Message, frozen=True, tag="end-process"):
    """Have `id` end, and stay ended until it is asked for. Permission: control."""

    id: str
    how: Literal["term", "kill"] = "term"
    """`term`: in good order, and killed if that takes too long; `kill`: at once."""


class RestartProcess(Message, frozen=True, tag="restart-process"):
    """Have that life of `id` over, and the next begin. If that life still runs it is killed; if a
    later one runs, nothing is done. So it may be asked twice, late, and by several who noticed the
    same. Unlike the orders of people it counts against what `id` may fail, and is refused with
    `failed` when `id` is held (see `ProcessesHeld`). Permission: control."""

    id: str
    incarnation: int
    """The life that is to be over; 0 if none was ever heard of."""
    cause: str
    """In words, for people: why it must be replaced."""


class PauseProcess(Message, frozen=True, tag="pause-process"):
    """Stop `id` in its tracks (SIGSTOP), as a fault for tests. Permission: control."""

    id: str


class ResumeProcess(Message, frozen=True, tag="resume-process"):
    """Let a paused `id` go on. Permission: control."""

    id: str


class ProcessDescribed(Message, frozen=True, tag="process-described"):
    """The answer to all five: this is how `id` stands now, in the eyes of the agent."""

    id: str
    pid: int
    """0 if it does not run."""
    incarnation: int
    """Of the process that runs, else of the last one known; 0 for none."""
    due_s: float = 0.0
    """How long until it is started, if it ended so often that it has to wait."""


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One process that its agent does not run, and will not start for whoever finds it dead."""

    id: str
    why: Literal["disabled", "offline"]
    """disabled: somebody ended it on purpose. offline: it failed again after each restart."""
    reason: str
    for_s: float
    """For how long that has been so."""


class ProcessesHeld(Message, frozen=True, tag="processes-held"):
    """Published by an agent once a period on topic `held`, while it holds any: all of them. Who
    does not hear of one for a few periods takes it for no longer held."""

    held: list[Held]
