"""Ask the node agents how the cluster is, and to start and end processes. Waits and asks only.

Any agent can describe the whole cluster, so the first that answers will do.
"""

from typing import TypeVar

import gevent

from bus.clock import now
from bus.errors import NotReady, RequestTimeoutError
from bus.member import Member
from bus.messages import Message, Refused
from bus.peers import Peer
from bus.replies import Reply
from roles.messages import (
    ClusterDescribed,
    ClusterRows,
    DescribeCluster,
    EndProcess,
    EventRows,
    EventsDescribed,
    PauseProcess,
    ProcessDescribed,
    RecentEvents,
    ResumeProcess,
    StartProcess,
    decode_rows,
)

R = TypeVar("R", bound=Message)

ATTEMPT_S_MAX = 1.0  # An agent that is gone, and not yet known to be, holds us up this long.
LOOK_S = 0.02


def cluster_rows(member: Member, timeout_s: float) -> ClusterRows:
    """Every process, as one agent sees it; raises NotReady if none answers in time."""
    reply = ask_agent(member, DescribeCluster(), ClusterDescribed, timeout_s)
    return decode_rows(reply.body, ClusterRows)


def event_rows(member: Member, count: int, timeout_s: float) -> EventRows:
    """The last `count` events, as one agent remembers them."""
    reply = ask_agent(member, RecentEvents(count), EventsDescribed, timeout_s)
    return decode_rows(reply.body, EventRows)


def ask_agent(member: Member, message: Message, expect: type[R], timeout_s: float) -> Reply[R]:
    """The first answer of any agent; one that is not heard of yet is waited for."""
    deadline = now() + timeout_s
    refused = "no node agent was heard of"
    while now() < deadline:
        for agent in agents(member):
            answer = _ask(member, agent, message, expect, deadline - now())
            if isinstance(answer, Reply):
                return answer
            refused = f"{agent.id} answered: {answer.reason} {answer.detail}".rstrip()
            if answer.reason == "denied":
                raise NotReady(refused)  # Waiting will not help.
        gevent.sleep(LOOK_S)
    raise NotReady(f"no answer within {timeout_s:.1f} s: {refused}; does the cluster run?")


def order(
    member: Member,
    node: str,
    message: StartProcess | EndProcess | PauseProcess | ResumeProcess,
    timeout_s: float,
) -> ProcessDescribed | Refused:
    """Have the agent of `node` do something; waits for that agent to be there."""
    deadline = now() + timeout_s
    answer = Refused("unreachable", f"no agent of node {node} was heard of")
    while now() < deadline:
        for agent in agents(member):
            if agent.node != node:
                continue
            reply = _ask(member, agent, message, ProcessDescribed, deadline - now())
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
        if peer.role == "node" and peer.endpoint and peer.state not in ("dead", "offline")
    ]
    return sorted(known, key=lambda peer: peer.state != "live")


def _ask(
    member: Member, agent: Peer, message: Message, expect: type[R], left_s: float
) -> Reply[R] | Refused:
    if left_s <= 0:
        return Refused("late", "no time is left")
    try:
        return member.client.ask(
            agent.endpoint, message, expect=expect, timeout_s=min(left_s, ATTEMPT_S_MAX)
        )
    except RequestTimeoutError:
        return Refused("unreachable", f"{agent.id} did not answer")
