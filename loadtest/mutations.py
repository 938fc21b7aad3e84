"""Bad input, made from good: what a broken, old or hostile peer might send. Decides only.

Each message is a list of ZeroMQ parts with the name of what is wrong with it. Everything is
drawn from the given `Random`, so a run can be repeated from its seed.
"""

from collections.abc import Callable
from random import Random

import msgspec

from bus.frames import (
    BODY_FOLLOWS,
    FRAME_BYTES_MAX,
    JOINED_BODY_BYTES_MAX,
    LENGTHS,
    VERSION,
    VERSION_BYTE,
    encode_header,
    raw,
)
from bus.headers import Ask, Cancel, Header, News, Refusal, Reply
from bus.messages import Message, Ping, Pong

Parts = list[bytes]

OVERSIZE_BYTES_MAX = 4 * FRAME_BYTES_MAX
BUDGET_US = 1_000_000
_ASKS = 200  # Good requests to begin from: more of them find nothing more.
_NAMES = 1 << 30


class Mutations:
    """An endless supply. `request` is what the server under test answers."""

    def __init__(self, draw: Random, request: Message) -> None:
        self._draw = draw
        self._request = request
        self._good = [self._good_frame(number) for number in range(_ASKS)]
        # Named with their weights: what costs much, or finds little, comes less often.
        self._kinds: list[tuple[str, Callable[[], Parts]]] = [
            *[("random", self._random)] * 20,
            *[("truncated", self._truncated)] * 20,
            *[("flipped", self._flipped)] * 40,
            *[("version", self._version)] * 10,
            *[("replayed", self._replayed)] * 10,
            *[("lengths", self._lengths)] * 20,
            *[("mistyped", self._mistyped)] * 10,
            *[("unexpected", self._unexpected)] * 10,
            *[("stranger", self._stranger)] * 10,
            *[("parts", self._mangled_parts)] * 10,
            ("oversize", self._oversize),
        ]

    def next(self) -> tuple[str, Parts]:
        """What is wrong with it, and its parts."""
        name, make = self._kinds[int(self._draw.random() * len(self._kinds))]
        return name, make()

    def _good_frame(self, number: int) -> bytes:
        joined = [
            _record(self._ask(number * 10 + place, "fuzzer"), self._draw.randbytes(number))
            for place in range(1 + number % 3)
        ]
        return VERSION_BYTE + b"".join(joined)

    def _ask(self, request_id: int, sender: str) -> Ask:
        message = self._request if request_id % 2 else Ping()
        return Ask(request_id, sender, 1, BUDGET_US, 0, 1_000_000 + request_id, raw(message))

    def _any_good(self) -> bytes:
        return self._good[int(self._draw.random() * _ASKS)]

    def _random(self) -> Parts:
        start = VERSION_BYTE if self._draw.random() < 0.5 else b""
        return [start + self._draw.randbytes(int(self._draw.random() ** 3 * 2000))]

    def _truncated(self) -> Parts:
        good = self._any_good()
        return [good[: int(self._draw.random() * len(good))]]

    def _flipped(self) -> Parts:
        bad = bytearray(self._any_good())
        for _ in range(1 + int(self._draw.random() ** 2 * 8)):
            place = int(self._draw.random() * len(bad) * 8)
            bad[place >> 3] ^= 1 << (place & 7)
        return [bytes(bad)]

    def _version(self) -> Parts:
        other = (VERSION + 1 + int(self._draw.random() * 255)) % 256
        return [bytes([other]) + self._any_good()[1:]]

    def _replayed(self) -> Parts:
        return [self._any_good()]

    def _lengths(self) -> Parts:
        """Lengths that lie: just off, enormous, or announcing a part that never comes."""
        bad = bytearray(self._any_good())
        off = self._draw.choice((1, 2, 255, 65536, 2**31, 2**32 - 2, BODY_FOLLOWS))
        at = 1 + 4 * self._draw.randrange(2)
        stated = int.from_bytes(bad[at : at + 4], "little")
        bad[at : at + 4] = ((stated + off) % 2**32).to_bytes(4, "little")
        return [bytes(bad)]

    def _mistyped(self) -> Parts:
        """Well-formed msgpack that is no header of ours, or not well-formed inside."""
        header = self._draw.choice(
            (
                b"\x91" * self._draw.randrange(1, 5000),  # An array in an array in an array …
                b"\x97\x01" + b"\xc0" * 6,  # An Ask of nothing but nil.
                b"\x98\x01\x01\xa2\xff\xfe\x01\x01\x00\x01\x91\xa4ping",  # A name that is no UTF-8.
                b"\xdd\xff\xff\xff\xff\x01",  # An array of four billion.
                msgspec.msgpack.encode([1, -1, "x" * 500, -1, "soon", None, 2**63, []]),
                msgspec.msgpack.encode({"request_id": self._draw.getrandbits(63)}),
                msgspec.msgpack.encode([1, 7, "fuzzer", 1, BUDGET_US, 0, 1, ["no-such-request"]]),
            )
        )
        return [VERSION_BYTE + LENGTHS.pack(len(header), 0) + header]

    def _unexpected(self) -> Parts:
        """Good headers that no client sends to a server, or about requests it never made."""
        number = self._draw.getrandbits(40)
        header: Header = self._draw.choice(
            (
                Reply(number, "fuzzer", 1, 0, raw(Pong("fuzzer", 1))),
                Refusal(number, "busy", "x" * 100, -1),
                Cancel(number),
                News("fuzzer", 1, number, 0, raw(Ping())),
            )
        )
        return [VERSION_BYTE + _record(header, b"")]

    def _stranger(self) -> Parts:
        """A good request from a name never heard before: what is kept by name must be bounded."""
        ask = self._ask(self._draw.getrandbits(40), f"stranger-{self._draw.randrange(_NAMES)}")
        return [VERSION_BYTE + _record(ask, b"")]

    def _mangled_parts(self) -> Parts:
        good = self._any_good()
        header = encode_header(self._ask(1, "fuzzer"))
        follows = VERSION_BYTE + LENGTHS.pack(len(header), BODY_FOLLOWS) + header
        return self._draw.choice(
            (
                [b""],
                [b"", good],
                [good, b""],
                [good, good],
                [follows],
                [follows, b"short after all"],
                [follows, bytes(JOINED_BODY_BYTES_MAX), b"and more"],
                [follows + b"\0", b"not the last"],
                [good] * self._draw.randrange(3, 20),
            )
        )

    def _oversize(self) -> Parts:
        size = self._draw.randrange(FRAME_BYTES_MAX + 1, OVERSIZE_BYTES_MAX)
        return [VERSION_BYTE + bytes(size)]


def _record(header: Header, body: bytes) -> bytes:
    encoded = encode_header(header)
    return LENGTHS.pack(len(encoded), len(body)) + encoded + body
