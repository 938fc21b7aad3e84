"""Restart bricks one at a time, each with what it held. Waits, asks and orders.

A brick that is asked to hand over leaves its tables to its next life and ends; the agent of its
node is asked to start it; then the next. Meanwhile its sessions have their other copies.

What always holds:
  R1  Nobody is asked unless `WQ` other bricks are live at that moment, or with sites `WQ_local` at
      the same one: writes go on.
  R2  At most one brick is away. The first that does not come back with its tables is the last.
"""

from collections.abc import Callable, Iterator

import gevent
import msgspec

from bus.agents import order
from bus.clock import now
from bus.config_shape import BRICK
from bus.errors import NotReady, RequestTimeoutError
from bus.member import Member
from bus.messages import Refused
from bus.peers import Peer
from bus.process_orders import StartProcess
from bus.replies import Reply
from roles.session_messages import HandedOver, HandOver

HAND_OVER_S_MAX = 50.0  # Below what a hand-over is good for: a brick that took longer is cold.
START_S_MAX = 20.0
LIVE_S_MAX = 60.0
LOOK_S = 0.02
SETTLE_PERIODS = 2  # Of beacons: by then every stub uses the one that came back.


class LeftAsItWas(NotReady):
    """It cannot be restarted now, and nothing was done to it."""


class Rolled(msgspec.Struct, frozen=True):
    """One brick that came back as it was."""

    id: str
    items: int
    data_incarnation: int
    away_s: float
    """From when it was asked until it was live again."""


def live_bricks(member: Member) -> list[Peer]:
    """By number."""
    bricks = [peer for peer in member.peers(BRICK) if peer.state == "live" and not peer.linked]
    return sorted(bricks, key=lambda peer: (len(peer.id), peer.id))


def roll(member: Member, ids: list[str]) -> Iterator[Rolled]:
    """Each brick as it is done; raises `NotReady` with a sentence at the first that is not. If that
    is no `LeftAsItWas`, what it held may have a copy less."""
    for number, brick_id in enumerate(ids):
        if number:
            gevent.sleep(SETTLE_PERIODS * member.config.beacons.period_s)
        yield _roll(member, brick_id)


def check_enough(member: Member, bricks: list[Peer]) -> None:
    """Raises `LeftAsItWas` if one of them cannot be spared (R1)."""
    if member.config.sessions.W_local:
        for site in sorted({_site_of(member, brick) for brick in bricks}):
            _check_site(member, bricks, site)
        return
    need = member.config.sessions.WQ + 1
    if len(bricks) < need:
        noun = "brick is" if len(bricks) == 1 else "bricks are"
        raise LeftAsItWas(
            f"{len(bricks)} {noun} live; {need} (WQ + 1) must be, so that one can be spared"
        )


def _check_site(member: Member, bricks: list[Peer], site: str) -> None:
    config, need = member.config, member.config.sessions.WQ_local + 1
    nodes = {name for name, node in config.nodes.items() if node.site == site}
    planned = sum(each.role == BRICK and each.node in nodes for each in config.components())
    live = sum(_site_of(member, brick) == site for brick in bricks)
    # Where never so many are, there are copies for other sites, and nobody writes.
    if live < need <= planned + 1:
        noun = "brick is" if live == 1 else "bricks are"
        raise LeftAsItWas(
            f'{live} {noun} live at site "{site}"; {need} (WQ_local + 1) must be, so that one can '
            "be spared"
        )


def _site_of(member: Member, brick: Peer) -> str:
    node = member.config.nodes.get(brick.node)
    return "" if node is None else node.site


def _roll(member: Member, brick_id: str) -> Rolled:
    bricks = live_bricks(member)
    before = next((peer for peer in bricks if peer.id == brick_id), None)
    if before is None:
        raise LeftAsItWas(f"{brick_id} is no longer live")
    site = _site_of(member, before)
    is_local = bool(member.config.sessions.W_local)
    at_site = [each for each in bricks if not is_local or _site_of(member, each) == site]
    check_enough(member, at_site)  # R1
    began_at = now()
    handed_over = _hand_over(member, before)
    _start(member, before)
    after = _wait_live(member, before)
    data_incarnation = int(after.statistics.get("data_incarnation", 0))
    if data_incarnation != handed_over.data_incarnation:
        raise NotReady(  # R2
            f"{brick_id} came back empty: its {handed_over.items} sessions have one copy less "
            "each. `softstate events` says why; wait before you go on"
        )
    return Rolled(brick_id, handed_over.items, data_incarnation, now() - began_at)


def _hand_over(member: Member, brick: Peer) -> HandedOver:
    try:
        answer = member.client.ask(
            brick.endpoint, HandOver(), expect=HandedOver, timeout_s=HAND_OVER_S_MAX
        )
    except RequestTimeoutError:
        raise NotReady(f"{brick.id} did not hand over within {HAND_OVER_S_MAX:.0f} s") from None
    if isinstance(answer, Reply):
        return answer.message
    raise LeftAsItWas(f"{brick.id} does not hand over: {answer.reason}, {answer.detail}")


def _start(member: Member, before: Peer) -> None:
    """Until the agent speaks of a later life; before the end of this one it has nothing to do."""
    deadline = now() + START_S_MAX
    while True:
        left_s = deadline - now()
        answer = order(member, before.node, StartProcess(before.id), max(left_s, LOOK_S))
        if isinstance(answer, Refused):
            raise NotReady(f"{before.id} was not started: {answer.reason}, {answer.detail}")
        if answer.incarnation > before.incarnation:
            return
        if left_s <= 0:
            raise NotReady(f"{before.id} did not end within {START_S_MAX:.0f} s")
        gevent.sleep(LOOK_S)


def _wait_live(member: Member, before: Peer) -> Peer:
    def is_back() -> bool:
        peer = member.liveness.peer(before.id)
        return peer is not None and peer.incarnation > before.incarnation and peer.state == "live"

    if not until(is_back, LIVE_S_MAX):
        raise NotReady(f"{before.id} was not live again within {LIVE_S_MAX:.0f} s")
    peer = member.liveness.peer(before.id)
    assert peer is not None
    return peer


def until(condition: Callable[[], object], timeout_s: float) -> bool:
    """Whether it came true in time."""
    deadline = now() + timeout_s
    while not condition():
        if now() >= deadline:
            return False
        gevent.sleep(LOOK_S)
    return True
