"""Who is missing, whose turn it is to have it brought back, and where. Decides only.

Every process peer (a *healer*) compares, again and again, the plan with the liveness table, and
has whatever is planned and not there restarted by the agent of its node. What it orders names the
life that is over, so the same order twice, late, or from several healers is one restart. Healers
are ranked, and each waits a turn for every live one before it: normally one acts, and the rest are
spares. There is nothing to hand over when a healer dies, since all of them see the same table.

What always holds:
  P1  Nothing is ordered while we are blind, nor for `SETTLE_PERIODS` after we began, after a time
      in which we did not look, or after we were blind: who has not heard everybody cannot tell
      who is missing.
  P2  What ended because somebody asked for it, what its agent holds back, and what is on a node
      whose agent ends in good order, is left alone.
  P3  An order is for the agent of the node that the plan says, if that is there; for another node
      only once the first one's agent has been dead for `node_gone_s`. Hubs, agents and linked
      programs never, and managers only where they find the same store.
  P4  Whatever is missing is ordered again until it is there, less and less often: as long as
      there is an agent to ask, nothing is given up.
  P5  Of all healers that see the same table, each acts no later than `TURNS_MAX` turns after it
      saw; the first live one at once.
  P6  An order says which life is to be over: at most the last that we heard of, or one that its
      agent said runs and nobody has heard of for `UNHEARD_S_MAX`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from bus.config_rules import is_loopback
from bus.config_shape import HUB, LOOPBACK, MANAGER, NODE, PINPOINT, Config, Planned
from bus.held import HeldTable
from bus.identity import Identity
from bus.messages import Exited
from bus.peers import Peer
from bus.process_orders import ProcessDescribed, ProcessesHeld

RANKED = (MANAGER, PINPOINT, "sns", "frontend", NODE)
"""The roles that heal, the first to act first; within a role, by number."""

SETTLE_PERIODS = 3  # A newcomer knows the cluster within two.
TURNS_MAX = 5  # However many come before us, and however dead they are.
UNSEEN_PERIODS_MAX = 3  # Looks further apart: we did not look.
UNSEEN_S_MIN = 2.0  # However short the period.
GOODBYE_S = 2.0  # After a goodbye, for the agent to say whether it was asked for.
NEVER_S = 5.0  # For a process never heard of: it may just be starting.
UNHEARD_S_MAX = 20.0  # To begin, on a busy machine; one that takes longer hangs.
SILENT_S_MIN = 3.0  # However short the period: a busy machine may hold a process up for a while.
BACK_S = 3.0  # After a restart that somebody else had done, for it to be heard.
AGAIN_S_FIRST = 1.0
AGAIN_S_MAX = 15.0
JITTER = 0.25  # Of a wait, at most.


class Restart(msgspec.Struct, frozen=True):
    """Order `RestartProcess` of the agent of `node`; tell `answered` what it says, if anything."""

    node: str
    id: str
    incarnation: int
    cause: str


@dataclass(slots=True)
class _Missing:
    life: int
    since: float
    patience_s: float
    """Until the first live healer acts."""
    jitter: float
    """Drawn, 0 to 1."""
    again_at: float = -math.inf
    orders: int = 0
    unheard: tuple[int, float] | None = None
    """A life that the agent says it runs, and since when it has been saying so."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    life: int
    cause: str
    patience_s: float


class ProcessPeers:
    def __init__(self, me: Identity, config: Config, now: float) -> None:
        self._me = me
        self._config = config
        self._period_s = config.beacons.period_s
        beacons = config.beacons
        dead_s = (beacons.suspect_after + beacons.dead_after) * beacons.period_s
        self._silent_s = max(SILENT_S_MIN - dead_s, 0.0)
        self._plan = config.components()
        self._agents = {each.node: each.id for each in self._plan if each.role == NODE}
        self._healers = sorted(
            (each for each in self._plan if each.role in RANKED),
            key=lambda each: (RANKED.index(each.role), _number(each.id)),
        )
        self._planned = {each.id for each in self._plan}
        self._looked_at = now
        self._settled_at = now + SETTLE_PERIODS * self._period_s
        self._missing: dict[str, _Missing] = {}
        self._exits: dict[str, Exited] = {}
        self._held = HeldTable(self._period_s)
        self._restarted: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        """Nodes whose agent died, and since when; remembered until an agent is heard there."""

    @property
    def missing(self) -> int:
        """How many planned processes are missing, as far as we can tell."""
        return len(self._missing)

    # What is heard.

    def exited(self, exited: Exited) -> None:
        """An agent reaped that process."""
        before = self._exits.get(exited.id)
        if exited.id in self._planned and (
            before is None or exited.incarnation >= before.incarnation
        ):
            self._exits[exited.id] = exited

    def held(self, agent_id: str, message: ProcessesHeld, now: float) -> None:
        """That agent says what it holds back."""
        self._held.heard(agent_id, message, now)

    def restarted(self, component_id: str, now: float) -> None:
        """Somebody had it restarted; it takes a moment to be heard again."""
        if component_id in self._planned:
            self._restarted[component_id] = now

    def answered(self, component_id: str, answer: ProcessDescribed, now: float) -> None:
        """What the agent said to our order."""
        missing = self._missing.get(component_id)
        if missing is None or not answer.pid:
            return
        if missing.unheard is None or missing.unheard[0] != answer.incarnation:
            missing.unheard = (answer.incarnation, now)

    # What is to be done.

    def look(
        self, peers: Iterable[Peer], *, blind: bool, now: float, draw: Callable[[], float]
    ) -> list[Restart]:
        """Compare the plan with the table as it is now. `draw`: a chance from 0 to 1."""
        away_s, self._looked_at = now - self._looked_at, now
        if blind or away_s > max(UNSEEN_PERIODS_MAX * self._period_s, UNSEEN_S_MIN):
            self._settled_at = now + SETTLE_PERIODS * self._period_s  # P1
            self._missing.clear()
            self._gone.clear()
        table = {peer.id: peer for peer in peers if not peer.linked}
        self._watch_nodes(table, now)
        if now < self._settled_at:
            return []  # P1
        rank, held = self._rank(table), self._held.held(now)
        orders = []
        for planned in self._plan:
            if planned.role == NODE or planned.id == self._me.id:
                continue  # P3
            trouble = self._trouble(planned, table.get(planned.id))
            if trouble is None or planned.id in held:  # P2
                self._missing.pop(planned.id, None)
                self._restarted.pop(planned.id, None)
                continue
            missing = self._missing.get(planned.id)
            if missing is None or missing.life != trouble.life:
                missing = _Missing(trouble.life, now, trouble.patience_s, draw())
                self._missing[planned.id] = missing
            # After a goodbye its agent said that nobody had asked for it.
            missing.patience_s = min(missing.patience_s, trouble.patience_s)
            if now >= self._due_at(planned.id, missing, rank):
                order = self._order(planned, missing, trouble, table, now)
                if order is not None:
                    orders.append(order)
        return orders

    def _watch_nodes(self, table: dict[str, Peer], now: float) -> None:
        for node, agent_id in self._agents.items():
            agent = table.get(agent_id)
            if agent is not None and agent.state == "dead":
                self._gone.setdefault(node, now)
            elif agent is not None:
                self._gone.pop(node, None)

    def _trouble(self, planned: Planned, peer: Peer | None) -> _Trouble | None:
        """What is wrong with it, if it is to be brought back."""
        if peer is not None and peer.state not in ("dead", "offline"):
            return None
        life = 0 if peer is None else peer.incarnation
        exited = self._exits.get(planned.id)
        if exited is not None and exited.incarnation < life:
            exited = None
        if exited is not None:
            if exited.asked:
                return None  # P2
            return _Trouble(exited.incarnation, f"noticed dead ({exited.reason})", 0.0)
        if peer is None:
            return _Trouble(0, "noticed missing (never heard of)", NEVER_S)
        if peer.state == "offline":
            return _Trouble(life, "noticed gone (it said goodbye, unasked)", GOODBYE_S)
        return _Trouble(life, "noticed dead (silent, and answers no ping)", self._silent_s)

    def _due_at(self, component_id: str, missing: _Missing, rank: int) -> float:
        if missing.orders:
            return missing.again_at
        turn_s = (rank + JITTER * missing.jitter) * self._period_s  # P5
        restarted_at = self._restarted.get(component_id, -math.inf)
        return max(missing.since + missing.patience_s + turn_s, restarted_at + BACK_S)

    def _order(
        self,
        planned: Planned,
        missing: _Missing,
        trouble: _Trouble,
        table: dict[str, Peer],
        now: float,
    ) -> Restart | None:
        node = self._place(planned, table, now)
        if node is None:
            return None  # P4: it stays due.
        wait_s = min(AGAIN_S_FIRST * 2.0**missing.orders, AGAIN_S_MAX)  # P4
        missing.orders = min(missing.orders + 1, 10)
        missing.again_at = now + wait_s * (1 + JITTER * missing.jitter)
        life, cause = missing.life, trouble.cause
        if missing.unheard is not None and now >= missing.unheard[1] + UNHEARD_S_MAX:  # P6
            life = max(life, missing.unheard[0])
            cause = f"noticed hung (runs for {UNHEARD_S_MAX:.0f} s, and was never heard of)"
            missing.unheard = None
        if node != planned.node:
            cause += f", and {planned.node} is gone"
        return Restart(node, planned.id, life, cause)

    # Where.

    def _place(self, planned: Planned, table: dict[str, Peer], now: float) -> str | None:
        """The node whose agent is to be asked now; None: nobody."""
        if self._has_agent(planned.node, table):
            return planned.node
        agent = table.get(self._agents[planned.node])
        if agent is not None and agent.state != "dead":
            return None  # P2: it ends in good order, or is in doubt.
        gone_since = self._gone.get(planned.node)
        if gone_since is None:
            return self._last_place(planned, table)
        if now < gone_since + self._config.restarts.node_gone_s:
            return None  # P3
        return self._elsewhere(planned, table)

    def _last_place(self, planned: Planned, table: dict[str, Peer]) -> str | None:
        """Where another healer had it started, if nobody ever heard of its own node."""
        peer = table.get(planned.id)
        if peer is None or peer.node == planned.node or not self._has_agent(peer.node, table):
            return None
        return peer.node

    def _elsewhere(self, planned: Planned, table: dict[str, Peer]) -> str | None:
        """The same for all healers that see the same nodes; overflow nodes last."""
        nodes = [
            node
            for node in self._agents
            if self._has_agent(node, table) and self._may_move(planned, node)
        ]
        regular = [node for node in nodes if not self._config.nodes[node].overflow]
        chosen = regular or nodes
        return chosen[_number(planned.id) % len(chosen)] if chosen else None

    def _may_move(self, planned: Planned, node: str) -> bool:
        if planned.role == HUB:
            return False  # P3: everybody looks for it at its address.
        if planned.role != MANAGER or self._config.store.kind == "etcd":
            return True
        return self._machine(node) == self._machine(planned.node)  # P3

    def _machine(self, node: str) -> str:
        address = self._config.nodes[node].address
        return LOOPBACK if is_loopback(address) else address.lower()

    def _has_agent(self, node: str, table: dict[str, Peer]) -> bool:
        agent_id = self._agents.get(node, "")
        if agent_id == self._me.id:
            return True
        agent = table.get(agent_id)
        return agent is not None and agent.state == "live"

    # Whose turn.

    def _rank(self, table: dict[str, Peer]) -> int:
        """How many live healers come before us."""
        before = 0
        for healer in self._healers:
            if healer.id == self._me.id:
                break
            peer = table.get(healer.id)
            before += peer is not None and peer.state == "live"
        return min(before, TURNS_MAX)  # P5


def _number(component_id: str) -> int:
    return int(component_id.rpartition("-")[2])
