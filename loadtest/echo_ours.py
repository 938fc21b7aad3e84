"""Our echo, server and client: a request with a header, a deadline and a greenlet that waits.

The payload travels as the raw body, as bulk does in every role.
"""

import sys
from functools import partial

from gevent.event import Event

from bus.client import Client
from bus.identity import Identity
from bus.messages import Message
from bus.pump import Pump
from bus.replies import Answer, Reply
from bus.server import Call, Server
from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.greenlets import measure, read_line
from loadtest.meter import Run
from loadtest.runner import Measured

ASK_S_MAX = 10.0


class Echo(Message, frozen=True, tag="echo"):
    """Client to server and back: return the body as it is."""


def serve() -> None:
    end_with_the_benchmark()
    server = Server(Pump(), Identity("echo-1", "echo", "n1", 1), "tcp://127.0.0.1:*")
    server.on(Echo, echo)
    tell({"endpoint": server.endpoint})
    Event().wait()


def echo(call: Call[Echo]) -> Answer:
    return Answer(call.message, call.body)


def ask() -> None:
    client = Client(Pump(), Identity("asker-1", "asker", "n1", 1))

    def answer(run: Run) -> Measured:
        payload = bytes(run.case.payload_bytes)
        return measure(partial(ask_once, client, run.endpoint, payload), run)

    answer_all(Run, answer, read_line)


def ask_once(client: Client, endpoint: str, payload: bytes) -> None:
    answer = client.ask(endpoint, Echo(), expect=Echo, timeout_s=ASK_S_MAX, body=payload)
    assert isinstance(answer, Reply), answer
    assert len(answer.body) == len(payload)


def main(part: str) -> None:
    (serve if part == "server" else ask)()


if __name__ == "__main__":
    main(*sys.argv[1:])
