"""Owners that stay, and one more that joins and leaves: what changes the map in the benchmark.

The one that moves has a session of its own, so what it gives up reaches the others as it would
from another process: by the manager's nudge.
"""

import sys
from collections.abc import Callable
from itertools import count

import gevent

from bus.clock import now
from bus.errors import NotReady
from bus.headers import News
from bus.member import Member
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.lease_home import Home, Instants
from loadtest.lease_requests import NAMESPACE, Change, ChangesMade, Version
from roles.cluster import Cluster
from roles.key_range import KeyRange
from roles.lease_messages import MapDelta, delta_topic

WAIT_S_MAX = 20.0
LOOK_S = 0.01


class Changes:
    def __init__(self, config: str, staying: int) -> None:
        self._published: list[tuple[Version, float]] = []
        self._published_at = now()
        self._cluster = Cluster.load(config)
        self._member: Member = self._cluster.member()
        self._member.subscribe(delta_topic(NAMESPACE), MapDelta, self._heard)
        self._movers = Cluster.load(config).lease_session()
        self._numbers = count(1)
        session = Cluster.load(config).lease_session()
        self._staying = [Home(session, f"staying-{number:04d}") for number in range(staying)]
        for home in self._staying:
            home.start()
        wait_for(lambda: all(home.leases() for home in self._staying), "every owner to hold keys")

    def change(self, asked: Change) -> ChangesMade:
        """One joins, and leaves; when that was published, and how long its keys had no owner."""
        self._settle(asked.settle_s)
        self._take_published()
        # A name of its own, so that each time other keys move.
        home = Home(self._movers, f"moving-{next(self._numbers):04d}")
        homes = [*self._staying, home]
        for each in homes:
            each.timed.taken.clear()
            each.timed.given.clear()
        home.start()
        wait_for(lambda: bool(home.leases()), "the owner that joins to hold keys")
        self._settle(asked.settle_s)
        joined = self._take_published()
        home.leave()
        wait_for(lambda: home.machine.released, "the owner that leaves to be released")
        self._settle(asked.settle_s)
        home.stop()
        taken = [each for home in homes for each in home.timed.taken]
        given = [each for home in homes for each in home.timed.given]
        return ChangesMade(joined, self._take_published(), gaps(given, taken))

    def _take_published(self) -> list[tuple[Version, float]]:
        taken, self._published = self._published, []
        return taken

    def _settle(self, settle_s: float) -> None:
        self._published_at = now()
        wait_for(lambda: now() - self._published_at >= settle_s, "the map to be quiet")

    def _heard(self, header: News, delta: MapDelta) -> None:
        """A change; the header has the publisher's own instant, by the clock all share."""
        self._published_at = now()
        self._published.append(((delta.term, delta.lsn), header.sent_us / 1e6))


def gaps(given: Instants, taken: Instants) -> list[float]:
    """For each range taken on: how long after it was given up by the one before."""
    found = []
    for taken_at, taken_range in taken:
        before = [
            given_at
            for given_at, each in given
            if given_at <= taken_at
            and each.start < taken_range.end
            and taken_range.start < each.end
        ]
        if before:
            found.append(taken_at - max(before))
    return found


def overlap(one: KeyRange, other: KeyRange) -> bool:
    return one.start < other.end and other.start < one.end


def wait_for(condition: Callable[[], bool], what: str, wait_s: float = WAIT_S_MAX) -> None:
    deadline = now() + wait_s
    while not condition():
        if now() > deadline:
            raise NotReady(f"waited {wait_s:g} s for {what}")
        gevent.sleep(LOOK_S)


def main(config: str, staying: str) -> None:
    changes = Changes(config, int(staying))
    tell({})
    answer_all(Change, changes.change, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
