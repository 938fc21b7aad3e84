"""Sessions that any brick may crash out of, for whatever speaks WSGI.

    application = SoftSessionMiddleware(application, "cluster.toml")     # or a `Cluster`

`environ["softstate.session"]` is then a dictionary of JSON. At a login, call its `regenerate()`;
its `clear()` ends the session.

What always holds:
  G1  Overload is a 503 with `Retry-After`, whether a session cannot be read or cannot be stored;
      never an empty session, and never the answer of an application whose session was not stored.
  G2  The session is stored before the first byte of the answer is sent. What is changed later is
      not stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.errors import SystemOverloaded
from roles.cluster import Cluster
from roles.session_keeper import Keeper
from roles.session_web import (
    TTL_S,
    UNAVAILABLE,
    UNAVAILABLE_TEXT,
    CookieStyle,
    Format,
    Merge,
    Terms,
    WebSession,
    cookie_in,
    priority_in,
    retry_after,
    set_cookie,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Environ = dict[str, Any]
PriorityOf = Callable[[Environ], int] | str
"""A function of the environ; or the name of a header that can be trusted."""

SESSION = "softstate.session"

_Headers = list[tuple[str, str]]


class SoftSessionMiddleware:
    def __init__(  # noqa: PLR0913 (keywords, each with a default)
        self,
        application: "WSGIApplication",
        cluster: Cluster | str | Path | None = None,
        *,
        cookie: CookieStyle | None = None,
        ttl_s: float = TTL_S,
        slides: bool = True,
        merge: Merge | None = None,
        priority_of: PriorityOf | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`ttl_s`: how long a session lives after its last use, or if it does not slide, after its
        last change. `merge(base, ours, theirs)` decides when two requests change one session.
        `priority_of` is a function of the environ, or names a header: have your proxy remove that
        from what comes from outside. `settings` are Stub's."""
        self._application = application
        self._keeper = Keeper(cluster, merge=merge, settings=settings)
        self._cookie = cookie or CookieStyle()
        self._format = Format(f"wsgi:{self._cookie.name}")
        self._terms = Terms(ttl_s, slides)
        self._priority_of = priority_of

    def __call__(self, environ: Environ, start_response: "StartResponse") -> Iterable[bytes]:
        priority = self._priority(environ)
        sent = cookie_in(environ.get("HTTP_COOKIE", ""), self._cookie.name)
        session = WebSession(sent, lambda: self._keeper.load(self._format, sent, priority))
        environ[SESSION] = session
        terms = Terms(self._terms.ttl_s, self._terms.slides, priority)
        over_https = environ.get("wsgi.url_scheme") == "https"
        answer = _Answer(start_response, lambda: self._end(session, terms, over_https=over_https))
        body: Iterable[bytes] = ()
        try:
            body = self._application(environ, answer.start)
            chunks = iter(body)
            first = next((chunk for chunk in chunks if chunk), b"")
            answer.send()  # G2
        except SystemOverloaded as error:
            _close(body)
            if answer.is_sent:
                raise
            return _unavailable(start_response, error)  # G1
        except BaseException:
            _close(body)
            raise
        return _Body(first, chunks, body)

    def _end(self, session: WebSession, terms: Terms, *, over_https: bool) -> _Headers:
        """Store the session; the headers to be sent because of it."""
        told = self._keeper.end(session, self._format, terms)
        headers = [("Vary", "Cookie")] if session.is_open else []
        if told.cookie is not None:
            text = set_cookie(self._cookie, told.cookie, terms.ttl_s, over_https=over_https)
            headers.append(("Set-Cookie", text))
        return headers

    def _priority(self, environ: Environ) -> int:
        match self._priority_of:
            case None:
                return 0
            case str(header):
                return priority_in(environ.get("HTTP_" + header.upper().replace("-", "_")))
            case of:
                return of(environ)


class _Answer:
    """What the application said it answers, until the session is stored."""

    def __init__(self, start_response: "StartResponse", end: Callable[[], _Headers]) -> None:
        self._start_response = start_response
        self._end = end
        self._said: tuple[Any, ...] | None = None
        self._write: Callable[[bytes], object] | None = None

    @property
    def is_sent(self) -> bool:
        return self._write is not None

    def start(
        self,
        status: str,
        headers: _Headers,
        exc_info: Any = None,  # noqa: ANN401 (of three kinds, and only passed on)
        /,
    ) -> Callable[[bytes], object]:
        """The `start_response` of the application."""
        if self.is_sent:
            return self._start_response(status, headers, exc_info)
        assert self._said is None or exc_info, "start_response was called twice"
        self._said = status, headers, exc_info
        return self.write

    def write(self, chunk: bytes) -> object:
        if chunk:
            self.send()
        return self._write(chunk) if self._write is not None else None

    def send(self) -> None:
        if self._write is None:
            assert self._said is not None, "start_response was not called"
            status, headers, exc_info = self._said
            more = self._end()
            self._write = self._start_response(status, [*headers, *more], exc_info)


class _Body:
    """The rest of an answer whose first bytes were looked at already."""

    def __init__(self, first: bytes, chunks: Iterator[bytes], body: Iterable[bytes]) -> None:
        self._first = first
        self._chunks = chunks
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        if self._first:
            yield self._first
        yield from self._chunks

    def close(self) -> None:
        _close(self._body)


def _close(body: Iterable[bytes]) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()


def _unavailable(start_response: "StartResponse", error: SystemOverloaded) -> list[bytes]:
    text = UNAVAILABLE_TEXT.encode()
    start_response(
        UNAVAILABLE,
        [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(text))),
            ("Cache-Control", "no-store"),
            ("Retry-After", str(retry_after(error))),
        ],
    )
    return [text]
