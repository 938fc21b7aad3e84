"""A client and a server in one process, over real sockets: what most socket tests begin with."""

from collections.abc import Iterator
from contextlib import contextmanager

from bus.client import Client
from bus.identity import Identity
from bus.messages import Message
from bus.pump import Pump
from bus.replies import Answer
from bus.server import Call, Server


class Echo(Message, frozen=True, tag="test.echo"):
    """Comes back as it went, with its body."""

    number: int = 0


class Pair:
    def __init__(self) -> None:
        self.client_pump = Pump()
        self.server_pump = Pump()
        self.client = Client(self.client_pump, Identity("client-1", "client", "n1", 1))
        self.server = Server(
            self.server_pump, Identity("server-1", "server", "n1", 7), "tcp://127.0.0.1:*"
        )
        self.server.on(Echo, echo)

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.client_pump.close()
        self.server_pump.close()


def echo(call: Call[Echo]) -> Answer:
    return Answer(call.message, call.body)


@contextmanager
def pair() -> Iterator[Pair]:
    made = Pair()
    try:
        yield made
    finally:
        made.close()
