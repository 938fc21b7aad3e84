"""Many nodes in one process, as the manager sees them: each owner and each lookup asks for itself.

An owner is a real machine. A lookup is only its polls: it asks with the version of the one real
map that this process keeps, as it would with a map of its own; a thousand copies of that would
cost us much and the manager nothing. The beacons of processes come from `loadtest.hub_crowd`.

What always holds:
  C1  No two nodes share a message, and each keeps its own time.
"""

import secrets
import sys
from random import Random, SystemRandom
from typing import TypeVar

import gevent
from gevent.event import Event

from bus.clock import now, wall_s
from bus.errors import RequestTimeoutError
from bus.headers import News
from bus.lease_timing import timing_of
from bus.messages import Message, Refused
from bus.replies import Reply
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.lease_requests import NAMESPACE, Grow, Stands
from roles.cluster import Cluster
from roles.lease_messages import (
    NUDGE_TOPIC,
    AskLeases,
    AskMap,
    LeaseNudge,
    LeasesAnswered,
    MapAnswered,
    MapDelta,
    decode_part,
    delta_topic,
)
from roles.lookup_machine import LookupAction, LookupMachine, MapChanged
from roles.owner_machine import OwnerMachine, OwnerName, SendAsk

Told = TypeVar("Told", LeasesAnswered, MapAnswered)

ASK_S_MAX = 1.0
WAIT_S_MIN, WAIT_S_MAX = 0.001, 0.5
GONE_S = 0.1  # To the next look for a manager, when none answers.


class OwnerNode:
    def __init__(self, machine: OwnerMachine) -> None:
        self.machine = machine
        self.nudged = Event()


class Crowd:
    def __init__(self, config: str, first: int) -> None:
        self._cluster = Cluster.load(config)
        self._member = self._cluster.member()
        self._timing = timing_of(self._cluster.config)
        self._chance: Random = SystemRandom()
        self._first = first
        self._owners: dict[str, OwnerNode] = {}
        self._lookups = 0
        self._answered = self._unanswered = 0
        self._changed_at = now()
        self._map = LookupMachine(NAMESPACE, self._timing, self._chance, now())
        self._manager = ""
        self._member.subscribe(NUDGE_TOPIC, LeaseNudge, self._heard_nudge)
        self._member.subscribe(delta_topic(NAMESPACE), MapDelta, self._heard_delta)

    def grow(self, asked: Grow) -> Stands:
        """To that many; nobody leaves."""
        while len(self._owners) < asked.owners:
            name = f"owner-{self._first + len(self._owners):06d}"
            self._owners[name] = OwnerNode(self._machine(name))
            gevent.spawn(self._be_owner, self._owners[name])
        while self._lookups < asked.lookups:
            self._lookups += 1
            gevent.spawn(self._be_lookup)
        at = now()
        held = [node.machine.held for node in self._owners.values()]
        return Stands(
            holding=sum(bool(each.pieces()) and at < each.until for each in held),
            quiet_s=at - self._changed_at,
            answered=self._answered,
            unanswered=self._unanswered,
        )

    def _machine(self, name: str) -> OwnerMachine:
        me = self._member.identity
        owner = OwnerName(
            namespace=NAMESPACE,
            owner=name,
            url=f"tcp://{name}",
            process=me.id,
            process_incarnation=me.incarnation,
            incarnation=int(wall_s() * 1000),
            nonce=secrets.randbits(62),
        )
        return OwnerMachine(owner, self._timing, self._chance, now())

    # C1: a greenlet a node.

    def _be_owner(self, node: OwnerNode) -> None:
        machine = node.machine
        while True:
            node.nudged.clear()
            for action in machine.advance(now()):
                if isinstance(action, SendAsk):
                    message = AskLeases([action.ask])
                    answered = self._ask(message, LeasesAnswered)
                    if answered is None:
                        machine.unanswered(action.ask.sequence, now())
                        continue
                    for answer in answered.message.answers:
                        machine.answered(answered.message.term, answer, now())
            node.nudged.wait(min(max(machine.wake_at - now(), WAIT_S_MIN), WAIT_S_MAX))

    def _be_lookup(self) -> None:
        """The first of them keep the map of us all; the manager does not know which."""
        gevent.sleep(self._chance.uniform(0, self._timing.poll_s))  # They began at unlike moments.
        while True:
            term, lsn = self._map.version or (0, -1)
            message = AskMap(NAMESPACE, term, lsn)
            reply = self._ask(message, MapAnswered)
            if reply is not None and self._map.version in (None, (term, lsn)):
                part = decode_part(reply.body)
                actions = self._map.answered(reply.message, part, message, now())
                self._note(actions)
            gevent.sleep(self._timing.poll_s * self._chance.uniform(0.8, 1.0))

    def _ask(self, message: Message, expect: type[Told]) -> Reply[Told] | None:
        """The leader's answer; None: there was none in time."""
        managers = [peer.endpoint for peer in self._member.peers("manager")]
        if self._manager not in managers:
            self._manager = self._chance.choice(managers) if managers else ""
        if self._manager:
            try:
                reply = self._member.client.ask(
                    self._manager, message, expect=expect, timeout_s=ASK_S_MAX
                )
            except RequestTimeoutError:
                reply = Refused("late")
            if isinstance(reply, Reply) and reply.message.leading:
                self._answered += 1
                return reply
        self._unanswered += 1
        self._manager = ""
        gevent.sleep(GONE_S)
        return None

    def _heard_nudge(self, header: News, nudge: LeaseNudge) -> None:
        for name in nudge.owners:
            node = self._owners.get(name)
            if node is not None:
                node.machine.nudged(now())
                node.nudged.set()

    def _heard_delta(self, header: News, delta: MapDelta) -> None:
        self._note(self._map.heard_delta(delta, decode_part(delta.part), now()))

    def _note(self, actions: list[LookupAction]) -> None:
        if any(isinstance(action, MapChanged) for action in actions):
            self._changed_at = now()


def main(config: str, first: str) -> None:
    crowd = Crowd(config, int(first))
    tell({})
    answer_all(Grow, crowd.grow, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
