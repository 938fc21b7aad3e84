"""redis-py on gevent as a session store: one server, or three of which two must have it.

One server keeps one copy, and with it all is lost. Three servers are the fair comparison: a write
goes to all and is done when two have it, a read asks two and takes the first answer, each by a
greenlet of its own, as an application would.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import sys
from functools import partial

import gevent
import redis

from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_phase import Request, measure
from loadtest.session_requests import Phase, Phased

TTL_S = 1800
CONNECTIONS_MAX = 2000
WRITE_QUORUM = 2
READS = 2


class Client:
    def __init__(self, ports: list[int]) -> None:
        self._servers = [
            redis.Redis("127.0.0.1", port, max_connections=CONNECTIONS_MAX) for port in ports
        ]
        self._value = b""

    def measure(self, phase: Phase) -> Phased:
        self._value = bytes(phase.value_bytes)
        alone = len(self._servers) == 1
        write: Request = self.write if alone else self.write_two
        read: Request = self.read if alone else self.read_two
        for number in range(phase.in_flight):
            write(number)
        return measure(write if phase.operation == "write" else read, phase)

    def write(self, number: int) -> None:
        assert self._servers[0].set(f"session-{number}", self._value, ex=TTL_S)

    def read(self, number: int) -> None:
        assert self._servers[0].get(f"session-{number}") == self._value

    def write_two(self, number: int) -> None:
        key, value = f"session-{number}", self._value
        asked = [
            gevent.spawn(partial(server.set, key, value, ex=TTL_S)) for server in self._servers
        ]
        done = gevent.wait(asked, count=WRITE_QUORUM)
        assert all(each.value for each in done)

    def read_two(self, number: int) -> None:
        first = number % len(self._servers)
        servers = (self._servers[first:] + self._servers[:first])[:READS]
        asked = [gevent.spawn(partial(server.get, f"session-{number}")) for server in servers]
        assert gevent.wait(asked, count=1)[0].value == self._value


def main(*ports: str) -> None:
    client = Client([int(port) for port in ports])
    tell({})
    answer_all(Phase, client.measure, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
