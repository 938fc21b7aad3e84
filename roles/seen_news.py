"""Publish, once a beacon, what the stubs of this process saw of the bricks. Waits and publishes.

What always holds:
  N1  One message a time for all stubs of a member; the loop ends with the last of them.
  N2  A moment of trouble costs what was seen meanwhile, and nothing else.
"""

import logging
from collections.abc import Iterator

import gevent

from bus.clock import now
from bus.errors import BusError
from bus.member import Member
from roles.brick_view import Brick, BrickView
from roles.sightings import Sightings

SEEN_TOPIC = "seen"

log = logging.getLogger(__name__)


class SeenNews:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._period_s = member.config.beacons.period_s
        self.sightings = Sightings(now())
        self._views: list[BrickView] = []
        self._loop: gevent.Greenlet[[], None] | None = None

    def add(self, view: BrickView) -> None:
        """Tell of what it asks, from now on."""
        self._views.append(view)
        if self._loop is None:
            self._loop = gevent.spawn(self._tell_and_wait)

    def remove(self, view: BrickView) -> None:
        self._views.remove(view)
        if not self._views and self._loop is not None:
            self._loop.kill()  # N1
            del _of_members[self._member]

    def _tell_and_wait(self) -> None:
        while True:
            gevent.sleep(self._period_s)
            try:
                self.tell()
            except (OSError, BusError) as error:
                log.warning("what was seen of bricks is not told: %s", error)  # N2

    def tell(self) -> None:
        seen = self.sightings.taken(self._in_use(), now())
        if seen is not None:
            self._member.publish(SEEN_TOPIC, seen)  # N1

    def _in_use(self) -> Iterator[Brick]:
        for view in self._views:
            yield from view.live.values()


_of_members: dict[Member, SeenNews] = {}
"""While they have stubs."""


def seen_news_of(member: Member) -> SeenNews:
    """Stubs share a member, and tell together of what they saw. To be added to at once."""
    known = _of_members.get(member)
    if known is None:
        known = _of_members[member] = SeenNews(member)
    return known
