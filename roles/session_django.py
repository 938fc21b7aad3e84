"""Django sessions that any brick may crash out of.

    SESSION_ENGINE = "roles.session_django"
    SOFTSTATE_CLUSTER = "cluster.toml"

and in MIDDLEWARE, in the place of Django's own, "roles.session_django.SoftSessionMiddleware". A
session holds JSON, whatever SESSION_SERIALIZER says. `session_key` is the cookie: it changes with
every write, so it names a version of a session, and is no name for the session itself.

What always holds:
  J1  Overload is a 503 with `Retry-After`, whether a session cannot be read or cannot be stored;
      never an empty session, and never the answer of a view whose session was not stored. (With
      Django's own middleware it is a 500.)
  J2  A session that another request has ended is not written again: UpdateError, which Django
      answers with a 400.
  J3  Saved without a change, a session is at most touched.
  J4  A session that got a new id is told to the browser, whatever the answer: the old id is over.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase, UpdateError
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.module_loading import import_string

from bus.errors import StateExpired, SystemOverloaded
from roles.session_keeper import Keeper
from roles.session_web import (
    UNAVAILABLE_TEXT,
    Data,
    Format,
    Found,
    Reason,
    is_touch_due,
    priority_in,
    retry_after,
)

UNAVAILABLE = 503


class SessionStore(SessionBase):
    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self.priority = 0
        self.reason: Reason = ""
        self.trouble: SystemOverloaded | None = None
        """What went wrong last, for the middleware: the error itself may get lost on its way."""
        self.has_new_id = False
        """Since `cycle_key`, in the place of one that the browser still has."""
        self._found: Found | None = None

    @property
    def was_lost(self) -> bool:
        """The browser named a session that is not there; this one began empty."""
        self._data()
        return self.reason != ""

    # What Django asks of a session engine.

    def load(self) -> Data:
        assert self.session_key is not None, "Django loads no session without a key"
        try:
            opened = keeper().load(form(), self.session_key, self.priority)
        except SystemOverloaded as error:
            self.trouble = error
            raise
        self.reason = opened.reason
        self._keep(opened.found)
        return opened.data

    def exists(self, session_key: str) -> bool:
        return keeper().load(form(), session_key, self.priority).found is not None

    def create(self) -> None:
        self._session_key = None
        self.save(must_create=True)
        self.modified = True

    def save(self, must_create: bool = False) -> None:  # noqa: FBT001, FBT002 (Django's own)
        """Create it, store what changed, or touch it; all of which change `session_key`."""
        data = dict(self._data(no_load=must_create))
        ttl_s = keeper().ttl_s(self.get_expiry_age())
        try:
            if must_create or self.session_key is None:
                self._keep(keeper().create(form(), data, ttl_s, self.priority))
            else:
                self._update(self._found or Found(self.session_key, b"", 0.0), data, ttl_s)
        except SystemOverloaded as error:
            self.trouble = error
            raise
        except StateExpired as error:
            raise UpdateError(str(error)) from error  # J2

    def cycle_key(self) -> None:
        """A new id for the same data; Django does it at every login."""
        data = dict(self._data())
        if self._found is None:
            self.create()
            return
        ttl_s = keeper().ttl_s(self.get_expiry_age())
        try:
            new = keeper().replace(form(), self._found, data, ttl_s, self.priority)
        except SystemOverloaded as error:
            self.trouble = error
            raise
        except StateExpired:
            self._session_cache = {}
            self.create()
        else:
            self._session_cache = form().unpack(new.value)  # Another request's changes too.
            self._keep(new)
            self.modified = self.has_new_id = True

    def delete(self, session_key: str | None = None) -> None:
        cookie = session_key or self.session_key
        if cookie is not None:
            try:
                keeper().delete(cookie, self.priority)
            except SystemOverloaded as error:
                self.trouble = error
                raise

    @classmethod
    def clear_expired(cls) -> None:
        """Bricks do it by themselves."""

    def _data(self, *, no_load: bool = False) -> Data:
        data: Data = self._get_session(no_load=no_load)  # type: ignore[attr-defined]
        return data

    def _update(self, found: Found, data: Data, ttl_s: float) -> None:
        if form().pack(data) != found.value:
            stored = keeper().write(form(), found, data, ttl_s, self.priority)
            self._session_cache = form().unpack(stored.value)  # Another request's changes too.
            self._keep(stored)
        elif is_touch_due(found.left_s, ttl_s):  # J3
            self._keep(keeper().touch(found, ttl_s, self.priority))

    def _keep(self, found: Found | None) -> None:
        self._found = found
        self._session_key = None if found is None else found.cookie


class SoftSessionMiddleware(SessionMiddleware):
    """Django's, and: priorities, a 503 for overload, and a cookie that changes without a change of
    the session, as when its copies were replaced."""

    def process_request(self, request: HttpRequest) -> None:
        super().process_request(request)
        request.session.priority = _priority(request)  # type: ignore[attr-defined]

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Of views. What other middleware raises, Django makes a 500 of before we see it."""
        return _unavailable(error) if isinstance(error, SystemOverloaded) else None  # J1

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        session = request.session
        assert isinstance(session, SessionStore), 'SESSION_ENGINE is not "roles.session_django"'
        sent = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if session.session_key not in (None, sent):
            session.modified = True  # Has Django tell the browser; nothing is written (J3).
        answer = self._answer(request, response, session)
        if session.has_new_id and session.session_key and answer.status_code >= 500:
            _tell(answer, session)  # J4: Django tells nothing then.
        return answer

    def _answer(
        self, request: HttpRequest, response: HttpResponse, session: SessionStore
    ) -> HttpResponse:
        try:
            answer = super().process_response(request, response)
        except SystemOverloaded as error:
            return _unavailable(error)  # J1
        if session.trouble is not None and answer.status_code >= 500:
            return _unavailable(session.trouble)  # J1: the error was somebody else's in between.
        return answer


def _tell(response: HttpResponse, session: SessionStore) -> None:
    closes = session.get_expire_at_browser_close()
    response.set_cookie(
        settings.SESSION_COOKIE_NAME,
        session.session_key or "",
        max_age=None if closes else session.get_expiry_age(),
        domain=settings.SESSION_COOKIE_DOMAIN,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=settings.SESSION_COOKIE_HTTPONLY,
        samesite=settings.SESSION_COOKIE_SAMESITE,
    )
    patch_vary_headers(response, ("Cookie",))


def _unavailable(error: SystemOverloaded) -> HttpResponse:
    response = HttpResponse(UNAVAILABLE_TEXT, content_type="text/plain", status=UNAVAILABLE)
    response["Retry-After"] = str(retry_after(error))
    response["Cache-Control"] = "no-store"
    return response


def _priority(request: HttpRequest) -> int:
    match getattr(settings, "SOFTSTATE_PRIORITY_OF", None):
        case None:
            return 0
        case str(header) if "." not in header:
            return priority_in(request.headers.get(header))
        case of:
            return int(_imported(of)(request))


@cache
def keeper() -> Keeper:
    """Of this Django project; it makes its stub in each process by itself."""
    merge = getattr(settings, "SOFTSTATE_MERGE", None)
    return Keeper(
        getattr(settings, "SOFTSTATE_CLUSTER", None),
        merge=None if merge is None else _imported(merge),
        settings=getattr(settings, "SOFTSTATE_STUB", None),
    )


@cache
def form() -> Format:
    return Format(f"django:{settings.SESSION_COOKIE_NAME}")


def _imported(function: str | Callable[..., Any]) -> Callable[..., Any]:
    """Settings may name a function or be one."""
    if isinstance(function, str):
        named: Callable[..., Any] = import_string(function)
        return named
    return function
