"""Holds the cookies of many sessions: writes them, and later loads each and checks its value.

A request that is refused is made again, as a browser's would be; only what is lost stays lost.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator

import gevent

from bus.clock import now
from bus.config_shape import BRICK
from bus.errors import StateLost, SystemOverloaded
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_requests import Held, Hold
from roles.cluster import Cluster
from roles.key_ring_file import KeyRingFile
from roles.stub import Stub

AT_ONCE = 32
TTL_S = 7200.0
AGAIN_S = 0.02
AGAIN_MAX = 1000
KNOWN_S_MAX = 20.0


class Holder:
    def __init__(self, cluster: Cluster, name: str) -> None:
        config = cluster.config
        self._member = cluster.member("holder")
        self._stub = Stub(cluster)
        self._ring = KeyRingFile(config.key_ring_path, config.sessions.application)
        self._name = name
        self._cookies: dict[int, str] = {}
        self._written = 0
        self._value_bytes = 0
        self._lost = self._wrong = self._refused = self._refreshed = 0

    def hold(self, hold: Hold) -> Held:
        self._wait_until_known(hold.dead)
        began_at = now()
        self._lost = self._wrong = self._refused = self._refreshed = 0
        named = [self._named(cookie) for cookie in self._cookies.values()]
        copies = Counter(len(each.difference(hold.dead_before)) for each in named)
        doomed = sum(each.issubset(hold.dead) for each in named)
        if hold.write:
            self._value_bytes = hold.value_bytes
            new = range(self._written, self._written + hold.write)
            self._written += hold.write
            self._all(iter(new), self._write)
        else:
            self._all(iter(list(self._cookies)), self._load)
        return Held(
            sessions=len(self._cookies),
            lost=self._lost,
            doomed=doomed,
            copies=dict(copies),
            wrong=self._wrong,
            refused=self._refused,
            refreshed=self._refreshed,
            elapsed_s=now() - began_at,
        )

    def _wait_until_known(self, dead: list[int]) -> None:
        """A stub that takes a brick for live sees no reason to make new copies."""
        gone, deadline = {f"{BRICK}-{number}" for number in dead}, now() + KNOWN_S_MAX
        while gone & {peer.id for peer in self._member.peers(BRICK)}:
            assert now() < deadline, "a brick was killed, and nobody noticed"
            gevent.sleep(AGAIN_S)

    def _named(self, cookie: str) -> set[int]:
        return {number for number, _ in self._ring.decode(cookie).copies}

    def _all(self, numbers: Iterator[int], request: Callable[[int], None]) -> None:
        def some() -> None:
            for number in numbers:
                self._insist(request, number)

        gevent.joinall([gevent.spawn(some) for _ in range(AT_ONCE)], raise_error=True)

    def _insist(self, request: Callable[[int], None], number: int) -> None:
        for _ in range(AGAIN_MAX):
            try:
                request(number)
            except SystemOverloaded:
                self._refused += 1
                gevent.sleep(AGAIN_S)
            else:
                return
        raise SystemOverloaded(f"session {number} was refused {AGAIN_MAX} times", AGAIN_S)

    def _value(self, number: int) -> bytes:
        return (b"%s %d " % (self._name.encode(), number)).ljust(self._value_bytes, b".")

    def _write(self, number: int) -> None:
        self._cookies[number] = self._stub.write(
            f"{self._name}-{number}", self._value(number), ttl_s=TTL_S
        )

    def _load(self, number: int) -> None:
        before = self._cookies[number]
        try:
            session = self._stub.load(before)
        except StateLost:
            self._lost += 1
            del self._cookies[number]
            return
        self._wrong += session.value != self._value(number)
        self._refreshed += session.cookie != before
        self._cookies[number] = session.cookie


def main(config: str, name: str) -> None:
    holder = Holder(Cluster.load(config), name)
    tell({})
    answer_all(Hold, holder.hold, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
