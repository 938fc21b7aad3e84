"""Every message between stubs and bricks, and those for people who tend bricks. The rules for
adding and changing one are in `bus.messages`.

The answer to each of the four is a `SessionAnswer`, or a `Refused`: `busy` and `late` as ever,
and `busy` with a detail that begins with `FULL` from a brick without memory for a new session
(`is_full`; another brick may well have room). Permission of all four: session.

A *sid* names one session. Of each a brick holds the newest version only, and a stub says with
which checksum (`checksum_of`). The value is the body. How long a session is to
live travels as `ttl_s`, counted by each brick from when the message came.
"""

from typing import Annotated, Literal

from msgspec import Meta
from xxhash import xxh3_128_digest

from bus.messages import Message, Refused

SESSION = "session"
"""The permission for all that stubs ask."""

CHECKSUM_BYTES = 16
SID_BYTES = 16
TTL_S_MAX = 400 * 86_400.0
"""Whatever the configuration says: a brick's tables are laid out for no more."""
VERSION_MAX = (1 << 32) - 1
"""What a cookie has room for."""
NUMBER_MAX = 1 << 62
"""No honest version gets there; one that does is refused before it spoils ours."""
DATA_INCARNATIONS = 1 << 32
"""As many as a cookie can tell apart: it has four bytes for each."""

HANDING_OVER = "is handing over"
"""How the detail of a refusal ends that comes from a brick on its way to its next life."""
FULL = "full: "
"""How the detail of a refusal for want of memory begins."""

Sid = Annotated[bytes, Meta(min_length=SID_BYTES, max_length=SID_BYTES)]
Checksum = Annotated[bytes, Meta(min_length=CHECKSUM_BYTES, max_length=CHECKSUM_BYTES)]
Version = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Ttl = Annotated[float, Meta(gt=0, le=TTL_S_MAX)]
DataIncarnation = Annotated[int, Meta(ge=0, lt=DATA_INCARNATIONS)]


class StoreSession(Message, frozen=True, tag="session.store"):
    """Hold the body as this version, unless you hold a newer one. It is stored, or a conflict
    with what is held, or deleted. The same version again is stored again: a retry does no harm,
    and the later expiry counts."""

    sid: Sid
    version: Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
    ttl_s: Ttl
    checksum: Checksum
    base: Version
    """The version it was made from; 0: a new session."""
    data_incarnation: int = 0
    """The one the stub's cookie names, if any; for diagnosis only."""
    base_checksum: Annotated[bytes, Meta(max_length=CHECKSUM_BYTES)] = b""
    """Of the version it was made from. Two writes that failed half way may have made two of one
    number: what is made from one of them is a conflict with the other."""


class ReadSession(Message, frozen=True, tag="session.read"):
    """Your value, if it is of this version or a newer one; else it is missing, or deleted."""

    sid: Sid
    version: Version


class TouchSession(Message, frozen=True, tag="session.touch"):
    """Let it live for `ttl_s` from now, if that is longer than it would; touched, or missing (you
    hold none, or an older one), or deleted."""

    sid: Sid
    version: Version
    ttl_s: Ttl


class DeleteSession(Message, frozen=True, tag="session.delete"):
    """Forget it, and for `ttl_s` also that it may come back: a mark stays, and what is stored
    late is refused. Always deleted."""

    sid: Sid
    ttl_s: Ttl


class SessionAnswer(Message, frozen=True, tag="session-answer"):
    """The answer to all four; a value has its bytes in the body.

    value: `version`, `checksum` and `ttl_s` (what is left) are its own. conflict: they are of what
    is held instead, without the bytes. Else they say nothing.
    """

    outcome: Literal["stored", "value", "touched", "conflict", "missing", "deleted"]
    data_incarnation: DataIncarnation
    """Of the tables that answered: another than the cookie's has begun empty since."""
    version: Annotated[int, Meta(ge=0, le=VERSION_MAX)] = 0
    ttl_s: Annotated[float, Meta(ge=0, le=TTL_S_MAX)] = 0.0
    checksum: Annotated[bytes, Meta(max_length=CHECKSUM_BYTES)] = b""


class HandOver(Message, frozen=True, tag="session.hand-over"):
    """Take no more work, leave your tables to your next life, and end. Permission: control."""


class HandedOver(Message, frozen=True, tag="session.handed-over"):
    """The answer, when all is written: this process ends now. Start it again within `valid_s`."""

    data_incarnation: int
    items: int
    file_bytes: int
    valid_s: float


class CorruptSession(Message, frozen=True, tag="session.corrupt"):
    """Spoil one byte of what you hold of this session, as a fault for tests. Only a brick that
    was started to allow it answers at all. Permission: control."""

    sid: Sid


def checksum_of(sid: bytes, version: int, value: bytes) -> bytes:
    """Of a value as this version of this session: another's is not taken for it."""
    return xxh3_128_digest(value, int.from_bytes(sid[:8], "little") ^ version)


def data_incarnation_of(incarnation: int) -> int:
    """What names the tables that began empty in this life of a brick: from 1, and it fits into
    a cookie. Two lives of one brick have the same only if they began an exact multiple of 2**32
    milliseconds (50 days) apart; then a session may be missing that is said to be there."""
    return incarnation % DATA_INCARNATIONS or 1


def is_full(refused: Refused) -> bool:
    """Whether a brick said no for want of memory: only new sessions are refused so."""
    return refused.reason == "busy" and refused.detail.startswith(FULL)
