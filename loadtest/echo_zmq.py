"""A bare ZeroMQ echo, server and client: what our requests are measured against.

No header, no deadline, no correlation, nobody waiting for a particular answer: the loop anyone
would write first with pyzmq. The server returns what it gets; the client keeps `in_flight`
messages `[id][payload]` on their way and sends one for each that comes back. With `green` the
very same loops run over `zmq.green`, in one greenlet.
"""

import sys
from typing import Any

import zmq
import zmq.green

from bus.clock import now
from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.meter import Meter, Run
from loadtest.runner import Measured

MESSAGES_PER_LOOK = 64  # How many echoes between two looks at the clock.


def open_socket(kind: int, *, green: bool) -> Any:  # noqa: ANN401 (both libraries' sockets)
    context: Any = zmq.green.Context() if green else zmq.Context()
    socket = context.socket(kind)
    socket.linger = 0
    return socket


def serve(*, green: bool) -> None:
    end_with_the_benchmark()
    socket = open_socket(zmq.ROUTER, green=green)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    tell({"endpoint": f"tcp://127.0.0.1:{port}"})
    while True:
        socket.send_multipart(socket.recv_multipart())


def measure(run: Run, *, green: bool) -> Measured:
    socket = open_socket(zmq.DEALER, green=green)
    try:
        socket.connect(run.endpoint)
        payload = bytes(run.case.payload_bytes)
        for number in range(run.case.in_flight):
            socket.send_multipart([number.to_bytes(4, "big"), payload])
        echo = latencies if run.case.in_flight == 1 else throughput
        echo(socket, payload, run.warm_up_s)
        meter = Meter(run.server_pid)
        return meter.read(*echo(socket, payload, run.duration_s))
    finally:
        socket.close()


def throughput(socket: Any, payload: bytes, duration_s: float) -> tuple[int, None]:  # noqa: ANN401
    receive, send = socket.recv_multipart, socket.send_multipart
    messages, until = 0, now() + duration_s
    while now() < until:
        for _ in range(MESSAGES_PER_LOOK):
            number, _echoed = receive()
            send([number, payload])
        messages += MESSAGES_PER_LOOK
    return messages, None


def latencies(socket: Any, payload: bytes, duration_s: float) -> tuple[int, list[float]]:  # noqa: ANN401
    """With one in flight. Whoever calls has sent one already: its answer comes first."""
    receive, send = socket.recv_multipart, socket.send_multipart
    number, _echoed = receive()
    took: list[float] = []
    asked_at = now()
    until = asked_at + duration_s
    while asked_at < until:
        send([number, payload])
        number, _echoed = receive()
        answered_at = now()
        took.append(answered_at - asked_at)
        asked_at = answered_at
    send([number, payload])
    return len(took), took


def main(part: str, kind: str) -> None:
    green = kind == "green"
    if part == "server":
        serve(green=green)
    else:
        answer_all(Run, lambda run: measure(run, green=green))


if __name__ == "__main__":
    main(*sys.argv[1:])
