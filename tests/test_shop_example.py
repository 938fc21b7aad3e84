"""The shop keeps the cart, whichever brick is killed between two clicks; in a browser too.

Method: a local cluster, and `examples/shop.py` as a user runs it. Once asked over HTTP; once
clicked through in a real Chromium; once with a cluster of its own, whose bricks it kills itself.
Every brick in turn is killed with SIGKILL, started again empty, and the next follows.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flask", reason="the example is a Flask service: pip install flask")

from roles.testing import LocalCluster
from tests import chromium
from tests.servers import free_port
from tests.waiting import until
from tests.web import NO_SETPRIV, ROOT, Browser, WebServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(NO_SETPRIV), reason=NO_SETPRIV)]

BRICKS = [f"brick-{number}" for number in range(1, 5)]
OPEN = "the shop is open"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    settings = {"sessions": {"timeout_ms": 1000}}  # What is slow here is not what is tested.
    with LocalCluster(preset="fast", hubs=2, nodes=2, bricks=4, settings=settings) as cluster:
        yield cluster


@contextmanager
def shop(directory: Path, *options: str) -> Iterator[WebServer]:
    port = free_port()
    # Not as a module: a person would not either.
    command = [str(ROOT / "examples" / "shop.py"), "--port", str(port), *options]
    server = WebServer(command, port, directory / "shop.log")
    try:
        server.wait_for(OPEN)
        assert f"{OPEN}: http://127.0.0.1:{port}\n" in server.said()
        yield server
    finally:
        server.kill()


def shown(page: str, name: str) -> str | None:
    found = re.search(rf'<span id="{name}">(.*?)</span>', page, re.DOTALL)
    return None if found is None else " ".join(found[1].split())


def click(browser: Browser, path: str) -> str:
    """Click a button and follow; the page one gets to."""
    assert browser.try_post(path).status == HTTPStatus.FOUND
    answer = browser.get("/")
    assert answer.status == HTTPStatus.OK, answer
    return answer.body


def test_cart_stays_when_any_brick_is_killed(local: LocalCluster, tmp_path: Path) -> None:
    with shop(tmp_path, "--config", local.cluster.config.source) as server:
        browser = Browser(server)
        assert "You have no session" in browser.get("/").body
        assert browser.try_post("/login", name="").status == HTTPStatus.BAD_REQUEST
        page = login(browser)
        assert shown(page, "cart") == "empty"
        for count, brick in enumerate(BRICKS):
            page = click(browser, "/add/tea")
            local.kill(brick)
            page = browser.get("/").body
            assert (shown(page, "cart"), shown(page, "total")) == (
                f"{count + 1} tea", str(4 * count + 4)
            )  # fmt: skip
            assert set((shown(page, "bricks") or "").split()) <= set(BRICKS)
            local.start(brick)
            local.wait_live(brick)
        assert shown(click(browser, "/add/bread"), "cart") == "4 tea 1 bread"
        assert shown(click(browser, "/add/gold"), "cart") == "4 tea 1 bread"
        thief = browser.another()
        assert "You have no session" in click(browser, "/logout")
        assert "You have no session" in thief.get("/").body
        assert "Traceback" not in server.said()


def login(browser: Browser) -> str:
    answer = browser.ask(
        "POST", "/login", headers={"Content-Type": "application/x-www-form-urlencoded"},
        body=b"name=alice",
    )  # fmt: skip
    assert answer.status == HTTPStatus.FOUND
    return browser.get("/").body


@pytest.mark.skipif(bool(chromium.WHY_NOT), reason=chromium.WHY_NOT)
def test_cart_stays_in_a_real_browser(local: LocalCluster, tmp_path: Path) -> None:
    with (
        shop(tmp_path, "--config", local.cluster.config.source) as server,
        chromium.Chromium(tmp_path) as browser,
    ):
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.type("#name", "alice")
        browser.click("#login")
        assert browser.text("#user") == "alice"
        for count, brick in enumerate(BRICKS):
            browser.click("#add-cheese")
            local.kill(brick)
            browser.open(f"http://127.0.0.1:{server.port}/")
            assert browser.text("#cart") == f"{count + 1} cheese"
            local.start(brick)
            local.wait_live(brick)
        browser.click("#logout")
        assert browser.text("#cart") is None
        assert browser.text("#login") == "Log in"


def test_shop_with_a_cluster_of_its_own_kills_bricks_by_a_button_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with shop(tmp_path, "--local") as server:
        browser = Browser(server)
        login(browser)
        click(browser, "/add/apples")
        for brick in BRICKS[:2]:
            page = click(browser, f"/kill/{brick}")
            assert shown(page, "cart") == "1 apples"
        clicks = [browser.try_post("/kill/brick-3") for _ in range(3)]
        assert [each.status for each in clicks[:2]] == [HTTPStatus.FOUND, HTTPStatus.CONFLICT]
        assert "brick-3 is not there just now" in clicks[1].body
        cluster = psutil.Process(server.pid).children(recursive=True)
        assert len(cluster) >= len(BRICKS)
    until(lambda: not any(each.is_running() for each in cluster), 20, "its cluster is gone")
    assert "Traceback" not in server.said()
