"""A request is answered once, refused, or given up in time; what goes wrong harms no other.

Method: client and server over real sockets in one process; a `Gate` holds requests where the
test needs them in the middle of things. A server that is stopped or killed is a process.
"""

import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import gevent
import msgspec
import pytest
import zmq

from bus.client import Client
from bus.clock import now
from bus.errors import RequestTimeoutError
from bus.frames import BODY_BYTES_MAX, HEADER_BYTES_MAX, JOINED_BODY_BYTES_MAX, Body
from bus.headers import Cancel
from bus.headers import Reply as ReplyHeader
from bus.identity import Identity
from bus.messages import Message, Ping, Pong, Refused
from bus.pump import Pump
from bus.replies import Answer, Reply
from bus.server import BODIES_BYTES_MAX, Call, Server
from tests.sockets.gate import Gate
from tests.sockets.pair import Echo, Pair, echo, pair
from tests.sockets.raw_peer import RawPeer, ask, frame
from tests.sockets.server_process import AskTally, Tally, server_process
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0
SLACK_S = 0.25  # How late a deadline may be seen on a busy machine.


class Long(Message, frozen=True, tag="test.long"):
    text: str


def number_of(outcome: Reply[Echo] | Refused) -> int:
    assert isinstance(outcome, Reply), outcome
    return outcome.message.number


def ask_echo(made: Pair, number: int, timeout_s: float = PATIENCE_S) -> Reply[Echo] | Refused:
    return made.client.ask(made.server.endpoint, Echo(number), expect=Echo, timeout_s=timeout_s)


@contextmanager
def small_pair(
    *, inbox_max: int = 100, workers_max: int = 100, bodies_bytes_max: int = BODIES_BYTES_MAX
) -> Iterator[Pair]:
    with pair() as made:
        made.server.close()
        me = Identity("server-1", "server", "n1", 7)
        made.server = Server(
            made.server_pump,
            me,
            "tcp://127.0.0.1:*",
            inbox_max=inbox_max,
            workers_max=workers_max,
            bodies_bytes_max=bodies_bytes_max,
        )
        made.server.on(Echo, echo)
        yield made


# Many at once.


def test_each_of_many_requests_in_flight_gets_its_own_answer() -> None:
    with pair() as made:

        def answer_out_of_order(call: Call[Echo]) -> Answer:
            gevent.sleep(call.message.number * 7919 % 50 / 1000)
            return Answer(call.message, b"%d" % call.message.number)

        made.server.on(Echo, answer_out_of_order)
        asking = [gevent.spawn(ask_echo, made, number) for number in range(500)]
        until(lambda: made.client.in_flight > 400, PATIENCE_S, "many in flight")
        replies = [each.get(timeout=PATIENCE_S) for each in asking]
        assert [
            (each.message.number, each.body) for each in replies if isinstance(each, Reply)
        ] == [(number, b"%d" % number) for number in range(500)]
        assert made.client.in_flight == 0
        assert made.server.answered == 500


def test_handler_that_waits_does_not_hold_up_others() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        held = [gevent.spawn(ask_echo, made, number) for number in range(20)]
        gate.wait_for(20)
        for _ in range(20):
            reply = made.client.ask(made.server.endpoint, Ping(), expect=Pong, timeout_s=1)
            assert isinstance(reply, Reply)
            assert reply.message == Pong("server-1", 7)
        assert not any(each.ready() for each in held)
        gate.open()
        assert [number_of(each.get(timeout=PATIENCE_S)) for each in held] == list(range(20))


def test_no_more_handlers_run_at_once_than_workers_max() -> None:
    with small_pair(workers_max=3) as made:
        gate = Gate()
        made.server.on(Echo, gate)
        asking = [gevent.spawn(ask_echo, made, number) for number in range(10)]
        until(lambda: made.server.inbox_length == 7, PATIENCE_S, "seven in the inbox")
        assert gate.numbers == [0, 1, 2]
        gate.open()
        assert [number_of(each.get(timeout=PATIENCE_S)) for each in asking] == list(range(10))


def test_timers_have_their_turn_while_handlers_compute() -> None:
    with pair() as made:
        numbers: list[int] = []

        def compute_a_little(call: Call[Echo]) -> Echo:
            compute(0.005)
            numbers.append(call.message.number)
            return call.message

        made.server.on(Echo, compute_a_little)
        asking = [gevent.spawn(ask_echo, made, number) for number in range(40)]
        seen = [0]
        while len(numbers) < 40:
            gevent.sleep(0.001)
            seen.append(len(numbers))
        assert max(after - before for before, after in pairwise(seen)) <= 10
        assert [number_of(each.get(timeout=PATIENCE_S)) for each in asking] == list(range(40))


# Deadlines.


def test_deadline_raises_in_time_and_the_late_answer_is_counted_and_dropped() -> None:
    with pair() as made:
        ask_echo(made, 0)
        made.client_pump.meddler = lambda *, outgoing, peer: 0.0 if outgoing else 0.3
        asked_at = now()
        with pytest.raises(RequestTimeoutError, match=r"Echo to tcp://.*: no answer within 0\.1 s"):
            ask_echo(made, 1, timeout_s=0.1)
        assert 0.1 <= now() - asked_at < 0.1 + SLACK_S
        assert made.client.in_flight == 0
        until(lambda: made.client.late_answers == 1, PATIENCE_S, "the late answer")
        made.client_pump.meddler = None
        assert number_of(ask_echo(made, 2)) == 2


def test_deadlines_are_kept_in_their_own_order_not_in_that_of_asking() -> None:
    with pair() as made:
        made.server.on(Echo, Gate())
        asked_at = now()
        gave_up_after_s: dict[float, float] = {}

        def give_up(timeout_s: float) -> None:
            with pytest.raises(RequestTimeoutError):
                ask_echo(made, 0, timeout_s=timeout_s)
            gave_up_after_s[timeout_s] = now() - asked_at

        timeouts_s = [0.4, 0.1, 0.3, 0.1, 0.2]
        gevent.joinall([gevent.spawn(give_up, each) for each in timeouts_s], raise_error=True)
        assert list(gave_up_after_s) == [0.1, 0.2, 0.3, 0.4]
        for timeout_s, after_s in gave_up_after_s.items():
            assert timeout_s <= after_s < timeout_s + SLACK_S


def test_answer_that_is_ready_after_the_deadline_is_not_sent_but_counted() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        with pytest.raises(RequestTimeoutError):
            ask_echo(made, 1, timeout_s=0.1)
        # The server does not see how long the first message waited for its connection.
        until(lambda: gate.calls[0].left_s() <= 0, PATIENCE_S, "the deadline at the server")
        frames_out = made.server_pump.traffic.frames_out
        gate.open()
        until(lambda: not made.server._calls, PATIENCE_S, "the end of the handler")
        gevent.sleep(0)
        assert made.server_pump.traffic.frames_out == frames_out
        assert (made.server.answered, made.server.expired) == (0, 1)


def compute(seconds: float) -> None:
    """Keep the event loop from its work."""
    finished_at = now() + seconds
    while now() < finished_at:
        pass


def test_request_that_waited_out_its_budget_in_unseen_queues_is_dropped_unserved() -> None:
    with pair() as made:
        gate = Gate()
        gate.open()
        made.server.on(Echo, gate)
        peer = RawPeer(zmq.DEALER, made.server.endpoint)
        for number in range(3):  # From these the server learns how long the way is.
            peer.socket.send(frame(ask(number, Echo(number), budget_s=5, sent_at=now())))
            peer.records()
        peer.socket.send(frame(ask(8, Echo(8), budget_s=0.1, sent_at=now())))
        peer.socket.send(frame(ask(9, Echo(9), budget_s=5, sent_at=now())))
        compute(0.2)
        assert [
            header.request_id for header, _ in peer.records() if isinstance(header, ReplyHeader)
        ] == [9]
        peer.close()
        assert gate.numbers == [0, 1, 2, 9]
        assert made.server.expired == 1
        assert 4 < gate.calls[-1].until - gate.calls[-1].arrived_at <= 5


def test_request_that_waited_for_a_stopped_server_is_dropped_unserved() -> None:
    client = Client(Pump(), Identity("client-1", "client", "n1", 1))
    with server_process() as (pid, endpoint):
        for number in range(3):
            client.ask(endpoint, Echo(number), expect=Echo, timeout_s=PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RequestTimeoutError):
            client.ask(endpoint, Echo(8), expect=Echo, timeout_s=0.2)
        gevent.sleep(0.1)  # So that the pause is longer than the budget beyond doubt.
        os.kill(pid, signal.SIGCONT)
        number = number_of(client.ask(endpoint, Echo(9), expect=Echo, timeout_s=PATIENCE_S))
        tally = client.ask(endpoint, AskTally(), expect=Tally, timeout_s=PATIENCE_S)
        assert isinstance(tally, Reply)
        assert (number, tally.message) == (9, Tally([0, 1, 2, 9], 1))
    client.close()
    client._pump.close()


def test_request_that_waited_out_its_budget_in_the_inbox_is_dropped_unserved() -> None:
    with small_pair(workers_max=1) as made:
        gate = Gate()
        made.server.on(Echo, gate)
        first = gevent.spawn(ask_echo, made, 1)
        gate.wait_for(1)
        with pytest.raises(RequestTimeoutError):
            ask_echo(made, 2, timeout_s=0.1)
        # On a busy machine it may come late, and the server cannot tell how late.
        until(lambda: made.server.inbox_length or made.server.expired, PATIENCE_S, "its arrival")
        over_at = now() + 0.1
        until(lambda: now() > over_at, PATIENCE_S, "the end of its budget at the server")
        gate.open()
        assert number_of(first.get(timeout=PATIENCE_S)) == 1
        assert number_of(ask_echo(made, 3)) == 3
        assert gate.numbers == [1, 3]
        assert made.server.expired == 1


def test_requests_to_a_server_that_was_away_are_not_delivered_and_new_ones_are() -> None:
    client = Client(Pump(), Identity("client-1", "client", "n1", 1))
    with server_process() as (_, endpoint):
        assert number_of(client.ask(endpoint, Echo(1), expect=Echo, timeout_s=PATIENCE_S)) == 1

    def give_up(number: int) -> None:
        with pytest.raises(RequestTimeoutError):
            client.ask(endpoint, Echo(number), expect=Echo, timeout_s=0.2)

    asking = []
    for number in range(10, 13):  # One by one, so that some wait behind a frame that is sealed.
        asking.append(gevent.spawn(give_up, number))
        gevent.sleep(0.01)
    gevent.joinall(asking, raise_error=True)
    with server_process(endpoint) as (_, again):
        assert again == endpoint
        assert number_of(client.ask(endpoint, Echo(2), expect=Echo, timeout_s=PATIENCE_S)) == 2
        tally = client.ask(endpoint, AskTally(), expect=Tally, timeout_s=PATIENCE_S)
        assert isinstance(tally, Reply)
        assert tally.message == Tally([2], 0)
    client.close()
    client._pump.close()


# Cancellation.


def killed(made: Pair) -> None:
    asking = gevent.spawn(ask_echo, made, 1)
    until(lambda: made.server._calls, PATIENCE_S, "the request at the server")
    asking.kill()


def timed_out_by_the_caller(made: Pair) -> None:
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.2):
        ask_echo(made, 1)


@pytest.mark.parametrize("give_up", [killed, timed_out_by_the_caller])
def test_asker_that_gives_up_cancels_at_the_server(give_up: Callable[[Pair], None]) -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        give_up(made)
        assert made.client.in_flight == 0
        until(lambda: gate.calls[0].cancelled, PATIENCE_S, "word of it at the server")
        gate.open()
        until(lambda: made.server.expired == 1, PATIENCE_S, "the end of the handler")
        assert number_of(ask_echo(made, 2)) == 2
        assert (made.server.answered, made.client.late_answers) == (1, 0)


def test_cancelled_request_in_the_inbox_is_never_served() -> None:
    with small_pair(workers_max=1) as made:
        gate = Gate()
        made.server.on(Echo, gate)
        first = gevent.spawn(ask_echo, made, 1)
        gate.wait_for(1)
        second = gevent.spawn(ask_echo, made, 2)
        until(lambda: made.server.inbox_length == 1, PATIENCE_S, "the second in the inbox")
        second.kill()
        waiting = made.server._inbox[0]
        until(lambda: waiting.cancelled, PATIENCE_S, "word of it at the server")
        gate.open()
        assert number_of(first.get(timeout=PATIENCE_S)) == 1
        assert number_of(ask_echo(made, 3)) == 3
        assert gate.numbers == [1, 3]


# Refusals.


def test_full_inbox_refuses_at_once() -> None:
    with small_pair(inbox_max=2, workers_max=1) as made:
        gate = Gate()
        made.server.on(Echo, gate)
        asking = []
        for number in range(3):
            asking.append(gevent.spawn(ask_echo, made, number))
            until(
                lambda: len(made.server._calls) == len(asking), PATIENCE_S, "the request taken in"
            )
        assert ask_echo(made, 9) == Refused("busy", "the inbox is full", retry_after_s=0.1)
        gate.open()
        assert [number_of(each.get(timeout=PATIENCE_S)) for each in asking] == [0, 1, 2]
        assert number_of(ask_echo(made, 10)) == 10


def test_bodies_of_all_requests_in_hand_are_bounded_together() -> None:
    with small_pair(bodies_bytes_max=250_000) as made:
        gate = Gate()
        made.server.on(Echo, gate)

        def ask_with_body(number: int) -> Reply[Echo] | Refused:
            endpoint, body = made.server.endpoint, bytes(100_000)
            return made.client.ask(endpoint, Echo(number), expect=Echo, timeout_s=5, body=body)

        asking = [gevent.spawn(ask_with_body, number) for number in range(2)]
        gate.wait_for(2)
        assert ask_with_body(9) == Refused("busy", "the inbox is full", retry_after_s=0.1)
        gate.open()
        assert [number_of(each.get(timeout=PATIENCE_S)) for each in asking] == [0, 1]
        assert number_of(ask_with_body(10)) == 10


@pytest.mark.plain
def test_refusal_on_arrival_is_of_no_use_after_the_deadline_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pair() as made:
        deadlines: list[float] = []
        send = made.server._router.send

        def spy(routing_id: bytes, header: bytes, body: Body, until: float) -> None:
            deadlines.append(until)
            send(routing_id, header, body, until)

        monkeypatch.setattr(made.server._router, "send", spy)
        made.client.ask(made.server.endpoint, Long("?"), expect=Pong, timeout_s=5)
        assert now() < deadlines[0] <= now() + 5


def test_message_nobody_handles_is_refused_as_unknown() -> None:
    with pair() as made:
        refused = made.client.ask(made.server.endpoint, Long("?"), expect=Pong, timeout_s=5)
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.retry_after_s) == ("unknown", None)
        assert "test.long" in refused.detail
        assert number_of(ask_echo(made, 1)) == 1


def test_handler_may_refuse() -> None:
    with pair() as made:
        made.server.on(Echo, lambda call: Refused("late", "no time", retry_after_s=1.5))
        assert ask_echo(made, 1) == Refused("late", "no time", retry_after_s=1.5)


def raise_an_exception(call: Call[Echo]) -> Echo:
    raise ValueError("broken")


def raise_a_timeout(call: Call[Echo]) -> Echo:
    """As a handler does that sets itself a `gevent.Timeout` and does not catch it."""
    with gevent.Timeout(0.01):
        gevent.sleep(10)
    return call.message


def exit_its_greenlet(call: Call[Echo]) -> Echo:
    raise gevent.GreenletExit


def answer_too_long(call: Call[Echo]) -> Long:
    return Long("x" * HEADER_BYTES_MAX)


def answer_nothing(call: Call[Echo]) -> Echo:
    return None  # type: ignore[return-value]


def answer_what_cannot_be_encoded(call: Call[Echo]) -> Echo:
    return Echo(object())  # type: ignore[arg-type]


def answer_with_a_body_just_over_the_limit(call: Call[Echo]) -> Answer:
    return Answer(call.message, bytes(BODY_BYTES_MAX + 1))


def answer_with_a_body_far_over_the_limit(call: Call[Echo]) -> Answer:
    return Answer(call.message, bytes(BODY_BYTES_MAX + 1024 * 1024))


def answer_with_a_text_for_a_body(call: Call[Echo]) -> Answer:
    return Answer(call.message, "text")  # type: ignore[arg-type]


def raise_what_cannot_be_encoded(call: Call[Echo]) -> Echo:
    raise ValueError("\udc80")


def raise_what_cannot_be_told(call: Call[Echo]) -> Echo:
    class UntoldError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    raise UntoldError


def refuse_for_ever(call: Call[Echo]) -> Refused:
    return Refused("busy", retry_after_s=math.inf)


def refuse_without_a_text(call: Call[Echo]) -> Refused:
    return Refused("busy", b"no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "handler",
    [
        raise_what_cannot_be_encoded,
        raise_what_cannot_be_told,
        refuse_for_ever,
        refuse_without_a_text,
        raise_an_exception,
        raise_a_timeout,
        exit_its_greenlet,
        answer_too_long,
        answer_nothing,
        answer_what_cannot_be_encoded,
        answer_with_a_body_just_over_the_limit,
        answer_with_a_body_far_over_the_limit,
        answer_with_a_text_for_a_body,
    ],
)
def test_broken_handler_fails_its_own_request_and_no_other(
    handler: Callable[[Call[Echo]], Message | Answer | Refused],
) -> None:
    with small_pair(workers_max=1) as made:
        made.server.on(Echo, handler)
        for _ in range(2):
            refused = ask_echo(made, 1, timeout_s=1)
            assert isinstance(refused, Refused)
            assert (refused.reason, refused.retry_after_s) == ("failed", None)
        assert made.server.failed == 2
        made.server.on(Echo, echo)
        assert number_of(ask_echo(made, 2)) == 2


def test_worker_that_ends_makes_room_for_another(capsys: pytest.CaptureFixture[str]) -> None:
    class Ending(BaseException):
        """What no handler may raise, and nothing here catches."""

    def end(call: Call[Echo]) -> Echo:
        raise Ending

    with small_pair(workers_max=1) as made:
        made.server.on(Echo, end)
        with pytest.raises(RequestTimeoutError):
            ask_echo(made, 1, timeout_s=0.2)
        made.server.on(Echo, echo)
        assert number_of(ask_echo(made, 2)) == 2
    assert "Ending" in capsys.readouterr().err


def test_failure_says_what_the_handler_raised() -> None:
    with pair() as made:
        made.server.on(Echo, raise_an_exception)
        assert ask_echo(made, 1) == Refused("failed", "ValueError: broken")


def test_answer_of_another_kind_than_expected_is_a_refusal() -> None:
    with pair() as made:
        refused = made.client.ask(made.server.endpoint, Ping(), expect=Echo, timeout_s=5)
        assert isinstance(refused, Refused)
        assert refused.reason == "failed"
        assert refused.detail.startswith("not the answer expected: ")


# Bodies.


@pytest.mark.parametrize(
    "size",
    [0, 1, JOINED_BODY_BYTES_MAX, JOINED_BODY_BYTES_MAX + 1, 1024 * 1024, BODY_BYTES_MAX],
)
def test_body_comes_back_as_it_went(size: int) -> None:
    with pair() as made:
        body = os.urandom(size)
        reply = made.client.ask(
            made.server.endpoint, Echo(size), expect=Echo, timeout_s=10, body=body
        )
        assert number_of(reply) == size
        assert isinstance(reply, Reply)
        assert bytes(reply.body) == body


def test_bodies_of_all_sizes_at_once_do_not_mix() -> None:
    with pair() as made:

        def ask_with_body(size: int) -> bool:
            body = bytes([size % 251]) * size
            reply = made.client.ask(
                made.server.endpoint, Echo(size), expect=Echo, timeout_s=10, body=body
            )
            return isinstance(reply, Reply) and (reply.message.number, reply.body) == (size, body)

        sizes = [(step * 7919) % 70_000 for step in range(200)]
        asking = [gevent.spawn(ask_with_body, size) for size in sizes]
        assert [each.get(timeout=10) for each in asking] == [True] * len(sizes)


def test_body_over_the_limit_is_an_error_of_the_caller_and_nothing_is_sent() -> None:
    with pair() as made, pytest.raises(ValueError, match="at most 16777216"):
        made.client.ask(
            made.server.endpoint,
            Echo(1),
            expect=Echo,
            timeout_s=5,
            body=bytes(BODY_BYTES_MAX + 1),
        )
    assert made.client.in_flight == 0
    assert made.client_pump.traffic.records_out == 0


def test_whoever_gets_an_answer_may_close_the_client(capsys: pytest.CaptureFixture[str]) -> None:
    with pair() as made:
        assert number_of(ask_echo(made, 1)) == 1
        made.client.close()
        gevent.sleep(0.01)  # The look that brought the answer goes on.
    assert capsys.readouterr().err == ""


# Peers that repeat themselves, and connections that are let go.


def test_request_sent_twice_is_served_once_while_it_is_in_progress() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        peer, other = (RawPeer(zmq.DEALER, made.server.endpoint) for _ in range(2))
        for _ in range(3):
            peer.socket.send(frame(ask(1, Echo(1), budget_s=5, sent_at=now())))
        other.socket.send(frame(ask(1, Echo(2), budget_s=5, sent_at=now())))
        until(lambda: made.server.repeated == 2, PATIENCE_S, "the repeats")
        gate.wait_for(2)
        assert sorted(gate.numbers) == [1, 2]
        gate.open()
        assert len(peer.records()) == len(other.records()) == 1
        assert made.server.answered == 2
        peer.close()
        other.close()


def test_lives_that_a_peer_claims_make_no_paths() -> None:
    with pair() as made:
        peer = RawPeer(zmq.DEALER, made.server.endpoint)
        for number in range(1, 6):
            one = ask(number, Echo(number), budget_s=5, sent_at=now())
            peer.socket.send(frame(msgspec.structs.replace(one, incarnation=number)))
            peer.records()
        assert len(made.server._delays) == 1
        peer.close()


def test_peer_cannot_cancel_the_request_of_another() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        asking = gevent.spawn(ask_echo, made, 1)
        gate.wait_for(1)
        peer = RawPeer(zmq.DEALER, made.server.endpoint)
        peer.socket.send(frame(Cancel(gate.calls[0].request_id)))
        frames_in = made.server_pump.traffic.frames_in
        until(
            lambda: made.server_pump.traffic.frames_in > frames_in, PATIENCE_S, "the cancellation"
        )
        gate.open()
        assert number_of(asking.get(timeout=PATIENCE_S)) == 1
        peer.close()


def test_forgotten_server_is_connected_to_anew_when_asked_again() -> None:
    with pair() as made:
        assert number_of(ask_echo(made, 1)) == 1
        made.client.forget(made.server.endpoint)
        until(lambda: not made.client._dealers, PATIENCE_S, "the end of the connection")
        made.client.forget(made.server.endpoint)
        assert number_of(ask_echo(made, 2)) == 2


def test_request_to_a_server_forgotten_meanwhile_ends_at_its_deadline() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        asking = gevent.spawn(ask_echo, made, 1, timeout_s=0.3)
        gate.wait_for(1)
        made.client.forget(made.server.endpoint)
        gate.open()
        with pytest.raises(RequestTimeoutError):
            asking.get(timeout=PATIENCE_S)
        assert made.client.in_flight == 0
