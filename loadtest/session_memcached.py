"""pymemcache on gevent as a session store, against one memcached: one copy, lost with it."""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import sys

from pymemcache.client.base import PooledClient  # type: ignore[import-untyped]

from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_phase import measure
from loadtest.session_requests import Phase, Phased

TTL_S = 1800
CONNECTIONS_MAX = 1000


class Client:
    def __init__(self, port: int) -> None:
        self._server = PooledClient(
            ("127.0.0.1", port), max_pool_size=CONNECTIONS_MAX, no_delay=True
        )
        self._value = b""

    def measure(self, phase: Phase) -> Phased:
        self._value = bytes(phase.value_bytes)
        for number in range(phase.in_flight):
            self.write(number)
        return measure(self.write if phase.operation == "write" else self.read, phase)

    def write(self, number: int) -> None:
        assert self._server.set(f"session-{number}", self._value, expire=TTL_S, noreply=False)

    def read(self, number: int) -> None:
        assert self._server.get(f"session-{number}") == self._value


def main(port: str) -> None:
    client = Client(int(port))
    tell({})
    answer_all(Phase, client.measure, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
