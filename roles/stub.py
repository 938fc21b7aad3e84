"""`Stub`: sessions for a web server, kept by bricks any of which may crash at any time.

A write goes to several bricks and is done when enough have it; the cookie says which. A read asks
some of those, and the first good answer counts. The stub remembers nothing but what is in flight:
any stub of the application can go on with any session. It never queues either: what the bricks
cannot carry is refused at once.

What always holds:
  U1  A cookie that is handed out names only bricks that have that version or a newer one, those of
      the cookie before it first, in its order, without those who drain. Where that is not known (of
      a StateConflict, or of a `load` that could not refresh), it is marked as unsure.
  U2  Every call ends within its timeout, twice that for a `load` that refreshes, four times for one
      that finds two values of one version, three times for a `touch` that has to; with an answer,
      or an error that says which of all ways it failed.
  U3  Nothing is sent for a request that is refused; what is sent was let through by its level and
      has room at enough bricks.
  U4  A session that was deleted stays so: every live brick knows, for as long as any cookie of it
      would have been good.
"""

import math
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from random import SystemRandom
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import gevent
import msgspec
from gevent.event import Event
from gevent.hub import Hub

from bus.clock import now, wall_s
from bus.config_rules import sessions_trouble
from bus.config_shape import BRICK, SessionsConfig
from bus.errors import (
    ConfigError,
    CookieCorrupted,
    LinkError,
    NotReady,
    StateConflict,
    StateCorrupted,
    StateExpired,
    StateLost,
    SystemOverloaded,
)
from bus.member import Member
from bus.messages import Message, Refused
from bus.peers import Change, Died, Peer
from bus.statistics import Statistics
from roles.admission import PRIORITY_MAX, PRIORITY_MIN, Admission, level_of
from roles.brick_view import DRAINING, Brick, BrickView
from roles.cluster import Cluster
from roles.cookie import (
    COPIES_MAX,
    ENCRYPTED,
    SLACK_S,
    UNSURE,
    Cookie,
    check_expiry,
    encode,
    key_hash,
)
from roles.key_ring_file import KeyRingFile
from roles.limiter import limiter_of
from roles.seen_news import seen_news_of
from roles.session_census import Census
from roles.session_crypt import ValueCrypt, sealed_by
from roles.session_messages import (
    SESSION,
    SID_BYTES,
    VERSION_MAX,
    DeleteSession,
    ReadSession,
    SessionAnswer,
    StoreSession,
    TouchSession,
    checksum_of,
    is_full,
)
from roles.session_request import SessionRequest
from roles.session_tally import Quorum, ReadTally, Stage, WriteTally

READY_S = 5.0
HEARD_PERIODS = 1.5  # Of beacons, until everyone who is there was heard of.
RETRY_AFTER_S = 1.0
QUIET_SHARE = 1 / 12
"""A brick that has all it may have and says nothing for that much of the timeout may hang,"""
STUCK_SHARE = 1 / 2
"""and after that much it is taken to."""
PRESSED_MAX = 8
"""So many more are sent to one that may hang: within their time it turns out."""
ENDED_MAX = 10_000
WALL_S_MAX = (1 << 32) - 1

STUB = "stub"
HOUR_S = 3600


class Session(msgspec.Struct, frozen=True):
    """A session as it was read."""

    value: bytes
    cookie: str
    """To be kept instead of the one it was read with: they differ when copies were refreshed, or
    another request has written a newer version."""
    version: int


class Stub:
    def __init__(
        self,
        cluster: Cluster,
        *,
        site: str = "",
        ready_s: float = READY_S,
        **settings: Any,  # noqa: ANN401 (a field of SessionsConfig each)
    ) -> None:
        """`settings` take the place of those in [sessions]: `W=3, WQ=2, R=2, timeout_ms=60, …`.
        `site` is where this program runs, if copies are to be here and elsewhere (`W_local`).
        Waits for the first bricks; NotReady when there are not enough after `ready_s`."""
        self._config = _configured(cluster.config.sessions, settings)
        nodes = cluster.config.nodes
        self._near = {name for name, node in nodes.items() if node.site == site}
        self._far = nodes.keys() - self._near
        if self._config.W_local and not self._near:
            raise ConfigError(f'no node is of site "{site}"; name one: Stub(cluster, site="…")')
        self._timeout_s = self._config.timeout_ms / 1000
        self._cluster = cluster
        self._hub: Hub = gevent.get_hub()
        self._pid = os.getpid()
        ring_path = os.path.abspath(settings.get("key_ring") or cluster.config.key_ring_path)
        self._ring = KeyRingFile(ring_path, self._config.application)
        self._crypt = ValueCrypt(os.urandom) if self._config.encrypt else None
        limiter = self._config.limiter if self._config.protection else "none"
        self._admission = Admission()
        self._ended: dict[str, int] = {}  # The life of each brick that is over for certain.
        self._closed = False
        self._member = cluster.member(STUB)
        self._joined_at = now()
        self._changed = Event()
        self._count = _counts_of(self._member)
        self._seen = seen_news_of(self._member)
        self._bricks = BrickView(
            partial(limiter_of, limiter, self._timeout_s),
            SystemRandom(),
            self._seen.sightings.of,
            enough=self._config.WQ_local or self._config.WQ,
        )
        self._seen.add(self._bricks)
        self._member.on_change(self._heard)
        try:
            self._update()
            self._wait_for_bricks(ready_s)
        except BaseException:  # Not ready, or the caller's own timeout.
            self.close()
            raise

    @property
    def settings(self) -> SessionsConfig:
        """[sessions] as this stub goes by it."""
        return self._config

    # What applications call.

    def write(
        self,
        key: str | bytes,
        value: bytes,
        *,
        ttl_s: float,
        cookie: str | None = None,
        instead_of: str | None = None,
        priority: int = 0,
    ) -> str:
        """Keep `value` for `ttl_s`; the cookie that finds it again. With `cookie`, the next
        version of that session: StateConflict if another request has written it since.

        `instead_of`: the cookie of a session that this new one replaces, as at a login. It is no
        newcomer then, and refused no sooner than the old one, which is still to be deleted."""
        self._check(priority)
        value = self._checked_value(value)
        self._check_ttl(ttl_s)
        name = key_hash(key, self._config.application)
        old = None
        if cookie is not None:
            old = self._decoded(cookie)
            if old.key_hash != name:
                raise CookieCorrupted(
                    "a cookie of another session: it was written under another key"
                )
        former = old
        if instead_of is not None:
            if cookie is not None:
                raise ValueError("a new session, or the next version of one: cookie or instead_of")
            former = self._decoded(instead_of)
        sid = secrets.token_bytes(SID_BYTES) if old is None else old.sid
        version = 1 if old is None else old.version + 1
        if version > VERSION_MAX:
            raise ValueError(f"the session was written {VERSION_MAX} times; begin a new one")
        flags = 0
        if self._crypt is not None:
            value = self._crypt.seal(value, self._ring.current(), sid, version)
            flags = ENCRYPTED
        expires_wall_s = _end_of(ttl_s)
        new = Cookie(
            name,
            sid,
            version,
            expires_wall_s,
            checksum_of(sid, version, value),
            () if old is None else old.copies,
            flags,
            expires_wall_s if old is None else max(expires_wall_s, old.horizon_wall_s),
        )
        if former is None:
            self._admit(sid, priority, is_new=True)
            base = 0
        else:
            self._admit(former.sid, priority, is_new=False)
            base = former.version
        kept = () if old is None else self._kept(old)
        self._count.writes.add()
        base_checksum = b"" if old is None else old.checksum
        return self._store(new, value, ttl_s, kept, base, priority, base_checksum)

    def read(self, cookie: str, *, priority: int = 0) -> bytes:
        """The value: of the cookie's version, or a newer one if it was written since."""
        self._check(priority)
        found = self._decoded(cookie)
        self._admit(found.sid, priority, is_new=False)
        self._count.reads.add()
        value, _, answer = self._fetch(found, priority)
        return self._opened(value, found, answer.version)

    def load(self, cookie: str, *, priority: int = 0) -> Session:
        """The value, with the cookie to keep from now on. Copies that were lost are replaced."""
        self._check(priority)
        found = self._decoded(cookie)
        self._admit(found.sid, priority, is_new=False)
        self._count.reads.add()
        value, brick, answer = self._fetch(found, priority)
        opened = self._opened(value, found, answer.version)
        is_newer = answer.version != found.version
        if is_newer:
            found = self._newer(found, brick, answer)
            cookie = encode(found, self._ring.current())
        version = answer.version
        if self._crypt and found.encrypted and sealed_by(value) != self._ring.current().active.id:
            # It would outlive its key; under the same version it would be another value.
            version += 1
            value = self._crypt.seal(opened, self._ring.current(), found.sid, version)
            found = msgspec.structs.replace(
                found,
                version=version,
                checksum=checksum_of(found.sid, version, value),
                flags=ENCRYPTED | UNSURE,
            )
        if version != answer.version or is_newer or found.unsure or self._is_short(found):
            left_s = min(answer.ttl_s, found.expires_wall_s - wall_s())
            try:
                refreshed = self._refreshed(found, value, left_s, priority)
            except StateConflict:
                mended = self._mended(found, left_s, priority)
                if mended is not None:
                    return mended
            else:
                if refreshed is not None:
                    return Session(opened, refreshed, version)
        return Session(opened, cookie, answer.version)

    def touch(self, cookie: str, *, ttl_s: float, priority: int = 0) -> str:
        """Let the session live for `ttl_s` from now; its cookie from now on."""
        self._check(priority)
        self._check_ttl(ttl_s)
        found = self._decoded(cookie)
        self._admit(found.sid, priority, is_new=False)
        here = self._staying(found)
        expires_wall_s = max(_end_of(ttl_s), found.expires_wall_s)
        longer = msgspec.structs.replace(
            found,
            expires_wall_s=expires_wall_s,
            horizon_wall_s=max(expires_wall_s, found.horizon_wall_s),
        )
        need = self._config.WQ_local or self._config.WQ
        if len(here) >= need:
            # With both arbiters, so that the cookie names them: T2 of the tally.
            tally = WriteTally(Quorum(need), "touched", arbiters=here[:2])
            ask = TouchSession(found.sid, found.version, ttl_s + SLACK_S)
            self._ask(tally, here, ask, priority=priority)
            if tally.is_deleted:
                raise StateExpired("the session was deleted")
            if tally.is_met:
                return encode(
                    msgspec.structs.replace(longer, copies=_copies(here, tally)),
                    self._ring.current(),
                )
        value, brick, answer = self._fetch(found, priority)
        if answer.version != found.version:
            self._count.conflicts.add()
            raise self._conflict(found, brick, answer)
        return self._store(longer, value, ttl_s, here[:2], found.version, priority)

    def delete(self, cookie: str, *, priority: int = 0) -> None:
        """End the session, for this cookie and every older one."""
        self._check(priority)
        found = self._decoded(cookie)
        ends_wall_s = max(found.expires_wall_s, found.horizon_wall_s)
        ask = DeleteSession(found.sid, max(1.0, ends_wall_s - wall_s()) + 2 * SLACK_S)
        everyone = list(self._bricks.live.values())
        if not everyone:
            self._overloaded("no brick is live")
        tally = WriteTally(Quorum(len(everyone)), "deleted", all_count=True)
        request = SessionRequest(
            self._member.client, self._bricks, tally, self._timeout_s, forced=everyone
        )
        request.send(everyone, ask, priority=PRIORITY_MAX)
        request.wait(self._hub)
        _check_allowed(tally.refused)
        still_live = self._bricks.live
        for brick in everyone:
            if brick not in tally.copies and still_live.get(brick.number) is brick:
                self._overloaded(f"{brick.id} does not say that it knows")  # U4

    def left_s(self, cookie: str) -> float:
        """How long the session lives from now, as its cookie says. Asks nobody."""
        return self._decoded(cookie).expires_wall_s - wall_s()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._member.off_change(self._heard)
            self._seen.remove(self._bricks)
            self._cluster.release()

    # Whom to ask.

    def _heard(self, change: Change) -> None:
        if isinstance(change, Died) and change.vouched:
            self._ended[change.id] = change.incarnation
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        self._update()

    def _update(self) -> None:
        others = [
            peer
            for peer in self._member.liveness.peers()
            if peer.role == BRICK and (peer.state == "suspect" or _still_serves(peer))
        ]
        live = self._member.peers(BRICK)  # Suspects too, while we hear of nobody at all.
        self._bricks.update([*others, *live])
        self._changed.set()
        self._changed.clear()

    def _wait_for_bricks(self, ready_s: float) -> None:
        config, until = self._config, now() + ready_s
        enough, need, where = config.W, config.WQ, "(WQ)"
        if config.W_local:
            enough, need, where = config.W_local, config.WQ_local, "at this site (WQ_local)"
        # Who is not heard of by then is not there; and who is not known cannot be asked what it
        # has, so that writes would go by fewer arbiters than others' do.
        heard_by = min(
            until, self._joined_at + HEARD_PERIODS * self._member.config.beacons.period_s
        )
        planned = sum(each.role == BRICK for each in self._member.config.components())
        while now() < heard_by and len(self._bricks.live) < planned:
            self._changed.wait(heard_by - now())
        while now() < until and len(self._near_bricks()) < enough:
            self._changed.wait(until - now())
        live = len(self._near_bricks())
        if live < need:
            raise NotReady(
                f"{live} bricks are live after {ready_s:g} s, and a write needs {need} {where}"
            )

    def _near_bricks(self) -> list[Brick]:
        """Live bricks of this site; all of them, if sites do not matter."""
        live = self._bricks.live.values()
        if not self._config.W_local:
            return list(live)
        return [brick for brick in live if brick.node in self._near]

    def _here(self, cookie: Cookie) -> list[Brick]:
        """Who has a copy, as far as we know, in the order of the cookie."""
        live = self._bricks.live
        here = []
        for number, data_incarnation in cookie.copies:
            brick = live.get(number)
            if brick is not None and brick.data_incarnation in (0, data_incarnation):
                here.append(brick)
        return here

    def _staying(self, cookie: Cookie) -> list[Brick]:
        """Those of them whose copies count, now and later: who drains has one no more, unless all
        do. Then it has to wait until a write names others as well."""
        here = self._here(cookie)
        if not self._bricks.any_draining:
            return here
        return [brick for brick in here if not brick.is_draining] or here

    def _leaving(self, cookie: Cookie) -> Sequence[Brick]:
        """Who would be an arbiter if it did not drain, and is asked for its word still: a stub that
        has not heard of it goes by that (T2 of the tally)."""
        if not self._bricks.any_draining:
            return ()
        staying = self._staying(cookie)
        return [brick for brick in self._here(cookie)[:2] if brick not in staying]

    def _kept(self, cookie: Cookie) -> Sequence[Brick]:
        return self._staying(cookie)[:2]

    def _is_short(self, cookie: Cookie) -> bool:
        return len(self._staying(cookie)) < (self._config.WQ_local or self._config.WQ)

    # Asking.

    def _store(  # noqa: PLR0913 (as many parts has a session)
        self,
        new: Cookie,
        value: bytes,
        ttl_s: float,
        kept: Sequence[Brick],
        base: int,
        priority: int,
        base_checksum: bytes = b"",
    ) -> str:
        """Have it stored; the cookie that names who did."""
        try:
            return self._stored(new, value, ttl_s, kept, base, priority, base_checksum)
        except _Overload as overload:
            self._refuse(overload)
        except StateConflict:
            self._count.conflicts.add()
            raise

    def _stored(  # noqa: PLR0913
        self,
        new: Cookie,
        value: bytes,
        ttl_s: float,
        kept: Sequence[Brick],
        base: int,
        priority: int,
        base_checksum: bytes = b"",
    ) -> str:
        """The same, uncounted."""
        forced: Sequence[Brick] = ()
        before, leaving = len(kept), self._leaving(new)
        if kept and not (kept[0].has_room and kept[-1].has_room):
            kept = self._still_kept(kept)
            forced = [] if kept[0].has_room else kept[:1]
        chosen, quorum = self._chosen(kept)
        asked, arbiters = chosen, kept
        if leaving:
            quorum.leaving = [each for each in leaving if each not in chosen]
            asked, arbiters = [*chosen, *quorum.leaving], [*kept, *leaving]
        if not quorum.is_met(chosen, Stage.END):
            live = self._near_bricks()
            where = " at this site" if self._config.W_local else ""
            raise _Overload(
                f"{quorum.count} bricks are needed{where}, and of {len(live)} only "
                f"{quorum.counted(chosen)} have room",
                is_uncarried=len(live) >= quorum.count,
            )  # U3
        ask = StoreSession(
            new.sid,
            new.version,
            ttl_s + SLACK_S,
            new.checksum,
            base,
            base_checksum=base_checksum,
        )
        nodes = 2 if quorum.count > 1 and len({brick.node for brick in chosen}) > 1 else 1
        tally = WriteTally(
            quorum,
            "stored",
            version=new.version,
            arbiters=arbiters,
            nodes=nodes,
            needs_word=len(kept) < before,
        )
        request = self._ask(tally, asked, ask, value, priority, self._spares, forced)
        if tally.conflict is not None:
            brick, answer = tally.conflict
            raise self._conflict(new, brick, answer)
        if tally.is_deleted:
            raise StateExpired("the session was deleted")
        if not tally.is_met:
            raise self._too_few(quorum.counted(tally.copies), quorum.count, request, tally.refused)
        copies = _copies(chosen, tally, quorum.leaving)
        return encode(msgspec.structs.replace(new, copies=copies), self._ring.current())

    def _still_kept(self, kept: Sequence[Brick]) -> Sequence[Brick]:
        """Not all of them have room. Who hangs is left out. Who is merely busy is left out too, but
        not the first: without its word another request's write might be overwritten (T2 of the
        tally). Of one that may hang, or be busy, a few more ask than there is room for."""
        at = now()
        awake = [brick for brick in kept if not brick.is_stuck(self._timeout_s * STUCK_SHARE, at)]
        if not awake:
            raise _Overload(f"{kept[0].id} does not answer")
        first, *others = awake
        if not first.has_room:
            may_hang = at > first.unheard_since + self._timeout_s * QUIET_SHARE
            if not may_hang or first.limiter.in_flight >= first.limiter.limit + PRESSED_MAX:
                raise _Overload(f"{first.id} has as much to do as it can carry")  # U3
        return [first, *(brick for brick in others if brick.has_room)]

    def _chosen(self, kept: Sequence[Brick]) -> tuple[list[Brick], Quorum]:
        """The bricks to write to, those kept first, and what is enough of them."""
        config, bricks = self._config, self._bricks
        if bricks.any_full:
            bricks.forgive(now())
        if not config.W_local:
            return bricks.choose(config.W, kept), Quorum(config.WQ)
        near = [brick for brick in kept if brick.node in self._near]
        far = [brick for brick in kept if brick.node not in self._near]
        local = bricks.choose(config.W_local, near, self._near)
        remote = bricks.choose(config.W_remote, far, self._far)
        others = [brick for brick in (*local, *remote) if brick not in kept]
        return [*kept, *others], Quorum(config.WQ_local, here=self._near, remote=bool(remote))

    def _spares(self, asked: Sequence[Brick]) -> Sequence[Brick]:
        """Others, as many as are needed to replace all that are silent or have refused."""
        config, count = self._config, len(asked)
        if not config.W_local:
            return self._bricks.choose(count + config.WQ, asked)[count:]
        return self._bricks.choose(count + config.WQ_local, asked, self._near)[count:]

    def _fetch(self, cookie: Cookie, priority: int) -> tuple[bytes, Brick, SessionAnswer]:
        """A value, who had it, and what it is."""
        here = self._here(cookie)
        if not here:
            self._not_here(cookie)
        tally = ReadTally(cookie.sid, cookie.version, cookie.checksum)
        first, rest = _with_room(here, self._config.R)
        request = SessionRequest(
            self._member.client,
            self._bricks,
            tally,
            self._timeout_s,
            spares=(lambda _: rest) if rest else None,
        )
        if first:  # U3
            request.send(first, ReadSession(cookie.sid, cookie.version), priority=priority)
            request.wait(self._hub)  # U2
        if tally.is_deleted:
            raise StateExpired("the session was deleted")
        if tally.answer is None:
            self._not_fetched(cookie, tally, request)
        assert tally.value is not None
        assert tally.brick is not None
        return tally.value, tally.brick, tally.answer

    def _ask(  # noqa: PLR0913 (most by default)
        self,
        tally: WriteTally,
        bricks: Sequence[Brick],
        ask: Message,
        body: bytes = b"",
        priority: int = 0,
        spares: Callable[[Sequence[Brick]], Sequence[Brick]] | None = None,
        forced: Sequence[Brick] = (),
    ) -> SessionRequest:
        request = SessionRequest(
            self._member.client, self._bricks, tally, self._timeout_s, spares=spares, forced=forced
        )
        request.send(bricks, ask, body, priority)
        request.wait(self._hub)  # U2
        return request

    def _refreshed(self, cookie: Cookie, value: bytes, left_s: float, priority: int) -> str | None:
        """The same version on enough bricks; None if that cannot be now."""
        if left_s <= 1:
            return None
        sure = msgspec.structs.replace(cookie, flags=cookie.flags & ~UNSURE)
        try:
            stored = self._stored(sure, value, left_s, self._kept(cookie), cookie.version, priority)
        except _Overload:
            return None  # It was read all the same; the next load tries again.
        self._count.refreshes.add()
        return stored

    def _mended(self, cookie: Cookie, left_s: float, priority: int) -> Session | None:
        """Bricks have two values of that version, or more: one goes on as the next version. None if
        it is not that, or cannot be now."""
        everyone = list(self._bricks.live.values())
        census = Census(cookie.sid)
        request = SessionRequest(
            self._member.client, self._bricks, census, self._timeout_s, forced=everyone
        )
        request.send(everyone, ReadSession(cookie.sid, cookie.version), priority=priority)
        request.wait(self._hub)  # U2
        value = census.winner(cookie.version, self._here(cookie))
        version = cookie.version + 1
        if value is None or version > VERSION_MAX:
            return None
        opened = self._opened(value, cookie, cookie.version)
        if self._crypt and cookie.encrypted:
            value = self._crypt.seal(opened, self._ring.current(), cookie.sid, version)
        mended = msgspec.structs.replace(
            cookie,
            version=version,
            checksum=checksum_of(cookie.sid, version, value),
            flags=cookie.flags & ~UNSURE,
        )
        kept = self._kept(cookie)
        try:
            # Without a checksum of the base: whichever of them a brick has, this comes after it.
            stored = self._stored(mended, value, left_s, kept, cookie.version, priority)
        except (_Overload, StateConflict):
            return None
        self._count.refreshes.add()
        return Session(opened, stored, version)

    # What to make of it.

    def _newer(self, cookie: Cookie, brick: Brick, answer: SessionAnswer) -> Cookie:
        """The cookie of a newer version, of which one copy is known: unsure."""
        expires_wall_s = int(wall_s() + max(answer.ttl_s - SLACK_S, 1.0))
        has_it = brick.number, answer.data_incarnation
        copies = tuple((each.number, each.data_incarnation) for each in self._here(cookie))
        if brick.number not in {number for number, _ in copies}:
            copies = (*copies[: COPIES_MAX - 1], has_it)
        return msgspec.structs.replace(
            cookie,
            version=answer.version,
            checksum=answer.checksum,
            copies=copies,
            flags=cookie.flags | UNSURE,
            expires_wall_s=expires_wall_s,
            horizon_wall_s=max(expires_wall_s, cookie.horizon_wall_s),
        )

    def _conflict(
        self, cookie: Cookie, brick: Brick | None, answer: SessionAnswer
    ) -> StateConflict:
        current = ""
        if brick is not None and len(answer.checksum) == len(cookie.checksum):
            current = encode(self._newer(cookie, brick, answer), self._ring.current())
        return StateConflict(
            f"another request wrote version {answer.version} of this session first", current
        )

    def _not_here(self, cookie: Cookie) -> NoReturn:
        """No copy is at hand: are they gone, or away?"""
        liveness, at = self._member.liveness, now()
        beacons = self._member.config.beacons
        young = at - self._joined_at < (beacons.suspect_after + 1) * beacons.period_s
        for copy in cookie.copies:
            brick_id = f"{BRICK}-{copy[0]}"
            peer = liveness.peer(brick_id)
            is_over = peer is not None and self._ended.get(brick_id) == peer.incarnation
            fate = self._bricks.fate(copy, peer, is_over=is_over, now=at)
            if fate != "gone" or (peer is None and young):
                self._overloaded(f"{brick_id} has a copy, and is away")
        self._count.losses.add()
        raise StateLost("every brick that had a copy is gone")

    def _not_fetched(self, cookie: Cookie, tally: ReadTally, request: SessionRequest) -> NoReturn:
        if tally.corrupted:
            raise StateCorrupted("a brick answered with something that was never written")
        if tally.missing and cookie.expires_wall_s <= wall_s():
            raise StateExpired("the session's time is over")  # Only the slack was left.
        if len(tally.missing) >= len(cookie.copies):
            self._count.losses.add()
            raise StateLost("no brick that had a copy has it any more")
        silent = [brick for brick in self._here(cookie) if brick not in tally.missing]
        if not silent and not tally.refused:
            self._not_here(
                msgspec.structs.replace(
                    cookie,
                    copies=tuple(
                        copy
                        for copy in cookie.copies
                        if copy[0] not in {brick.number for brick in tally.missing}
                    ),
                )
            )
        self._refuse(self._too_few(0, 1, request, tally.refused))

    def _too_few(
        self, got: int, need: int, request: SessionRequest, refused: Sequence[Refused]
    ) -> "_Overload":
        _check_allowed(refused)
        waits = [each.retry_after_s for each in refused if each.retry_after_s is not None]
        where = " of this site" if self._config.W_local and need > 1 else ""
        reason = f"{got} of {need} bricks{where} answered in time"
        if refused and all(is_full(each) for each in refused):
            reason += f", {len(refused)} have no memory left (memory_bytes_max)"
        elif refused:
            reason += f", {len(refused)} refused ({refused[0].detail})"
        return _Overload(
            reason,
            max([RETRY_AFTER_S, *waits]),
            is_uncarried=not request.was_sent or request.tells_of_overload,
        )

    def _refuse(self, overload: "_Overload") -> NoReturn:
        if overload.is_uncarried:
            self._admission.not_carried()
        self._overloaded(overload.sentence, overload.retry_after_s)

    def _overloaded(self, reason: str, retry_after_s: float = RETRY_AFTER_S) -> NoReturn:
        self._count.refusals.add()
        raise SystemOverloaded(reason, retry_after_s) from None

    def _admit(self, sid: bytes, priority: int, *, is_new: bool) -> None:
        if self._config.protection:
            hour = int(wall_s()) // HOUR_S
            level = level_of(sid, is_new=is_new, priority=priority, hour=hour)
            if not self._admission.admits(level, now()):  # U3
                self._overloaded("there is more to do than the bricks can carry")

    def _opened(self, value: bytes, cookie: Cookie, version: int) -> bytes:
        if not cookie.encrypted:
            return value
        if self._crypt is None:
            raise ConfigError("the session is encrypted; set encrypt = true in [sessions]")
        return self._crypt.open(value, self._ring.current(), cookie.sid, version)

    # What callers may give.

    def _check(self, priority: int) -> None:
        if self._closed or os.getpid() != self._pid:
            raise LinkError("this Stub is closed, or belongs to another process; make a new one")
        if gevent.get_hub() is not self._hub:
            raise LinkError("this Stub belongs to another thread; make one in each")
        if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
            raise ValueError(f"priority {priority}: {PRIORITY_MIN} to {PRIORITY_MAX}")

    def _check_ttl(self, ttl_s: float) -> None:
        if not 0 < ttl_s <= self._config.ttl_s_max:
            raise ValueError(
                f"ttl_s of {ttl_s}: above 0, at most {self._config.ttl_s_max:g} (ttl_s_max)"
            )

    def _checked_value(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        if len(value) > self._config.value_bytes_max:
            limit = self._config.value_bytes_max
            raise ValueError(f"a value of {len(value)} bytes: at most {limit} (value_bytes_max)")
        return bytes(value)

    def _decoded(self, text: str) -> Cookie:
        cookie = self._ring.decode(text)
        check_expiry(cookie, wall_s(), self._config.ttl_s_max)
        return cookie


class _Overload(Exception):  # noqa: N818 (never seen outside)
    """What is to be refused, before it is counted. `is_uncarried`: as there is too much to do; else
    for want of bricks or of their memory, and fewer requests would be no help."""

    def __init__(
        self, sentence: str, retry_after_s: float = RETRY_AFTER_S, *, is_uncarried: bool = True
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.retry_after_s = retry_after_s
        self.is_uncarried = is_uncarried


class _Counts:
    """What all stubs of one member have done."""

    def __init__(self, statistics: Statistics) -> None:
        rate = statistics.rate
        self.reads = rate("session_reads", "Sessions read by the stubs of this process")
        self.writes = rate("session_writes", "Sessions written by the stubs of this process")
        self.refusals = rate("session_refusals", "Requests for sessions that were refused")
        self.conflicts = rate("session_conflicts", "Writes that another request forestalled")
        self.losses = rate("session_losses", "Sessions all of whose copies were gone")
        self.refreshes = rate("session_refreshes", "Sessions that got new copies on being read")


_counts: WeakKeyDictionary[Member, _Counts] = WeakKeyDictionary()


def _counts_of(member: Member) -> _Counts:
    """Stubs share a member, and its statistics have each name once."""
    if member not in _counts:
        _counts[member] = _Counts(member.statistics)
    return _counts[member]


def _still_serves(peer: Peer) -> bool:
    """Whether it drains; who hands over says the same, and serves nobody."""
    return peer.state == "draining" and peer.statistics.get(DRAINING, 0.0) > 0


def _check_allowed(refused: Sequence[Refused]) -> None:
    if any(each.reason == "denied" for each in refused):
        raise LinkError(
            f"this program's key may not ask bricks: it lacks the permission `{SESSION}`; make it "
            "a key that has it"
        )


def _with_room(bricks: Sequence[Brick], count: int) -> tuple[list[Brick], list[Brick]]:
    """The first few with room, and the rest of those with room."""
    free = [brick for brick in bricks if brick.has_room]
    return free[:count], free[count:]


def _copies(
    asked: Sequence[Brick], tally: WriteTally, leaving: Collection[Brick] = ()
) -> tuple[tuple[int, int], ...]:
    """U1: who has it, in the order of asking; spares come last."""
    has_it = tally.copies
    if leaving:
        has_it = {brick: data for brick, data in has_it.items() if brick not in leaving}
    ordered = [brick for brick in asked if brick in has_it]
    ordered += [brick for brick in has_it if brick not in ordered]
    return tuple((brick.number, has_it[brick]) for brick in ordered[:COPIES_MAX])  # U1


def _end_of(ttl_s: float) -> int:
    return min(math.ceil(wall_s() + ttl_s), WALL_S_MAX)


def _configured(sessions: SessionsConfig, settings: dict[str, Any]) -> SessionsConfig:
    if not settings:
        return sessions
    try:
        changed = msgspec.convert(msgspec.to_builtins(sessions) | settings, SessionsConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting of Stub: {error}") from error
    trouble = sessions_trouble(changed)
    if trouble is not None:
        raise ConfigError(f"a setting of Stub: {trouble[0]}: {trouble[1]}")
    return changed
