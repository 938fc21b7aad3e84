"""Ask the node agents how the cluster is. Waits and asks only.

Any agent can describe the whole cluster, so the first that answers will do.
"""

from typing import TypeVar

import gevent

from bus.agents import LOOK_S, agents, ask
from bus.clock import now
from bus.errors import NotReady
from bus.member import Member
from bus.messages import Message
from bus.replies import Reply
from roles.messages import (
    ClusterDescribed,
    ClusterRows,
    DescribeCluster,
    EventRows,
    EventsDescribed,
    RecentEvents,
    decode_rows,
)

R = TypeVar("R", bound=Message)


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
            answer = ask(member, agent, message, expect, deadline - now())
            if isinstance(answer, Reply):
                return answer
            refused = f"{agent.id} answered: {answer.reason} {answer.detail}".rstrip()
            if answer.reason == "denied":
                raise NotReady(refused)  # Waiting will not help.
        gevent.sleep(LOOK_S)
    raise NotReady(f"no answer within {timeout_s:.1f} s: {refused}; does the cluster run?")
