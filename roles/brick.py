"""A brick: holds sessions in memory for the stubs. Answers, sweeps, tells how it is.

`roles.session_tables` decides what is held, `roles.brick_inbox` whom to serve. A brick begins
empty, or with what its life before handed over (`roles.hand_over_file`). Its copies are named by
the *data incarnation*: of the life in which its tables began empty. It rides in the beacon.

What always holds:
  K1  A value that rots in memory ends this process: exit code `DAMAGED`, and an event. Nothing is
      served in between, as no other value can be trusted either; the other bricks have copies.
  K2  Once a hand-over began nothing is read or changed here, so that what is written is what
      was acknowledged. If it fails, all goes on as before.
  K3  No handler of a stub's request waits, so each sees and leaves the tables whole.
  K4  Faults can be injected only in a cluster that a test made, or whose configuration allows it.
  K5  A brick that drains serves those who have a session here, and ends when it holds none.
"""

import os
import time
from collections.abc import Callable
from math import inf

import gevent
from greenlet import GreenletExit

from bus.agents import order
from bus.clock import now
from bus.config_shape import BRICK
from bus.member import Member
from bus.messages import Drain, Message, Pong, Refused
from bus.process_orders import EndProcess
from bus.replies import Answer
from bus.server import Call
from roles.brick_inbox import DeadlineInbox, PlainInbox
from roles.brick_view import DRAINING
from roles.cookie import SLACK_S
from roles.hand_over import VALID_S
from roles.hand_over_file import find, leave, tidy
from roles.session_messages import (
    HANDING_OVER,
    SESSION,
    CorruptSession,
    DeleteSession,
    HandedOver,
    HandOver,
    ReadSession,
    SessionAnswer,
    StoreSession,
    TouchSession,
    data_incarnation_of,
)
from roles.session_tables import SessionTables, ValueDamaged

CONTROL = "control"
DAMAGED = 4
"""The exit code of a brick that found a value damaged."""

MARK_OF_TESTS = "SOFTSTATE_LOCAL_CLUSTER"
"""In the environment of every process that `roles.testing.LocalCluster` started (K4)."""

SWEEP_S_MIN, SWEEP_S_MAX = 0.01, 1.0
TIDY_S = 60.0
LAST_WORDS_S = 0.1  # For the last answer and event to leave.
RETRY_S = 1.0  # A hand-over takes about that.
SETTLE_PERIODS = 2  # Of beacons, until every stub has heard that this brick drains.
END_S_MAX = 3.0  # For our agent to take note of our end.
SEALED_BYTES = 1024
"""What encryption may add to a value beyond the configured limit."""
PLAIN_BODIES_BYTES_MAX = 2 << 30

PRIORITY_MIN, PRIORITY_MAX = -4, 3
_PRIORITIES = PRIORITY_MAX - PRIORITY_MIN + 1
RANKS = 1 + 2 * _PRIORITIES

_ASKED = frozenset({StoreSession, ReadSession, TouchSession, DeleteSession})


def main(member: Member) -> None:
    Brick(member).run()


def rank_of(call: Call[Message]) -> int:
    """Pings and orders first, then existing sessions, then new ones; of these, by priority."""
    message = call.message
    kind = type(message)
    if kind not in _ASKED:
        return 0
    priority = call.priority
    rank = 1 + PRIORITY_MAX - min(max(priority, PRIORITY_MIN), PRIORITY_MAX)
    if isinstance(message, StoreSession) and message.base == 0:
        rank += _PRIORITIES
    return rank


class Brick:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._config = member.config.sessions
        self._extra_s = self._config.extra_cost_ms / 1000
        self._inbox: DeadlineInbox[Call[Message]] | PlainInbox[Call[Message]]
        if self._config.protection:
            self._inbox = DeadlineInbox(self._config.inbox_max, rank_of, RANKS)
            member.server.use_inbox(self._inbox)
        else:
            self._inbox = PlainInbox()
            member.server.use_inbox(
                self._inbox, serve_late=True, bodies_bytes_max=PLAIN_BODIES_BYTES_MAX
            )
        self._refusal: Refused | None = None
        """What everyone is told while nothing may be served."""
        self._drains_since = inf

    def run(self) -> None:
        """Serve until this process is told to end, or hands over, or cannot be trusted."""
        me = self._member.identity
        found, complaints = find(self._member.config, me.id, self._new_tables)
        for complaint in complaints:
            self._member.event("degraded", me.id, f"a hand-over is thrown away: {complaint}")
        self._tables = found or self._new_tables(data_incarnation_of(me.incarnation))
        if found is not None:
            reason = f"with {found.items} sessions of the life before"
            self._member.event("resumed", me.id, reason)
        self._declare()
        self._serve()
        sweeper = gevent.spawn(self._sweep)
        # Without it memory would fill up with what has expired.
        sweeper.link_exception(lambda ended: self._member.fail(ended.exception or SystemExit(1)))
        try:
            self._member.live()
            self._member.wait()
        finally:
            sweeper.kill()

    def _new_tables(self, data_incarnation: int) -> SessionTables:
        return SessionTables(
            data_incarnation,
            bytes_max=self._config.memory_bytes_max,
            value_bytes_max=self._config.value_bytes_max + SEALED_BYTES,
            # Stubs ask for a slack more, so that no copy ends before its cookie.
            ttl_s_max=self._config.ttl_s_max + 2 * SLACK_S,
        )

    # What stubs ask (K3).

    def _serve(self) -> None:
        on = self._member.server.on
        on(StoreSession, self._store, permission=SESSION)
        on(ReadSession, self._read, permission=SESSION)
        on(TouchSession, self._touch, permission=SESSION)
        on(DeleteSession, self._delete, permission=SESSION)
        on(HandOver, self._hand_over, permission=CONTROL)
        on(Drain, self._drain, permission=CONTROL)
        if MARK_OF_TESTS in os.environ:  # K4
            on(CorruptSession, self._corrupt, permission=CONTROL)
        if self._member.faults is not None:  # K4
            self._member.faults.on_flip(self._tables.corrupt_some)

    def _store(self, call: Call[StoreSession]) -> Message | Refused:
        self._spend()
        if self._refusal is not None:
            return self._refusal
        ask = call.message
        # A long body is a view of a frame, which would be kept for its sake.
        value = call.body if isinstance(call.body, bytes) else bytes(call.body)
        self._writes.add()
        self._bytes_in.add(len(value))
        return self._tables.store(
            ask.sid,
            ask.version,
            value,
            ask.checksum,
            ttl_s=ask.ttl_s,
            now=now(),
            base=ask.base,
            base_checksum=ask.base_checksum,
        )

    def _read(self, call: Call[ReadSession]) -> Message | Answer | Refused:
        self._spend()
        if self._refusal is not None:
            return self._refusal
        ask = call.message
        self._reads.add()
        try:
            answer, value = self._tables.read(ask.sid, ask.version, now())
        except ValueDamaged as error:
            return self._end_damaged(error)
        if answer.outcome != "value":
            self._misses.add()
            return answer
        self._bytes_out.add(len(value))
        return Answer(answer, value)

    def _touch(self, call: Call[TouchSession]) -> Message | Refused:
        self._spend()
        if self._refusal is not None:
            return self._refusal
        ask = call.message
        self._touches.add()
        return self._tables.touch(ask.sid, ask.version, ask.ttl_s, now())

    def _delete(self, call: Call[DeleteSession]) -> Message | Refused:
        self._spend()
        if self._refusal is not None:
            return self._refusal
        self._deletes.add()
        return self._tables.delete(call.message.sid, call.message.ttl_s, now())

    def _spend(self) -> None:
        if self._extra_s:
            # It stands for a slow processor, so nothing else may go on meanwhile.
            time.sleep(self._extra_s)  # noqa: TID251

    # What people and tests ask.

    def _hand_over(self, call: Call[HandOver]) -> Message | Refused:
        if self._refusal is not None:
            return self._refusal
        me = self._member.identity
        self._refusal = Refused("busy", f"{me.id} {HANDING_OVER}", retry_after_s=RETRY_S)  # K2
        before, self._member.state = self._member.state, "draining"
        try:
            length = leave(self._member.config, me.id, self._tables)
        except OSError as error:
            self._refusal = None  # K2
            self._member.state = before
            reason = f"no hand-over: {error.strerror or error}"
            self._member.event("degraded", me.id, reason)
            return Refused("failed", reason)
        tables = self._tables
        self._member.event("drained", me.id, f"{tables.items} sessions handed over")
        self._end(GreenletExit())  # Which is to be taken for an end in good order.
        return HandedOver(tables.data_incarnation, tables.items, length, VALID_S)

    def _drain(self, call: Call[Drain]) -> Message | Refused:
        """Others are to get what is new, and what is written again."""
        if self._refusal is not None:
            return self._refusal
        me = self._member.identity
        if not self._drains:
            others = sum(peer.id != me.id for peer in self._member.peers(BRICK))
            if others < self._config.WQ:
                return Refused("failed", f"only {others} others are live, and a write needs more")
            self._drains_since = now()
            self._member.drain()
            reason = f"asked by {call.sender}, with {self._tables.items} sessions"
            self._member.event("draining", me.id, reason)
        return Pong(me.id, me.incarnation)

    @property
    def _drains(self) -> bool:
        return self._drains_since < inf

    @property
    def _is_drained(self) -> bool:
        """K5: whether no session is left. Marks do not count: all bricks have them."""
        if self._refusal is not None or self._tables.items:
            return False
        return now() > self._drains_since + SETTLE_PERIODS * self._member.config.beacons.period_s

    def _corrupt(self, call: Call[CorruptSession]) -> Message:
        found = self._tables.corrupt(call.message.sid)
        return SessionAnswer("value" if found else "missing", self._tables.data_incarnation)

    # The end, and the passing of time.

    def _end_damaged(self, error: ValueDamaged) -> Refused:
        me = self._member.identity
        self._refusal = Refused("failed", f"{me.id} is ending: its memory is damaged")  # K1
        self._member.event("damaged", me.id, f"{error}; it ends with exit code {DAMAGED}")
        self._end(SystemExit(DAMAGED))
        return self._refusal

    def _end_drained(self) -> None:
        """In good order, and with our agent's knowledge if we are planned: else peers would bring
        us back."""
        me, config = self._member.identity, self._member.config
        self._refusal = Refused("busy", f"{me.id} {HANDING_OVER}", retry_after_s=RETRY_S)
        self._member.leave()  # So that no stub asks us for anything any more: to them it is news.
        self._member.event("drained", me.id, "no session is left in it")
        if any(each.id == me.id for each in config.components()):
            answer = order(self._member, me.node, EndProcess(me.id), END_S_MAX)
            if isinstance(answer, Refused):
                reason = f"peers may bring it back: {answer.reason}, {answer.detail}"
                self._member.event("degraded", me.id, reason)
        self._end(GreenletExit())

    def _end(self, how: BaseException) -> None:
        gevent.spawn_later(LAST_WORDS_S, self._member.fail, how)

    def _sweep(self) -> None:
        tidy_at = now()
        while True:
            if self._refusal is None:  # K2
                self._tables.sweep(now())
                if self._is_drained:
                    self._end_drained()  # K5
            if now() >= tidy_at:
                tidy_at = now() + TIDY_S
                tidy(self._member.config)
            gevent.sleep(min(max(self._tables.wake_at - now(), SWEEP_S_MIN), SWEEP_S_MAX))

    # What is counted.

    def _declare(self) -> None:
        rate, size = self._member.statistics.rate, self._member.statistics.size
        tables, inbox = self._tables, self._inbox
        self._reads = rate("reads", "Reads served")
        self._writes = rate("writes", "Writes served")
        self._touches = rate("touches", "Touches served")
        self._deletes = rate("deletes", "Deletions served")
        self._misses = rate("misses", "Reads of what is not here")
        self._bytes_in = rate("bytes_in", "Bytes of values that came")
        self._bytes_out = rate("bytes_out", "Bytes of values that were read")
        size("data_incarnation", "Names the tables", lambda: tables.data_incarnation)
        size("items", "Sessions held", lambda: tables.items)
        size(
            DRAINING,
            "1 while it takes on nothing new, and serves",
            lambda: float(self._drains and self._refusal is None),
        )
        size("marks", "Marks of deleted sessions", lambda: tables.marks)
        size("marks_forgotten", "Marks dropped to make room", lambda: tables.marks_forgotten)
        size("memory_bytes", "Memory for sessions and marks", lambda: tables.bytes_held)
        size("tables", "Tables by expiry", lambda: tables.tables)
        size("table_oldest_s", "Age of the oldest table", lambda: tables.table_ages_s(now())[0])
        size("table_youngest_s", "Age of the youngest table", lambda: tables.table_ages_s(now())[1])
        size("unswept", "Expired sessions not yet freed", lambda: tables.unswept)
        size("service_s", "How long one request takes", lambda: inbox.service_s)
        size("overloaded", "1 while the inbox is never short", lambda: float(inbox.is_overloaded))
        share = self._member.statistics.share
        share("queue_s", "Mean wait of those served", lambda: (inbox.waited_s, inbox.taken))
        share("busy_ratio", "Share of the time spent serving", lambda: (inbox.busy_s, now()))
        counts: list[tuple[str, str, Callable[[], int]]] = [
            ("turned_away_full", "Requests refused: inbox full", lambda: inbox.refused_full),
            ("turned_away_hopeless", "Refused on arrival", lambda: inbox.refused_hopeless),
            ("turned_away_late", "Refused at their turn", lambda: inbox.refused_late),
        ]
        for name, meaning, read in counts:
            rate(name, meaning, read)
