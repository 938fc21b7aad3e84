"""What the lease benchmark and its processes say to each other, as JSON lines."""

import msgspec

NAMESPACE = "bench"

Version = tuple[int, int]
"""Term and LSN of a map."""


class Cluster(msgspec.Struct, frozen=True):
    """The cluster's process, once it is up: its configuration, its hubs, who manages leases."""

    config: str
    hubs: list[str]
    managers: dict[str, int]
    """Process ids, by id."""


class Speed(msgspec.Struct, frozen=True):
    """To the speed process: find and check with so many owners about."""

    owners: int
    keys: int
    rounds: int


class Timed(msgspec.Struct, frozen=True):
    """One round of that: nanoseconds for each key."""

    round: int
    owners: int
    find_ns: float
    find_bisect_ns: float
    check_ns: float
    check_bisect_ns: float


class Seen(msgspec.Struct, frozen=True):
    """Which version of the map each lookup of a process had, and from when on."""

    ready: int
    """How many of them have a map at all."""
    seen: list[list[tuple[Version, float]]]


class Change(msgspec.Struct, frozen=True):
    """To the changing process: let one more owner join, and leave in good order."""

    settle_s: float
    """How long nothing may change before and after each."""


class ChangesMade(msgspec.Struct, frozen=True):
    """Its answer: which versions the manager published when, and how long keys had no owner."""

    joined: list[tuple[Version, float]]
    left: list[tuple[Version, float]]
    gaps_s: list[float]


class Fail(msgspec.Struct, frozen=True):
    """To the failover process: kill the leader, once."""


class FailedOver(msgspec.Struct, frozen=True):
    """Its answer: from the SIGKILL to the first and the last owner's renewal by the next leader."""

    first_s: float
    last_s: float
    leases: int
    lost: int


class Grow(msgspec.Struct, frozen=True):
    """To the crowd: be so many owners and so many lookups, from now on."""

    owners: int
    lookups: int


class Stands(msgspec.Struct, frozen=True):
    """Its answer: how it is with the crowd at this moment."""

    holding: int
    """Owners that hold something."""
    quiet_s: float
    """Since the map last changed."""
    answered: int
    """Asks that the manager answered, since the beginning."""
    unanswered: int
