"""Ask node agents: any of them, or the one of a node. Waits and asks only."""

from typing import TypeVar

import gevent

from bus.clock import now
from bus.config_shape import NODE
from bus.errors import RequestTimeoutError
from bus.member import Member
from bus.messages import Message, Refused
from bus.peers import Peer
from bus.process_orders import (
    EndProcess,
    PauseProcess,
    ProcessDescribed,
    RestartProcess,
    ResumeProcess,
    StartProcess,
)
from bus.replies import Reply

R = TypeVar("R", bound=Message)

Order = StartProcess | EndProcess | RestartProcess | PauseProcess | ResumeProcess

ATTEMPT_S_MAX = 1.0  # An agent that is gone, and not yet known to be, holds us up this long.
LOOK_S = 0.02


def order(
    member: Member, node: str, message: Order, timeout_s: float
) -> ProcessDescribed | Refused:
    """Have the agent of `node` do something; waits for that agent to be there."""
    deadline = now() + timeout_s
    answer = Refused("unreachable", f"no agent of node {node} was heard of")
    while now() < deadline:
        for agent in agents(member):
            if agent.node != node:
                continue
            reply = ask(member, agent, message, ProcessDescribed, deadline - now())
            if isinstance(reply, Reply):
                return reply.message
            if reply.retry_after_s is None and reply.reason != "unreachable":
                return reply
            answer = reply
        gevent.sleep(LOOK_S)
    return answer


def agents(member: Member) -> list[Peer]:
    """The agents that may answer: by id, those in doubt last."""
    known = [
        peer
        for peer in member.liveness.peers()
        if peer.role == NODE and peer.endpoint and peer.state not in ("dead", "offline")
    ]
    return sorted(known, key=lambda peer: peer.state != "live")


def ask(
    member: Member, agent: Peer, message: Message, expect: type[R], left_s: float
) -> Reply[R] | Refused:
    """One attempt; silence is `unreachable`."""
    if left_s <= 0:
        return Refused("late", "no time is left")
    try:
        return member.client.ask(
            agent.endpoint, message, expect=expect, timeout_s=min(left_s, ATTEMPT_S_MAX)
        )
    except RequestTimeoutError:
        return Refused("unreachable", f"{agent.id} did not answer")
