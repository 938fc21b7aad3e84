"""Show every process of the cluster: where it runs, how it is, how long it has been up."""

import argparse
import sys

import msgspec

from bus.clock import now
from bus.config import find, load
from bus.errors import BusError
from bus.peers import Peer
from bus.replies import Reply
from roles.messages import (
    ClusterDescribed,
    ClusterRows,
    Component,
    DescribeCluster,
    decode_rows,
)
from roles.observer import Observer
from roles.status_table import component, table

ANSWER_S_MAX = 2.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="softstate status", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="the cluster to look at")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)

    config = load(find(options.config))
    with Observer(config) as observer:
        # One agent is enough: each knows everyone. A second only if the first does not answer.
        agents = observer.wait_for_agents(1)
        components = _described(observer, agents)
        if components is None:
            observer.wait_for_agents(len(config.nodes) + 1)  # Never so many: hear everyone.
            components = _described(observer, observer.agents()) or _heard(observer)
    if options.json:
        rows = [msgspec.structs.asdict(each) for each in components]
        print(msgspec.json.encode({"components": rows}).decode())
    else:
        print(table(components), end="")
    return 0


def _described(observer: Observer, agents: list[Peer]) -> list[Component] | None:
    """What the first agent that answers says; None if none does."""
    for agent in agents:
        try:
            reply = observer.client.ask(
                agent.endpoint, DescribeCluster(), expect=ClusterDescribed, timeout_s=ANSWER_S_MAX
            )
            if isinstance(reply, Reply):
                return decode_rows(reply.body, ClusterRows).components
            complaint = f"{reply.reason} {reply.detail}"
        except BusError as error:
            complaint = str(error)
        print(f"softstate: {agent.id} did not tell: {complaint}", file=sys.stderr)
    return None


def _heard(observer: Observer) -> list[Component]:
    print("softstate: no node agent told; this is what we heard ourselves", file=sys.stderr)
    heard_at = now()
    return [component(peer, heard_at) for peer in observer.peers()]
