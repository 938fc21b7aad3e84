"""What web sessions hold, and what is to be done when a request ends. Decides only.

Flask, Django and plain WSGI differ in how they read requests and send cookies. What a session is
to them, when it is written, and what becomes of it when two requests write it at once is the same
for all, and here.

What always holds:
  W1  Values are JSON, as a session kept by us would come back: what would not is a TypeError when
      it is stored, never another value when it is read.
  W2  A session is what it was stored as: a cookie of the same application that stands for
      something else, or for a session under another name, is none.
  W3  Nothing is written that is stored already. A change deep inside a value is one.
  W4  Merging loses no key that only one of two requests has changed.
  W5  A session that could not be read is not used: every touch of it raises what went wrong.
"""

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Literal

import msgspec

from bus.errors import CookieCorrupted, SystemOverloaded
from roles.admission import PRIORITY_MAX, PRIORITY_MIN

Data = dict[str, Any]
Merge = Callable[[Data, Data, Data], Data]
"""(what both began with, ours, theirs) -> what is to be kept."""

Reason = Literal["", "expired", "lost", "corrupted"]
"""Why the session that the browser named is not there: its time is over or it was deleted; all its
copies are gone, or the key they are encrypted with; the cookie is none of ours."""

Ending = Literal["nothing", "tell", "forget", "touch", "write", "create", "replace", "delete"]
"""`tell` the browser its cookie, `forget`: tell it to drop it; `replace`: under a new id."""

UNAVAILABLE = "503 Service Unavailable"
UNAVAILABLE_TEXT = "Too many are here just now. Please try again in a moment.\n"

TTL_S = 86_400.0
"""Of a session for which nothing else is said."""

TOUCH_SHARE = 0.25
"""A session is touched when that much of its life is over, so at most four times in it."""


# What is stored.


class _Stored(msgspec.Struct, frozen=True, tag_field="kind", tag="web-session-1"):
    name: str
    data: Data


_decoder = msgspec.json.Decoder(_Stored)


class Format:
    """The sessions of one name, as bytes. Frameworks with more than JSON bring their own tags."""

    def __init__(
        self,
        name: str,
        to_json: Callable[[Data], Any] = dict,
        from_json: Callable[[Data], Any] = dict,
    ) -> None:
        self.name = name
        self._to_json = to_json
        self._from_json = from_json

    def pack(self, data: Mapping[str, Any]) -> bytes:
        """TypeError for what would not come back as it is (W1)."""
        return msgspec.json.encode(_Stored(self.name, _plain(self._to_json(dict(data)), "session")))

    def unpack(self, value: bytes) -> Data:
        """CookieCorrupted if it is no session of this name (W2)."""
        try:
            stored = _decoder.decode(value)
        except msgspec.DecodeError as error:
            raise CookieCorrupted("a cookie of something that is no web session") from error
        if stored.name != self.name:  # W2
            raise CookieCorrupted(f"a cookie of a session under another name: {stored.name}")
        data: Data = self._from_json(stored.data)
        return data


def _plain(value: object, at: str) -> Any:  # noqa: ANN401 (what JSON can be)
    """The same in JSON's own types; a tuple becomes a list, as everywhere in JSON."""
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, at)
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case dict():
            named = {_name(key, at): _plain(each, f"{at}[{key!r}]") for key, each in value.items()}
            if len(named) != len(value):
                raise TypeError(f"{at}: two keys that are one in JSON, as 1 and '1'")  # W1
            return named
        case list() | tuple():
            return [_plain(each, f"{at}[{index}]") for index, each in enumerate(value)]
        case _:
            shown = value if isinstance(value, float) else type(value).__name__
            raise TypeError(f"{at}: sessions hold JSON, and there is no {shown} in it")  # W1


def _name(key: object, at: str) -> str:
    if isinstance(key, str):
        return _text(key, at)
    if type(key) is int:
        return str(key)
    raise TypeError(f"{at}: a key in JSON is text, not {type(key).__name__}")


def _text(text: str, at: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"{at}: half a surrogate pair is no text in JSON") from error  # W1
    return str.__str__(text)


class Found(msgspec.Struct, frozen=True):
    """A session that is stored: where, as what, and for how long."""

    cookie: str
    value: bytes
    left_s: float


class Opened(msgspec.Struct, frozen=True):
    """What came of looking for the session that the browser named."""

    found: Found | None
    data: Data
    reason: Reason = ""


NONE = Opened(None, {})


# When a request ends.


class Terms(msgspec.Struct, frozen=True):
    """What goes for the session of one request."""

    ttl_s: float
    slides: bool = True
    """Whether it lives for `ttl_s` from its last use, rather than from its last change."""
    priority: int = 0


def ending(session: "WebSession", value: bytes, terms: Terms) -> Ending:
    """What to do with it; `value` is what it is now, packed."""
    found = session.found
    if found is None:
        if session:
            return "create"
        return "forget" if session.sent else "nothing"
    if not session:
        return "delete"
    if session.wants_new_id:
        return "replace"
    return _ending_of_stored(session, found, value, terms)


def _ending_of_stored(session: "WebSession", found: Found, value: bytes, terms: Terms) -> Ending:
    if value != found.value:  # W3
        return "write"
    if terms.slides and is_touch_due(found.left_s, terms.ttl_s):
        return "touch"
    return "nothing" if found.cookie == session.sent else "tell"


def is_touch_due(left_s: float, ttl_s: float) -> bool:
    return left_s < ttl_s * (1 - TOUCH_SHARE)


def merged(base: Data, ours: Data, theirs: Data) -> Data:
    """By key: what we changed as we have it, all else as they have it. Of a key that both have
    changed, ours stays: we came later (W4)."""
    result = dict(theirs)
    for key in [*base, *ours]:
        if key not in ours:
            result.pop(key, None)
        elif key not in base or not _same(base[key], ours[key]):
            result[key] = ours[key]
    return result


def _same(one: object, other: object) -> bool:
    """As JSON: 1, 1.0 and true are three things."""
    return msgspec.json.encode(one, enc_hook=repr) == msgspec.json.encode(other, enc_hook=repr)


def retry_after(error: SystemOverloaded) -> int:
    """For the header: whole seconds, and never at once."""
    return max(1, math.ceil(error.retry_after_s))


def priority_in(header: str | None) -> int:
    """What a header that we trust says; 0 for whatever is no priority."""
    text = (header or "").strip()
    digits = text.removeprefix("-")
    if len(digits) != 1 or digits not in "01234":
        return 0
    priority = int(text)
    return priority if PRIORITY_MIN <= priority <= PRIORITY_MAX else 0


# Cookies, for those whose framework has no way with them.


class CookieStyle(msgspec.Struct, frozen=True, kw_only=True):
    """The session cookie as browsers are to keep it."""

    name: str = "session"
    domain: str = ""
    path: str = "/"
    secure: bool | None = None
    """None: if the request came over HTTPS."""
    http_only: bool = True
    same_site: Literal["Lax", "Strict", "None"] = "Lax"
    lasts: bool = False
    """Whether it outlives the browser, for as long as the session."""


def cookie_in(header: str, name: str) -> str:
    """The cookie of that name in a `Cookie` header; empty if it is not there."""
    for each in header.split(";"):
        key, _, value = each.strip().partition("=")
        if key == name:
            return value.strip().strip('"')
    return ""


def set_cookie(style: CookieStyle, cookie: str, ttl_s: float, *, over_https: bool) -> str:
    """A `Set-Cookie` header; with an empty `cookie`, one that drops it."""
    words = [f"{style.name}={cookie}", f"Path={style.path}"]
    if not cookie:
        words += ["Max-Age=0", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"]
    elif style.lasts:
        words.append(f"Max-Age={int(ttl_s)}")
    if style.domain:
        words.append(f"Domain={style.domain}")
    if over_https if style.secure is None else style.secure:
        words.append("Secure")
    if style.http_only:
        words.append("HttpOnly")
    words.append(f"SameSite={style.same_site}")
    return "; ".join(words)


class WebSession(MutableMapping[str, Any]):
    """A session during one request: a dictionary that is read from the bricks when it is first
    used, and not at all if it never is."""

    def __init__(self, sent: str = "", load: Callable[[], Opened] = lambda: NONE) -> None:
        """`sent`: the cookie that came with the request; empty if none did."""
        self.sent = sent
        self.wants_new_id = False
        self._load = load
        self._opened: Opened | None = None
        self._trouble: SystemOverloaded | None = None
        self._data: Data = {}

    # What an application asks and tells, beyond what it would of a dictionary.

    @property
    def was_lost(self) -> bool:
        """The browser named a session that is not there; this one began empty."""
        return self.reason != ""

    @property
    def reason(self) -> Reason:
        """Why it was lost; empty if it was not."""
        return self._open().reason

    def regenerate(self) -> None:
        """Give it a new id, and end the old one. To be called at every login: an id that somebody
        else has put into the browser before is then worth nothing."""
        self._open()
        self.wants_new_id = True

    # What whoever ends the request asks.

    @property
    def is_open(self) -> bool:
        """Whether it was used, and could be."""
        return self._opened is not None

    @property
    def found(self) -> Found | None:
        return self._open().found

    def _open(self) -> Opened:
        if self._trouble is not None:
            raise self._trouble  # W5
        if self._opened is None:
            try:
                opened = self._load() if self.sent else NONE
            except SystemOverloaded as error:
                self._trouble = error
                raise
            self._opened, self._data = opened, dict(opened.data)
        return self._opened

    # A dictionary.

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 (as dictionaries of anything have it)
        self._open()
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401
        self._open()
        self._data[key] = value

    def __delitem__(self, key: str) -> None:
        self._open()
        del self._data[key]

    def __iter__(self) -> Iterator[str]:
        self._open()
        return iter(self._data)

    def __len__(self) -> int:
        self._open()
        return len(self._data)

    def __repr__(self) -> str:
        return f"<session {self._data!r}>" if self.is_open else "<session, not read>"
