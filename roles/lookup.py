"""`Lookup`: where keys are owned, known locally; and word of every loss.

What always holds:
  F1  `find` never waits: it reads the newest map that has come.
  F2  Losses are told in the event loop that made the lookup, one upcall at a time; what is lost
      while it does not turn is told together.
  F3  `call` ends within its time, whatever its function and the owners do between tries.
"""

import os
import re
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import gevent
from gevent.event import Event
from xxhash import xxh3_64_intdigest

from bus.clock import now
from bus.errors import LinkError, NotOwner, NotReady
from roles.cluster import Cluster
from roles.hub_watch import HubWatch
from roles.key_range import Key, KeyRange, joined, position
from roles.lease_session import LeaseSession
from roles.lookup_machine import LookupAction, LookupMachine, Lost, MapChanged, Odd, Route

T = TypeVar("T")

OnLoss = Callable[[list[KeyRange]], None]

BACK_OFF_S_FIRST, BACK_OFF_S_MAX = 0.01, 0.5
WATCH_S = 0.5
LOST_MAX = 1000
FOLLOWED_MAX = 3
"""Hints followed one after the other without a pause: owners may send us round in circles."""
UPCALL_S_MAX = 5.0
"""How long `close` waits for upcalls to end."""

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def check_name(what: str, name: str) -> str:
    """The name, if it can be part of a topic, a row and a message."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what} has 1 to 200 characters, no control characters; not {name!r:.80}")
    return name


class LookupCore:
    """The map of one namespace in this process."""

    def __init__(self, namespace: str, session: LeaseSession) -> None:
        steps = session.map_steps(namespace)
        self.machine = LookupMachine(namespace, session.timing, session.chance, now(), steps)
        self.odd = 0
        """Messages that were ignored."""
        self._starts: list[int] = [0]
        self._routes: list[Route | None] = [None]
        self._map = (self._starts, self._routes)

    def find(self, key: Key) -> Route | None:
        at = xxh3_64_intdigest(key.encode()) if type(key) is str else position(key)
        starts, routes = self._map  # F1
        return routes[bisect_right(starts, at) - 1]

    def perform(self, actions: list[LookupAction]) -> None:
        """In the control thread."""
        for action in actions:
            match action:
                case MapChanged(starts=starts, routes=routes):
                    self._map = (starts, routes)
                    self.changed()
                case Lost(ranges=ranges):
                    self.lost(ranges)
                case Odd():
                    self.odd += 1
                case _:
                    pass  # The session asks.

    def changed(self) -> None:
        """For whoever wants to know."""

    def lost(self, ranges: list[KeyRange]) -> None:
        """For whoever wants to know."""


class Lookup:
    def __init__(self, cluster: Cluster, *, namespace: str, on_loss: OnLoss | None = None) -> None:
        """`on_loss(ranges)` is told which keys' state is gone."""
        self.namespace = check_name("a namespace", namespace)
        self._cluster = cluster
        self._on_loss = on_loss
        self._session: LeaseSession | None = None
        self._core: LookupCore | None = None
        self._why_not = "the lookup was not started"
        self._changed = Event()
        self._change_told = False
        self._lost: deque[list[KeyRange]] = deque()
        self._told = False
        _living.add(self)

    def start(self) -> None:
        """Join the cluster and ask for the map."""
        if self._session is not None:
            raise LinkError("this lookup is started already")
        session = self._session = self._cluster.lease_session()
        self._chance = session.chance
        self._watch = HubWatch(WATCH_S)
        core = LookupCore(self.namespace, session)
        core.changed = self._heard_change  # type: ignore[method-assign]
        core.lost = self._heard_lost  # type: ignore[method-assign]
        self._core = core
        self.find = core.find  # type: ignore[method-assign]
        session.add_lookup(core)

    def ready(self, timeout_s: float = 10.0) -> None:
        """Return once there is a map, perhaps of nothing; `NotReady` if that takes longer."""
        deadline = now() + timeout_s
        while self._machine().version is None:
            if now() >= deadline:
                raise NotReady(
                    f"no map of {self.namespace!r} after {timeout_s:g} s: is there a manager?"
                )
            self._wait_for_change(deadline)

    def find(self, key: Key) -> Route | None:  # Replaced when started: one call less.
        """Who owns `key`, by the newest map; None if nobody does."""
        raise LinkError(self._why_not)

    def call(self, key: Key, function: Callable[[Route], T], *, timeout_s: float = 10.0) -> T:
        """`function(route)` at the owner of `key`; tried again as long as it raises `NotOwner`."""
        deadline = now() + timeout_s
        back_off_s = BACK_OFF_S_FIRST
        followed = 0
        hint: Route | None = None
        while True:
            route = _newest(hint, self.find(key))
            refused: NotOwner | None = None
            if route is not None:
                try:
                    return function(route)
                except NotOwner as error:
                    refused, hint = error, error.route
            left_s = deadline - now()
            if left_s <= 0:  # F3
                raise refused or NotOwner(f"nobody owns {key!r} of {self.namespace!r}", None)
            if hint is not None and route is not None and hint.number > route.number:
                followed += 1
                if followed <= FOLLOWED_MAX:
                    continue
            followed = 0
            gevent.sleep(min(back_off_s * self._chance.uniform(0.5, 1.0), left_s))
            back_off_s = min(2 * back_off_s, BACK_OFF_S_MAX)

    def close(self) -> None:
        session = self._session
        if session is None:
            return
        self._cluster.check_process()
        core = self._core
        if core is None:
            return  # Being closed.
        self._core, self._why_not = None, "the lookup is closed"
        del self.find
        session.remove_lookup(core)
        self._cluster.release_lease_session()
        self._watch.close(UPCALL_S_MAX)
        self._session = None

    def _machine(self) -> LookupMachine:
        if self._core is None:
            raise LinkError(self._why_not)
        return self._core.machine

    def _wait_for_change(self, deadline: float) -> None:
        self._changed.clear()
        self._changed.wait(min(max(deadline - now(), 0.0), WATCH_S))

    def _heard_change(self) -> None:
        """In the control thread. However many there are, one call waits."""
        if not self._change_told:
            self._change_told = True
            self._watch.post(self._tell_change)

    def _tell_change(self) -> None:
        self._change_told = False
        self._changed.set()

    def _heard_lost(self, ranges: list[KeyRange]) -> None:
        """In the control thread."""
        self._lost.append(ranges)
        if len(self._lost) > LOST_MAX:  # The user's loop has not turned for long.
            self._lost.append(self._take_lost())
        if not self._told:
            self._told = True
            self._watch.post(self._tell_lost)

    def _tell_lost(self) -> None:
        self._told = False  # Before we look: what is lost from here on is told anew.
        lost = self._take_lost()
        if lost and self._on_loss is not None:
            self._on_loss(lost)  # F2

    def _take_lost(self) -> list[KeyRange]:
        """Each piece of news goes to one taker, whichever thread that is in."""
        taken: list[KeyRange] = []
        while self._lost:
            taken += self._lost.popleft()
        return joined(taken)

    def _forked(self) -> None:
        self._core = None
        self._why_not = "this lookup belongs to the process that was forked"
        self.__dict__.pop("find", None)


def _newest(hint: Route | None, found: Route | None) -> Route | None:
    """The map may be behind what an owner told us, and the other way round."""
    if hint is None or found is None:
        return hint or found
    return hint if hint.number > found.number else found


_living: "weakref.WeakSet[Lookup]" = weakref.WeakSet()


def _after_fork() -> None:
    for lookup in list(_living):
        lookup._forked()


os.register_at_fork(after_in_child=_after_fork)
