"""Who is missing, and whose turn it is to have it brought back. Decides only; where: `bus.places`.

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
      whose agent ends in good order, is left alone. That an end was asked for counts only until
      its agent can have said that it holds it, as it may have been begun again since. The last
      word of an agent that is not there stands, until what it held lives again.
  P3  An order is for the agent that `bus.places` says, and never about an agent or a linked
      program. An exit or an answer with a life that nobody can have had is nobody's.
  P4  Whatever is missing is ordered again until it is there, less and less often: as long as
      there is an agent to ask, nothing is given up. Of more than there is room for, those that
      have been due for longest come first.
  P5  Of all healers that see the same table, each acts no later than `TURNS_MAX` turns after it
      saw; the first live one at once.
  P6  An order says which life is to be over: at most the last that we heard of; or one that its
      agent said runs and nobody has heard of for `UNHEARD_S`, twice that with each such life in a
      row. Those one at a time, and not while that would be more than a quarter of the plan:
      then it is the machine that is slow, and to begin anew would make it slower.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from bus.config_shape import MANAGER, NODE, PINPOINT, Config, Planned
from bus.events import REASON_LENGTH_MAX, printable
from bus.held import HeldTable
from bus.identity import BELIEVED_MAX, Identity
from bus.messages import Exited
from bus.peers import Peer
from bus.places import Places
from bus.process_orders import ProcessDescribed, ProcessesHeld

RANKED = (MANAGER, PINPOINT, "sns", "frontend", NODE)
"""The roles that heal, the first to act first; within a role, by number."""

SETTLE_PERIODS = 3  # A newcomer knows the cluster within two.
TURNS_MAX = 5  # However many come before us, and however dead they are.
UNSEEN_PERIODS_MAX = 3  # Looks further apart: we did not look.
UNSEEN_S_MIN = 2.0  # However short the period.
GOODBYE_S = 2.0  # After a goodbye, for the agent to say whether it was asked for.
NEVER_S = 5.0  # For a process never heard of: it may just be starting.
UNHEARD_S = 20.0  # To begin, on a busy machine; one that takes longer hangs, as a rule.
UNHEARD_DOUBLINGS_MAX = 4
ORDERS_MAX = 16  # Of one look, if nobody says how much room there is.
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
class _Exit:
    life: int
    reason: str
    asked: bool
    heard_at: float


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
        self._places = Places(me, config)
        self._healers = sorted(
            (each for each in self._plan if each.role in RANKED),
            key=lambda each: (RANKED.index(each.role), _number(each.id)),
        )
        self._planned = {each.id for each in self._plan}
        self._looked_at = now
        self._settled_at = now + SETTLE_PERIODS * self._period_s
        self._missing: dict[str, _Missing] = {}
        self._exits: dict[str, _Exit] = {}
        """The latest of each, until it is there again."""
        self._unheard: dict[str, int] = {}
        """How many lives in a row ended before anybody heard of them."""
        self._ended: tuple[str, float] | None = None
        """What we had ended last because it was not heard of, and when."""
        self._held = HeldTable(self._period_s)
        self._restarted: dict[str, float] = {}

    @property
    def missing(self) -> int:
        """How many planned processes are missing, as far as we can tell."""
        return len(self._missing)

    # What is heard.

    def exited(self, exited: Exited) -> None:
        """An agent reaped that process."""
        if exited.id not in self._planned or exited.incarnation > BELIEVED_MAX:
            return  # P3
        before = self._exits.get(exited.id)
        if before is None or exited.incarnation >= before.life:
            # Whoever wrote it, its words go into an order and an event.
            reason = printable(exited.reason, REASON_LENGTH_MAX)
            self._exits[exited.id] = _Exit(
                exited.incarnation, reason, exited.asked, self._looked_at
            )

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
        if missing is None:
            return
        if not answer.pid or not missing.life < answer.incarnation <= BELIEVED_MAX:
            missing.unheard = None
        elif missing.unheard is None or missing.unheard[0] != answer.incarnation:
            missing.unheard = (answer.incarnation, now)

    # What is to be done.

    def look(
        self,
        peers: Iterable[Peer],
        *,
        blind: bool,
        now: float,
        draw: Callable[[], float],
        room: int = ORDERS_MAX,
    ) -> list[Restart]:
        """Compare the plan with the table as it is now. `draw`: a chance from 0 to 1; `room`: how
        many orders can be given now."""
        away_s, self._looked_at = now - self._looked_at, now
        if blind or away_s > max(UNSEEN_PERIODS_MAX * self._period_s, UNSEEN_S_MIN):
            self._settled_at = now + SETTLE_PERIODS * self._period_s  # P1
            self._missing.clear()
        table = {peer.id: peer for peer in peers if not peer.linked}
        settled = now >= self._settled_at
        self._places.watch(table, now, settled=settled)
        if not settled:
            return []  # P1
        due = self._due(table, now, draw)
        due.sort(key=lambda each: each[0])  # P4
        orders: list[Restart] = []
        for _, planned, trouble in due:
            if len(orders) >= room:
                break
            orders += self._order(planned, trouble, table.get(planned.id), now)
        return orders

    def _due(
        self, table: Mapping[str, Peer], now: float, draw: Callable[[], float]
    ) -> list[tuple[float, Planned, _Trouble]]:
        """What is to be ordered now, and since when."""
        rank, held = self._rank(table), self._held.held(now, self._places.silent)
        due = []
        for planned in self._plan:
            if planned.role == NODE or planned.id == self._me.id:
                continue  # P3
            peer = table.get(planned.id)
            trouble = self._trouble(planned, peer, now)
            if planned.id in held:
                self._exits.pop(planned.id, None)  # P2: from here on that is what counts.
            if trouble is None or planned.id in held or self._places.is_left(planned, peer):  # P2
                self._missing.pop(planned.id, None)
                self._restarted.pop(planned.id, None)
                continue
            missing = self._missing.get(planned.id)
            if missing is None or missing.life != trouble.life:
                missing = _Missing(trouble.life, now, trouble.patience_s, draw())
                self._missing[planned.id] = missing
                if trouble.life > _life(peer):
                    self._unheard[planned.id] = self._unheard.get(planned.id, 0) + 1
            # After a goodbye its agent said that nobody had asked for it.
            missing.patience_s = min(missing.patience_s, trouble.patience_s)
            due_at = self._due_at(planned.id, missing, rank)
            if now >= due_at:
                due.append((due_at, planned, trouble))
        return due

    def _trouble(self, planned: Planned, peer: Peer | None, now: float) -> _Trouble | None:
        """What is wrong with it, if it is to be brought back."""
        if peer is not None and peer.state not in ("dead", "offline"):
            self._is_there(planned.id)
            return None
        life = _life(peer)
        exited = self._exits.get(planned.id)
        if exited is not None and exited.asked and self._can_say(planned, peer, exited, now):
            del self._exits[planned.id]  # P2
            exited = None
        if exited is not None and exited.life >= life:
            if exited.asked:
                return None  # P2
            return _Trouble(exited.life, f"noticed dead ({exited.reason})", 0.0)
        if peer is None:
            return _Trouble(0, "noticed missing (never heard of)", NEVER_S)
        if peer.state == "offline":
            return _Trouble(life, "noticed gone (it said goodbye, unasked)", GOODBYE_S)
        return _Trouble(life, "noticed dead (silent, and answers no ping)", self._silent_s)

    def _can_say(self, planned: Planned, peer: Peer | None, exited: _Exit, now: float) -> bool:
        """Whether its agent must have told by now that it holds it, if it does."""
        return now >= exited.heard_at + self._held.good_s and self._places.answers(planned, peer)

    def _is_there(self, component_id: str) -> None:
        """Whatever was said of how it ended is over, or was never true."""
        self._exits.pop(component_id, None)
        self._unheard.pop(component_id, None)
        self._held.runs(component_id)

    def _due_at(self, component_id: str, missing: _Missing, rank: int) -> float:
        if missing.orders:
            return missing.again_at
        turn_s = (rank + JITTER * missing.jitter) * self._period_s  # P5
        restarted_at = self._restarted.get(component_id, -math.inf)
        return max(missing.since + missing.patience_s + turn_s, restarted_at + BACK_S)

    def _order(
        self, planned: Planned, trouble: _Trouble, peer: Peer | None, now: float
    ) -> list[Restart]:
        node = self._places.place(planned, peer)
        if node is None:
            return []  # P4: it stays due.
        missing = self._missing[planned.id]
        wait_s = min(AGAIN_S_FIRST * 2.0**missing.orders, AGAIN_S_MAX)  # P4
        missing.orders = min(missing.orders + 1, 10)
        missing.again_at = now + wait_s * (1 + JITTER * missing.jitter)
        life, cause = missing.life, trouble.cause
        if missing.unheard is not None and self._hangs(planned.id, missing.unheard[1], now):  # P6
            life, since = missing.unheard
            cause = f"noticed hung (runs for {now - since:.0f} s, and was never heard of)"
            missing.unheard = None
            self._ended = (planned.id, now)
        if node != planned.node:
            cause += f", and {planned.node} is gone"
        return [Restart(node, planned.id, life, cause)]

    def _hangs(self, component_id: str, unheard_since: float, now: float) -> bool:
        """Whether what runs, and was never heard of, is to be ended now."""
        doublings = min(self._unheard.get(component_id, 0), UNHEARD_DOUBLINGS_MAX)
        if now < unheard_since + UNHEARD_S * 2.0**doublings:
            return False
        if self._ended is not None:
            other, at = self._ended
            if other != component_id and other in self._missing and now < at + UNHEARD_S:
                return False
        unheard = sum(missing.unheard is not None for missing in self._missing.values())
        return unheard <= max(1, len(self._plan) // 4)

    # Whose turn.

    def _rank(self, table: Mapping[str, Peer]) -> int:
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


def _life(peer: Peer | None) -> int:
    """The last that was heard of."""
    return 0 if peer is None else peer.incarnation
