"""What is published is heard once, through whichever hubs there are; what is bad is dropped.

Method: hubs, a publisher and a listener in one process, over real sockets. Each test first waits
until news comes through, as ZeroMQ drops what is published before that.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
import zmq

from bus.clock import now
from bus.config import publish_address
from bus.frames import raw
from bus.headers import News
from bus.messages import Ping
from bus.pump import SUBSCRIPTION_BYTES_MAX, TOPIC_COST_BYTES, TOPICS_BYTES_MAX, Meddler
from tests.sockets.hubs import PATIENCE_S, TOPIC, Hubs, Listener, Note
from tests.sockets.raw_peer import RawPeer, ask, frame
from tests.waiting import until

pytestmark = pytest.mark.slow


class Scene:
    def __init__(self, directory: Path, hubs: int) -> None:
        self.hubs = Hubs(directory, hubs)
        self.publisher = Listener("publisher", self.hubs.addresses)
        self.listener = Listener("listener", self.hubs.addresses)
        self.listener.wait_until_hearing(self.publisher, hubs)

    def close(self) -> None:
        self.publisher.close()
        self.listener.close()
        self.hubs.close()


@pytest.fixture
def two_hubs(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, 2)
    yield scene
    scene.close()


@pytest.fixture
def one_hub(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, 1)
    yield scene
    scene.close()


def notes(count: int, start: int = 0) -> list[tuple[str, int]]:
    return [("publisher", number) for number in range(start, start + count)]


def test_each_message_is_heard_once_though_two_hubs_bring_it(two_hubs: Scene) -> None:
    windows = two_hubs.listener.news.windows
    repeated = windows.repeated
    for number in range(2000):
        two_hubs.publisher.publish(number)
        if number % 100 == 0:
            gevent.sleep(0.001)
    until(lambda: windows.repeated + windows.stale >= repeated + 2000, PATIENCE_S, "the repeats")
    assert sorted(two_hubs.listener.heard) == notes(2000)


def test_own_news_is_heard_as_well(one_hub: Scene) -> None:
    one_hub.publisher.wait_until_hearing(one_hub.publisher)
    one_hub.publisher.publish(5)
    one_hub.publisher.wait_for(1)
    assert one_hub.publisher.heard == notes(1, 5)


def test_listener_that_raises_keeps_no_other_from_hearing(one_hub: Scene) -> None:
    heard: list[int] = []
    failed = one_hub.listener.pump.traffic.failed

    def fail(header: News, note: Note) -> None:
        raise ValueError(f"cannot bear {note.number}")

    one_hub.listener.news.subscribe(TOPIC, Note, fail)
    one_hub.listener.news.subscribe(TOPIC, Note, lambda _, note: heard.append(note.number))
    one_hub.publisher.publish(7)
    one_hub.publisher.publish(8)
    until(lambda: heard[-2:] == [7, 8], PATIENCE_S, "both notes, by the one that came last")
    assert one_hub.listener.heard == [*notes(1, 7), *notes(1, 8)]
    assert one_hub.listener.pump.traffic.failed == failed + len(heard)


def test_nothing_is_lost_when_one_of_two_hubs_dies_while_we_publish(two_hubs: Scene) -> None:
    for number in range(600):
        two_hubs.publisher.publish(number)
        gevent.sleep(0.001)
        if number == 200:
            two_hubs.hubs.end(0)
    two_hubs.listener.wait_for(600)
    assert sorted(two_hubs.listener.heard) == notes(600)


def test_hub_that_comes_back_is_used_again(two_hubs: Scene) -> None:
    two_hubs.hubs.end(0)
    two_hubs.hubs.start(0)
    two_hubs.listener.wait_until_hearing(two_hubs.publisher, hubs=2)
    two_hubs.hubs.end(1)
    for number in range(100):
        two_hubs.publisher.publish(number)
    two_hubs.listener.wait_for(100)
    assert sorted(two_hubs.listener.heard) == notes(100)


def test_news_comes_again_after_all_hubs_were_gone(two_hubs: Scene) -> None:
    for place in range(2):
        two_hubs.hubs.end(place)
    for number in range(50):
        two_hubs.publisher.publish(number)
    for place in range(2):
        two_hubs.hubs.start(place)
    two_hubs.listener.wait_until_hearing(two_hubs.publisher, hubs=2)
    two_hubs.publisher.publish(50)
    until(lambda: ("publisher", 50) in two_hubs.listener.heard, PATIENCE_S, "the new note")


def test_rebinding_a_hub_cuts_everyone_off_for_a_moment_only(one_hub: Scene) -> None:
    for _ in range(5):
        relay = one_hub.hubs.relays[0]
        assert relay is not None
        relay.rebind()
        one_hub.listener.wait_until_hearing(one_hub.publisher)


def test_hub_is_there_again_after_a_listener_wanted_too_many_topics(one_hub: Scene) -> None:
    peer = RawPeer(zmq.XSUB, one_hub.hubs.addresses[0])
    peer.socket.set(zmq.SNDHWM, 0)
    count = TOPICS_BYTES_MAX // TOPIC_COST_BYTES
    for number in range(count):
        peer.socket.send(b"\x01topic-%d" % number)
    traffic = one_hub.hubs.pumps[0].traffic
    until(lambda: traffic.crowded, PATIENCE_S, "too many topics")
    peer.close()
    one_hub.listener.wait_until_hearing(one_hub.publisher)


def test_topics_that_nobody_wants_any_more_do_not_count(one_hub: Scene) -> None:
    relay = one_hub.hubs.relays[0]
    assert relay is not None
    outlet = relay._outlet
    before = outlet._wanted_bytes
    peer = RawPeer(zmq.XSUB, one_hub.hubs.addresses[0])
    peer.socket.send(b"\x01first")
    peer.socket.send(b"\x01second")
    until(lambda: len(outlet._wanted_by) == 3, PATIENCE_S, "two more topics")
    peer.socket.send(b"\x00first")
    until(lambda: len(outlet._wanted_by) == 2, PATIENCE_S, "one taken back")
    peer.close()
    until(lambda: outlet._wanted_bytes == before, PATIENCE_S, "the end of its connection")


def test_subscription_that_is_too_long_ends_its_connection(one_hub: Scene) -> None:
    connections = one_hub.hubs.pumps[0].connections
    peer = RawPeer(zmq.XSUB, one_hub.hubs.addresses[0])
    until(lambda: connections["listen"] == 3, PATIENCE_S, "the connection")
    peer.socket.set(zmq.RECONNECT_IVL, -1)
    peer.socket.send(b"\x01" + bytes(2 * SUBSCRIPTION_BYTES_MAX))
    until(lambda: connections["listen"] == 2, PATIENCE_S, "its end")
    peer.close()


def test_topics_of_a_process_are_few_and_short(one_hub: Scene) -> None:
    news = one_hub.listener.news
    with pytest.raises(ValueError, match="at most 200 bytes"):
        news.publish("x" * 201, Note(1))
    for number in range(255):  # And one that it had.
        news.subscribe(f"topic-{number}", Note, lambda header, note: None)
    relay = one_hub.hubs.relays[0]
    assert relay is not None
    until(lambda: len(relay._outlet._wanted_by) == 256, PATIENCE_S, "all of them at the hub")
    relay.rebind()
    until(lambda: len(relay._outlet._wanted_by) == 256, PATIENCE_S, "and again")
    with pytest.raises(ValueError, match="more than 256 topics"):
        news.subscribe("one more", Note, lambda header, note: None)


def test_nothing_is_kept_of_topics_once_published(one_hub: Scene) -> None:
    for number in range(100):
        one_hub.publisher.news.publish(f"topic-{number}", Note(number))
    gevent.sleep(0)
    assert one_hub.publisher.news._publisher._outboxes == {}


def test_garbage_that_is_published_is_counted_and_dropped(one_hub: Scene) -> None:
    peer = RawPeer(zmq.XPUB, publish_address(one_hub.hubs.addresses[0]))
    assert peer.received() == b"\x01", "the hub takes in all news"
    topic = TOPIC.encode() + b"\0"
    good = frame(News("raw-1", 1, 1, 0, raw(Note(7))))
    garbage = [
        topic,
        topic + b"garbage",
        topic + good[:-1],
        topic + bytes([good[0] + 1]) + good[1:],
        topic + frame(ask(1, Note(8), budget_s=1, sent_at=0.0)),
        topic + frame(News("raw-1", 1, 2, 0, raw(Ping()))),
        topic + frame(News("x" * 201, 1, 3, 0, raw(Note(9)))),
        topic + frame(News("raw-1", 2**64 - 1, 4, 0, raw(Note(10)))),
    ]
    traffic = one_hub.listener.pump.traffic
    assert traffic.malformed == 0
    for each in garbage:
        peer.socket.send(each)
    peer.socket.send_multipart([topic + good, b"more"])
    peer.socket.send(b"other\0" + good)
    peer.socket.send(topic + good)
    peer.socket.send(topic + good)
    one_hub.listener.wait_for(1)
    until(lambda: one_hub.listener.news.windows.repeated, PATIENCE_S, "the repeat")
    assert one_hub.listener.heard == [("raw-1", 7)]
    assert traffic.malformed == len(garbage)
    assert one_hub.hubs.pumps[0].traffic.malformed == 1, "the message of two parts, at the hub"
    peer.close()


def meddler(*, outgoing: bool, held_s: float) -> Meddler:
    """Holds notes back that go out, or else those that come in."""
    wanted = outgoing

    def meddle(*, outgoing: bool, peer: str) -> float:
        return held_s if (outgoing, peer) == (wanted, TOPIC) else 0.0

    return meddle


@pytest.mark.parametrize("outgoing", [True, False])
def test_meddler_drops_what_it_is_told_to(one_hub: Scene, *, outgoing: bool) -> None:
    pump = one_hub.publisher.pump if outgoing else one_hub.listener.pump
    pump.meddler = meddler(outgoing=outgoing, held_s=math.inf)
    before = one_hub.listener.pump.traffic.records_in
    one_hub.publisher.publish(1)
    if not outgoing:
        records_in = one_hub.listener.pump.traffic
        until(lambda: records_in.records_in > before, PATIENCE_S, "the note at the listener")
    gevent.sleep(0.01)
    pump.meddler = None
    one_hub.publisher.publish(2)
    one_hub.listener.wait_for(1)
    assert one_hub.listener.heard == notes(1, 2)


@pytest.mark.parametrize("outgoing", [True, False])
def test_meddler_delays_what_it_is_told_to(one_hub: Scene, *, outgoing: bool) -> None:
    pump = one_hub.publisher.pump if outgoing else one_hub.listener.pump
    pump.meddler = meddler(outgoing=outgoing, held_s=0.3)
    published_at = now()
    one_hub.publisher.publish(1)
    gevent.sleep(0.1)
    pump.meddler = None
    one_hub.publisher.publish(2)
    one_hub.listener.wait_for(2)
    assert one_hub.listener.heard == [*notes(1, 2), *notes(1, 1)]
    assert 0.3 <= now() - published_at < 1
