"""`Owner`: hold keys in this process, and know at every moment which.

Linked into a service. Checks are local: a hash, a bisection and a look at the clock, in whatever
thread asks; everything else happens in the control thread of `roles.lease_session`.

What always holds:
  W1  A check is true only while the machine's `held` says so and its time has not run out.
  W2  Upcalls come one at a time, in the event loop that made the owner, as exact differences.
  W3  `guard` never replaces an exception of its body.
  W4  After a fork the child's copy holds nothing and says so. One that is closed holds nothing.
"""

import logging
import math
import os
import secrets
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

import gevent
from gevent.event import Event
from xxhash import xxh3_64_intdigest

from bus.clock import now, wall_s
from bus.errors import LeaseLost, LinkError, NotOwner, NotReady
from roles.cluster import Cluster
from roles.hub_watch import HubWatch
from roles.key_range import Key, KeyRange, position
from roles.lease_session import LeaseSession
from roles.lookup import LookupCore, check_name
from roles.lookup_machine import Route
from roles.owner_machine import (
    Changed,
    Held,
    Ignored,
    Lease,
    OwnerAction,
    OwnerMachine,
    OwnerName,
    RefusedLife,
)

OnChange = Callable[[list[KeyRange], list[KeyRange]], None]

RELEASE_S_MAX = 1.0
"""How long `close` waits for the manager to know that we hold nothing."""
WATCH_S_MAX = 0.5
CLOSE_LOOK_S = 0.005
UPCALL_S_MAX = 5.0
"""How long `close` waits for upcalls to end."""
UPCALLS_MAX = 100
"""An owner that does not keep up with being told what it has gets no more."""

_read_clock, _BOOTTIME = time.clock_gettime, time.CLOCK_BOOTTIME

log = logging.getLogger(__name__)


class Owner:
    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        url: str,
        on_change: OnChange | None = None,
        id: str = "",  # noqa: A002 (as in beacons and statistics)
    ) -> None:
        """`url`: where clients reach this service; `id` names the owner across restarts, and is
        the url unless given. `on_change(granted, revoked)` is told of every change."""
        self.namespace = check_name("a namespace", namespace)
        self.url = check_name("a url", url)
        self.id = check_name("an id", id or url)
        self._cluster = cluster
        self._on_change = on_change
        self._session: LeaseSession | None = None
        self._closing = False
        self._machine: OwnerMachine | _Nothing | _Forked = _Forked("the owner was not started")
        self._changed = Event()
        self._refused = ""
        self.load = 0.0
        """What was reported, in total."""
        self.ignored = 0
        """Answers of the manager that did not count: races, lower terms."""
        _living.add(self)

    # Life.

    def start(self) -> None:
        """Join the cluster and begin to ask for keys."""
        if self._session is not None:
            raise LinkError("this owner is started already")
        self._check_process()
        session = self._session = self._cluster.lease_session()
        self._turns_s_max = session.timing.owner_ttl_s
        self._watch = HubWatch(min(WATCH_S_MAX, self._turns_s_max / 8))
        self._routes = LookupCore(self.namespace, session)
        self.machine = self._machine = OwnerMachine(
            OwnerName(
                namespace=self.namespace,
                owner=self.id,
                url=self.url,
                process=session.process.id,
                process_incarnation=session.process.incarnation,
                incarnation=int(wall_s() * 1000),
                nonce=secrets.randbits(62),
            ),
            session.timing,
            session.chance,
            now(),
        )
        session.add_owner(self)
        session.add_lookup(self._routes)

    def ready(self, timeout_s: float = 10.0) -> None:
        """Return once this owner holds a range; `NotReady` if that takes longer."""
        deadline = now() + timeout_s
        while not self.holds_any():
            left_s = deadline - now()
            if left_s <= 0:
                why = f"; the manager says: {self._refused}" if self._refused else ""
                raise NotReady(
                    f"{self.id} holds nothing of {self.namespace!r} after {timeout_s:g} s{why}"
                )
            self._changed.clear()
            self._changed.wait(min(left_s, WATCH_S_MAX))

    def close(self, drain_s: float = 0.0) -> None:
        """Hand the ranges over, for at most `drain_s`, then give up what is left at once."""
        session = self._session
        if session is None or self._closing:
            return
        self._check_process()
        self._closing = True
        machine = self.machine
        if drain_s > 0:
            session.post(lambda: machine.leave(now()))
            self._wait(lambda: machine.released, drain_s)

        def drop() -> None:
            machine.leave(now())
            self.perform(machine.drop("closed", now()))

        session.post(drop)
        self._wait(lambda: machine.released, RELEASE_S_MAX)
        session.remove_owner(self)
        session.remove_lookup(self._routes)
        self._machine = _Nothing()  # W4
        self._cluster.release_lease_session()
        self._watch.close(UPCALL_S_MAX)
        self._session, self._closing = None, False

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = now() + timeout_s
        while not condition() and now() < deadline:
            gevent.sleep(CLOSE_LOOK_S)

    # Checks. The hot path: no lock, no allocation but what Python itself needs.

    def check_lease_now(self, key: Key) -> Lease | None:
        """The lease on `key`, if this owner holds it at this instant."""
        at = xxh3_64_intdigest(key.encode()) if type(key) is str else position(key)
        held = self._machine.held
        lease = held.leases[bisect_right(held.starts, at) - 1]
        if _read_clock(_BOOTTIME) < held.until:  # W1
            return lease
        if held is self._machine.held:
            return None
        return self.check_lease_now(key)  # It was replaced as we looked.

    def check_lease_continuous(self, key: Key, lease: Lease) -> bool:
        """Whether `key` has been held without a break since `lease` was returned for it."""
        current = self.check_lease_now(key)
        if current is None:
            return False
        return current is lease or current.since <= lease.number <= current.number

    def holds_any(self) -> bool:
        held = self._machine.held
        return bool(held.pieces()) and now() < held.until

    def ranges(self) -> list[KeyRange]:
        """What this owner holds at this instant."""
        held = self._machine.held
        return [lease.range for lease in held.pieces()] if now() < held.until else []

    def guard(self, key: Key) -> "Guard":
        """`with owner.guard(key) as lease:` raises `NotOwner` before, `LeaseLost` after."""
        return Guard(self, key)

    def route(self, key: Key) -> Route | None:
        """Who owns `key`, as far as is known here."""
        self._check_machine()
        return self._routes.find(key)

    def report_load(self, key: Key, amount: float = 1.0) -> None:
        """Work done for `key`; counted for the statistics."""
        position(key)
        self._check_machine()
        self.load += amount

    # For the session, in the control thread.

    def may_renew(self, now: float) -> bool:
        """Whether the user's loop turns: what holds keys and cannot serve them should not."""
        watch = self._watch
        return now - watch.turned_at < self._turns_s_max and watch.waiting < UPCALLS_MAX

    def perform(self, actions: list[OwnerAction]) -> None:
        for action in actions:
            match action:
                case Changed():
                    self._watch.post(lambda told=action: self._tell(told))  # type: ignore[misc]
                case RefusedLife(reason=reason):
                    if reason != self._refused:
                        log.warning("owner %s of %s: %s", self.id, self.namespace, reason)
                    self._refused = reason
                case Ignored():
                    self.ignored += 1
                case _:
                    pass  # The session sends asks.

    def _tell(self, changed: Changed) -> None:
        self._changed.set()
        self._refused = ""
        if self._on_change is not None:
            self._on_change(changed.granted, changed.revoked)  # W2

    def _check_process(self) -> None:
        self._cluster.check_process()

    def _check_machine(self) -> Held:
        return self._machine.held  # W4: or raises.

    def _forked(self) -> None:
        self._machine = _Forked("it belongs to the process that was forked")  # W4


class Guard:
    """Hold on to one key for the length of a `with`."""

    __slots__ = ("_key", "_lease", "_owner")

    def __init__(self, owner: Owner, key: Key) -> None:
        self._owner = owner
        self._key = key

    def __enter__(self) -> Lease:
        lease = self._owner.check_lease_now(self._key)
        if lease is None:
            raise NotOwner(
                f"{self._owner.id} does not own {self._key!r}", self._owner.route(self._key)
            )
        self._lease = lease
        return lease

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and not self._owner.check_lease_continuous(self._key, self._lease):
            raise LeaseLost(f"{self._owner.id} lost {self._key!r} while it was working on it")  # W3


class _Nothing:
    """In the place of a machine: nothing is held any more."""

    held = Held([], -math.inf)


class _Forked:
    """In the place of a machine: nothing is held, and whoever asks is told why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise LinkError(f"no leases here: {self._reason}")


_living: "weakref.WeakSet[Owner]" = weakref.WeakSet()


def _after_fork() -> None:
    for owner in list(_living):
        owner._forked()


os.register_at_fork(after_in_child=_after_fork)
