"""Asks and answers on the wire: any length, in message or body; garbage is told.

Method: they are packed, sent through the real encoding, and unpacked.
"""

import msgspec
import pytest

from bus.errors import RemoteProtocolError
from bus.frames import HEADER_BYTES_MAX
from roles.key_range import KEYS_END
from roles.lease_messages import (
    AskLeases,
    LeasesAnswered,
    OwnerAnswer,
    OwnerAsk,
    Span,
    pack_answers,
    pack_asks,
    unpack_answers,
    unpack_asks,
)
from roles.lease_namespace import HOLDS_MAX


def spans(count: int) -> list[Span]:
    step = KEYS_END // count
    return [Span(i * step, (i + 1) * step - 1, (1 << 61) + i, (1 << 61) + i) for i in range(count)]


@pytest.mark.parametrize("count", [1, 400, 1227, HOLDS_MAX])
def test_answers_of_any_length_come_over(count: int) -> None:
    answer = OwnerAnswer("presence", "u1", 1 << 62, 1 << 40, 7, "", spans(count))
    answered = LeasesAnswered(3, leading=True, answers=[answer])
    message, body = pack_answers(answered)
    assert len(msgspec.msgpack.encode(message)) < HEADER_BYTES_MAX - 1024
    assert unpack_answers(message, body) == answered


@pytest.mark.parametrize("count", [1, 400, 1227, HOLDS_MAX])
def test_asks_of_any_length_come_over(count: int) -> None:
    ask = OwnerAsk("ns", "u1", "u1", "p", 1, 1, 2, 3, 4, 5, 6, 7, 1.5, False, spans(count))  # noqa: FBT003
    message, body = pack_asks([ask] * 3)
    assert len(msgspec.msgpack.encode(message)) < HEADER_BYTES_MAX - 1024
    assert unpack_asks(message, body) == AskLeases([ask] * 3)


def test_garbage_in_a_body_is_told() -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_asks(AskLeases([]), b"garbage")
    with pytest.raises(RemoteProtocolError):
        unpack_answers(LeasesAnswered(3, leading=True, answers=[]), b"garbage")
