"""What the chapters on leases and chaos show is Python that runs, and does what they say it does.

Method: the blocks are cut out of the chapters and run, in the directory of a real cluster's
`cluster.toml`. What a block takes from the reader's program, the test puts there first.
"""

import re
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roles import Cluster, KeyRange, NotOwner, Owner, Route
from roles.key_range import EVERYTHING
from roles.testing import LocalCluster
from tests.servers import Redis, why_not
from tests.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

Names = dict[str, Any]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    settings = {"chaos": True}
    with LocalCluster(
        preset="fast", managers=2, hubs=2, bricks=3, nodes=2, settings=settings
    ) as made:
        yield made


@pytest.fixture
def cluster(local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Of which the file is here, as readers have it."""
    monkeypatch.chdir(Path(local.cluster.config.source).parent)
    return local.cluster


@pytest.fixture
def owner(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Owner]:
    """Of all keys, for chapters that begin when there is one."""
    made = Owner(cluster, namespace=request.node.name, url="tcp://a")
    made.start()
    made.ready()
    yield made
    made.close()


def block(chapter: str, number: int) -> str:
    """A block of Python of that chapter; the first is 0."""
    text = (ROOT / chapter).read_text()
    return textwrap.dedent(
        re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[number]
    )


def run(source: str, names: Names) -> None:
    exec(compile(source, "<a block of a chapter>", "exec"), names)


def test_readme_owns_a_key_and_finds_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names: Names = {}
    run(block("README.md", 1), names)
    try:
        until(lambda: names["lookup"].find("alice"), 5, "the map")
        route = names["lookup"].find("alice")
        assert route.url == "http://127.0.0.1:8001"
        assert f"alice is ours, under number {route.number}\n" in capsys.readouterr().out
    finally:
        names["lookup"].close()
        names["owner"].close()


def test_chapter_on_leases_owns_and_finds(cluster: Cluster) -> None:
    lost: list[KeyRange] = []
    names: Names = {"online": {}, "forget": lost.append}
    run(block("docs/leases.md", 0), names)
    assert names["online"] == {"alice": "in the office"}
    assert lost == [EVERYTHING], "what it held, when it closed"

    asked: list[Route] = []

    def ask(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            raise NotOwner("not mine")

    second = Owner(cluster, namespace="presence", url="tcp://b")
    second.start()
    second.ready()
    names |= {"ask": ask, "lost": lost.extend}
    try:
        run(block("docs/leases.md", 1), names)
        assert [each.url for each in asked] == ["tcp://b"] * 2
    finally:
        if "lookup" in names:
            names["lookup"].close()
        second.close()


def test_chapter_on_fencing_writes_to_a_database_unless_it_is_too_late(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: Names = {"owner": owner}
    run(block("docs/fencing.md", 0), names)
    connection = names["connection"]
    try:
        connection.execute("CREATE TABLE carts (key TEXT PRIMARY KEY, cart TEXT)")
        assert names["put"]("alice", "apples")
        with connection:
            assert names["fence"].admit(connection.cursor(), "carts", "alice", 1000)
        assert not names["put"]("alice", "pears")
        assert connection.execute("SELECT * FROM carts").fetchall() == [("alice", "apples")]
    finally:
        connection.close()


@pytest.mark.skipif(
    bool(why_not("redis-server", "redis-server")),
    reason=why_not("redis-server", "redis-server") or "there is one",
)
def test_chapter_on_fencing_writes_to_redis_unless_it_is_too_late(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = pytest.importorskip("redis")
    with Redis() as server:
        client = redis.Redis(unix_socket_path=server.socket, decode_responses=True)
        # The reader's is at the usual port, ours at a socket.
        monkeypatch.setattr(redis, "Redis", partial(redis.Redis, unix_socket_path=server.socket))
        names: Names = {"owner": owner}
        run(block("docs/fencing.md", 1), names)
        assert names["put"]("alice", "apples")
        assert names["fence"].execute("alice", 1000, "GET").reply == b"apples"
        assert not names["put"]("alice", "pears")
        assert client.get("alice") == "apples"
        assert client.ttl("alice") > 0
        client.close()


def test_chapter_on_fencing_refuses_in_a_service_what_is_too_late() -> None:
    carts: dict[str, bytes] = {}
    names: Names = {"carts": carts, "KeyRange": KeyRange}
    run(block("docs/fencing.md", 2), names)
    names["hello"](EVERYTHING, 3)
    assert names["put"]("alice", 3, b"apples")
    assert not names["put"]("alice", 2, b"pears")
    assert carts == {"alice": b"apples"}


def test_chapter_on_chaos_hangs_a_brick_and_slows_all(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names: Names = {"cluster": cluster}
    run(block("docs/chaos.md", 0), names)
    assert capsys.readouterr().out == "hang ('brick-1',) stopped\n"
    assert names["fault"].healed_at is not None
