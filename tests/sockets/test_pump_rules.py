"""The pump's rules P1-P7: each holds, and each is missed when it is broken on purpose.

Method: one scenario a rule, over real sockets, says whether it went well. It must go well with
the code as it is, and must not with a one-line sabotage of the rule. The safety check (P5) is
off but where it is the subject, since it would heal what the other sabotages break.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import gevent
import pytest
import zmq

from bus import pump
from bus.clock import now
from bus.errors import RequestTimeoutError, SendQueueFullError
from bus.frames import Body
from bus.messages import Ping, Pong
from bus.outbox import Outbox
from bus.pump import Port, Pump
from tests.sockets.pair import Echo, Pair, pair

pytestmark = pytest.mark.slow

PATIENCE_S = 1.5


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

        def compute(seconds: float) -> None:
            until = now() + seconds
            while now() < until:
                pass

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
        for _ in range(pump.LOOK_MESSAGES_MAX):
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


RULES: dict[str, tuple[Callable[[], bool], tuple[object, str, object]]] = {
    "P1": (lambda: malformed_burst_arrives(200), (Port, "_look", look_once)),
    "P2": (
        lambda: malformed_burst_arrives(10 * pump.LOOK_MESSAGES_MAX),
        (Port, "_look", look_a_little),
    ),
    "P3": (interleaved_requests_are_answered, (Port, "_turn", turn_without_a_look_after_sending)),
    "P4": (peer_vanishes_quietly, (Port, "_look", no_look)),
    "P5": (edge_that_was_missed_is_rescued, (Port, "rescue", no_rescue)),
    "P6": (queue_to_nobody_is_bounded, (Outbox, "add", add_without_a_bound)),
    "P7": (parts_too_many_spoil_nothing, (Port, "_receive_rest", rest_unread)),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_holds(rule: str) -> None:
    scenario, _ = RULES[rule]
    assert scenario()


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
