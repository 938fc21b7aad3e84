"""Flask sessions that any brick may crash out of.

    app.session_interface = SoftSessionInterface("cluster.toml")      # or a `Cluster`

`flask.session` is used as ever, and may hold what Flask's own sessions may: JSON, and tuples,
bytes, dates, UUIDs and Markup. At a login, call `regenerate()`. `session.clear()` ends a session.

What always holds:
  F1  Overload is a 503 with `Retry-After`, whether a session cannot be read or cannot be stored;
      never an empty session, and never the answer of a view whose session was not stored.
  F2  One request ends its session once, however often Flask asks for it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import flask
from flask import Flask, Request, Response
from flask.sessions import SessionInterface, SessionMixin, session_json_serializer
from werkzeug.exceptions import ServiceUnavailable

from bus.errors import SystemOverloaded
from roles.cluster import Cluster
from roles.session_keeper import Keeper
from roles.session_web import (
    TTL_S,
    UNAVAILABLE_TEXT,
    Data,
    Format,
    Merge,
    Opened,
    Terms,
    WebSession,
    priority_in,
    retry_after,
)
from roles.stub import Stub

PriorityOf = Callable[[Request], int] | str
"""A function of the request; or the name of a header that can be trusted."""


class SessionUnavailable(ServiceUnavailable, SystemOverloaded):
    """SystemOverloaded, as Flask understands it: a 503, or what the application's handler of 503
    makes of it. Such a handler must not use the session."""

    def __init__(self, error: SystemOverloaded) -> None:
        # Werkzeug's `__init__` would call that of SystemOverloaded, without what it needs.
        SystemOverloaded.__init__(self, str(error), error.retry_after_s)
        self.description = UNAVAILABLE_TEXT
        self.response = None
        self.retry_after = retry_after(error)


class SoftSession(WebSession, SessionMixin):
    """`flask.session` of one request: see `WebSession` for what it can more than a dictionary."""

    modified = False
    new = False

    def __init__(self, sent: str, load: Callable[[], Opened], priority: int) -> None:
        super().__init__(sent, load)
        self.priority = priority
        self.is_over = False

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401
        super().__setitem__(key, value)
        self.modified = True

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.modified = True


def regenerate() -> None:
    """Give the session of this request a new id: to be called at every login."""
    cast(SoftSession, flask.session).regenerate()


class SoftSessionInterface(SessionInterface):
    def __init__(
        self,
        cluster: Cluster | str | Path | None = None,
        *,
        stub: Stub | None = None,
        ttl_s: float | None = None,
        merge: Merge | None = None,
        priority_of: PriorityOf | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`ttl_s`: how long a session lives after its last use; if left out, as long as Flask's
        configuration says for permanent ones, and a day for others. `merge(base, ours, theirs)`
        decides when two requests change one session. `priority_of` is a function of the request,
        or names a header: have your proxy remove that from what comes from outside. `settings`
        are Stub's."""
        self._keeper = Keeper(cluster, stub=stub, merge=merge, settings=settings)
        self._ttl_s = ttl_s
        self._priority_of = priority_of

    def open_session(self, app: Flask, request: Request) -> SoftSession:
        """Reads nothing yet: a request that does not use its session costs the bricks nothing."""
        sent = request.cookies.get(self.get_cookie_name(app), "")
        priority = self._priority(request)

        def load() -> Opened:
            try:
                return self._keeper.load(self._format(app), sent, priority)
            except SystemOverloaded as error:
                raise SessionUnavailable(error) from error  # F1

        return SoftSession(sent, load, priority)

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        assert isinstance(session, SoftSession), "made by open_session"
        if session.is_over:  # F2
            return
        session.is_over = True
        if session.is_open:
            response.vary.add("Cookie")
            try:
                self._end(app, session, response)
            except SystemOverloaded as error:
                _replace(response, app, SessionUnavailable(error))

    def get_cookie_samesite(self, app: Flask) -> str | None:
        return super().get_cookie_samesite(app) or "Lax"

    def _end(self, app: Flask, session: SoftSession, response: Response) -> None:
        ttl_s = self._ttl_s
        if ttl_s is None:
            ttl_s = app.permanent_session_lifetime.total_seconds() if session.permanent else TTL_S
        terms = Terms(ttl_s, app.config["SESSION_REFRESH_EACH_REQUEST"], session.priority)
        told = self._keeper.end(session, self._format(app), terms)
        if told.cookie is None:
            return
        expires: datetime | int | None = 0
        if told.cookie:
            expires = self.get_expiration_time(app, session)
        response.set_cookie(
            self.get_cookie_name(app),
            told.cookie,
            expires=expires,
            max_age=None if told.cookie else 0,
            domain=self.get_cookie_domain(app),
            path=self.get_cookie_path(app),
            secure=self.get_cookie_secure(app),
            httponly=self.get_cookie_httponly(app),
            samesite=self.get_cookie_samesite(app),
            partitioned=self.get_cookie_partitioned(app),
        )

    def _priority(self, request: Request) -> int:
        match self._priority_of:
            case None:
                return 0
            case str(header):
                return priority_in(request.headers.get(header))
            case of:
                return of(request)

    def _format(self, app: Flask) -> Format:
        return _format(self.get_cookie_name(app))


class SoftSessions:
    """The same in the manner of Flask's extensions: `SoftSessions(app, cluster="cluster.toml")`."""

    def __init__(self, app: Flask | None = None, **options: Any) -> None:  # noqa: ANN401
        """`options` are those of `SoftSessionInterface`."""
        self.interface = SoftSessionInterface(**options)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        app.session_interface = self.interface


def _replace(response: Response, app: Flask, error: SessionUnavailable) -> None:
    """Nothing of what the view answered is sent (F1): it was not the case. In its place, so that
    nobody who has the response sends the other one."""
    response.close()
    try:
        instead = app.make_response(app.handle_user_exception(error))
    except SystemOverloaded:  # The application's handler uses the session.
        instead = app.make_response(cast(Response, error.get_response()))
    response.status = instead.status
    response.headers = instead.headers
    response.response = instead.response
    response.direct_passthrough = instead.direct_passthrough


@lru_cache(maxsize=64)
def _format(name: str) -> Format:
    return Format(f"flask:{name}", session_json_serializer.tag, _untagged)


def _untagged(data: Data) -> Any:  # noqa: ANN401
    """What Flask's tags stand for, from the inside out."""

    def scan(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return session_json_serializer.untag({name: scan(each) for name, each in value.items()})
        return [scan(each) for each in value] if isinstance(value, list) else value

    return scan(data)
