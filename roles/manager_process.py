"""A lease manager: who owns which keys. One of them leads, the others stand by.

A thin shell around `roles.manager`, which decides. The machine lives in the event loop; the store
is asked in one native thread, so that a slow disk never stops the loop.

What always holds:
  M1  The clock is read anew for each input, so for the outcome of a commit after the commit.
  M2  One question to the store is under way at a time, and every wait has an end: of a caller, that
      of its budget; of the store, half of what a leader trusts its term for.
  M3  A machine that broke a rule of its own is not asked again: the process ends.
"""

import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import gevent
from gevent.event import AsyncResult
from gevent.event import Event as Flag
from gevent.threadpool import ThreadPool

from bus.agents import order
from bus.clock import now
from bus.config import NODE, NamespaceConfig
from bus.errors import RemoteProtocolError
from bus.headers import News
from bus.lease_timing import timing_of
from bus.member import Member
from bus.messages import Exited, Message, Refused
from bus.peer_watch import PeerWatch
from bus.process_orders import RestartProcess
from bus.replies import Answer
from bus.server import Call
from roles.assignment import POLICIES, Assignment
from roles.election import Candidate
from roles.key_range import KEYS_END
from roles.lease_messages import AskLeases, AskMap, pack_answers, unpack_asks
from roles.lease_namespace import Namespace
from roles.lease_news import news
from roles.lease_rows import StoreCorrupt
from roles.lease_view import explained, lease_rows, ranges_held, ranges_recalled
from roles.manager import (
    AnswerLeases,
    AnswerMap,
    AskStore,
    Broadcast,
    Commit,
    Failed,
    InDoubt,
    KillHolder,
    Manager,
    ManagerAction,
    StoreOp,
    Tell,
)
from roles.manager_store import StoreCaller, store_of
from roles.messages import (
    DescribeLeases,
    ExplainKey,
    KeyExplained,
    LeasesDescribed,
    encode_rows,
)
from roles.rejuvenator import rejuvenate

LEASE = "lease"

WAIT_S_MAX = 0.25  # The loop looks up this often even when nothing is due.
RESIGN_S_MAX = 1.0  # To give the lead away in good order; then the process ends all the same.
KILL_S_MAX = 2.0  # For an agent to answer; the machine orders it again if that did not help.
TIMEOUTS_A_TERM = 2  # How often the store may time out before a term is no longer trusted.

M = TypeVar("M", bound=Message)

log = logging.getLogger(__name__)


def main(member: Member) -> None:
    ManagerShell(member).run()


class ManagerShell:
    def __init__(self, member: Member) -> None:
        me = member.identity
        timing = timing_of(member.config)
        timeout_s = timing.leader_ttl_s / TIMEOUTS_A_TERM  # M2
        self._member = member
        self._manager = Manager(
            Candidate(me.id, me.incarnation, me.node), timing, self._assignment, now()
        )
        self._store = StoreCaller(lambda: store_of(member.config, timeout_s))
        self._op: StoreOp | None = None
        self._op_came = Flag()
        self._news = Flag()
        self._tokens = itertools.count(1)
        self._waiters: dict[int, AsyncResult[Message | Answer]] = {}
        self._leading_since: float | None = None
        self._complaint = ""
        self._killing = False
        self._watch = PeerWatch(member)
        self._answers = 0
        self._answering_s = 0.0
        self._declare()
        self._serve()
        member.on_exit(self._heard_exit)

    def run(self) -> None:
        """Serve until this process is told to end; give the lead away first."""
        loops = [gevent.spawn(self._loop), gevent.spawn(self._ask_store)]
        loops.append(gevent.spawn(self._rejuvenate))
        loops[-1].link_exception(self._broke)
        try:
            self._member.live()
            self._watch.start()
            self._member.wait()  # M3: raises what broke.
            gevent.with_timeout(RESIGN_S_MAX, self._resign, timeout_value=None)
        finally:
            self._watch.close()
            gevent.killall(loops)
        if self._op is None:  # Else its thread is still at it.
            self._store.close()

    def _broke(self, loop: "gevent.Greenlet[..., None]") -> None:
        assert loop.exception is not None
        self._member.fail(loop.exception)  # M3

    def _rejuvenate(self) -> None:
        rejuvenate(self._member, lambda: self._manager.leading)

    def _assignment(self, namespace: str) -> Assignment:
        settings = self._member.config.namespaces.get(namespace, NamespaceConfig())
        return POLICIES[settings.policy]()

    # The machine.

    def _loop(self) -> None:
        while True:
            self._news.clear()
            wait_s = self._manager.wake_at - now()
            self._news.wait(min(max(wait_s, 0.001), WAIT_S_MAX))
            self._decide(self._manager.advance)

    def _decide(self, decide: Callable[[float], list[ManagerAction]]) -> None:
        """Hand something to the machine, at this very moment, and do what it wants done."""
        try:
            self._perform(decide(now()))  # M1
        except StoreCorrupt as error:
            self._complain(str(error))  # It looks again soon; somebody may put the row right.
        except BaseException as error:  # M3
            self._member.fail(error)
            raise
        self._ignored.value = self._manager.ignored
        if not self._manager.leading:
            self._leading_since = None
        elif self._leading_since is None:
            self._leading_since = now()

    def _perform(self, actions: list[ManagerAction]) -> None:
        for action in actions:
            match action:
                case AskStore(op=op):
                    assert self._op is None, "one question at a time"  # M2
                    self._op = op
                    self._op_came.set()
                case AnswerLeases(token=token, message=message):
                    self._answer(token, Answer(*pack_answers(message)))
                case AnswerMap(token=token, message=answer, body=body):
                    self._answer(token, Answer(answer, body))
                case Broadcast(message=told):
                    for topic, piece in news(told):
                        self._member.publish(topic, piece)
                case Tell(note=note):
                    self._member.event(note.kind, note.subject, note.reason)
                case KillHolder(process=process, node=node):
                    gevent.spawn(self._kill, process, node)

    def _resign(self) -> None:
        """In good order if nothing is under way soon; else our agent's word has to do."""
        self._until(lambda: self._op is None)
        self._decide(self._manager.resign)
        self._until(lambda: self._manager.resigned)

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            self._news.wait(WAIT_S_MAX)

    # The store.

    def _ask_store(self) -> None:
        thread = ThreadPool(1)
        while True:
            self._op_came.wait()
            self._op_came.clear()
            op = self._op
            assert op is not None
            asked_at = now()
            outcome = thread.spawn(self._store.call, op).get()
            assert outcome is not None
            self._store_s.set(now() - asked_at)
            self._store_asks.add()
            if isinstance(outcome, Failed | InDoubt):
                self._failures.add()
            elif isinstance(op, Commit):
                self._commits.add()
            self._op = None
            self._decide(partial(self._manager.stored, outcome))
            self._news.set()

    def _kill(self, process: str, node: str) -> None:
        """Have it killed and started again: it is stopped, and has the store locked."""
        if self._killing:
            return
        self._killing = True
        try:
            why = "it has kept the store locked for too long"
            restart = RestartProcess(process, self._last_life(process), why)
            answer = order(self._member, node, restart, KILL_S_MAX)
            if isinstance(answer, Refused):
                self._complain(f"{process} locks the store, but: {answer.reason}, {answer.detail}")
                return
            self._member.event("killed", process, why)
        finally:
            self._killing = False

    def _last_life(self, process: str) -> int:
        """Of another manager: as heard, or as the store says, whichever is later."""
        peer, holder = self._member.liveness.peer(process), self._manager.election.holder
        heard = 0 if peer is None else peer.incarnation
        if holder is None or holder.holder != process:
            return heard
        return max(heard, holder.incarnation)

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            self._member.event("degraded", self._member.identity.id, complaint)

    # What others ask.

    def _serve(self) -> None:
        on = self._member.server.on
        on(AskLeases, self._asked_leases, permission=LEASE)
        on(AskMap, self._asked_map, permission=LEASE)
        on(DescribeLeases, self._describe, permission=LEASE)
        on(ExplainKey, self._explain, permission=LEASE)

    def _asked_leases(self, call: Call[AskLeases]) -> Message | Answer | Refused:
        self._lease_asks.add()
        try:
            asks = unpack_asks(call.message, call.body).asks
        except RemoteProtocolError as error:
            return Refused("failed", str(error))
        # Names are part of topics (see `News`), and are shown to people.
        message = AskLeases([ask for ask in asks if (ask.namespace + ask.owner).isprintable()])
        return self._answered(
            call, lambda token, at: self._manager.asked_leases(token, message, at)
        )

    def _asked_map(self, call: Call[AskMap]) -> Message | Answer | Refused:
        self._map_asks.add()
        message = call.message
        return self._answered(call, lambda token, at: self._manager.asked_map(token, message, at))

    def _answered(
        self, call: Call[M], decide: Callable[[int, float], list[ManagerAction]]
    ) -> Message | Answer | Refused:
        """What the machine answers, as long as the asker waits for it."""
        token, asked_at = next(self._tokens), now()
        waiter = self._waiters[token] = AsyncResult()
        try:
            self._decide(lambda at: decide(token, at))
            answer = waiter.wait(max(call.left_s(), 0.0))  # M2
        finally:
            del self._waiters[token]
            self._answers += 1
            self._answering_s += now() - asked_at
        if answer is None:
            return Refused("late", "the store did not answer in time")
        return answer

    def _answer(self, token: int, answer: Message | Answer) -> None:
        waiter = self._waiters.get(token)
        if waiter is not None:  # Else nobody waits for it any more.
            waiter.set(answer)

    def _describe(self, call: Call[DescribeLeases]) -> Message | Answer:
        standing = self._standing()
        if not standing.leading:
            return standing
        ask = call.message
        rows = lease_rows(self._manager.namespaces, ask.namespace, now(), ranges=ask.ranges)
        return Answer(standing, encode_rows(rows))

    def _explain(self, call: Call[ExplainKey]) -> Message:
        ask, standing, asked_at = call.message, self._standing(), now()
        if 0 <= ask.position < KEYS_END:
            found = self._manager.explain(ask.namespace, ask.position, asked_at)
            if found is not None:
                namespace = self._manager.namespaces[ask.namespace]
                return explained(standing, namespace, found, asked_at)
        return KeyExplained(standing.leader, standing.term, standing.leading, known=False)

    def _standing(self) -> LeasesDescribed:
        election, since = self._manager.election, self._leading_since
        if self._manager.leading and since is not None:
            me = self._member.identity.id
            return LeasesDescribed(me, election.term, leading=True, leading_s=now() - since)
        holder = "" if election.holder is None else election.holder.holder
        return LeasesDescribed(holder, election.term, leading=False)

    # What is heard, and counted.

    def _heard_exit(self, header: News, exited: Exited) -> None:
        teller = self._member.liveness.peer(header.sender)
        me = self._member.identity
        if teller is None or teller.role != NODE:
            return
        if (exited.id, exited.incarnation) == (me.id, me.incarnation):
            return  # Somebody is mistaken, or lies.
        self._decide(lambda at: self._manager.vouched_dead(exited.id, exited.incarnation, at))

    def _declare(self) -> None:
        rate, size = self._member.statistics.rate, self._member.statistics.size
        counter = self._member.statistics.counter
        manager = self._manager
        self._lease_asks = rate("lease_asks", "Asks of processes with owners")
        self._map_asks = rate("map_asks", "Asks of lookups")
        self._commits = rate("commits", "Commits that the store answered")
        self._store_s = size("store_s", "How long the store took to answer, the last time")
        self._store_asks = rate("store_asks", "Questions to the store, answered or given up")
        self._failures = rate("store_failures", "Questions that the store did not answer")
        self._ignored = counter("asks_ignored", "Asks left unanswered: races, and odd ones")
        size("waiting", "Asks that wait for their answer", lambda: len(self._waiters))
        self._member.statistics.share(
            "answer_s", "Mean time to an answer", lambda: (self._answering_s, self._answers)
        )
        size("leading", "1 for the manager that leads", lambda: float(manager.leading))
        size("term", "Of the leader, as far as known", lambda: float(manager.election.term))
        size("namespaces", "Pools of keys", lambda: len(manager.namespaces))
        size("owners", "Owners that have or want leases", lambda: self._sum(lambda n: len(n.lives)))
        size("races", "Asks of this term that came twice", lambda: self._sum(lambda n: n.races))
        size("ranges", "Ranges leased", lambda: ranges_held(manager.namespaces.values()))
        size(
            "recalls",
            "Ranges asked back and not given up yet",
            lambda: ranges_recalled(manager.namespaces.values()),
        )

    def _sum(self, count: Callable[[Namespace], int]) -> int:
        return sum(map(count, self._manager.namespaces.values()))
