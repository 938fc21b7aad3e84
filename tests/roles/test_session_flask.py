"""Sessions in Flask: see `tests/roles/web_behaviour.py` for what all frameworks share, and how."""

import pytest

pytest.importorskip("flask", reason="there is no Flask: pip install flask")

import flask

from roles.session_flask import SoftSessions
from roles.session_web import Data
from roles.stub import Stub
from roles.testing import LocalCluster
from tests.roles.web_behaviour import Behaviour, local, no_brick_answers
from tests.web import NO_SETPRIV, Browser

__all__ = ["local"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SETPRIV), reason=NO_SETPRIV)]


def test_flask_decides_how_long_a_cookie_lasts_and_the_application_how_overload_looks(
    local: LocalCluster,
) -> None:
    app = flask.Flask(__name__)
    app.config["SESSION_COOKIE_SECURE"] = True
    app.register_error_handler(503, lambda error: (f"busy: {error}", 503))

    @app.route("/<key>", methods=["GET", "POST"])
    def serve(key: str) -> dict[str, str]:
        if flask.request.method == "POST":
            flask.session[key] = key
            flask.session.permanent = True
        return dict(flask.session)

    stub = Stub(local.cluster, timeout_ms=200)
    try:
        SoftSessions(app, stub=stub)
        client = app.test_client()
        answer = client.post("/a", base_url="https://localhost")
        assert answer.status_code == 200, answer.text
        line = answer.headers["Set-Cookie"]
        assert "Secure" in line
        assert "Expires=" in line  # In 31 days, more than `ttl_s_max`: the session ends before.
        with client.session_transaction(base_url="https://localhost") as session:
            session["b"] = "b"
        assert client.get("/a", base_url="https://localhost").json == {
            "a": "a", "b": "b", "_permanent": True
        }  # fmt: skip
        with no_brick_answers(local):
            refused = client.get("/a", base_url="https://localhost")
        assert (refused.status_code, refused.text[:5]) == (503, "busy:")
    finally:
        stub.close()


def test_application_may_merge_by_a_rule_of_its_own(local: LocalCluster) -> None:
    def merge(base: Data, ours: Data, theirs: Data) -> Data:
        return theirs | ours | {"seen": theirs["seen"] + ours["seen"] - base["seen"]}

    app = flask.Flask(__name__)
    stub = Stub(local.cluster)
    try:
        SoftSessions(app, stub=stub, merge=merge)
        client, tab = app.test_client(), app.test_client()
        with client.session_transaction() as session:
            session["seen"] = 10
        cookie = client.get_cookie("session")
        assert cookie is not None
        tab.set_cookie("session", cookie.value)
        with client.session_transaction() as session:
            session["seen"] += 1
            with tab.session_transaction() as meanwhile:
                meanwhile["seen"] += 5
        with client.session_transaction() as session:
            assert session["seen"] == 16
    finally:
        stub.close()


class TestFlask(Behaviour):
    kind = "flask"

    def test_change_deep_inside_is_stored(self, browser: Browser) -> None:  # W3
        browser.post("/append", value="a")
        browser.post("/append", value="b")
        assert browser.get("/all").json == {"list": ["a", "b"]}

    def test_what_flasks_own_sessions_hold_comes_back_as_it_was(self, browser: Browser) -> None:
        browser.post("/dates")
        assert browser.get("/dates").json == ["(1, b'bytes')", ["hello"]]
        assert browser.get("/dates").json == ["(1, b'bytes')", []]
