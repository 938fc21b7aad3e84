"""Restart the bricks one after the other, all of them once in `rejuvenate_s`, while we lead. Waits
and asks; `roles.rejuvenation` decides, and `roles.brick_roll` carries out.

What always holds:
  V1  After a brick did not come back with what it held, nobody is restarted for `ttl_s_max`: until
      every session that lost a copy has been written again, or has expired. Another
      leader does not know of it; the alert tells a person.
  V2  Why nobody has been restarted for a while is said, once.
"""

from collections.abc import Callable, Iterator
from random import SystemRandom

import gevent

from bus.clock import now
from bus.config_shape import BRICK
from bus.errors import BusError
from bus.member import Member
from roles.brick_roll import LeftAsItWas, Rolled, roll
from roles.rejuvenation import BrickLife, in_the_way, next_due

LOOK_PERIODS = 5  # Of beacons, between two looks while nobody is due, or we do not lead.
WAIT_S_MAX = 60.0
"""We look up this often in any case, and try again that much later what could not be done."""

MEANWHILE_S = 60.0  # For so long a brick may be away without a word of ours.


def rejuvenate(member: Member, is_leading: Callable[[], bool]) -> None:
    """For ever, if it is to be at all."""
    if member.config.sessions.rejuvenate_s:
        Rejuvenator(member, is_leading).run()


class Rejuvenator:
    def __init__(
        self,
        member: Member,
        is_leading: Callable[[], bool],
        *,
        roll: Callable[[Member, list[str]], Iterator[Rolled]] = roll,
        clock: Callable[[], float] = now,
    ) -> None:
        self._roll = roll
        self._now = clock
        self._member = member
        self._is_leading = is_leading
        self._planned = {each.id for each in member.config.components() if each.role == BRICK}
        self._draw = SystemRandom().random
        self._jitter = self._draw()
        self._complaint = ""
        self._waits_since: float | None = None

    def run(self) -> None:
        while True:
            gevent.sleep(self.look())

    def look(self) -> float:
        """How long to wait until the next look."""
        period_s = self._member.config.beacons.period_s
        if not self._is_leading() or self._member.liveness.blind:
            self._waits_since = None
            return LOOK_PERIODS * period_s
        lives = _lives(self._member, self._now())
        every_s = self._member.config.sessions.rejuvenate_s
        due = next_due(lives, self._planned, every_s, self._jitter)
        if due is None:
            self._wait_for(in_the_way(lives, self._planned))
            return LOOK_PERIODS * period_s
        self._waits_since = None
        if due.in_s > 0:
            return min(max(due.in_s, period_s), WAIT_S_MAX)
        self._jitter = self._draw()
        return self._restart(due.id)

    def _wait_for(self, bricks: list[str]) -> None:
        if self._waits_since is None:
            self._waits_since = self._now()
        if bricks and self._now() >= self._waits_since + MEANWHILE_S:
            self._complain(f"no brick is rejuvenated while these are not live: {', '.join(bricks)}")

    def _restart(self, brick_id: str) -> float:
        me, ttl_s_max = self._member.identity.id, self._member.config.sessions.ttl_s_max
        try:
            for rolled in self._roll(self._member, [brick_id]):
                reason = f"with {rolled.items} sessions, away for {rolled.away_s:.1f} s"
                self._member.event("rejuvenated", rolled.id, reason)
        except LeftAsItWas as error:
            self._complain(f"{brick_id} is not rejuvenated: {error}")
            return WAIT_S_MAX
        except BusError as error:
            pause = f"no brick is rejuvenated for {ttl_s_max:.0f} s"
            self._member.event("alert", me, f"{brick_id} was to be rejuvenated: {error}; {pause}")
            return ttl_s_max  # V1
        self._complaint = ""
        return LOOK_PERIODS * self._member.config.beacons.period_s

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._member.event("degraded", self._member.identity.id, complaint)  # V2
        self._complaint = complaint


def _lives(member: Member, at: float) -> list[BrickLife]:
    return [
        BrickLife(peer.id, peer.state, peer.age_s + at - peer.heard_at)
        for peer in member.liveness.peers()
        if peer.role == BRICK and not peer.linked
    ]
