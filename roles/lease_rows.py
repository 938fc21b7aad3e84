"""The rows of the store: what a leader must find of what its predecessor decided.

One row for who leads, one a namespace, and one a life of an owner. All else is soft: it comes back
with the next asks. Fields are added at the end, with defaults, as in messages.
"""

from typing import TypeVar

import msgspec

from bus.errors import BusError

LEADER = "leader"
NAMESPACE = "namespace/"
LIFE = "life/"

R = TypeVar("R")


class StoreCorrupt(BusError):  # noqa: N818 (read as a sentence: the store is corrupt)
    """A row cannot be understood. Nobody should lead by it."""


class LeaderRow(msgspec.Struct, frozen=True, array_like=True):
    term: int
    holder: str
    """Id of the manager's process, and which of its lives."""
    incarnation: int
    node: str
    """Where it runs: whom to ask to have it killed."""
    beat: int
    """Counts commits: a row that does not change has a leader that does nothing."""


class SpanRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    start: int
    last: int
    number: int
    born: int


class LifeRow(msgspec.Struct, frozen=True, array_like=True):
    """One life of one owner, and what was granted to it."""

    namespace: str
    owner: str
    url: str
    process: str
    process_incarnation: int
    incarnation: int
    nonce: int
    superseded: bool
    spans: list[SpanRow]


class DecisionRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why a number was given."""

    number: int
    reason: str


class NamespaceRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    number: int
    """The last that was given."""
    version_term: int
    version_lsn: int
    unowned: list[SpanRow]
    decisions: list[DecisionRow]


def life_key(namespace: str, owner: str, nonce: int) -> str:
    """One key a life: a `/` in a name must not pass for ours."""
    return f"{LIFE}{_escaped(namespace)}/{nonce:016x}/{_escaped(owner)}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def encode(row: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(row)


def decode(kind: type[R], key: str, value: bytes) -> R:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"row {key!r} of the store: {error}") from error
