"""What the session benchmarks and their processes say to each other, as JSON lines."""

from typing import Any, Literal

import msgspec

from bus.config_shape import Preset
from loadtest.arrivals import Stretch


class ClusterAsked(msgspec.Struct, frozen=True, kw_only=True):
    """To the cluster's process, when it starts: what to be."""

    nodes: int = 2
    bricks: int = 4
    preset: Preset = "lan"
    sessions: dict[str, Any] = {}
    """What [sessions] says."""


class ClusterUp(msgspec.Struct, frozen=True):
    """Its first line: it is up."""

    config: str
    bricks: dict[str, int]
    """Process ids, by id."""
    processes: list[int]
    """Of everyone in it: bricks, hubs and node agents."""


class Order(msgspec.Struct, frozen=True):
    """To the cluster's process: kill a brick, or start it and wait until it is live."""

    verb: Literal["kill", "start"]
    id: str


class Obeyed(msgspec.Struct, frozen=True):
    at: float
    """When it was done, by `bus.clock.now`."""
    pid: int


class Drive(msgspec.Struct, frozen=True, kw_only=True):
    """To a generator: begin requests at the times of a shape."""

    begin_at: float
    """By `bus.clock.now`, which all processes of a machine share."""
    shape: list[Stretch]
    seed: int
    settings: dict[str, Any] = {}
    """Of the stub, in place of what the cluster's configuration says."""
    sessions: int
    value_bytes: int
    interval_s: float
    timeout_s: float


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """To a client: keep so many sessions busy with one kind of request."""

    operation: Literal["write", "read"]
    in_flight: int
    value_bytes: int
    timeout_s: float
    warm_up_s: float
    duration_s: float
    servers: list[int]
    """The process ids of all whose CPU time counts, but for the client's."""


class Phased(msgspec.Struct, frozen=True, kw_only=True):
    """Its answer."""

    done: int
    good: int
    """Of those, within the timeout."""
    failed: int
    elapsed_s: float
    p50_ms: float | None
    p99_ms: float | None
    client_cpu_us: float | None
    """CPU time of the client for each request that was done; so for all servers together."""
    server_cpu_us: float | None


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """To the memory process: write so many new sessions."""

    sessions: int
    value_bytes: int


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """To a holder of many sessions: write so many, or load all that it has; and who is dead."""

    write: int = 0
    value_bytes: int = 512
    dead: list[int] = []
    """Numbers of all bricks that were killed."""
    dead_before: list[int] = []
    """Those that were dead when all was loaded the last time."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Its answer."""

    sessions: int
    lost: int
    doomed: int
    """Cookies that named none but bricks that are dead: they must be lost."""
    copies: dict[int, int]
    """How many cookies named so many bricks that lived when all was loaded the last time."""
    wrong: int
    """Values that were not what was written."""
    refused: int
    """Requests that had to be made again."""
    refreshed: int
    elapsed_s: float
