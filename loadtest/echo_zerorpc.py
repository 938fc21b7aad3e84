"""zerorpc's echo, server and client: the nearest library to ours, as its users call it."""

import sys
from functools import partial
from importlib import import_module
from typing import Any

from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.greenlets import measure, read_line
from loadtest.meter import Run
from loadtest.runner import Measured

CALL_S_MAX = 30  # zerorpc's own default.


class Echo:
    def echo(self, payload: bytes) -> bytes:
        return payload


def serve(zerorpc: Any) -> None:  # noqa: ANN401 (untyped library)
    end_with_the_benchmark()
    server = zerorpc.Server(Echo())
    # Its own `bind` has no way to tell which port was free.
    port = server._events._socket.bind_to_random_port("tcp://127.0.0.1")
    tell({"endpoint": f"tcp://127.0.0.1:{port}"})
    server.run()


def ask(zerorpc: Any) -> None:  # noqa: ANN401
    clients: dict[str, Any] = {}

    def answer(run: Run) -> Measured:
        if run.endpoint not in clients:
            clients[run.endpoint] = zerorpc.Client(run.endpoint, timeout=CALL_S_MAX)
        payload = bytes(run.case.payload_bytes)
        return measure(partial(call, clients[run.endpoint], payload), run)

    answer_all(Run, answer, read_line)


def call(client: Any, payload: bytes) -> None:  # noqa: ANN401
    answer = client.echo(payload)
    assert len(answer) == len(payload)


def main(part: str) -> None:
    zerorpc = import_module("zerorpc")  # Not imported by name: it has no types, and may be absent.
    (serve if part == "server" else ask)(zerorpc)


if __name__ == "__main__":
    main(*sys.argv[1:])
