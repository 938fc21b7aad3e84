"""Our client of the session benchmark: a stub with everything switched on."""

import sys

from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_phase import measure
from loadtest.session_requests import Phase, Phased
from roles.cluster import Cluster
from roles.stub import Stub

TTL_S = 1800.0


class Client:
    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._cookies: dict[int, str] = {}
        self._value = b""

    def measure(self, phase: Phase) -> Phased:
        if len(self._value) != phase.value_bytes:
            self._value = bytes(phase.value_bytes)
            self._cookies.clear()
        for number in range(phase.in_flight):
            if number not in self._cookies:
                self.write(number)
        return measure(self.write if phase.operation == "write" else self.read, phase)

    def write(self, number: int) -> None:
        self._cookies[number] = self._stub.write(
            f"user-{number}", self._value, ttl_s=TTL_S, cookie=self._cookies.get(number)
        )

    def read(self, number: int) -> None:
        assert self._stub.read(self._cookies[number]) == self._value


def main(config: str) -> None:
    client = Client(Stub(Cluster.load(config)))
    tell({})
    answer_all(Phase, client.measure, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
