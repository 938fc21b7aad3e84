"""Restart the bricks one after the other, all of them once in `rejuvenate_s`, while we lead. Waits
and asks; `roles.rejuvenation` decides, and `roles.brick_roll` carries out."""

from collections.abc import Callable
from random import SystemRandom

import gevent

from bus.clock import now
from bus.config_shape import BRICK
from bus.errors import BusError
from bus.member import Member
from roles.brick_roll import roll
from roles.rejuvenation import BrickLife, next_due

LOOK_PERIODS = 5  # Of beacons, between two looks while nobody is due, or we do not lead.
WAIT_S_MAX = 60.0
"""We look up this often in any case, and try again that much later what could not be done."""


def rejuvenate(member: Member, is_leading: Callable[[], bool]) -> None:
    """For ever, if it is to be at all."""
    every_s = member.config.sessions.rejuvenate_s
    if not every_s:
        return
    planned = {each.id for each in member.config.components() if each.role == BRICK}
    draw = SystemRandom().random
    period_s = member.config.beacons.period_s
    jitter, complaint = draw(), ""
    while True:
        due, wait_s = None, LOOK_PERIODS * period_s
        if is_leading() and not member.liveness.blind:
            due = next_due(_lives(member), planned, every_s, jitter)
        if due is not None and due.in_s <= 0:
            jitter, before = draw(), complaint
            complaint = _restart(member, due.id)
            if complaint:
                wait_s = WAIT_S_MAX
            if complaint not in ("", before):
                member.event("degraded", member.identity.id, complaint)
        elif due is not None:
            wait_s = min(max(due.in_s, period_s), WAIT_S_MAX)
        gevent.sleep(wait_s)


def _lives(member: Member) -> list[BrickLife]:
    at = now()
    return [
        BrickLife(peer.id, peer.state, peer.age_s + at - peer.heard_at)
        for peer in member.liveness.peers()
        if peer.role == BRICK and not peer.linked
    ]


def _restart(member: Member, brick_id: str) -> str:
    """Why it could not be done, if it could not."""
    try:
        for rolled in roll(member, [brick_id]):
            reason = f"with {rolled.items} sessions, away for {rolled.away_s:.1f} s"
            member.event("rejuvenated", rolled.id, reason)
    except BusError as error:
        return f"{brick_id} is not rejuvenated: {error}"
    return ""
