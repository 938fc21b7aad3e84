"""Every message of the lease plane: owners, lookups and managers. See `bus.messages` for the rules.

Ranges travel with their last position, as 2**64 does not fit; terms and numbers are told apart
from garbage by `NUMBER_MAX`. What is large travels as a body, encoded here: maps as `MapPart`, and
asks and answers that are too long for a message.
"""

import msgspec

from bus.errors import RemoteProtocolError
from bus.messages import Message
from roles.key_range import KEYS_END

NUMBER_MAX = 1 << 62
"""No honest counter gets there; one that does is refused before it spoils ours."""

LEAP_MAX = 1 << 32
"""No honest term or LSN is further ahead of what another honest process knows."""

MESSAGE_BYTES_MAX = 20 * 1024
"""A header may have 24 KiB; names, numbers and the message's own fields are in it too."""

ASKS_MAX = 24
"""Owners in one `AskLeases`."""

TIP_TOPIC = "lease.tip"
NUDGE_TOPIC = "lease.nudge"


def delta_topic(namespace: str) -> str:
    return f"lease.map.{namespace}"


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One leased range, as manager and owner speak of it."""

    start: int
    last: int
    number: int
    born: int

    @property
    def end(self) -> int:
        return self.last + 1


class OwnerAsk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One owner: I am alive, and these are the leases I want renewed."""

    namespace: str
    owner: str
    """Its id, by default its url."""
    url: str
    process: str
    """Id and incarnation of the process, as in its beacon, for whoever vouches for its death."""
    process_incarnation: int
    incarnation: int
    """Greater than in any life before of the same id."""
    nonce: int
    """Drawn once a life: tells two lives apart whatever their clocks say."""
    sequence: int
    """Counts our asks."""
    seen_term: int
    seen_revision: int
    """The last answer we acted on."""
    term_max: int
    number_max: int
    """The greatest we know of: a manager with less has a store that was rolled back."""
    age_s: float
    """Since this life began, by its own clock: how fast does that run?"""
    leaving: bool
    """Give me nothing more, and take what I have."""
    holds: list[Span]


class OwnerAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """To one owner: the complete set of its leases."""

    namespace: str
    owner: str
    nonce: int
    sequence: int
    """Of the ask."""
    revision: int
    """Counts the changes of this set within one term."""
    refused: str
    """Why this life may hold nothing; empty if it may."""
    ranges: list[Span]


class AskLeases(Message, frozen=True, tag="lease.ask"):
    """A process to the manager, for all owners in it; those of the body count too."""

    asks: list[OwnerAsk]


class LeasesAnswered(Message, frozen=True, tag="lease.answered"):
    term: int
    leading: bool
    """If not, ask another manager; there are no answers."""
    answers: list[OwnerAnswer]
    """Those of the body count too."""


class AskMap(Message, frozen=True, tag="lease.ask_map"):
    """A lookup to the manager: what has changed since this version? `lsn` < 0: I have none."""

    namespace: str
    term: int
    lsn: int
    term_max: int = 0
    """The greatest we know of: we do not listen to a manager with less."""


class MapAnswered(Message, frozen=True, tag="lease.map"):
    """The body is a `MapPart`: the whole map, or what changed since the version asked about."""

    namespace: str
    term: int
    leading: bool
    whole: bool = False
    version_term: int = 0
    version_lsn: int = 0


class MapTip(Message, frozen=True, tag="lease.tip"):
    """The leader to all, twice a second and whenever it changes: this is the newest."""

    term: int
    versions: list[tuple[str, int, int]]
    """Namespace, and the version of its map: term and LSN."""


class MapDelta(Message, frozen=True, tag="lease.delta"):
    """The leader to all: one committed change of one map."""

    namespace: str
    term: int
    lsn: int
    after_term: int
    after_lsn: int
    part: bytes


class LeaseNudge(Message, frozen=True, tag="lease.nudge"):
    """The leader to owners: there is something new for you, so ask now."""

    term: int
    namespace: str
    owners: list[str]


class MapSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    start: int
    last: int
    number: int
    born: int
    owner: int
    """Index in `MapPart.owners`; -1: nobody."""

    @property
    def end(self) -> int:
        return self.last + 1


class MapPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Part of a map, or all of it: ranges in order."""

    owners: list[tuple[str, str]]
    """Id and url."""
    spans: list[MapSpan]


_part_decoder = msgspec.msgpack.Decoder(MapPart)
_asks_decoder = msgspec.msgpack.Decoder(list[OwnerAsk])
_answers_decoder = msgspec.msgpack.Decoder(list[OwnerAnswer])


def pack_asks(asks: list[OwnerAsk]) -> tuple[AskLeases, bytes]:
    """A message and its body: an owner may hold more ranges than fit into a message."""
    body = msgspec.msgpack.encode(asks)
    return (AskLeases(asks), b"") if len(body) <= MESSAGE_BYTES_MAX else (AskLeases([]), body)


def unpack_asks(message: AskLeases, body: bytes | memoryview) -> AskLeases:
    """Raises `RemoteProtocolError` if the body is none of ours."""
    if not body:
        return message
    try:
        return AskLeases([*message.asks, *_asks_decoder.decode(body)])
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"not the asks of owners: {error}") from error


def pack_answers(answered: LeasesAnswered) -> tuple[LeasesAnswered, bytes]:
    """A message and its body."""
    body = msgspec.msgpack.encode(answered.answers)
    if len(body) <= MESSAGE_BYTES_MAX:
        return answered, b""
    return LeasesAnswered(answered.term, answered.leading, []), body


def unpack_answers(message: LeasesAnswered, body: bytes | memoryview) -> LeasesAnswered:
    """Raises `RemoteProtocolError` if the body is none of ours."""
    if not body:
        return message
    try:
        answers = [*message.answers, *_answers_decoder.decode(body)]
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"not the answers to owners: {error}") from error
    return LeasesAnswered(message.term, message.leading, answers)


def encode_part(part: MapPart) -> bytes:
    return msgspec.msgpack.encode(part)


def decode_part(body: bytes | memoryview) -> MapPart:
    """Raises `RemoteProtocolError` unless the ranges are in order, apart, and have owners."""
    try:
        part = _part_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"not a part of a map: {error}") from error
    after = 0
    for span in part.spans:
        if not after <= span.start <= span.last < KEYS_END:
            raise RemoteProtocolError("ranges of a map out of order")
        if not (0 <= span.born <= span.number < NUMBER_MAX and -1 <= span.owner < len(part.owners)):
            raise RemoteProtocolError("a range of a map with odd numbers")
        after = span.last + 1
    return part


def spans_in_order(spans: list[Span]) -> bool:
    """Whether an owner's ranges are in order, apart, and have sensible numbers."""
    after = 0
    for span in spans:
        if not after <= span.start <= span.last < KEYS_END:
            return False
        if not 0 <= span.born <= span.number < NUMBER_MAX:
            return False
        after = span.last + 1
    return True
