"""Many lookups in one process, each with a map of its own, and when each saw which version.

They share the process's session, as lookups of one program do: each asks for itself, and each
applies every change by itself, though a program would be content with one.
"""

import sys

import gevent

from bus.clock import now
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.lease_requests import NAMESPACE, Seen, Version
from roles.cluster import Cluster
from roles.lease_session import LeaseSession
from roles.lookup import LookupCore

STARTS_A_TIME = 25  # So that the first maps do not all come at once.
START_S = 0.02


class TimedLookup(LookupCore):
    def __init__(self, namespace: str, session: LeaseSession) -> None:
        super().__init__(namespace, session)
        self.seen: list[tuple[Version, float]] = []

    def changed(self) -> None:
        """`find` goes by the new map already."""
        seen_at = now()
        assert self.machine.version is not None
        self.seen.append((self.machine.version, seen_at))


def main(config: str, count: str) -> None:
    session = Cluster.load(config).lease_session()
    lookups = [TimedLookup(NAMESPACE, session) for _ in range(int(count))]
    for number, lookup in enumerate(lookups):
        session.add_lookup(lookup)
        if number % STARTS_A_TIME == 0:
            gevent.sleep(START_S)

    def seen(_: dict[str, str]) -> Seen:
        """And forget it: each answer says what is new."""
        ready = sum(lookup.machine.version is not None for lookup in lookups)
        found = [list(lookup.seen) for lookup in lookups]
        for lookup, told in zip(lookups, found, strict=True):
            del lookup.seen[: len(told)]
        return Seen(ready, found)

    tell({})
    answer_all(dict[str, str], seen, read_line)
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
