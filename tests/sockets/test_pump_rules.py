"""The pump's rules P1-P8: each holds, and each is missed when it is broken on purpose.

Rule P9 is in test_news.py.

Method: one scenario a rule, over real sockets, says whether it went well. It must go well with
the code as it is, and must not with a one-line sabotage of the rule. The safety check (P5) is
off but where it is the subject, since it would heal what the other sabotages break.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import gevent
import pytest
import zmq

from bus import pump
from bus.clock import now
from bus.errors import ConfigError, RequestTimeoutError, SendQueueFullError
from bus.frames import Body
from bus.headers import Cancel, Header
from bus.messages import Message, Ping, Pong
from bus.outbox import Outbox
from bus.pump import Port, Pump, Router
from tests.sockets.pair import Echo, Pair, pair
from tests.sockets.raw_peer import ask, frame

pytestmark = pytest.mark.slow

PATIENCE_S = 1.5
LITTLE = 16  # Less than ZeroMQ lets wait, so that some are left when a look stops.
MEGABYTE = 1024 * 1024


class Unknown(Message, frozen=True, tag="test.unknown"):
    """What no server here handles."""


@contextmanager
def unsafe_pair() -> Iterator[Pair]:
    with pair() as made:
        for each in (made.client_pump, made.server_pump):
            each._safety.stop()
        yield made


def within(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    deadline = now() + patience_s
    while not condition() and now() < deadline:
        gevent.sleep(0.01)
    return condition()


def compute(seconds: float) -> None:
    """Keep the event loop from its work."""
    until = now() + seconds
    while now() < until:
        pass


def has_grown(heard: list[Any], known: int) -> bool:
    return len(heard) > known


def raw_dealer(endpoint: str) -> "zmq.Socket[bytes]":
    """A peer that keeps to no rules of ours."""
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    dealer.set(zmq.SNDHWM, 0)  # Or a burst would wait for the loop that this test is blocking.
    dealer.connect(endpoint)
    return dealer


def malformed_burst_arrives(count: int) -> bool:
    """Frames that are not joined, as a foreign peer may send them, are all looked at."""
    with unsafe_pair() as made:
        dealer = raw_dealer(made.server.endpoint)
        for _ in range(count):
            dealer.send(b"not ours")
        arrived = within(lambda: made.server_pump.traffic.malformed == count)
        dealer.close()
        return arrived


def interleaved_requests_are_answered() -> bool:
    """Sends and arrivals interleave while Python computes: where edges are swallowed."""
    with unsafe_pair() as made:
        answered: list[int] = []

        def ask(number: int) -> None:
            with suppress(RequestTimeoutError):
                endpoint = made.server.endpoint
                made.client.ask(endpoint, Echo(number), expect=Echo, timeout_s=PATIENCE_S)
                answered.append(number)

        ask(0)
        greenlets = []
        for number in range(1, 120):
            greenlets.append(gevent.spawn(ask, number))
            gevent.sleep(0)
            compute(0.003)
        gevent.joinall(greenlets, timeout=PATIENCE_S)
        gevent.killall(greenlets)
        return len(answered) == 120


def peer_vanishes_quietly() -> bool:
    """After a peer has gone, the port looks up a few times, not for ever."""
    with unsafe_pair() as made:
        looks = 0
        look = Port._look

        def counted(port: Port) -> None:
            nonlocal looks
            looks += 1
            look(port)

        dealer = raw_dealer(made.server.endpoint)
        dealer.send(b"hello")
        within(lambda: made.server_pump.traffic.malformed == 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Port, "_look", counted)
            dealer.close()
            gevent.sleep(0.3)
        return looks < 50


def edge_that_was_missed_is_rescued() -> bool:
    """With its edge swallowed by someone else, a message is still found, and counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pump, "SAFETY_CHECK_S", 0.05)
        with pair() as made:
            made.client.ask(made.server.endpoint, Ping(), expect=Pong, timeout_s=PATIENCE_S)
            router = made.server._router
            router._watcher.stop()
            dealer = raw_dealer(made.server.endpoint)
            dealer.send(b"not ours")
            within(lambda: router._socket.get(zmq.EVENTS) in (zmq.POLLIN, zmq.POLLIN | zmq.POLLOUT))
            found = within(lambda: made.server_pump.traffic.malformed == 1)
            dealer.close()
            return found and made.server_pump.traffic.rescued == 1


def queue_to_nobody_is_bounded() -> bool:
    """A peer that is not there takes nothing: the queue fills, and then says so."""
    our_pump = Pump()
    nobody = our_pump.dealer("tcp://127.0.0.1:1", lambda header, body: None)
    body = bytes(1024 * 1024)
    try:
        for _ in range(64):
            nobody.send(b"header", body, until=now() + 60)
    except SendQueueFullError:
        return True
    finally:
        our_pump.close()
    return False


def timers_have_their_turn() -> bool:
    """Frames full of requests nobody knows, all there at once: some of them, then a timer."""
    with unsafe_pair() as made:
        traffic = made.server_pump.traffic
        dealer = raw_dealer(made.server.endpoint)
        dealer.send(b"not ours")
        within(lambda: traffic.malformed == 1)
        requests = [ask(number, Unknown(), budget_s=60, sent_at=0.0) for number in range(1000)]
        for _ in range(60):  # As many as ZeroMQ takes in for us.
            dealer.send(frame(*requests))
        compute(0.3)  # So that all of it has come when we look.
        seen = [1]
        until = now() + 2 * PATIENCE_S
        while seen[-1] <= 60_000 and now() < until:
            gevent.sleep(0.001)
            seen.append(traffic.malformed)
        dealer.close()
        # A look lasts 10 ms, or as long as one frame does: here some 4,000 requests.
        return seen[-1] == 60_001 and max(b - a for a, b in pairwise(seen)) <= 30_000


def slowest_peer_makes_room() -> bool:
    """Peers that do not read fill the queues of a server, up to their limit for all together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pump, "HIGH_WATER_FRAMES", 1)
        our_pump = Pump(send_queues_bytes_max=40 * MEGABYTE)
        heard: list[bytes] = []
        router = our_pump.router("tcp://127.0.0.1:*", lambda peer, *_: heard.append(peer))
        dealers = [raw_dealer(router.endpoint) for _ in range(4)]
        for dealer in dealers:
            known = len(heard)
            dealer.send(frame(Cancel(1)))
            within(partial(has_grown, heard, known))
        body = bytes(MEGABYTE)
        peak = 0
        for peer in [heard[0]] + heard[1:] * 20:
            router.send(peer, b"header", body, now() + 60)
            gevent.sleep(0)
            peak = max(peak, sum(each.waiting_bytes for each in router._outboxes.values()))
        answered = within(lambda: bool(dealers[0].poll(0)))
        for dealer in dealers:
            dealer.close()
        our_pump.close()
        return answered and 30 * MEGABYTE < peak <= 41 * MEGABYTE


def mistake_in_one_record_spoils_no_other() -> bool:
    """Of three records in one frame the first makes us raise; so does one more, alone."""
    with unsafe_pair() as made:
        heard: list[int] = []

        def hear(routing_id: bytes, key: str, header: Header, body: Body) -> None:
            assert isinstance(header, Cancel)
            heard.append(header.request_id)
            if header.request_id in (1, 4):
                raise ValueError(header.request_id)

        made.server._router._heard = hear
        dealer = raw_dealer(made.server.endpoint)
        dealer.send(frame(Cancel(1), Cancel(2), Cancel(3)))
        for known, number in ((3, 4), (4, 5)):
            within(partial(has_grown, heard, known - 1), 0.5)
            dealer.send(frame(Cancel(number)))
        arrived = within(lambda: heard == [1, 2, 3, 4, 5], 0.5)
        dealer.close()
        return arrived and made.server_pump.traffic.failed == 2


def mistake_in_a_turn_spoils_no_other_turn() -> bool:
    """What is raised in the middle of a message loses that one; the next is read whole."""
    with unsafe_pair() as made:
        router = made.server._router
        dealer = raw_dealer(made.server.endpoint)
        dealer.send(b"not ours")
        within(lambda: made.server_pump.traffic.malformed == 1)
        receive = router._recv

        def raise_once(*args: object, **options: object) -> object:
            router._recv = receive
            receive(*args, **options)
            raise ValueError("once")

        router._recv = raise_once
        dealer.send(b"not ours")
        within(lambda: made.server_pump.traffic.failed == 1, 0.5)
        dealer.send(frame(Cancel(1)))
        arrived = within(lambda: made.server_pump.traffic.records_in == 1, 0.5)
        dealer.close()
        return arrived and made.server_pump.traffic.failed == 1


def parts_too_many_spoil_nothing() -> bool:
    """A message of three parts is dropped whole; the next one is read from its beginning."""
    with unsafe_pair() as made:
        dealer = raw_dealer(made.server.endpoint)
        for _ in range(5):
            dealer.send_multipart([b"not ours"] * 3)
        dealer.send(b"not ours")
        arrived = within(lambda: made.server_pump.traffic.frames_in == 6)
        dealer.close()
        return arrived and made.server_pump.traffic.malformed == 6


def look_once(port: Port) -> None:
    try:
        port._receive_one()
    except zmq.Again:
        return


def look_a_little(port: Port) -> None:
    try:
        for _ in range(LITTLE):
            port._receive_one()
    except zmq.Again:
        return


def turn_without_a_look_after_sending(port: Port) -> None:
    port._turn_is_due = False
    if not port._closed:
        waiting = getattr(port, "_outbox", None)
        if waiting is not None and waiting.waiting_bytes:
            port._flush()
        else:
            port._flush()
            port._look()


def no_look(port: Port) -> None:
    return


def no_rescue(port: Port) -> None:
    return


def add_without_a_bound(outbox: Outbox, header: bytes, body: Body, until: float) -> bool:
    outbox._records.append((header, body, until))
    return True


def rest_unread(port: Port) -> Body | None:
    return None


def raise_on(pump: Pump) -> None:
    raise


def nothing(port: Port) -> None:
    return


look = Port._look


def look_though_resting(port: Port) -> None:
    port._resting = False
    look(port)


RULES: dict[str, tuple[Callable[[], bool], tuple[object, str, object]]] = {
    "P1": (lambda: malformed_burst_arrives(200), (Port, "_look", look_once)),
    "P2": (
        lambda: malformed_burst_arrives(10 * LITTLE),
        (Port, "_look", look_a_little),
    ),
    "P2 for long": (timers_have_their_turn, (pump, "LOOK_S_MAX", 60)),
    "P2 in one round": (timers_have_their_turn, (Port, "_look", look_though_resting)),
    "P3": (interleaved_requests_are_answered, (Port, "_turn", turn_without_a_look_after_sending)),
    "P4": (peer_vanishes_quietly, (Port, "_look", no_look)),
    "P5": (edge_that_was_missed_is_rescued, (Port, "rescue", no_rescue)),
    "P6": (queue_to_nobody_is_bounded, (Outbox, "add", add_without_a_bound)),
    "P6 for all": (slowest_peer_makes_room, (Router, "_make_room", nothing)),
    "P7": (parts_too_many_spoil_nothing, (Port, "_receive_rest", rest_unread)),
    "P8": (mistake_in_one_record_spoils_no_other, (Pump, "failed", raise_on)),
    "P8 in a turn": (mistake_in_a_turn_spoils_no_other_turn, (Pump, "failed", raise_on)),
    "P8 in a message": (mistake_in_a_turn_spoils_no_other_turn, (Port, "_skip_rest", nothing)),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_holds(rule: str) -> None:
    scenario, _ = RULES[rule]
    assert scenario()


@pytest.mark.plain
@pytest.mark.parametrize("rule", RULES)
def test_rule_is_missed_when_it_is_broken(rule: str) -> None:
    scenario, (target, name, sabotage) = RULES[rule]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, sabotage)
        assert not scenario()


def test_nothing_was_rescued_in_steady_traffic() -> None:
    with pair() as made:
        for number in range(2000):
            made.client.ask(made.server.endpoint, Echo(number), expect=Echo, timeout_s=5)
        assert made.client_pump.traffic.rescued == 0
        assert made.server_pump.traffic.rescued == 0


def test_mistake_is_told_once_though_it_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    our_pump = Pump()
    for number in (1, 1, 2):
        try:
            int(f"not {number}")
        except ValueError:
            our_pump.failed()
    gevent.sleep(0)
    our_pump.close()
    assert our_pump.traffic.failed == 3
    told = [record.getMessage()[-3:-1] for record in caplog.records]
    assert told == [" 1", " 2"]


def test_doorkeeper_survives_a_question_that_is_not_libzmqs() -> None:
    with unsafe_pair() as made:
        stranger = made.server_pump._context.socket(zmq.DEALER)
        stranger.connect("inproc://zeromq.zap.01")
        for parts in ([b"", b"1.0"], [b"", *[b"x"] * 5, b"CURVE"], [b"", *[b"\xff"] * 6]):
            stranger.send_multipart(parts)
        assert within(lambda: made.server_pump.traffic.malformed == 3)
        made.client.ask(made.server.endpoint, Ping(), expect=Pong, timeout_s=PATIENCE_S)
        stranger.close(0)


def test_socket_is_bound_though_a_former_one_of_its_descriptor_is_still_watched() -> None:
    our_pump = Pump()
    former, socket = our_pump.socket(zmq.PAIR), our_pump.socket(zmq.ROUTER)
    former.bind(f"inproc://monitor.s-{socket.FD}")  # As pyzmq calls it.
    our_pump.bind(socket, "tcp://127.0.0.1:*", "ask")
    our_pump.close()


@pytest.mark.parametrize("endpoint", ["inproc://zeromq.zap.01", "pgm://1", "", "127.0.0.1:1"])
def test_endpoint_of_another_kind_is_refused(endpoint: str) -> None:
    with pair() as made, pytest.raises(ConfigError, match="tcp://"):
        made.client.ask(endpoint, Ping(), expect=Pong, timeout_s=PATIENCE_S)
