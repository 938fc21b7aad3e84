"""Beacons of processes that do not exist, byte for byte as real ones travel. Decides only.

A frame of news is its topic, a zero byte, and a frame of `bus.frames` with one record in it: a
process has one beacon to send at a time, so beacons are never joined. All frames made here
are equally long with the sequence number at one place, so that a subscriber in a benchmark can
read it without decoding the rest (`sequence_in`); a member decodes them like any others.
"""

import struct

from bus.frames import LENGTHS, VERSION_BYTE, encode_header, raw
from bus.headers import News
from bus.member import BEACON_TOPIC
from bus.messages import Beacon, Message

TOPIC = BEACON_TOPIC
ROLE = "process"
FIRST_SEQUENCE = 1 << 32  # From here on every sequence number takes nine bytes on the wire.
INCARNATION = 1 << 40
_SENT_US = 1 << 48
_SEQUENCE = struct.Struct(">Q")


class Impostor:
    """One process that does not exist: `process-000042`, a plausible worker."""

    def __init__(self, number: int, topic: str = TOPIC) -> None:
        self._id = f"process-{number:06d}"
        self._beacon = Beacon(
            role=ROLE,
            node=f"n{number % 10}",
            pid=100_000 + number,
            endpoint="",  # It answers nothing, so nobody pings it.
            state="live",
            age_s=3600.5,
            restarts=0,
            linked=False,
            period_s=1.0,
            metrics_url="",
            statistics={
                "cpu": 0.125,
                "rss_bytes": 50_000_000.0,
                "requests": 1234.5,
                "refused": 0.5,
                "queue": 12.0,
            },
        )
        self._frame = bytearray(news_frame(topic, self._id, self._beacon))
        self._at = self._frame.index(_SEQUENCE.pack(FIRST_SEQUENCE))

    def frame(self, sequence: int) -> bytes:
        """Its beacon with the given number, counted from 0."""
        _SEQUENCE.pack_into(self._frame, self._at, FIRST_SEQUENCE + sequence)
        return bytes(self._frame)

    @property
    def sequence_at(self) -> int:
        """Where in its frames the sequence number is; the same for all impostors."""
        return self._at


def sequence_in(frame: bytes, at: int) -> int:
    """The number of a beacon made here, counted from 0."""
    number: int = _SEQUENCE.unpack_from(frame, at)[0]
    return number - FIRST_SEQUENCE


def news_frame(topic: str, sender: str, message: Message, sequence: int = 0) -> bytes:
    """News of somebody who does not exist, with its number counted from 0."""
    news = News(
        sender=sender,
        incarnation=INCARNATION,
        sequence=FIRST_SEQUENCE + sequence,
        sent_us=_SENT_US,
        message=raw(message),
    )
    header = encode_header(news)
    lengths = LENGTHS.pack(len(header), 0)
    return topic.encode() + b"\0" + VERSION_BYTE + lengths + header
