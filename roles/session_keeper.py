"""Reads and stores the sessions of a web server's requests: what all adapters share and that acts.

A `Stub` belongs to one process and waits on gevent, so it is made by the process that serves, with
its first request: a server may load the application first and fork afterwards.

What always holds:
  K1  A session is empty only if the browser named none, or one that is known to be gone. Whatever
      else goes wrong is SystemOverloaded.
  K2  No process uses what another has made.
  K3  A write that conflicts is merged and tried again at most `CONFLICTS_MAX` times.
  K4  Requests that come while there are no bricks wait at most `READY_S` together, not in turn.
  K5  A session that another request has ended is not written again.
  K6  To let a session live longer is worth trying, and no reason to fail a request.
  K7  A session that takes the place of another has what other requests stored there before. None
      of its own data is written under the old id, which somebody else may know.
  K8  Once it is stored its cookie is told, whatever becomes of the old one, which is ended as soon
      as all bricks answer, or after `sum(ENDING_AGAIN_S)` no more tried.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import msgspec
from gevent.lock import RLock

from bus.clock import now
from bus.errors import (
    BusError,
    CookieCorrupted,
    NotReady,
    StateConflict,
    StateCorrupted,
    StateExpired,
    StateLost,
    SystemOverloaded,
)
from roles.cluster import Cluster
from roles.session_crypt import KeyGone
from roles.session_web import (
    Data,
    Ending,
    Format,
    Found,
    Merge,
    Opened,
    Reason,
    Terms,
    WebSession,
    ending,
    merged,
)
from roles.stub import READY_S, Stub

log = logging.getLogger(__name__)

CONFLICTS_MAX = 3
RETRY_AFTER_S = 1.0
ENDING_AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits between the tries; a brick that hangs longer is known to."""
ENDINGS_MAX = 1000
"""Old sessions that are tried to be ended at one time."""


class Told(msgspec.Struct, frozen=True):
    """What the browser is to be told."""

    cookie: str | None = None
    """To be kept from now on; empty: to be dropped; None: nothing."""


class Keeper:
    """The sessions of one application, in whichever process it is used."""

    def __init__(
        self,
        cluster: Cluster | str | Path | None = None,
        *,
        stub: Stub | None = None,
        merge: Merge | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`cluster`, or the path of its configuration; found as commands find it if left out.
        `stub`: one you have made; then in a server that does not fork. `settings` are Stub's."""
        self._cluster = cluster
        self._merge: Merge = merge or merged
        self._settings = dict(settings or {})
        self._process_id = os.getpid()
        self._given = stub
        self._stub: Stub | None = None
        self._making = RLock()
        self._not_before = 0.0
        self._endings: set[gevent.Greenlet[..., None]] = set()

    @property
    def stub(self) -> Stub:
        """The stub of this process. SystemOverloaded while there are too few bricks."""
        if self._given is not None:
            return self._given
        if os.getpid() != self._process_id:  # K2
            self._process_id = os.getpid()
            self._stub, self._making, self._endings = None, RLock(), set()
        if self._stub is None:
            with self._making:
                if self._stub is None:
                    self._stub = self._new_stub()
        return self._stub

    def _new_stub(self) -> Stub:
        if now() < self._not_before:  # K4
            raise SystemOverloaded("there were too few bricks a moment ago", RETRY_AFTER_S)
        if isinstance(self._cluster, Cluster):
            cluster = Cluster(self._cluster.config)  # K2: it may be from before a fork.
        else:
            cluster = Cluster.load(self._cluster)
        try:
            return Stub(cluster, ready_s=READY_S, **self._settings)
        except NotReady as error:
            self._not_before = now() + RETRY_AFTER_S
            raise SystemOverloaded(str(error), RETRY_AFTER_S) from error  # K1

    def ttl_s(self, wanted_s: float) -> float:
        """What of it is allowed."""
        return max(1.0, min(wanted_s, self.stub.settings.ttl_s_max))

    # One step each.

    def load(self, form: Format, cookie: str, priority: int) -> Opened:
        """The session that the browser named."""
        reason: Reason
        try:
            found, data = self._read(form, cookie, priority)
        except StateExpired as error:
            reason, trouble = "expired", str(error)
        except StateLost as error:
            reason, trouble = "lost", str(error)
        except CookieCorrupted as error:
            reason, trouble = "corrupted", str(error)
        else:
            return Opened(found, data)
        log.info("a session begins anew: %s", trouble)
        return Opened(None, {}, reason)

    def _read(self, form: Format, cookie: str, priority: int) -> tuple[Found, Data]:
        with _unavailable():
            try:
                session = self.stub.load(cookie, priority=priority)
            except KeyGone as error:
                raise StateLost(str(error)) from error  # K1: for good, not for a moment.
            data = form.unpack(session.value)
            return Found(session.cookie, session.value, self.stub.left_s(session.cookie)), data

    def _reread(self, form: Format, cookie: str, priority: int) -> tuple[Found, Data]:
        """What another request has written just now."""
        try:
            return self._read(form, cookie, priority)
        except (StateLost, CookieCorrupted) as error:
            raise SystemOverloaded(f"written just now, and: {error}", RETRY_AFTER_S) from error

    def create(
        self,
        form: Format,
        data: Data,
        ttl_s: float,
        priority: int,
        instead_of: str | None = None,
    ) -> Found:
        """A new session; `instead_of` the one of that cookie, if it is any good."""
        value = form.pack(data)
        with _unavailable():
            try:
                cookie = self.stub.write(
                    form.name, value, ttl_s=ttl_s, instead_of=instead_of, priority=priority
                )
            except (CookieCorrupted, StateExpired):
                cookie = self.stub.write(form.name, value, ttl_s=ttl_s, priority=priority)
        return Found(cookie, value, ttl_s)

    def write(
        self, form: Format, found: Found, data: Data | None, ttl_s: float, priority: int
    ) -> Found:
        """Store `data` on top of `found`; what is there then. StateExpired if it was ended.

        A `found` without a value was never read: there is nothing to merge by, and `data` stands.
        """
        return self._write(form, found, dict(data or {}), ttl_s, priority)[0]

    def _write(
        self,
        form: Format,
        found: Found,
        ours: Data,
        ttl_s: float,
        priority: int,
        *,
        as_it_was: bool = False,
    ) -> tuple[Found, Data]:
        """What is stored then, and `ours` with what others have written. `as_it_was`: with another
        version, but not another value."""
        base = found
        with _unavailable():
            for _ in range(1 + CONFLICTS_MAX):  # K3
                value = base.value if as_it_was else form.pack(ours)
                try:
                    cookie = self.stub.write(
                        form.name, value, ttl_s=ttl_s, cookie=base.cookie, priority=priority
                    )
                    return Found(cookie, value, ttl_s), ours
                except StateConflict as conflict:
                    current, theirs = self._reread(form, conflict.cookie or base.cookie, priority)
                    if base.value:
                        ours = self._merge(form.unpack(base.value), ours, theirs)
                    else:
                        current = msgspec.structs.replace(current, value=b"")
                    base = current
        raise SystemOverloaded(
            f"{1 + CONFLICTS_MAX} other requests have written this session meanwhile", RETRY_AFTER_S
        )

    def replace(self, form: Format, found: Found, data: Data, ttl_s: float, priority: int) -> Found:
        """`data` under a new id, in the place of `found`, which ends.

        If another request has ended it meanwhile, only what `data` has beyond it goes on;
        StateExpired if that is nothing (K5).
        """
        form.pack(data)  # What cannot be stored is told before anything is.
        old, left_s = found, self.ttl_s(found.left_s)
        try:
            # Finds out whether others have written it, as any write does (K7).
            old, data = self._write(form, found, data, left_s, priority, as_it_was=True)
        except (StateExpired, CookieCorrupted):
            data = merged(form.unpack(found.value), data, {})
            if not data:
                raise
        new = self.create(form, data, ttl_s, priority, found.cookie)
        self._end_replaced(old.cookie, priority)
        return new

    def _end_replaced(self, cookie: str, priority: int) -> None:
        try:
            self.delete(cookie, priority)
        except BusError as error:  # K8
            log.warning("a session was replaced, and is not ended everywhere yet: %s", error)
            if len(self._endings) < ENDINGS_MAX:
                again = gevent.spawn(_end_later, self.stub, cookie)
                self._endings.add(again)
                again.link(self._endings.discard)

    def touch(self, found: Found, ttl_s: float, priority: int) -> Found:
        """Let it live longer, if that can be (K6). StateExpired if it was ended."""
        try:
            cookie = self.stub.touch(found.cookie, ttl_s=ttl_s, priority=priority)
        except (SystemOverloaded, StateConflict, StateLost, StateCorrupted) as error:
            log.info("a session was not touched: %s", error)
            return found
        return Found(cookie, found.value, max(ttl_s, found.left_s))

    def delete(self, cookie: str, priority: int) -> None:
        with _unavailable():
            try:
                self.stub.delete(cookie, priority=priority)
            except (StateExpired, CookieCorrupted):
                return  # It is over anyway.

    # At the end of a request.

    def end(self, session: WebSession, form: Format, terms: Terms) -> Told:
        """Store what is to be stored; what the browser is to be told of it."""
        if not session.is_open:
            return Told()
        terms = msgspec.structs.replace(terms, ttl_s=self.ttl_s(terms.ttl_s))
        what = ending(session, form.pack(session), terms)
        try:
            if session.found is None:
                told = self._end_unknown(session, form, terms, what)
            else:
                told = self._end_stored(session.found, dict(session), form, terms, what)
        except StateExpired as error:  # K5
            log.info("what a request changed in a session is dropped: %s", error)
            return Told()
        return Told() if told.cookie == session.sent else told

    def _end_unknown(self, session: WebSession, form: Format, terms: Terms, what: Ending) -> Told:
        match what:
            case "create":
                return Told(self.create(form, dict(session), terms.ttl_s, terms.priority).cookie)
            case "forget":
                return Told("")
            case _:
                return Told()

    def _end_stored(
        self, found: Found, data: Data, form: Format, terms: Terms, what: Ending
    ) -> Told:
        ttl_s, priority = terms.ttl_s, terms.priority
        match what:
            case "touch":
                found = self.touch(found, ttl_s, priority)
            case "write":
                found = self.write(form, found, data, ttl_s, priority)
            case "replace":
                found = self.replace(form, found, data, ttl_s, priority)
            case "delete":
                self.delete(found.cookie, priority)
                return Told("")
            case _:
                pass
        return Told(found.cookie)


def _end_later(stub: Stub, cookie: str) -> None:
    for wait_s in ENDING_AGAIN_S:  # K8
        gevent.sleep(wait_s)
        try:
            stub.delete(cookie)
        except SystemOverloaded:
            continue
        except BusError as error:  # It is over anyway, or the stub is closed.
            log.info("%s", error)
        return
    log.warning("a session that was replaced may be there until its time is over")


@contextmanager
def _unavailable() -> Iterator[None]:
    """K1: what may be better in a moment is one error, which says when to try again."""
    try:
        yield
    except StateCorrupted as error:
        log.error("%s", error)  # noqa: TRY400 (a brick's fault; where we were tells nothing)
        raise SystemOverloaded(str(error), RETRY_AFTER_S) from error
