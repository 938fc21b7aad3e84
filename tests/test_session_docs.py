"""What the README and the chapter on sessions show is Python that runs, and does what they say.

Method: as in `tests/test_docs.py`, but with bricks: the blocks are cut out and run in the directory
of a real cluster's `cluster.toml`. Django's are settings, so what they name must be there. What
they say of keys and statistics is compared with the code.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import msgspec
import pytest

from bus.config_shape import BRICK, SessionsConfig
from bus.statistics import PROMETHEUS_PREFIX, RATE_SUFFIX
from roles import Stub
from roles.testing import LocalCluster
from tests.test_docs import ROOT, Names, block, run

pytestmark = pytest.mark.slow

CHAPTER = "docs/sessions.md"
HTTPS = "https://localhost"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    settings = {"sessions": {"timeout_ms": 1000}}  # What is slow here is not what is tested.
    with LocalCluster(preset="fast", hubs=2, nodes=2, bricks=4, settings=settings) as made:
        yield made


@pytest.fixture
def here(local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Whose file lies where we are, as readers have it."""
    monkeypatch.chdir(Path(local.cluster.config.source).parent)
    return local


def close(interface: object) -> None:
    """What the reader's server would at its end."""
    vars(interface)["_keeper"].stub.close()


def test_readme_counts_visits(here: LocalCluster) -> None:
    pytest.importorskip("flask", reason="there is no Flask: pip install flask")
    names: Names = {"__name__": "reader"}
    run(block("README.md", 2), names)
    client = names["app"].test_client()
    try:
        assert client.get("/").text == "You were here 1 times."
        assert client.get("/").text == "You were here 2 times."
    finally:
        close(names["app"].session_interface)


def test_chapter_logs_in_and_out_with_flask(here: LocalCluster) -> None:
    pytest.importorskip("flask", reason="there is no Flask: pip install flask")
    names: Names = {"__name__": "reader"}
    run(block(CHAPTER, 0), names)
    client = names["app"].test_client()
    try:
        assert client.post("/login", data={"name": "alice"}).status_code == 302
        with client.session_transaction() as session:
            assert dict(session) == {"user": "alice"}
        client.post("/logout")
        assert client.get_cookie("session") is None
    finally:
        close(names["app"].session_interface)
    run(block(CHAPTER, 5), names)  # Interfaces with priorities; nothing is asked of them.


def test_chapter_names_what_django_finds() -> None:
    pytest.importorskip("django", reason="there is no Django: pip install django")
    names: Names = {}
    run(block(CHAPTER, 1), names)
    module, _, middleware = names["MIDDLEWARE"][-1].rpartition(".")
    assert hasattr(import_module(names["SESSION_ENGINE"]), "SessionStore")
    assert hasattr(import_module(module), middleware)


def test_chapter_counts_with_wsgi(here: LocalCluster) -> None:
    names: Names = {}
    run(block(CHAPTER, 2), names)
    said: list[tuple[str, list[tuple[str, str]]]] = []

    def visit(cookie: str) -> str:
        environ: Names = {"HTTP_COOKIE": cookie}
        setup_testing_defaults(environ)
        body = names["application"](environ, lambda *words: said.append(words[:2]))
        return b"".join(body).decode()

    try:
        assert visit("") == "You were here 1 times.\n"
        cookie = dict(said[0][1])["Set-Cookie"].partition(";")[0]
        assert visit(cookie) == "You were here 2 times.\n"
    finally:
        close(names["application"])


def test_chapter_uses_a_stub(here: LocalCluster) -> None:
    names: Names = {}
    run(block(CHAPTER, 3), names)
    assert names["value"] == b"a fuller cart"
    assert (names["session"].value, names["session"].version) == (b"a fuller cart", 2)


def test_chapter_merges_a_count() -> None:
    names: Names = {}
    run(block(CHAPTER, 4), names)
    merged = names["merge"]({"seen": 1}, {"seen": 2}, {"seen": 4, "cart": "tea"})
    assert merged == {"seen": 5, "cart": "tea"}


def test_every_key_of_sessions_is_explained_with_its_default() -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    (sessions,) = [each for each in section if each.startswith("[sessions]")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", sessions, re.MULTILINE))
    defaults = msgspec.to_builtins(SessionsConfig())
    assert rows.keys() == defaults.keys()
    for name, default in defaults.items():
        if name != "key_ring":  # A path, said in words.
            shown = rows[name].partition(" (")[0].strip('`"')
            expected = str(default).lower() if isinstance(default, bool) else f"{default}"
            assert shown == expected.removesuffix(".0"), name


def test_every_statistic_of_bricks_and_stubs_is_explained(here: LocalCluster) -> None:
    stub = Stub(here.cluster)
    member = here.cluster.member()  # The stub's own.
    try:
        (brick, *_) = member.peers(BRICK)
        counted = member.statistics.families()
    finally:
        here.cluster.release()
        stub.close()
    names = {name.removesuffix(RATE_SUFFIX) for name in brick.statistics}
    names |= {each.name.removeprefix(PROMETHEUS_PREFIX) for each in counted}
    assert names >= {"items", "session_writes"}
    text = (ROOT / "docs/statistics.md").read_text()
    explained = set(re.findall(r"`(\w+)`", text))
    assert {re.sub("_seconds$", "_s", name) for name in names} - explained == set()
