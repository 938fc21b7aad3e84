"""At which agent a process that is missing is to be asked for. Decides only.

That of the node that the plan says, as long as it may be there. A node is *given up* once its agent
has been dead for `node_gone_s`; from then on what it ran is started elsewhere, until its agent is
heard again. An agent that we heard of and that is in the table no more counts as dead: whoever was
blind for long has forgotten whom it missed. Two that cannot hear each other each take the other for
gone, so it matters who gives up whom (G3).

What always holds:
  G1  Another node than the plan's is asked only if a process lived there last, or if the node where
      it lived last (for all we know the plan's) is given up. Hubs never, and managers only where
      they find the same store.
  G2  A node is given up only by who heard its agent, has settled, and has seen it dead ever since
      for `node_gone_s`; and not if the last that was heard is that it ends in good order.
  G3  It is given up only while at least half of those that we heard of, and that neither ended in
      good order nor were given up before, are live. So the smaller part of a cluster that is cut
      in two starts nothing that runs in the larger one.
  G4  All that see the same nodes choose the same one.
"""

from collections.abc import Mapping

from bus.config_rules import is_loopback
from bus.config_shape import HUB, LOOPBACK, MANAGER, NODE, Config, Planned
from bus.identity import Identity
from bus.messages import State
from bus.peers import Peer

LEAVING: tuple[State, ...] = ("draining", "offline")


class Places:
    def __init__(self, me: Identity, config: Config) -> None:
        self._me = me
        self._config = config
        self._agents = {each.node: each.id for each in config.components() if each.role == NODE}
        self._heard: dict[str, State] = {}
        """How the agent of each node was when last in the table; of those ever heard of."""
        self._live: set[str] = set()
        """Nodes whose agents can be asked."""
        self._dead_since: dict[str, float] = {}
        self._given_up: set[str] = set()

    @property
    def silent(self) -> set[str]:
        """Agents that can say nothing now."""
        return {agent_id for node, agent_id in self._agents.items() if node not in self._live}

    def watch(self, table: Mapping[str, Peer], now: float, *, settled: bool) -> None:
        """How the agents are now. `settled`: whether we can tell who is missing."""
        self._live.clear()
        if not settled:
            self._dead_since.clear()  # G2
        for node, agent_id in self._agents.items():
            agent = table.get(agent_id)
            if agent is not None:
                self._heard[node] = agent.state
            elif agent_id == self._me.id:
                self._heard[node] = "live"
            heard = self._heard.get(node)
            if heard == "live" and (agent is not None or agent_id == self._me.id):
                self._live.add(node)
                self._given_up.discard(node)
            absent = agent is None and heard is not None and node not in self._live
            if heard == "dead" or absent:
                self._dead_since.setdefault(node, now)
            else:
                self._dead_since.pop(node, None)
        if settled:
            self._give_up(now)

    def _give_up(self, now: float) -> None:
        counted = {
            node
            for node, state in self._heard.items()
            if node not in self._given_up and state not in LEAVING
        }
        gone = {
            node
            for node, since in self._dead_since.items()
            if node in counted and now >= since + self._config.restarts.node_gone_s  # G2
        }
        if 2 * len(counted & self._live) >= len(counted):
            self._given_up |= gone  # G3

    def place(self, planned: Planned, peer: Peer | None) -> str | None:
        """The node whose agent is to be asked now; None: nobody."""
        if planned.node in self._live:
            return planned.node
        last = self._last(planned, peer)
        if last in self._live:
            return last  # G1
        return self._elsewhere(planned) if last in self._given_up else None

    def answers(self, planned: Planned, peer: Peer | None) -> bool:
        """Whether the agent where it lived last is live."""
        return self._last(planned, peer) in self._live

    def is_left(self, planned: Planned, peer: Peer | None) -> bool:
        """Whether it is where an agent ends in good order, and all that it ran with it."""
        last = self._last(planned, peer)
        return planned.node not in self._live and self._heard.get(last) in LEAVING

    def _last(self, planned: Planned, peer: Peer | None) -> str:
        """Where it lived last, for all we know."""
        return peer.node if peer is not None and peer.node in self._agents else planned.node

    def _elsewhere(self, planned: Planned) -> str | None:
        """Overflow nodes last."""
        nodes = [
            node for node in self._agents if node in self._live and self._may_move(planned, node)
        ]
        regular = [node for node in nodes if not self._config.nodes[node].overflow]
        chosen = regular or nodes
        number = int(planned.id.rpartition("-")[2])
        return chosen[number % len(chosen)] if chosen else None  # G4

    def _may_move(self, planned: Planned, node: str) -> bool:
        if planned.role == HUB:
            return False  # G1: everybody looks for it at its address.
        if planned.role != MANAGER or self._config.store.kind == "etcd":
            return True
        return self._machine(node) == self._machine(planned.node)  # G1

    def _machine(self, node: str) -> str:
        address = self._config.nodes[node].address
        return LOOPBACK if is_loopback(address) else address.lower()
