"""Every message of the roles layer, but those of the lease plane itself (`roles.lease_messages`).
The rules for adding and changing one are in `bus.messages`.

A node agent answers them at its endpoint; find one as any peer with the role `node`. (How it is
asked to start and end processes: `bus.process_orders`.) What people ask about leases, a manager
answers: a peer with the role `manager`.
"""

from typing import TypeVar

import msgspec

from bus.errors import RemoteProtocolError
from bus.messages import Message, State


class DescribeCluster(Message, frozen=True, tag="describe-cluster"):
    """Tell me of every process you know."""


class ClusterDescribed(Message, frozen=True, tag="cluster-described"):
    """The answer, with `ClusterRows` in its body: there may be thousands."""

    count: int


class RecentEvents(Message, frozen=True, tag="recent-events"):
    """Tell me the last `count` notable things that you heard of."""

    count: int


class EventsDescribed(Message, frozen=True, tag="events-described"):
    """The answer, with `EventRows` in its body, oldest first."""

    count: int


class DescribeLeases(Message, frozen=True, tag="describe-leases"):
    """To a manager: who owns what? Permission: lease."""

    namespace: str = ""
    """Only this one; empty: all of them."""
    ranges: bool = False
    """The map as well."""


class LeasesDescribed(Message, frozen=True, tag="leases-described"):
    """The answer, with `LeaseRows` in its body if this manager leads."""

    leader: str
    """Who leads, as far as this manager knows; empty: nobody."""
    term: int
    leading: bool
    leading_s: float = 0.0
    """For how long it has been leading."""


class ExplainKey(Message, frozen=True, tag="explain-key"):
    """To a manager: why is that key where it is? Permission: lease."""

    namespace: str
    position: int
    """Of the key, as `roles.key_range.position` has it."""


class KeyExplained(Message, frozen=True, tag="key-explained"):
    """The answer. All but the first four count only if `known`."""

    leader: str
    term: int
    leading: bool
    known: bool
    """Whether there is such a namespace."""
    start: int = 0
    last: int = 0
    """The range that the key is in."""
    owner: str = ""
    """Its id; empty: nobody owns it."""
    url: str = ""
    number: int = 0
    born: int = 0
    reason: str = ""
    """By which decision it has that number."""
    expires_in_s: float = 0.0
    """When its owner loses it unless it renews; if nobody owns it: when it may be granted."""
    recalled: bool = False
    """Its owner is being asked to give it up."""
    decided_s: float | None = None
    """How long ago that was; None: longer than this leader remembers."""
    remembered_s: float = 0.0
    """How far back it remembers."""


# What rides in bodies. The same rules hold: add at the end, with a default.


class Component(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of `softstate status`: exactly the fields of `status --json`."""

    id: str
    role: str
    node: str
    pid: int
    """0 for one that the configuration asks for and nobody has heard of."""
    state: State
    age_s: float
    restarts: int
    cpu: float
    """Cores used of late."""
    rss_bytes: int
    linked: bool


class ClusterRows(msgspec.Struct, frozen=True, array_like=True):
    """Every process that the agent knows or the configuration asks for, by id."""

    components: list[Component]
    incarnations: list[int]
    """Of each component, in the same order; 0 for one that was never heard of."""


class PastEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `bus.events.Event` as it leaves a process: with its age for its time."""

    kind: str
    subject: str
    reason: str
    by: str
    incarnation: int
    sequence: int
    age_s: float


class EventRows(msgspec.Struct, frozen=True, array_like=True):
    """What an agent remembers, oldest first."""

    events: list[PastEvent]


class OwnerRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One owner of a namespace; two, while a former life of one id still has leases."""

    id: str
    url: str
    process: str
    """The process that it is in, as in its beacon."""
    ranges: int
    share: float
    """Of the key space: 0 to 1."""
    expires_in_s: float
    leaving: bool
    refused: str
    """Why it may hold nothing any more; empty: it may."""
    recalled: int
    """Of its ranges: those it is being asked to give up."""


class RangeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One range of the map."""

    start: int
    last: int
    number: int
    born: int
    owner: int
    """Index in the owners; -1: nobody."""
    recalled: bool


class NamespaceRows(msgspec.Struct, frozen=True, array_like=True):
    name: str
    version_term: int
    version_lsn: int
    owners: list[OwnerRow]
    unowned: float
    """How much of the key space nobody owns: 0 to 1."""
    ranges: list[RangeRow]
    """In order; none, unless asked for."""


class LeaseRows(msgspec.Struct, frozen=True, array_like=True):
    """What a leading manager knows of the leases."""

    names: list[str]
    """Of all namespaces."""
    namespaces: list[NamespaceRows]
    """Those asked for."""
    cut: bool = False
    """There is more than one answer can hold: some namespaces are left out."""


Rows = TypeVar("Rows", ClusterRows, EventRows, LeaseRows)


def encode_rows(rows: ClusterRows | EventRows | LeaseRows) -> bytes:
    """Rows as the body of an answer."""
    return msgspec.msgpack.encode(rows)


def decode_rows(body: bytes | memoryview, kind: type[Rows]) -> Rows:
    """The body of an answer as rows; garbage is a `RemoteProtocolError`."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"rows that cannot be read: {error}") from error
