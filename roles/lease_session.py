"""All owners and lookups of one process, and their one conversation with the lease managers.

Runs in a native thread with an event loop of its own, so that a program that blocks its loop keeps
its leases for a while, and no longer: an owner whose user's loop has not turned for `owner_ttl_s`
is not renewed. A thin shell around `roles.owner_machine` and `roles.lookup_machine`, which decide.

What always holds:
  S1  Machines are touched only in the control thread; others read `held` and `view`, which are
      replaced, never changed.
  S2  Asks of all owners in the process travel together, as many as fit into a message, to the
      leader; while that is silent, to all managers.
  S3  The thread and its sockets last as long as somebody is registered. Should the thread fail,
      every owner gives up what it has.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from random import Random, SystemRandom
from typing import Protocol, TypeVar

import gevent
import msgspec
from gevent.event import AsyncResult, Event
from gevent.threadpool import ThreadPool

from bus.clock import now
from bus.config import Config
from bus.errors import BusError, NotReady, RemoteProtocolError, RequestTimeoutError
from bus.headers import News
from bus.identity import Identity
from bus.lease_timing import timing_of
from bus.member import Member
from bus.messages import Message
from bus.replies import Reply
from roles.hub_watch import HubWatch
from roles.lease_messages import (
    NUDGE_TOPIC,
    TIP_TOPIC,
    AskLeases,
    AskMap,
    LeaseNudge,
    LeasesAnswered,
    MapAnswered,
    MapDelta,
    MapTip,
    OwnerAsk,
    decode_part,
    delta_topic,
    pack_asks,
    unpack_answers,
)
from roles.lookup_machine import Ask, LookupAction, LookupMachine, MapSteps
from roles.owner_machine import OwnerAction, OwnerMachine, SendAsk

MANAGER = "manager"
JOIN_S_MAX = 10.0
CLOSE_S_MAX = 3.0
LOOP_S_MAX = 0.5
LOOP_S_MIN = 0.001
ASK_S_MIN, ASK_S_MAX = 0.2, 1.0
DONE_LOOK_S = 0.005
SILENCES_A_CONNECTION = 4
"""Asks in a row that nobody answered before the connection is made anew."""
SILENT_MAX = 100

ASKS_MAX, ASKS_BYTES_MAX = 8, 16 * 1024
"""In one message, which may have 24 KiB, as may its answer: some 2 kB for each owner."""

A = TypeVar("A", bound=Message)

log = logging.getLogger(__name__)


class OwnerHome(Protocol):
    """What a public `Owner` gives the session."""

    machine: OwnerMachine

    def may_renew(self, now: float) -> bool: ...
    def perform(self, actions: list[OwnerAction]) -> None: ...


class LookupHome(Protocol):
    machine: LookupMachine

    def perform(self, actions: list[LookupAction]) -> None: ...


class LeaseSession:
    def __init__(
        self, config: Config, identity: Identity, *, process: Identity | None = None
    ) -> None:
        """`process`: what node agents know this process as, if that is not `identity`."""
        self.identity = identity
        self.process = process or identity
        self.timing = timing_of(config)
        self.chance: Random = SystemRandom()
        self._config = config
        self._owners: list[OwnerHome] = []
        self._lookups: list[LookupHome] = []
        self._map_steps: dict[str, MapSteps] = {}
        self._leader = ""
        self._leader_term = 0
        self._silences: dict[str, int] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._closing = False
        self._ended = False

    # For any thread.

    def start(self) -> None:
        """Join the cluster; raises what joining raises."""
        # gevent's pool gives a native thread whether or not the process is monkey-patched.
        self._pool = ThreadPool(1)
        joined = HubWatch(1.0)
        outcome: AsyncResult[None] = AsyncResult()
        self._running = self._pool.spawn(self._run, joined, outcome)
        try:
            outcome.wait(JOIN_S_MAX)
            if not outcome.ready():
                raise NotReady(f"the cluster could not be joined within {JOIN_S_MAX:g} s")
            outcome.get()
        finally:
            joined.close()
            if not outcome.successful():
                self._end_thread()  # S3: also should it come about after all.

    def map_steps(self, namespace: str) -> MapSteps:
        """For all lookups of that namespace."""
        return self._map_steps.setdefault(namespace, MapSteps())

    def post(self, call: Callable[[], None]) -> None:
        """S1: run `call` in the control thread, soon."""
        self._posted.append(call)
        if not self._ended:
            self._arrived.send_ignoring_arg(None)

    def do(self, call: Callable[[], None], timeout_s: float) -> None:
        """Run `call` in the control thread, and wait until that is done."""
        done: list[bool] = []

        def call_and_say() -> None:
            call()
            done.append(True)

        self.post(call_and_say)
        deadline = now() + timeout_s
        while not done and not self._ended and now() < deadline:
            gevent.sleep(DONE_LOOK_S)

    def close(self) -> None:
        """Close the sockets and end the thread."""
        self.post(self._close)
        self._end_thread()

    def _end_thread(self) -> None:
        self._closing = True
        self._running.wait(CLOSE_S_MAX)
        if self._running.ready():
            self._pool.kill()  # S3: else the thread waits for more work.

    def add_owner(self, home: OwnerHome) -> None:
        self.post(lambda: self._owners.append(home))

    def add_lookup(self, home: LookupHome) -> None:
        def add() -> None:
            self._lookups.append(home)
            topic = delta_topic(home.machine.namespace)
            if topic not in self._topics:
                self._topics.add(topic)
                self.member.subscribe(topic, MapDelta, self._heard_delta)

        self.post(add)

    def remove_owner(self, home: OwnerHome) -> None:
        """Once this returns, `home` is told nothing more."""
        self.do(lambda: self._owners.remove(home), CLOSE_S_MAX)

    def remove_lookup(self, home: LookupHome) -> None:
        """The same."""
        self.do(lambda: self._lookups.remove(home), CLOSE_S_MAX)

    # In the control thread.

    def _run(self, joining: HubWatch, outcome: "AsyncResult[None]") -> None:
        self._something = Event()
        self._topics: set[str] = set()
        self._arrived = gevent.get_hub().loop.async_()
        self._arrived.start(self._something.set)
        try:
            self._join_and_loop(joining, outcome)
        finally:
            self._ended = True  # Nobody may send to a watcher that is closed.
            for home in self._owners:
                home.perform(home.machine.drop("the session ended", now()))  # S3
            self._arrived.stop()
            self._arrived.close()

    def _join_and_loop(self, joining: HubWatch, outcome: "AsyncResult[None]") -> None:
        try:
            self.member = Member.join(self._config, self.identity, linked=True)
        except Exception as error:  # noqa: BLE001 (raised where `start` was called)
            failure = error
            joining.post(lambda: outcome.set_exception(failure))
            return
        try:
            self._declare()
            self.member.subscribe(TIP_TOPIC, MapTip, self._heard_tip)
            self.member.subscribe(NUDGE_TOPIC, LeaseNudge, self._heard_nudge)
            self.member.live()
            joining.post(outcome.set)
            self._loop()
        finally:
            self.member.close()

    def _close(self) -> None:
        self._closing = True

    def _declare(self) -> None:
        rate, size = self.member.statistics.rate, self.member.statistics.size
        self._asks = rate("lease_asks", "Questions to managers, for several owners each")
        self._unanswered = rate("lease_silences", "Those that nobody answered in time")
        size("lease_owners", "Owners in this process", lambda: len(self._owners))
        size("lease_lookups", "Lookups in this process", lambda: len(self._lookups))
        size("ranges_held", "Ranges that these owners hold", self._ranges_held)

    def _ranges_held(self) -> int:
        return sum(len(home.machine.held.pieces()) for home in self._owners)

    def _loop(self) -> None:
        while not self._closing:
            self._something.clear()
            while self._posted:
                self._posted.popleft()()
            self._advance()
            wakes = [home.machine.wake_at for home in self._owners]
            wakes += [home.machine.wake_at for home in self._lookups]
            wait_s = min(wakes, default=math.inf) - now()
            self._something.wait(min(max(wait_s, LOOP_S_MIN), LOOP_S_MAX))

    def _advance(self) -> None:
        at = now()
        if any(home.machine.wake_at <= at for home in self._owners):
            asks: list[tuple[OwnerHome, OwnerAsk]] = []
            for home in self._owners:
                home.machine.nudged(at)  # S2: together, as often as the first of them.
                actions = home.machine.advance(at, may_renew=home.may_renew(at))
                asks += [(home, each.ask) for each in actions if isinstance(each, SendAsk)]
                home.perform(actions)
            for batch in _batches(asks):
                gevent.spawn(self._ask_leases, batch)
        for lookup in self._lookups:
            if lookup.machine.wake_at <= at:
                for action in lookup.machine.advance(at):
                    if isinstance(action, Ask):
                        gevent.spawn(self._ask_map, lookup, action.message)
                    else:
                        lookup.perform([action])

    @property
    def _ask_s(self) -> float:
        return min(max(self.timing.renew_s, ASK_S_MIN), ASK_S_MAX)

    def _targets(self) -> list[str]:
        """S2: whom to ask."""
        if self._leader:
            return [self._leader]
        return [peer.endpoint for peer in self.member.peers(MANAGER)]

    def _ask_leases(self, asks: list[tuple[OwnerHome, OwnerAsk]]) -> None:
        message = pack_asks([ask for _, ask in asks])
        asking = [gevent.spawn(self._ask_one, each, message, asks) for each in self._targets()]
        self._asks.add()
        gevent.joinall(asking)
        if not any(each.value for each in asking):
            self._unanswered.add()
            self._leader = ""
        for home, ask in asks:
            home.machine.unanswered(ask.sequence, now())  # Unless it was, by one of them.
        self._something.set()

    def _ask_one(
        self,
        endpoint: str,
        message: tuple[AskLeases, bytes],
        asks: list[tuple[OwnerHome, OwnerAsk]],
    ) -> bool:
        """Whether the leader answered."""
        reply = self._ask(endpoint, message[0], LeasesAnswered, message[1])
        if reply is None or not reply.message.leading:
            return False
        try:
            answered = unpack_answers(reply.message, reply.body)
        except RemoteProtocolError as error:
            log.warning("%s answers garbage: %s", endpoint, error)
            return False
        self._found_leader(endpoint, answered.term)
        homes = {(ask.namespace, ask.owner, ask.nonce): home for home, ask in asks}
        for answer in answered.answers:
            home = homes.get((answer.namespace, answer.owner, answer.nonce))
            if home is not None and home in self._owners:
                home.perform(home.machine.answered(answered.term, answer, now()))
        return True

    def _ask_map(self, lookup: LookupHome, message: AskMap) -> None:
        asking = [
            gevent.spawn(self._ask_map_one, each, lookup, message) for each in self._targets()
        ]
        gevent.joinall(asking)
        if not any(each.value for each in asking):
            self._leader = ""
            lookup.machine.unanswered(now())
        self._something.set()

    def _ask_map_one(self, endpoint: str, lookup: LookupHome, message: AskMap) -> bool:
        reply = self._ask(endpoint, message, MapAnswered)
        if reply is None or not reply.message.leading:
            return False
        try:
            part = decode_part(reply.body)
        except RemoteProtocolError as error:
            log.warning("a map from %s: %s", endpoint, error)
            return False
        self._found_leader(endpoint, reply.message.term)
        if lookup in self._lookups:
            lookup.perform(lookup.machine.answered(reply.message, part, message, now()))
        return True

    def _ask(
        self, endpoint: str, message: Message, expect: type[A], body: bytes = b""
    ) -> Reply[A] | None:
        """The answer, if there is one in time."""
        try:
            reply = self.member.client.ask(
                endpoint, message, expect=expect, timeout_s=self._ask_s, body=body
            )
        except RequestTimeoutError:
            self._heard_silence(endpoint)
            return None
        except BusError as error:
            log.debug("asking %s: %s", endpoint, error)
            return None
        self._silences.pop(endpoint, None)
        if not isinstance(reply, Reply):
            log.debug("asking %s: %s", endpoint, reply)
            return None
        return reply

    def _heard_silence(self, endpoint: str) -> None:
        """After a cut, TCP waits for up to twice as long as that lasted before it tries again; a
        new connection does not. Not at once: a manager that is stopped is not to be stormed."""
        if len(self._silences) >= SILENT_MAX:
            self._silences.clear()
        count = self._silences[endpoint] = self._silences.get(endpoint, 0) + 1
        if count % SILENCES_A_CONNECTION == 0:
            self.member.client.forget(endpoint)

    def _found_leader(self, endpoint: str, term: int) -> None:
        if term >= self._leader_term:
            self._leader, self._leader_term = endpoint, term

    # What is published.

    def _heard_tip(self, header: News, tip: MapTip) -> None:
        peer = self.member.liveness.peer(header.sender)
        if peer is not None and tip.term > self._leader_term:
            # A new leader: whoever waits for the old one asks it now.
            self._leader, self._leader_term = peer.endpoint, tip.term
            for home in self._owners:
                home.machine.nudged(now())
        versions = {namespace: (term, lsn) for namespace, term, lsn in tip.versions}
        for lookup in self._lookups:
            version = versions.get(lookup.machine.namespace)
            if version is not None:
                lookup.perform(lookup.machine.heard_tip(tip.term, version, now()))
        self._something.set()

    def _heard_delta(self, header: News, delta: MapDelta) -> None:
        try:
            part = decode_part(delta.part)
        except RemoteProtocolError as error:
            log.warning("a change of the map by %s: %s", header.sender, error)
            return
        for lookup in self._lookups:
            if lookup.machine.namespace == delta.namespace:
                lookup.perform(lookup.machine.heard_delta(delta, part, now()))
        self._something.set()

    def _heard_nudge(self, header: News, nudge: LeaseNudge) -> None:
        for home in self._owners:
            name = home.machine.name
            if name.namespace == nudge.namespace and name.owner in nudge.owners:
                home.machine.nudged(now())
                self._something.set()


def _batches(
    asks: list[tuple[OwnerHome, OwnerAsk]],
) -> Iterator[list[tuple[OwnerHome, OwnerAsk]]]:
    """S2: as few messages as they and their answers fit into."""
    batch: list[tuple[OwnerHome, OwnerAsk]] = []
    size = 0
    for home, ask in asks:
        length = len(msgspec.msgpack.encode(ask))
        if batch and (len(batch) == ASKS_MAX or size + length > ASKS_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append((home, ask))
        size += length
    if batch:
        yield batch
