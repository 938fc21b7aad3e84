"""What the benchmarks of self-healing and their processes say to each other, as JSON lines.

All instants are by `bus.clock.now`, which all processes of a machine share.
"""

from typing import Any, Literal

import msgspec

from bus.config_shape import Preset
from bus.messages import State

Verb = Literal[
    "crash", "hang", "flip", "image", "drop", "slow", "leak", "clock", "disk", "node", "cure"
]
PAPERS: tuple[Verb, ...] = ("crash", "hang", "flip", "image", "drop", "slow", "leak")
"""The faults of the paper, and the leak that it only hopes to find."""


class TownAsked(msgspec.Struct, frozen=True, kw_only=True):
    """To the cluster's process, when it starts: what to be."""

    nodes: int = 2
    counts: dict[str, int]
    """How many of each role."""
    preset: Preset = "lan"
    settings: dict[str, Any] = {}
    """Of its configuration."""
    seed: int = 0
    """What chance hurts it by."""


class TownUp(msgspec.Struct, frozen=True):
    """Its first line: it is up."""

    config: str
    components: dict[str, str]
    """The role of each that is planned."""
    nodes: dict[str, str]
    """Where each is to run."""


class Injure(msgspec.Struct, frozen=True, tag="injure"):
    """To the cluster's process: hurt all of these at once. The answer is `Injured`."""

    verb: Verb
    ids: list[str]
    """Components; names of nodes for the verb `node`."""
    amount: float = 0.0
    """In the unit of the verb; see `loadtest.heal_town`."""
    for_s: float = 60.0


class Cure(msgspec.Struct, frozen=True, tag="cure"):
    """To it: nobody found `id`, so have that life ended and the next begin. Answer: `Injured`."""

    id: str


class AwaitNext(msgspec.Struct, frozen=True, tag="await-next"):
    """To it: wait until every agent sees `id` live in a later life. The answer is `Awaited`."""

    id: str
    incarnation: int
    timeout_s: float


class AwaitWhole(msgspec.Struct, frozen=True, tag="await-whole"):
    """To it: wait until every agent sees all that is planned live. The answer is `Awaited`."""

    timeout_s: float


class Awaited(msgspec.Struct, frozen=True):
    missing: list[str]
    """Who is not live in the eyes of all; empty if all went well."""


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    """To it: what have you seen since you were last asked? The answer is `Told`."""


class KeepRecords(msgspec.Struct, frozen=True, tag="keep-records"):
    """To it: copy what Pinpoint recorded into that directory. The answer is `Awaited`."""

    directory: str


class ToTown(msgspec.Struct, frozen=True):
    """A line to the cluster's process."""

    order: Injure | Cure | AwaitNext | AwaitWhole | Tell | KeepRecords


class Injury(msgspec.Struct, frozen=True):
    """What was done to one life, and when."""

    verb: Verb
    id: str
    incarnation: int
    at: float
    detail: str = ""
    refused: bool = False
    """It could not be done; `detail` says why."""


class Injured(msgspec.Struct, frozen=True):
    injuries: list[Injury]
    """One for each life that suffers from it: with an agent its whole node does."""


class Notice(msgspec.Struct, frozen=True):
    """Something that was said in the cluster: an event, or (`exited`) a life that was reaped."""

    at: float
    kind: str
    id: str
    incarnation: int
    """The life it is about; 0 if that was not said."""
    by: str
    reason: str


class Sighting(msgspec.Struct, frozen=True):
    """`observer` saw that life for the first time in that state."""

    at: float
    observer: str
    id: str
    incarnation: int
    state: State


class Told(msgspec.Struct, frozen=True):
    notices: list[Notice]
    sightings: list[Sighting]
    rss_bytes: dict[str, int] = {}
    """Of each brick, by its newest beacon."""


class Carry(msgspec.Struct, frozen=True, tag="carry"):
    """To a generator: begin requests, and go on until told. It answers `{}` at once."""

    begin_at: float
    per_s: float
    seed: int
    sessions: int
    bytes_min: int
    bytes_max: int
    timeout_s: float
    passing: float = 0.0
    """This share of the requests are new sessions that nobody comes back to, and end soon."""
    settings: dict[str, Any] = {}
    """Of the stub, in place of what the cluster's configuration says."""


class Pace(msgspec.Struct, frozen=True, tag="pace"):
    """To it: so many requests a second from now on. It answers `{}`."""

    per_s: float


class Rest(msgspec.Struct, frozen=True, tag="rest"):
    """To it: begin no more, load every session once more, and tell. The answer is `Carried`."""


class HowFar(msgspec.Struct, frozen=True, tag="how-far"):
    """To it: how does it go? The answer is `SoFar`."""


class ToGenerator(msgspec.Struct, frozen=True):
    """A line to a generator."""

    order: Carry | Pace | Rest | HowFar


class SoFar(msgspec.Struct, frozen=True):
    offered: int
    failed: int


Request = Literal["write", "load", "last load"]


class Failure(msgspec.Struct, frozen=True):
    """One request that ended in an error."""

    at: float
    key: str
    request: Request
    error: str
    detail: str


class Loss(msgspec.Struct, frozen=True):
    """A session that was acknowledged, and is gone or holds what was not written."""

    at: float
    key: str
    error: str
    good_at: float
    """When it was last known to be there."""
    copies: list[str]
    """The bricks that its cookie names."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all requests of one generator."""

    generator: str
    begin_at: float
    seconds: list[tuple[int, int, int, int]]
    """Of each second from `begin_at`: offered, good, late, and failed (refused ones too)."""
    p50_ms: float | None
    p99_ms: float | None
    sessions: int
    failures: list[Failure]
    """The first of them; see `failed`."""
    failed: int
    losses: list[Loss]
    sightings: list[Sighting]
    cpu_share: float
