"""Have what is missing brought back: run `bus.process_peers` for a member. Waits and asks only.

One greenlet looks at the liveness table several times a period, and at once when it changes;
each order is asked in a greenlet of its own, as an agent may take a while to answer.
"""

import logging
import random
from collections.abc import Callable

import gevent
from gevent.event import Event as Flag
from gevent.pool import Pool

from bus.agents import order
from bus.clock import now
from bus.config_shape import NODE
from bus.events import REASON_LENGTH_MAX, printable
from bus.headers import News
from bus.member import EVENT_TOPIC, Member
from bus.messages import Exited, Happening, Refused
from bus.peers import Change
from bus.process_orders import HELD_TOPIC, ProcessDescribed, ProcessesHeld, RestartProcess
from bus.process_peers import ProcessPeers, Restart

RESTARTED = "restarted"
"""The kind of event by which an agent says that it restarts something, and for whom."""

LOOKS_A_PERIOD = 4
LOOK_S_MAX = 0.5
ORDER_S_MAX = 2.0
ORDERS_MAX = 16  # Under way at once; the rest stay due.

Answer = ProcessDescribed | Refused

log = logging.getLogger(__name__)


class PeerWatch:
    def __init__(
        self, member: Member, ourselves: Callable[[RestartProcess], Answer] | None = None
    ) -> None:
        """`ourselves`: for a node agent, which does what it orders of itself without asking."""
        self._member = member
        self._ourselves = ourselves
        self._peers = ProcessPeers(member.identity, member.config, now())
        self._random = random.Random()
        self._news = Flag()
        self._orders = Pool(ORDERS_MAX)
        self._loop: gevent.Greenlet[..., None] | None = None
        self._refusals: dict[str, str] = {}
        self._agents = {each.id for each in member.config.components() if each.role == NODE}
        self._ordered = member.statistics.counter(
            "restarts_ordered", "Restarts asked of node agents for what was missing"
        )
        self._unasked = member.statistics.counter(
            "restarts_unasked", "Of those, how many could not even be asked for"
        )
        member.statistics.size(
            "peers_missing", "Planned processes that are missing", lambda: self._peers.missing
        )
        if member.config.heal:
            member.on_exit(self._heard_exit)
            member.on_change(self._changed)
            member.subscribe(HELD_TOPIC, ProcessesHeld, self._heard_held)
            member.subscribe(EVENT_TOPIC, Happening, self._heard_event)

    def start(self) -> None:
        """Begin to watch, unless the configuration says `heal = false`."""
        if self._member.config.heal:
            self._loop = gevent.spawn(self._run)
            self._loop.link_exception(self._broke)

    def close(self) -> None:
        """Order nothing any more."""
        if self._loop is not None:
            self._member.off_change(self._changed)
            self._loop.kill()
            self._loop = None
            self._orders.kill()

    def _broke(self, loop: "gevent.Greenlet[..., None]") -> None:
        assert loop.exception is not None
        self._member.fail(loop.exception)

    def _run(self) -> None:
        look_s = min(self._member.config.beacons.period_s / LOOKS_A_PERIOD, LOOK_S_MAX)
        while True:
            table = self._member.liveness
            orders = self._peers.look(
                table.peers(),
                blind=table.blind,
                now=now(),
                draw=self._random.random,
                room=self._orders.free_count(),
            )
            for restart in orders:
                self._orders.spawn(self._order, restart)
            self._news.wait(look_s)
            self._news.clear()

    def _order(self, restart: Restart) -> None:
        self._ordered.add()
        try:
            answer = self._ask(restart)
        except Exception as error:
            # It is asked for again; the others do not wait for it.
            self._unasked.add()
            log.exception("%s cannot be asked of %s", restart.id, restart.node)
            answer = Refused("failed", f"{type(error).__name__}: {error}")
        match answer:
            case ProcessDescribed():
                self._refusals.pop(restart.id, None)
                self._peers.answered(restart.id, answer, now())
            case Refused(reason=reason, detail=detail):
                self._refused(restart, f"{reason}, {detail}")

    def _ask(self, restart: Restart) -> Answer:
        message = RestartProcess(restart.id, restart.incarnation, restart.cause)
        me = self._member.identity
        if self._ourselves is not None and restart.node == me.node and me.role == NODE:
            return self._ourselves(message)
        return order(self._member, restart.node, message, ORDER_S_MAX)

    def _refused(self, restart: Restart, why: str) -> None:
        why = printable(why, REASON_LENGTH_MAX)
        if self._refusals.get(restart.id) == why:
            return  # It is asked for again and again; once said is enough.
        self._refusals[restart.id] = why
        reason = f"{restart.cause}, but the agent of {restart.node} did not restart it: {why}"
        self._member.event("degraded", restart.id, reason)

    # What is heard.

    def _changed(self, change: Change) -> None:
        self._news.set()

    def _heard_exit(self, header: News, exited: Exited) -> None:
        if self._is_agent(header):
            self._peers.exited(exited)
            self._news.set()

    def _heard_held(self, header: News, held: ProcessesHeld) -> None:
        if self._is_agent(header):
            self._peers.held(header.sender, held, now())

    def _heard_event(self, header: News, happening: Happening) -> None:
        if happening.kind == RESTARTED and self._is_agent(header):
            self._peers.restarted(happening.subject, now())

    def _is_agent(self, header: News) -> bool:
        if header.sender == self._member.identity.id:
            return self._member.identity.role == NODE
        if header.sender not in self._agents:
            return False  # Anybody may call himself an agent.
        if header.sender == self._member.identity.id:
            return True
        teller = self._member.liveness.peer(header.sender)
        return teller is not None and teller.role == NODE and not teller.linked
