"""Asking several servers at once: back at the k-th answer, or as soon as it is out of reach.

Method: one client and three servers over real sockets in one process. Each server answers,
refuses, or holds its requests at a gate.
"""

from collections.abc import Callable, Iterator

import gevent
import pytest

from bus.client import Client
from bus.clock import now
from bus.errors import LinkError
from bus.identity import Identity
from bus.messages import Refused
from bus.pump import Pump
from bus.replies import Gathered, Reply
from bus.server import Handler, Server
from tests.sockets.gate import Gate
from tests.sockets.pair import Echo, echo
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0
SLACK_S = 0.25
REFUSED = Refused("busy", "not today", retry_after_s=1.0)


class Servers:
    def __init__(self) -> None:
        self.pump = Pump()
        self.client = Client(self.pump, Identity("client-1", "client", "n1", 1))
        self.servers: list[Server] = []

    def add(self, handler: Handler[Echo]) -> str:
        number = len(self.servers) + 1
        me = Identity(f"server-{number}", "server", "n1", 1)
        server = Server(self.pump, me, "tcp://127.0.0.1:*")
        server.on(Echo, handler)
        self.servers.append(server)
        return server.endpoint

    def gather(
        self, endpoints: list[str], need: int, timeout_s: float = PATIENCE_S
    ) -> Gathered[Echo]:
        return self.client.ask_many(
            endpoints, Echo(1), expect=Echo, need=need, timeout_s=timeout_s, body=b"body"
        )


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.client.close()
    made.pump.close()


def sorted_out(gathered: Gathered[Echo]) -> tuple[set[str], dict[str, Refused], set[str]]:
    for reply in gathered.answers.values():
        assert isinstance(reply, Reply)
        assert (reply.message, reply.body) == (Echo(1), b"body")
    return set(gathered.answers), gathered.refused, gathered.silent


def test_fan_out_returns_at_the_answer_that_is_enough(servers: Servers) -> None:
    gate = Gate()
    first, second, held = servers.add(echo), servers.add(echo), servers.add(gate)
    gathered = servers.gather([held, first, second], need=2)
    assert sorted_out(gathered) == ({first, second}, {}, {held})
    assert servers.client.in_flight == 0
    gate.wait_for(1)
    gate.open()
    until(lambda: servers.client.late_answers == 1, PATIENCE_S, "the answer nobody waits for")
    assert sorted_out(gathered) == ({first, second}, {}, {held})


def test_fan_out_that_needs_all_waits_for_all(servers: Servers) -> None:
    gate = Gate()
    first, held = servers.add(echo), servers.add(gate)
    asking = gevent.spawn(servers.gather, [first, held], need=2)
    gate.wait_for(1)
    assert not asking.ready()
    gate.calls[0].body = b"body"
    gate.open()
    gathered = asking.get(timeout=PATIENCE_S)
    assert set(gathered.answers) == {first, held}


def test_fan_out_returns_as_soon_as_enough_answers_are_out_of_reach(servers: Servers) -> None:
    held = servers.add(Gate())
    first, second = (servers.add(lambda call: REFUSED) for _ in range(2))
    asked_at = now()
    gathered = servers.gather([held, first, second], need=2)
    assert now() - asked_at < PATIENCE_S / 2
    assert sorted_out(gathered) == (set(), {first: REFUSED, second: REFUSED}, {held})


def test_one_refusal_does_not_end_a_fan_out_that_can_still_succeed(servers: Servers) -> None:
    first, refusing, second = (
        servers.add(echo),
        servers.add(lambda call: REFUSED),
        servers.add(echo),
    )
    gathered = servers.gather([refusing, first, second], need=2)
    assert set(gathered.answers) == {first, second}


def test_fan_out_says_at_its_deadline_who_was_silent(servers: Servers) -> None:
    answering, refusing, held = (
        servers.add(echo),
        servers.add(lambda call: REFUSED),
        servers.add(Gate()),
    )
    nobody = "tcp://127.0.0.1:1"
    asked_at = now()
    gathered = servers.gather([answering, refusing, held, nobody], need=3, timeout_s=0.3)
    assert 0.3 <= now() - asked_at < 0.3 + SLACK_S
    assert sorted_out(gathered) == ({answering}, {refusing: REFUSED}, {held, nobody})
    assert servers.client.in_flight == 0


def test_more_answers_than_servers_are_not_waited_for(servers: Servers) -> None:
    first = servers.add(echo)
    asked_at = now()
    assert sorted_out(servers.gather([first], need=2)) == (set(), {}, {first})
    assert now() - asked_at < PATIENCE_S / 2


def test_server_named_twice_counts_once_and_serves_once(servers: Servers) -> None:
    gate = Gate()
    first, held = servers.add(echo), servers.add(gate)
    asking = gevent.spawn(servers.gather, [held, held, first, first], need=2)
    gate.wait_for(1)
    until(lambda: servers.servers[0].answered, PATIENCE_S, "the answer of the first")
    gevent.sleep(0.05)
    assert not asking.ready(), "two answers of one server are not two answers"
    assert len(gate.calls) == 1
    gate.open()
    assert set(asking.get(timeout=PATIENCE_S).answers) == {first, held}
    assert [server.answered for server in servers.servers] == [1, 1]


def test_killed_fan_out_cancels_at_every_server(servers: Servers) -> None:
    gates = [Gate(), Gate(), Gate()]
    endpoints = [servers.add(gate) for gate in gates]
    asking = gevent.spawn(servers.gather, endpoints, need=3)
    for gate in gates:
        gate.wait_for(1)
    asking.kill()
    assert servers.client.in_flight == 0
    for gate in gates:
        until(lambda gate=gate: gate.calls[0].cancelled, PATIENCE_S, "word of it")  # type: ignore[misc]


def test_closing_the_client_ends_whoever_waits(servers: Servers) -> None:
    gate = Gate()
    held = servers.add(gate)
    outcomes: list[type[BaseException]] = []

    def wait_for(call: Callable[[], object]) -> None:
        try:
            call()
        except LinkError as error:
            outcomes.append(type(error))

    def ask() -> object:
        return servers.client.ask(held, Echo(1), expect=Echo, timeout_s=60.0)

    asking = [
        gevent.spawn(wait_for, ask),
        gevent.spawn(wait_for, lambda: servers.gather([held], need=1, timeout_s=60.0)),
    ]
    gate.wait_for(2)
    servers.client.close()
    gevent.joinall(asking, timeout=PATIENCE_S)
    assert outcomes == [LinkError, LinkError]
    assert servers.client.in_flight == 0
    with pytest.raises(LinkError):
        ask()
    gate.open()
