"""Sessions in plain WSGI: see `tests/roles/web_behaviour.py` for what all share, and how."""

from contextlib import ExitStack
from pathlib import Path

import gevent
import pytest

from bus.clock import now, wall_s
from roles.testing import LocalCluster
from tests.roles.web_behaviour import Behaviour, decoded, local, no_brick_answers, served
from tests.waiting import until
from tests.web import NO_SETPRIV, Browser

__all__ = ["local"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SETPRIV), reason=NO_SETPRIV)]


class TestWsgi(Behaviour):
    kind = "wsgi"

    def test_change_deep_inside_is_stored(self, browser: Browser) -> None:  # W3
        browser.post("/append", value="a")
        browser.post("/append", value="b")
        assert browser.get("/all").json == {"list": ["a", "b"]}


def test_server_that_begins_while_no_brick_answers_is_overloaded_until_one_does(  # K4
    local: LocalCluster, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        with no_brick_answers(local):
            server = served("wsgi", local, tmp_path)
            stack.callback(server.kill)
            browsers = [Browser(server) for _ in range(4)]
            began = now()
            asked = [gevent.spawn(each.try_post, "/set", key="a", value="1") for each in browsers]
            assert [each.get(timeout=30).status for each in asked] == [503] * 4
            assert now() - began < 10  # Together, not 5 s each.
        browser = browsers[0]
        until(lambda: browser.try_post("/set", key="a", value="1").status == 200, 20, "it serves")
        assert browser.get("/all").json == {"a": "1"}


def test_touch_that_cannot_be_is_no_reason_to_fail_a_request(  # K6
    local: LocalCluster, tmp_path: Path
) -> None:
    server = served("wsgi", local, tmp_path, ttl_s=8)
    try:
        browser, test = Browser(server), Browser(server)
        browser.post("/set", key="a", value="1")
        ends_at = decoded(local, browser).expires_wall_s
        until(lambda: ends_at - wall_s() < 5.5, 10, "a quarter of its life is over")
        meeting = gevent.spawn(browser.another().try_post, "/slow", key="a", value="1")
        until(lambda: test.get("/waiting").json == 1, 10, "the slow request has its session")
        with no_brick_answers(local):
            test.post("/release")
            answer = meeting.get(timeout=20)
        assert answer.json == {"a": "1"}
        assert not answer.cookies
        assert "Traceback" not in server.said()
    finally:
        server.kill()
