"""What sessions do in every framework: the tests of Flask's, Django's and plain WSGI's.

Method: a local cluster with four bricks, and `tests/roles/web_apps.py` as a server of its own on
gevent, asked over HTTP. Requests that are to meet do: one reads its session and waits until the
test has let another one pass.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

import gevent
import pytest

from roles.cookie import Cookie
from roles.key_ring_file import KeyRingFile
from roles.testing import LocalCluster
from tests.servers import free_port
from tests.waiting import until
from tests.web import Browser, WebServer

BRICKS = [f"brick-{number}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    # Long enough for a machine with other things to do: what is slow is no test of what is lost.
    settings = {"sessions": {"timeout_ms": 1000}}
    with LocalCluster(preset="fast", hubs=2, nodes=2, bricks=4, settings=settings) as cluster:
        yield cluster


def served(kind: str, local: LocalCluster, directory: Path, ttl_s: float = 600) -> WebServer:
    port = free_port()
    environ = {
        "SOFTSTATE_TEST_CONFIG": local.cluster.config.source,
        "SOFTSTATE_TEST_TTL_S": str(ttl_s),
    }
    command = ["-m", "tests.roles.web_apps", kind, str(port)]
    server = WebServer(command, port, directory / f"{kind}-{port}.log", environ)
    server.wait_for("serving")
    return server


@contextmanager
def no_brick_answers(local: LocalCluster) -> Iterator[None]:
    """All of them hang; at the end they are back, and known to be."""
    for brick in BRICKS:
        local.pause(brick)
    try:
        yield
    finally:
        for brick in BRICKS:
            local.resume(brick)
    for brick in BRICKS:
        local.wait_live(brick)


def decoded(local: LocalCluster, browser: Browser) -> Cookie:
    """The cookie that the browser has."""
    config = local.cluster.config
    ring = KeyRingFile(config.key_ring_path, config.sessions.application)
    return ring.decode(browser.cookies["session"])


class Behaviour:
    kind: ClassVar[str]
    is_interrupted_by: ClassVar[int] = HTTPStatus.OK
    """How a request is answered whose session was ended meanwhile."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(
        cls, local: LocalCluster, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[WebServer]:
        server = served(cls.kind, local, tmp_path_factory.mktemp(cls.kind))
        yield server
        server.kill()

    @pytest.fixture
    def browser(self, server: WebServer) -> Browser:
        """A new one, once the server has its bricks: another test may have had them hang."""

        def serves() -> bool:
            answer = Browser(server).try_post("/set", key="ready", value="1")
            return answer.status == HTTPStatus.OK

        until(serves, 20, "the server has its bricks")
        return Browser(server)

    def test_session_is_kept_in_a_cookie_that_scripts_and_other_sites_cannot_use(
        self, browser: Browser
    ) -> None:
        answer = browser.post("/set", key="a", value="1")
        assert answer.json == {"a": "1"}
        (line,) = answer.cookies
        words = [word.strip().lower() for word in line.split(";")]
        assert {"httponly", "samesite=lax", "path=/"} <= set(words)
        assert re.fullmatch(r"session=[A-Za-z0-9_-]{100,199}", line.split(";")[0])
        assert answer.headers["Vary"] == "Cookie"
        assert browser.get("/all").json == {"a": "1"}

    def test_nothing_is_written_that_is_stored_already(
        self, local: LocalCluster, browser: Browser
    ) -> None:
        browser.post("/set", key="a", value="1")
        before = browser.cookies["session"]
        browser.get("/all")
        browser.post("/set", key="a", value="1")
        assert browser.cookies["session"] == before
        browser.post("/set", key="a", value="2")
        assert decoded(local, browser).version == 2

    def test_request_that_does_not_use_its_session_costs_nothing(self, browser: Browser) -> None:
        browser.post("/set", key="a", value="1")
        thief = browser.another()
        thief.cookies["session"] = "never looked at"
        answer = thief.get("/idle")
        assert answer.status == HTTPStatus.OK
        assert self.kind == "django" or not answer.cookies  # It saves with every request here.

    def test_login_gives_a_new_id_and_the_old_one_is_worth_nothing(self, browser: Browser) -> None:
        browser.post("/set", key="cart", value="full")
        thief = browser.another()
        assert thief.get("/all").json == {"cart": "full"}
        browser.post("/login", user="alice")
        assert browser.get("/all").json == {"cart": "full", "user": "alice"}
        assert thief.get("/all").json == {}

    def test_login_keeps_what_another_request_stored_meanwhile(self, browser: Browser) -> None:
        browser.post("/set", key="visitor", value="1")
        slow = browser.another()
        meeting = gevent.spawn(slow.try_post, "/slow-login", user="alice")
        until(lambda: browser.get("/waiting").json == 1, 10, "the slow request has its session")
        browser.post("/set", key="cart", value="full")
        browser.post("/release")
        assert meeting.get(timeout=20).status == HTTPStatus.OK
        assert slow.get("/all").json == {"visitor": "1", "cart": "full", "user": "alice"}
        assert browser.get("/all").json == {}

    def test_login_that_fails_leaves_the_session_as_it_was(self, browser: Browser) -> None:  # J4
        browser.post("/set", key="cart", value="full")
        answer = browser.try_post("/login-that-fails")
        assert answer.status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert browser.get("/all").json == {"cart": "full"}

    def test_login_while_a_brick_hangs_keeps_the_session(self, tmp_path: Path) -> None:  # K8
        # Within the timeout nobody notices that it hangs: with the other cluster they would.
        settings = {"sessions": {"timeout_ms": 300}}
        with LocalCluster(hubs=1, nodes=2, bricks=4, settings=settings) as unhurried:
            server = served(self.kind, unhurried, tmp_path)
            try:
                browser = Browser(server)
                browser.post("/set", key="cart", value="full")
                thief = browser.another()
                unhurried.pause("brick-1")
                browser.post("/login", user="alice")
                assert browser.get("/all").json == {"cart": "full", "user": "alice"}
                unhurried.resume("brick-1")
                until(lambda: thief.another().get("/all").json == {}, 20, "the old one is over")
            finally:
                server.kill()

    def test_logout_ends_the_session_for_every_older_cookie(self, browser: Browser) -> None:
        browser.post("/login", user="alice")
        tabs = [browser.another()]
        browser.post("/set", key="a", value="1")
        tabs.append(browser.another())
        assert browser.post("/logout").json == {}
        assert "session" not in browser.cookies
        for tab in tabs:
            tab_again = tab.another()
            assert tab.get("/lost").json == [True, "expired"]
            assert "session" not in tab.cookies
            assert tab_again.get("/all").json == {}

    def test_what_two_requests_change_at_once_is_kept_of_both(self, browser: Browser) -> None:
        browser.post("/set", key="base", value="0")
        slow = browser.another()
        meeting = gevent.spawn(slow.try_post, "/slow", key="ours", value="1")
        until(lambda: browser.get("/waiting").json == 1, 10, "the slow request has its session")
        browser.post("/set", key="theirs", value="2")
        browser.post("/set", key="base", value="3")
        browser.post("/release")
        assert meeting.get(timeout=20).status == HTTPStatus.OK
        kept = {"base": "3", "theirs": "2", "ours": "1"}
        assert slow.get("/all").json == kept

    def test_of_one_key_that_two_requests_change_the_later_is_kept(self, browser: Browser) -> None:
        browser.post("/set", key="a", value="0")
        slow = browser.another()
        meeting = gevent.spawn(slow.try_post, "/slow", key="a", value="later")
        until(lambda: browser.get("/waiting").json == 1, 10, "the slow request has its session")
        browser.post("/set", key="a", value="earlier")
        browser.post("/release")
        meeting.get(timeout=20)
        assert slow.get("/all").json == {"a": "later"}

    def test_session_that_was_ended_meanwhile_is_not_written_again(self, browser: Browser) -> None:
        browser.post("/login", user="alice")
        slow, tab = browser.another(), browser.another()
        meeting = gevent.spawn(slow.try_post, "/slow", key="a", value="1")
        until(lambda: browser.get("/waiting").json == 1, 10, "the slow request has its session")
        browser.post("/logout")
        browser.post("/release")
        assert meeting.get(timeout=20).status == self.is_interrupted_by
        assert slow.get("/all").json == {}
        assert tab.get("/all").json == {}

    @pytest.mark.parametrize("cookie", ["x", "A" * 143, "A" * 5000, "", "%00", '"'])
    def test_forged_cookie_is_an_empty_session_and_is_dropped(
        self, server: WebServer, cookie: str
    ) -> None:
        browser = Browser(server, {"session": cookie})
        answer = browser.get("/lost")
        if len(cookie.strip('"')) >= 8 or self.kind != "django":  # Django looks at no shorter one.
            assert answer.json == ([True, "corrupted"] if cookie.strip('"') else [False, ""])
        assert browser.get("/all").json == {}
        browser.post("/set", key="a", value="1")
        assert browser.get("/all").json == {"a": "1"}

    def test_cookie_of_another_kind_of_session_is_none(
        self, local: LocalCluster, server: WebServer
    ) -> None:
        from roles.stub import Stub

        stub = Stub(local.cluster)
        try:
            foreign = stub.write("reset", b'{"user": "admin"}', ttl_s=60)
        finally:
            stub.close()
        browser = Browser(server, {"session": foreign})
        assert browser.get("/lost").json == [True, "corrupted"]
        assert browser.get("/all").json == {}

    def test_what_is_no_json_is_an_error_and_the_session_stays(self, browser: Browser) -> None:
        browser.post("/set", key="a", value="1")
        assert browser.try_post("/bad").status == HTTPStatus.INTERNAL_SERVER_ERROR
        assert browser.get("/all").json == {"a": "1"}

    def test_priority_from_outside_reaches_the_stub(self, browser: Browser) -> None:
        query = {"key": "a", "value": "1"}
        asked = browser.ask("POST", "/set", query, {"X-Test-Priority": "99"})
        assert asked.status == HTTPStatus.INTERNAL_SERVER_ERROR  # Stub takes -4 to 3.
        assert browser.ask("POST", "/set", query, {"X-Test-Priority": "3"}).json == {"a": "1"}

    def test_session_in_use_is_touched_once_in_a_quarter_of_its_life(
        self, local: LocalCluster, tmp_path: Path
    ) -> None:
        server = served(self.kind, local, tmp_path, ttl_s=6)
        try:
            browser = Browser(server)
            browser.post("/set", key="a", value="1")
            first = decoded(local, browser)
            cookies = {browser.cookies["session"]}

            def has_moved() -> bool:
                assert browser.get("/all").json == {"a": "1"}
                cookies.add(browser.cookies["session"])
                return decoded(local, browser).expires_wall_s >= first.expires_wall_s + 5

            until(has_moved, 20, "it lives longer than it would have")
            assert decoded(local, browser).version == 1
            assert len(cookies) <= 6  # One a second and a half, not one a request.
        finally:
            server.kill()

    def test_killed_brick_is_not_noticed(self, local: LocalCluster, browser: Browser) -> None:
        browser.post("/set", key="a", value="0")
        for number, brick in enumerate(BRICKS):
            local.kill(brick)
            assert browser.get("/all").json["a"] == str(number)
            browser.post("/set", key="a", value=str(number + 1))
            local.start(brick)
            local.wait_live(brick)
        assert browser.get("/all").json == {"a": "4"}

    def test_forked_workers_share_sessions_that_a_killed_brick_does_not_end(  # K2
        self, local: LocalCluster, tmp_path: Path
    ) -> None:
        server = gunicorn(self.kind, local, tmp_path)
        try:
            browser = Browser(server)
            workers: set[int] = set()

            def both_answered() -> bool:
                workers.add(browser.get("/idle").json["pid"])
                return len(workers) == 2

            until(both_answered, 20, "both workers have answered")
            for count, brick in enumerate(BRICKS):
                for word in ("first", "second", "third"):
                    browser.post("/set", key="last", value=f"{word} {count}")
                local.kill(brick)
                assert browser.get("/all").json == {"last": f"third {count}"}
                local.start(brick)
                local.wait_live(brick)
            assert "Traceback" not in server.said()
        finally:
            server.kill()

    def test_overload_is_a_503_that_says_when_to_come_back(  # K1
        self, local: LocalCluster, tmp_path: Path
    ) -> None:
        server = served(self.kind, local, tmp_path)
        try:
            self._overload(local, server)
        finally:
            server.kill()

    def _overload(self, local: LocalCluster, server: WebServer) -> None:
        browser, test = Browser(server), Browser(server)
        browser.post("/set", key="a", value="1")
        slow = browser.another()
        meeting = gevent.spawn(slow.try_post, "/slow", key="b", value="2")
        until(lambda: test.get("/waiting").json == 1, 10, "the slow request has its session")
        with no_brick_answers(local):
            test.post("/release")
            refused = [
                meeting.get(timeout=20),  # It was read, and cannot be stored.
                browser.get("/all"),
                Browser(server).try_post("/set", key="a", value="new"),
                browser.try_post("/logout"),
            ]
        assert [answer.status for answer in refused] == [503] * 4, server.said()
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert not any(answer.cookies for answer in refused)
        until(lambda: browser.get("/all").status == HTTPStatus.OK, 20, "the bricks are back")
        assert browser.get("/all").json["a"] == "1"


def gunicorn(kind: str, local: LocalCluster, directory: Path) -> WebServer:
    """Two workers, forked from a master that has loaded the application."""
    port = free_port()
    words = f"-m gunicorn --preload -k gevent -w 2 -b 127.0.0.1:{port} --graceful-timeout 1".split()
    environ = {"SOFTSTATE_TEST_CONFIG": local.cluster.config.source}
    log = directory / "gunicorn.log"
    server = WebServer([*words, f'tests.roles.web_apps:application("{kind}")'], port, log, environ)
    until(lambda: server.said().count("Booting worker") == 2, 20, "two workers")
    return server
