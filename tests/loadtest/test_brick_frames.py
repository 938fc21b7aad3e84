"""Bricks and stubs that do not exist are real ones on the wire: the bus's own code reads them."""

from random import Random

from bus.frames import MessageDecoder, unjoin
from bus.headers import News
from bus.messages import Beacon, Message, PeersSeen
from loadtest.beacon_frames import FIRST_SEQUENCE
from loadtest.brick_frames import USUAL, FalseBrick, FalseStub

BRICKS = [FalseBrick(number, Random(number)) for number in range(3)]


def read(frame: bytes, kind: type[Message]) -> tuple[bytes, str, Message]:
    topic, _, rest = frame.partition(b"\0")
    [(news, _)], unreadable = unjoin(rest)
    assert isinstance(news, News)
    assert (news.sequence, unreadable) == (FIRST_SEQUENCE + 7, 0)
    return topic, news.sender, MessageDecoder(kind).decode(news.message)


def test_frame_of_a_brick_is_a_beacon_with_all_that_is_judged() -> None:
    topic, sender, beacon = read(BRICKS[1].frame(7), Beacon)
    assert (topic, sender) == (b"beacon", "brick-2")
    assert isinstance(beacon, Beacon)
    assert beacon.statistics.keys() == USUAL.keys()


def test_no_two_seconds_are_alike() -> None:
    assert BRICKS[0].frame(1) != BRICKS[0].frame(1)


def test_frame_of_a_stub_tells_of_each_brick() -> None:
    topic, sender, told = read(FalseStub("stub-1", BRICKS, Random(1)).frame("seen", 7), PeersSeen)
    assert (topic, sender) == (b"seen", "stub-1")
    assert isinstance(told, PeersSeen)
    assert [seen.id for seen in told.seen] == ["brick-1", "brick-2", "brick-3"]
