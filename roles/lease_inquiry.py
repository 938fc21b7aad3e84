"""Find the manager that leads, and ask it. Waits and asks only."""

from typing import TypeVar

import gevent

from bus.clock import now
from bus.config import MANAGER, Config
from bus.errors import NotReady, RequestTimeoutError
from bus.lease_timing import timing_of
from bus.messages import Message, Refused
from bus.peers import Peer
from bus.replies import Reply
from roles.messages import KeyExplained, LeasesDescribed
from roles.observer import Observer

Told = TypeVar("Told", LeasesDescribed, KeyExplained)

ATTEMPT_S_MAX = 1.0
FAILOVER_REST_S = 1.0  # Beyond what a standby waits before it leads.
LOOK_S = 0.05


def ask_leader(
    observer: Observer, config: Config, message: Message, expect: type[Told]
) -> Reply[Told]:
    """What the leading manager answers; a failover is waited for. NotReady says what is wrong."""
    observer.wait_for_agents(1)  # Or the sentence that nothing was heard at all.
    patience_s = 2 * config.beacons.period_s + timing_of(config).takeover_s + FAILOVER_REST_S
    deadline = now() + patience_s
    said: dict[str, str] = {}
    while now() < deadline:
        for manager in _managers(observer):
            answer = _ask(observer, manager, message, expect)
            if isinstance(answer, Reply) and answer.message.leading:
                return answer
            said[manager.id] = _complaint(answer)
            if isinstance(answer, Refused) and answer.reason == "denied":
                raise NotReady(f"{manager.id} answered: {answer.detail}")
        gevent.sleep(LOOK_S)
    if not said:
        raise NotReady(
            f"no lease manager was heard of; does {config.source} run one? Write `manager = 1` "
            "into the `run` of a node"
        )
    listed = "; ".join(f"{manager} {word}" for manager, word in sorted(said.items()))
    raise NotReady(f"no manager leads: {listed}. `softstate events` may tell why")


def _managers(observer: Observer) -> list[Peer]:
    return [
        peer
        for peer in observer.peers()
        if peer.role == MANAGER and peer.endpoint and peer.state not in ("dead", "offline")
    ]


def _ask(
    observer: Observer, manager: Peer, message: Message, expect: type[Told]
) -> Reply[Told] | Refused:
    try:
        return observer.client.ask(
            manager.endpoint, message, expect=expect, timeout_s=ATTEMPT_S_MAX
        )
    except RequestTimeoutError:
        return Refused("unreachable", "does not answer")


def _complaint(answer: Reply[Told] | Refused) -> str:
    if isinstance(answer, Refused):
        return answer.detail or answer.reason
    leader = answer.message.leader
    return f"says that {leader} does" if leader else "knows of none"
