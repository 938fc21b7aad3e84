"""What web sessions hold, and how a request's session ends.

Method: calls with the whole outcome written down; property tests against obvious versions of
merging and of what JSON's own encoder makes of a value.
"""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import CookieCorrupted, SystemOverloaded
from roles.session_web import (
    CookieStyle,
    Data,
    Ending,
    Format,
    Found,
    Opened,
    Terms,
    WebSession,
    cookie_in,
    ending,
    is_touch_due,
    merged,
    priority_in,
    retry_after,
    set_cookie,
)

FORM = Format("wsgi:session")
TERMS = Terms(100.0)

atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8"), max_size=5)
values = st.recursive(
    atoms | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
sessions = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0, 1, True, "x", [1], None]))


class Text(str):
    """As Django's SafeString is."""


@given(st.dictionaries(words, values, max_size=4))
def test_what_is_packed_comes_back(data: Data) -> None:  # W1
    packed = FORM.pack(data)
    back = FORM.unpack(packed)
    assert back == data
    assert json.dumps(back) == json.dumps(data)  # True and 1 are equal, and not the same.
    assert FORM.pack(back) == packed  # W3


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"bytes",
        datetime(2026, 1, 1, tzinfo=UTC),
        math.nan,
        math.inf,
        {None: 1},
        {(1, 2): 1},
        pytest.param(object(), id="an object"),
        [[{"deep": {1}}]],
        "half a pair: \ud800",
        {"\udfff": 1},
        {1: "a", "1": "b"},
    ],
    ids=ascii,
)
def test_what_would_not_come_back_is_not_stored(value: object) -> None:  # W1
    with pytest.raises(TypeError, match=r"session\['key'\]"):
        FORM.pack({"key": value})


def test_what_json_has_no_word_for_comes_back_as_json_has_it() -> None:
    packed = FORM.pack({"a": (1, 2), "b": {3: 4}, "c": Text("safe")})
    assert FORM.unpack(packed) == {"a": [1, 2], "b": {"3": 4}, "c": "safe"}


@pytest.mark.parametrize(
    "value",
    [
        Format("wsgi:other").pack({"user": "admin"}),
        Format("flask:session").pack({"user": "admin"}),
        b'{"user": "admin"}',
        b'{"kind": "web-session-1", "data": {}}',
        b'{"kind": "web-session-1", "name": "wsgi:session", "data": []}',
        b'{"kind": "web-session-2", "name": "wsgi:session", "data": {}}',
        b"",
        b"\xff",
        b"[]",
    ],
)
def test_what_is_no_session_of_that_name_is_none(value: bytes) -> None:  # W2
    with pytest.raises(CookieCorrupted):
        FORM.unpack(value)


def stored(data: Data, *, left_s: float = 100.0, now_at: str = "c1") -> Callable[[], Opened]:
    return lambda: Opened(Found(now_at, FORM.pack(data), left_s), data)


def end(session: WebSession, terms: Terms = TERMS) -> Ending:
    len(session)  # Opens it: one that was never used does not get here.
    return ending(session, FORM.pack(session), terms)


@pytest.mark.parametrize(
    ("session", "change", "expected"),
    [
        (WebSession(), {}, "nothing"),
        (WebSession(), {"a": 1}, "create"),
        (WebSession("gone", lambda: Opened(None, {}, "lost")), {}, "forget"),
        (WebSession("gone", lambda: Opened(None, {}, "lost")), {"a": 1}, "create"),
        (WebSession("c1", stored({"a": 1})), {}, "nothing"),
        (WebSession("c1", stored({"a": 1})), {"a": 1}, "nothing"),
        (WebSession("c1", stored({"a": 1})), {"a": True}, "write"),
        (WebSession("c1", stored({"a": 1})), {"b": 2}, "write"),
        (WebSession("c1", stored({"a": 1}, left_s=74.0)), {}, "touch"),
        (WebSession("c1", stored({"a": 1}, left_s=74.0)), {"b": 2}, "write"),
        (WebSession("c0", stored({"a": 1})), {}, "tell"),
    ],
)
def test_how_a_request_ends_its_session(
    session: WebSession, change: Data, expected: Ending
) -> None:
    session.update(change)
    assert end(session) == expected


def test_session_that_was_emptied_is_deleted() -> None:
    session = WebSession("c1", stored({"a": 1}))
    session.clear()
    assert end(session) == "delete"


def test_session_that_does_not_slide_is_not_touched() -> None:
    session = WebSession("c1", stored({"a": 1}, left_s=1.0))
    assert end(session, Terms(100.0, slides=False)) == "nothing"


def test_change_deep_inside_a_value_is_one() -> None:  # W3
    session = WebSession("c1", lambda: Opened(Found("c1", FORM.pack({"a": [1]}), 100), {"a": [1]}))
    session["a"].append(2)
    assert end(session) == "write"


def test_new_id_is_given_once_there_is_an_old_one() -> None:
    session = WebSession("c1", stored({"a": 1}))
    session.regenerate()
    assert end(session) == "replace"
    session = WebSession()
    session.regenerate()
    session["a"] = 1
    assert end(session) == "create"


def test_session_is_touched_when_a_quarter_of_its_life_is_over() -> None:
    assert not is_touch_due(75.0, 100.0)
    assert is_touch_due(74.9, 100.0)


def test_session_is_read_once_and_only_when_it_is_used() -> None:
    asked = []

    def load() -> Opened:
        asked.append(1)
        return stored({"a": 1})()

    session = WebSession("c1", load)
    assert not session.is_open
    assert "not read" in repr(session)
    assert asked == []
    assert session["a"] == 1
    assert dict(session) == {"a": 1}
    assert asked == [1]


def test_session_that_could_not_be_read_is_never_empty() -> None:  # W5
    asked = []

    def load() -> Opened:
        asked.append(1)
        raise SystemOverloaded("busy", 2.0)

    session = WebSession("c1", load)
    uses: list[Callable[[], Any]] = [
        lambda: session.get("a"),
        lambda: session.update(a=1),
        lambda: len(session),
        lambda: session.was_lost,
        session.regenerate,
        session.clear,
    ]
    for use in uses:
        with pytest.raises(SystemOverloaded):
            use()
    assert not session.is_open
    assert asked == [1]


def test_why_a_session_is_gone_can_be_asked() -> None:
    session = WebSession("c1", lambda: Opened(None, {}, "expired"))
    assert (session.was_lost, session.reason) == (True, "expired")
    assert not WebSession().was_lost


@given(sessions, sessions, sessions)
def test_merging_keeps_what_only_one_has_changed(base: Data, ours: Data, theirs: Data) -> None:
    """W4, key by key, with absence as a value."""
    result = merged(dict(base), dict(ours), dict(theirs))
    for key in "abcd":
        was, we, they = (
            json.dumps(each[key]) if key in each else "" for each in (base, ours, theirs)
        )
        assert (json.dumps(result[key]) if key in result else "") == (they if we == was else we)


def test_merging_can_compare_what_is_not_json() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert merged({"at": at}, {"at": at, "a": b"x"}, {"at": None}) == {"at": None, "a": b"x"}


@pytest.mark.parametrize(
    ("header", "priority"),
    [("3", 3), ("-4", -4), (" 1 ", 1), ("0", 0)]
    + [(bad, 0) for bad in (None, "", "4", "-5", "99", "1.5", "--1", "-", "٣", "1 2", "x" * 9999)],
)
def test_priority_in_a_header(header: str | None, priority: int) -> None:
    assert priority_in(header) == priority


@pytest.mark.parametrize(("wait_s", "header"), [(0.0, 1), (0.1, 1), (1.0, 1), (1.2, 2), (30, 30)])
def test_retry_after_is_whole_seconds_and_never_at_once(wait_s: float, header: int) -> None:
    assert retry_after(SystemOverloaded("busy", wait_s)) == header


@pytest.mark.parametrize(
    ("header", "cookie"),
    [
        ("session=abc", "abc"),
        ("a=1; session=abc; b=2", "abc"),
        ('session="abc"', "abc"),
        ("session=first; session=second", "first"),
        ("sessions=abc; xsession=d", ""),
        ("session", ""),
        ("", ""),
        (";;=;", ""),
    ],
)
def test_cookie_is_found_in_its_header(header: str, cookie: str) -> None:
    assert cookie_in(header, "session") == cookie


def test_cookie_is_set_as_carefully_as_can_be() -> None:
    assert (
        set_cookie(CookieStyle(), "abc", 60, over_https=True)
        == "session=abc; Path=/; Secure; HttpOnly; SameSite=Lax"
    )
    style = CookieStyle(name="s", domain="example.org", secure=False, lasts=True, path="/shop")
    assert (
        set_cookie(style, "abc", 60.5, over_https=True)
        == "s=abc; Path=/shop; Max-Age=60; Domain=example.org; HttpOnly; SameSite=Lax"
    )
    assert set_cookie(style, "", 60, over_https=False).startswith("s=; Path=/shop; Max-Age=0; ")
