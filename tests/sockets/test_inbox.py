"""A server with an inbox of somebody else's making: it chooses, and the server's promises hold.

Method: client and server over real sockets in one process. The inbox here serves the last first
and turns away what its test tells it to.
"""

import gevent
import pytest

from bus.errors import RequestTimeoutError
from bus.inbox import TurnedAway
from bus.messages import Message, Refused
from bus.replies import Reply
from bus.server import Call
from tests.sockets.gate import Gate
from tests.sockets.pair import Echo, Pair, echo, pair
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0
NO = Refused("busy", "no", retry_after_s=0.5)


class LastFirst:
    def __init__(self) -> None:
        self.calls: list[Call[Message]] = []
        self.unwanted_on_arrival: set[int] = set()
        self.unwanted_in_turn: set[int] = set()
        self.done = 0

    def __len__(self) -> int:
        return len(self.calls)

    def add(self, call: Call[Message], now: float) -> TurnedAway[Call[Message]]:
        if number_of(call) in self.unwanted_on_arrival:
            return [(call, NO)]
        self.calls.append(call)
        return ()

    def take(self, now: float) -> tuple[Call[Message] | None, TurnedAway[Call[Message]]]:
        turned_away: list[tuple[Call[Message], Refused]] = []
        while self.calls:
            call = self.calls.pop()
            if number_of(call) not in self.unwanted_in_turn:
                return call, turned_away
            turned_away.append((call, NO))
        return None, turned_away

    def served(self, now: float) -> None:
        self.done += 1


def number_of(call: Call[Message]) -> int:
    return call.message.number if isinstance(call.message, Echo) else 0


def ask(made: Pair, number: int, timeout_s: float = PATIENCE_S) -> Reply[Echo] | Refused:
    return made.client.ask(
        made.server.endpoint, Echo(number), expect=Echo, timeout_s=timeout_s, body=b"body"
    )


def test_inbox_says_who_is_next_and_who_is_not() -> None:  # S2
    with pair() as made:
        inbox, order = LastFirst(), list[int]()
        made.server.use_inbox(inbox)
        inbox.unwanted_on_arrival, inbox.unwanted_in_turn = {2}, {4, 1}

        def note(call: Call[Echo]) -> Echo:
            order.append(call.message.number)
            return call.message

        made.server.on(Echo, note)
        asking = [gevent.spawn(ask, made, number) for number in range(1, 6)]
        outcomes = [each.get(timeout=PATIENCE_S) for each in asking]
        assert [outcome == NO for outcome in outcomes] == [True, True, False, True, False]
        assert order == [5, 3]
        assert (made.server.answered, made.server.refused, inbox.done) == (2, 3, 2)
        assert made.server._bodies_bytes == 0
        assert made.server._calls == {}
        assert isinstance(ask(made, 9), Reply)


def test_what_waits_already_moves_to_the_new_inbox() -> None:
    with pair() as made:
        gate = Gate()
        made.server.on(Echo, gate)
        made.server._workers_max = 1
        asking = [gevent.spawn(ask, made, number) for number in range(3)]
        until(lambda: made.server.inbox_length == 2, PATIENCE_S, "two wait for the first")
        inbox = LastFirst()
        inbox.unwanted_on_arrival = {1}
        made.server.use_inbox(inbox)
        assert made.server.inbox_length == 1
        gate.open()
        outcomes = [each.get(timeout=PATIENCE_S) for each in asking]
        assert [isinstance(outcome, Reply) for outcome in outcomes] == [True, False, True]
        assert gate.numbers == [0, 2]


@pytest.mark.parametrize("serve_late", [False, True])
def test_what_nobody_waits_for_is_carried_out_only_if_asked_for(*, serve_late: bool) -> None:  # S1
    with pair() as made:
        inbox, done = LastFirst(), list[int]()
        made.server.use_inbox(inbox, serve_late=serve_late)

        def slow(call: Call[Echo]) -> Echo:
            until(lambda: call.left_s() < -0.05, PATIENCE_S, "its asker gave up")
            return call.message

        def quick(call: Call[Echo]) -> Echo:
            done.append(call.message.number)
            return call.message

        def serve(call: Call[Echo]) -> Echo:
            return slow(call) if call.message.number == 1 else quick(call)

        made.server.on(Echo, serve)
        made.server._workers_max = 1  # So that 2 waits until 1 is done, and all gave up.

        def ask_in_vain(number: int) -> None:
            with pytest.raises(RequestTimeoutError):
                ask(made, number, 0.1)

        gevent.joinall([gevent.spawn(ask_in_vain, number) for number in (2, 1)], raise_error=True)
        until(lambda: inbox.done == 2, PATIENCE_S, "both out of the inbox")
        assert done == ([2] if serve_late else [])
        assert made.server.expired == (0 if serve_late else 2)
        until(lambda: made.client.late_answers == 2 * serve_late, PATIENCE_S, "late answers")
        made.server.on(Echo, echo)
        assert isinstance(ask(made, 3), Reply)
