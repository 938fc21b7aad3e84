"""Writes many new sessions, and says how many copies the bricks hold then."""

import sys
from collections.abc import Iterator

import gevent

from bus.clock import now
from bus.config_shape import BRICK
from bus.errors import SystemOverloaded
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_requests import Fill
from roles.cluster import Cluster
from roles.stub import Stub

AT_ONCE = 40
TTL_S = 3600.0
REFUSED_PAUSE_S = 0.01
SETTLE_S_MAX = 20.0
LOOK_S = 0.25
STILL = 10  # Looks without a change: two beacons and more.


class Filler:
    def __init__(self, cluster: Cluster) -> None:
        self._member = cluster.member("filler")
        self._stub = Stub(cluster)
        self._written = 0

    def fill(self, fill: Fill) -> int:
        """How many copies there are once all are written."""
        numbers = iter(range(self._written, self._written + fill.sessions))
        self._written += fill.sessions
        value = bytes(fill.value_bytes)
        workers = [gevent.spawn(self._write_all, numbers, value) for _ in range(AT_ONCE)]
        gevent.joinall(workers, raise_error=True)
        return self._copies()

    def _write_all(self, numbers: Iterator[int], value: bytes) -> None:
        for number in numbers:
            while True:
                try:
                    self._stub.write(f"session-{number}", value, ttl_s=TTL_S)
                except SystemOverloaded:
                    gevent.sleep(REFUSED_PAUSE_S)
                else:
                    break

    def _copies(self) -> int:
        """As the bricks' beacons say, when they say the same for a while."""
        deadline, same, before = now() + SETTLE_S_MAX, 0, -1
        while same < STILL and now() < deadline:
            gevent.sleep(LOOK_S)
            items = sum(int(peer.statistics.get("items", 0)) for peer in self._member.peers(BRICK))
            same = same + 1 if items == before else 0
            before = items
        return before


def main(config: str) -> None:
    filler = Filler(Cluster.load(config))
    tell({})
    answer_all(Fill, filler.fill, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
