"""Have a brick take on nothing new, and end when no session is left in it: before its machine is
taken away, for one. Its sessions live elsewhere as they are used, and the rest expire."""

import argparse
import sys

import gevent
import msgspec

from bus.clock import now
from bus.config import BRICK, Config, find, load
from bus.errors import NotReady, RequestTimeoutError
from bus.member import Member
from bus.messages import Drain, Pong
from bus.peers import Peer
from bus.replies import Reply
from roles.brick_roll import check_enough, live_bricks, until
from roles.cluster import Cluster
from roles.observer import CONNECT_S, PERIODS_MAX

ASK_S_MAX = 5.0


class Drained(msgspec.Struct, frozen=True):
    """One that was asked to drain, and how that went so far."""

    id: str
    items: int
    """Sessions that are left."""
    ended: bool
    for_s: float


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    cluster = Cluster(config)
    member = cluster.member("drainer")
    done: list[Drained] = []
    try:
        for number, brick_id in enumerate(options.ids):
            is_last = number + 1 == len(options.ids)
            brick = _asked(member, config, brick_id)
            # One after the other: a session all of whose copies drain can go nowhere.
            waits = options.wait or not is_last
            done.append(_drained(member, brick, waits=waits, tells=not options.json))
    finally:
        cluster.release()
        if options.json:
            print(msgspec.json.encode({"draining": done}).decode())
    return 0


def _asked(member: Member, config: Config, brick_id: str) -> Peer:
    """As it is once it has been asked."""
    patience_s = CONNECT_S + PERIODS_MAX * config.beacons.period_s
    until(lambda: member.liveness.peer(brick_id), patience_s)
    brick = member.liveness.peer(brick_id)
    if brick is None or brick.state not in ("live", "draining"):
        state = "nothing was heard of it" if brick is None else f"it is {brick.state}"
        raise NotReady(f"{brick_id} cannot be drained: {state}")
    if brick.role == BRICK and brick.state == "live":
        _check_spared(member, config, brick_id)
    try:
        answer = member.client.ask(brick.endpoint, Drain(), expect=Pong, timeout_s=ASK_S_MAX)
    except RequestTimeoutError:
        raise NotReady(f"{brick_id} did not answer within {ASK_S_MAX:.0f} s") from None
    if not isinstance(answer, Reply):
        raise NotReady(f"{brick_id} does not drain: {answer.reason}, {answer.detail}")
    return brick


def _check_spared(member: Member, config: Config, brick_id: str) -> None:
    planned = {each.id for each in config.components() if each.role == BRICK}
    until(lambda: planned <= {peer.id for peer in live_bricks(member)}, config.beacons.period_s * 2)
    draining = [
        peer.id
        for peer in member.liveness.peers()
        if peer.role == BRICK and peer.state == "draining" and peer.id != brick_id
    ]
    if draining:
        raise NotReady(f"{draining[0]} drains already: one at a time, as sessions need another")
    check_enough(member, live_bricks(member))


def _drained(member: Member, brick: Peer, *, waits: bool, tells: bool) -> Drained:
    """Waits until it ended, if it is to."""
    began_at = now()
    told = -1
    while True:
        peer = member.liveness.peer(brick.id)
        is_gone = peer is None or peer.state in ("offline", "dead")
        items = 0 if peer is None else int(peer.statistics.get("items", 0))
        if is_gone or not waits:
            break
        if peer is not None and peer.incarnation != brick.incarnation:
            raise NotReady(f"{brick.id} was restarted meanwhile, and drains no more; ask again")
        if tells and items != told:
            print(f"{brick.id}: {_sessions(items)} left")
            sys.stdout.flush()
            told = items
        gevent.sleep(member.config.beacons.period_s)
    if is_gone and items:
        raise NotReady(f"{brick.id} ended, with {_sessions(items)}; `softstate events` says why")
    drained = Drained(brick.id, items, is_gone, now() - began_at)
    if tells:
        how = f"empty, ended after {drained.for_s:.1f} s" if is_gone else _sessions(items) + " left"
        print(f"{brick.id}: {how}")
        sys.stdout.flush()
    return drained


def _sessions(count: int) -> str:
    return f"{count} session" if count == 1 else f"{count} sessions"


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="softstate drain",
        description=f"{__doc__} `softstate bricks start` brings those of the configuration back.",
    )
    add = parser.add_argument
    add("ids", nargs="+", metavar="ID", help="as brick-4; of several, one after the other")
    add("--wait", action="store_true", help="until it has ended, and say how many are left")
    add("--config", metavar="FILE", help="the cluster it is in")
    add("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)
