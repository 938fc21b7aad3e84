"""A server in a process of its own, for tests that stop or kill it: `Echo`, and what it did so far.

`python -m tests.sockets.server_process ADDRESS` prints its endpoint and serves until it is ended.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import gevent

from bus.identity import Identity
from bus.messages import Message
from bus.pump import Pump
from bus.replies import Answer
from bus.server import Call, Server
from tests.sockets.pair import Echo, echo


class AskTally(Message, frozen=True, tag="test.ask-tally"):
    """What have you done so far?"""


class Tally(Message, frozen=True, tag="test.tally"):
    """Numbers of the `Echo`s that a handler saw, and how many requests were dropped unserved."""

    served: list[int]
    expired: int


@contextmanager
def server_process(address: str = "tcp://127.0.0.1:*") -> Iterator[tuple[int, str]]:
    """The pid and endpoint of such a process, which is ended afterwards."""
    command = [sys.executable, "-m", "tests.sockets.server_process", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main(address: str) -> None:
    served: list[int] = []

    def echo_and_note(call: Call[Echo]) -> Answer:
        served.append(call.message.number)
        return echo(call)

    server = Server(Pump(), Identity("server-1", "server", "n1", 7), address)
    server.on(Echo, echo_and_note)
    server.on(AskTally, lambda call: Tally(served, server.expired))
    print(server.endpoint, flush=True)
    gevent.get_hub().join()


if __name__ == "__main__":
    main(sys.argv[1])
