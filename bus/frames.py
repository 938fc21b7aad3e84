"""Records to frames and back: what travels between two processes. Decides only; no socket.

A *record* is a header and a raw body. The header is one of five msgpack structs (who asks,
who answers, …) with a typed message inside it; the body is bytes that nobody re-encodes.
Records for one peer are joined into one frame, which costs one send for many messages:

    version u8 | header_length u32 | body_length u32 | header | body | header_length … | …

A body above `JOINED_BODY_BYTES_MAX` is not copied into the frame: its record comes last, says
BODY_FOLLOWS, and the body is the next part of the same ZeroMQ message.

What always holds:
  F1  Whatever the bytes, `unjoin` returns or raises `RemoteProtocolError`; nothing else.
  F2  A record that cannot be read spoils itself alone, as long as its lengths make sense.
  F3  No frame is longer than `FRAME_BYTES_MAX`, and no body than `BODY_BYTES_MAX`.

How the wire may change: a field may be added at the end of a header or message, with a
default; old peers ignore it. Nothing is renamed, reordered, retyped or reused. A change that
cannot obey this raises VERSION, and frames of another version are dropped and counted.
"""

import struct

import msgspec

from bus.errors import RemoteProtocolError
from bus.headers import Header
from bus.messages import Message

VERSION = 1
FRAME_BYTES_MAX = 64 * 1024
JOINED_BODY_BYTES_MAX = 32 * 1024
HEADER_BYTES_MAX = 24 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024
BODY_FOLLOWS = 0xFFFFFFFF
LENGTHS = struct.Struct("<II")
VERSION_BYTE = bytes([VERSION])

_RECORD_BYTES_MIN = LENGTHS.size

Body = bytes | memoryview
"""`bytes` as a rule; a view of the received part where a copy would cost more than it helps."""

Record = tuple[Header, Body]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode

# What msgspec raises on bad bytes: its own, and these two for bad UTF-8 and endless nesting.
_BAD_BYTES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def raw(message: Message) -> msgspec.Raw:
    """Let a message stand where a header expects it still encoded: one encoding does both."""
    return message  # type: ignore[return-value]


def encode_header(header: Header) -> bytes:
    encoded = _encode(header)
    if len(encoded) > HEADER_BYTES_MAX:
        raise ValueError(f"message of {len(encoded)} bytes: put bulk into the body")
    return encoded


def unjoin(frame: bytes, following: Body | None = None) -> tuple[list[Record], int]:
    """The records of a frame, and how many of them could not be read (F2)."""
    size = len(frame)
    if not 0 < size <= FRAME_BYTES_MAX or frame[0] != VERSION:  # F3
        raise RemoteProtocolError(f"frame of {size} bytes, version {frame[:1].hex() or 'none'}")
    if following is not None and len(following) > BODY_BYTES_MAX:  # F3
        raise RemoteProtocolError(f"body of {len(following)} bytes")
    records: list[Record] = []
    unreadable, at = 0, 1
    while at < size:
        if at + _RECORD_BYTES_MIN > size:
            raise RemoteProtocolError(f"frame ends inside a record at byte {at}")
        header_length, body_length = LENGTHS.unpack_from(frame, at)
        body_at = at + _RECORD_BYTES_MIN + header_length
        follows = body_length == BODY_FOLLOWS
        end = body_at if follows else body_at + body_length
        if end > size or (follows and (end < size or following is None)):
            raise RemoteProtocolError(f"record at byte {at} claims more than there is")
        try:
            header = _decode(frame[at + _RECORD_BYTES_MIN : body_at])
        except _BAD_BYTES:
            unreadable += 1
        else:
            body = following if follows and following is not None else frame[body_at:end]
            records.append((header, body))
        at = end
    return records, unreadable


class MessageDecoder:
    """Reads the typed message inside a header: one of `kinds`, or `RemoteProtocolError`."""

    def __init__(self, *kinds: type[Message]) -> None:
        union = kinds[0]
        for kind in kinds[1:]:
            union = union | kind  # type: ignore[assignment]
        self._decode = msgspec.msgpack.Decoder(union).decode

    def decode(self, message: msgspec.Raw) -> Message:
        try:
            return self._decode(message)
        except _BAD_BYTES as error:
            raise RemoteProtocolError(str(error)) from error
