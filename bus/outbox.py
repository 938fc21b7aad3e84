"""Records on their way to one peer, joined into frames. Decides only; no socket.

What always holds:
  O1  What waits is bounded in bytes of memory: past the limit a record is refused, not queued.
  O2  Records leave in the order they came, each frame within `FRAME_BYTES_MAX`.
  O3  A record that nobody waits for any more does not leave: a peer that was away must not
      find yesterday's requests at its door, which it could not tell from today's.
"""

import math
from collections import deque

from bus.frames import (
    BODY_BYTES_MAX,
    BODY_FOLLOWS,
    FRAME_BYTES_MAX,
    JOINED_BODY_BYTES_MAX,
    LENGTHS,
    VERSION_BYTE,
    Body,
)

RECORD_COST_BYTES = 160  # What Python needs to hold a record, besides its bytes.
SEND_QUEUE_BYTES_MAX = 2 * BODY_BYTES_MAX  # So that the largest body always fits an idle queue.

Parts = tuple[bytes, Body | None]


class Outbox:
    """A queue of records that gives frames."""

    __slots__ = (
        "_bytes_max",
        "_records",
        "_sealed",
        "_sealed_bytes",
        "_sealed_until",
        "expired",
        "waiting_bytes",
    )

    def __init__(self, bytes_max: int = SEND_QUEUE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._records: deque[tuple[bytes, Body, float]] = deque()
        self._sealed: Parts | None = None
        self._sealed_bytes = 0
        self._sealed_until = -math.inf
        self.waiting_bytes = 0
        self.expired = 0

    def __len__(self) -> int:
        """How many records wait; a sealed frame counts as one."""
        return len(self._records) + (self._sealed is not None)

    def add(self, header: bytes, body: Body, until: float) -> bool:
        """Queue a record that is of use until then; whether there was room for it (O1)."""
        waiting_bytes = self.waiting_bytes + RECORD_COST_BYTES + len(header) + len(body)
        if waiting_bytes > self._bytes_max:
            return False
        self.waiting_bytes = waiting_bytes
        self._records.append((header, body, until))
        return True

    def next(self, now: float) -> Parts | None:
        """The frame to send now, and the part that follows it. It stays until `sent`."""
        if self._sealed is not None and self._sealed_until < now:
            self.expired += 1
            self.sent()  # O3
        if self._sealed is None and self._records:
            self._seal(now)
        return self._sealed

    def sent(self) -> None:
        self._sealed = None
        self.waiting_bytes -= self._sealed_bytes
        self._sealed_bytes = 0

    def _seal(self, now: float) -> None:
        """Join as many records as fit one frame; a large body follows as a part of its own."""
        records = self._records
        parts: list[Body] = [VERSION_BYTE]
        room = FRAME_BYTES_MAX - len(VERSION_BYTE)
        following: Body | None = None
        latest = -math.inf
        while records and following is None:
            header, body, until = records[0]
            header_length, body_length = len(header), len(body)
            if until < now:
                self.expired += 1
                self.waiting_bytes -= RECORD_COST_BYTES + header_length + body_length
                records.popleft()
                continue
            apart = body_length > JOINED_BODY_BYTES_MAX
            room -= LENGTHS.size + header_length + (0 if apart else body_length)
            if room < 0:  # O2
                break
            if apart:
                following = body
                parts += (LENGTHS.pack(header_length, BODY_FOLLOWS), header)
            else:
                parts += (LENGTHS.pack(header_length, body_length), header, body)
            self._sealed_bytes += RECORD_COST_BYTES + header_length + body_length
            if until > latest:
                latest = until
            records.popleft()
        if len(parts) > 1:
            self._sealed = (b"".join(parts), following)
            self._sealed_until = latest
