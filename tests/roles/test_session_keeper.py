"""What all adapters share when a session gets a new id, or cannot be read any more.

Method: a keeper in this process on a local cluster, as slow to notice a hang as real ones are.
Where only the order of things counts, requests end one after another; a stub that cannot delete
shows what is left of an old session.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.errors import SystemOverloaded
from roles.cookie import Cookie
from roles.key_ring import Ring, ring_text
from roles.key_ring_file import KeyRingFile, read_ring, rotate_file
from roles.session_keeper import Keeper
from roles.session_messages import ReadSession
from roles.session_web import Data, Format, Terms, WebSession
from roles.stub import Stub
from roles.testing import LocalCluster
from tests.roles.raw_bricks import RawBricks
from tests.waiting import until

pytestmark = pytest.mark.slow

FORM = Format("wsgi:session")
TERMS = Terms(60.0)
TIMEOUT_MS = 300  # Less than it takes to notice a hang, and enough for a busy machine.


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="lan") as cluster:
        yield cluster


@pytest.fixture
def keeper(local: LocalCluster) -> Iterator[Keeper]:
    made = Keeper(local.cluster, settings={"timeout_ms": TIMEOUT_MS})
    yield made
    made.stub.close()


def stored(keeper: Keeper, **data: object) -> str:
    return ended(keeper, WebSession(), **data)


def opened(keeper: Keeper, cookie: str) -> WebSession:
    """As at the beginning of a request that reads it."""
    session = WebSession(cookie, lambda: keeper.load(FORM, cookie, 0))
    dict(session)
    return session


def ended(keeper: Keeper, session: WebSession, **changes: object) -> str:
    session.update(changes)
    cookie = keeper.end(session, FORM, TERMS).cookie
    assert cookie
    return cookie


def held(keeper: Keeper, cookie: str) -> Data:
    return keeper.load(FORM, cookie, 0).data


def decoded(local: LocalCluster, cookie: str) -> Cookie:
    config = local.cluster.config
    return KeyRingFile(config.key_ring_path, config.sessions.application).decode(cookie)


def test_new_id_has_what_another_request_stored_under_the_old_one(keeper: Keeper) -> None:  # K7
    old = stored(keeper, visitor=1)
    login, add = opened(keeper, old), opened(keeper, old)
    login.regenerate()
    ended(keeper, add, cart=["book"])
    new = ended(keeper, login, user="alice")
    assert held(keeper, new) == {"visitor": 1, "cart": ["book"], "user": "alice"}
    assert keeper.load(FORM, old, 0).reason == "expired"


class CannotDelete(Stub):
    def delete(self, cookie: str, *, priority: int = 0) -> None:
        raise SystemOverloaded("a brick hangs", 1.0)


def test_nothing_of_a_login_is_stored_under_the_old_id(local: LocalCluster) -> None:  # K7, K8
    stub = CannotDelete(local.cluster, timeout_ms=TIMEOUT_MS)
    try:
        keeper = Keeper(stub=stub)
        old = stored(keeper, visitor=1)
        login, add = opened(keeper, old), opened(keeper, old)
        login.regenerate()
        ended(keeper, add, cart=["book"])
        new = ended(keeper, login, user="alice")
        assert held(keeper, new) == {"visitor": 1, "cart": ["book"], "user": "alice"}
        assert held(keeper, old) == {"visitor": 1, "cart": ["book"]}
    finally:
        stub.close()


@pytest.mark.parametrize("hanging", ["one with a copy", "another"])
def test_login_while_a_brick_hangs_keeps_the_session_and_ends_the_old_one_later(  # K8
    local: LocalCluster, keeper: Keeper, hanging: str
) -> None:
    old = stored(keeper, cart=3)
    where = decoded(local, old)
    copies = {number for number, _ in where.copies}
    hangs = f"brick-{min(copies if hanging == 'one with a copy' else {1, 2, 3, 4} - copies)}"
    login = opened(keeper, old)
    login.regenerate()
    local.pause(hangs)
    try:
        new = ended(keeper, login, user="alice")
        assert held(keeper, new) == {"cart": 3, "user": "alice"}
    finally:
        local.resume(hangs)
    raw = RawBricks(local.cluster)
    try:
        ask = ReadSession(where.sid, where.version)
        until(lambda: raw.answer(hangs, ask)[0].outcome == "deleted", 20, f"{hangs} knows")
    finally:
        raw.close()
    assert held(keeper, new) == {"cart": 3, "user": "alice"}


def test_login_takes_nothing_over_from_a_session_that_was_ended_meanwhile(  # K5
    keeper: Keeper,
) -> None:
    old = stored(keeper, secret="alice's")
    login, rotation, logout = (opened(keeper, old) for _ in range(3))
    login.regenerate()
    rotation.regenerate()
    logout.clear()
    assert keeper.end(logout, FORM, TERMS).cookie == ""
    assert held(keeper, ended(keeper, login, user="bob")) == {"user": "bob"}
    assert keeper.end(rotation, FORM, TERMS).cookie is None


def test_session_whose_key_was_removed_is_lost_and_not_overloaded_for_ever(  # K1
    local: LocalCluster,
) -> None:
    settings = {"timeout_ms": TIMEOUT_MS, "encrypt": True}
    path = Path(local.cluster.config.key_ring_path)
    keeper = Keeper(local.cluster, settings=settings)
    cookie = stored(keeper, cart=3)
    keeper.stub.close()
    before, after = rotate_file(path, 3600.0)
    assert before is not None
    keeper = Keeper(local.cluster, settings=settings)
    cookie = keeper.stub.touch(cookie, ttl_s=60)  # Signed with the new key, its value is not.
    keeper.stub.close()
    gone = before.active.id
    path.write_text(ring_text(Ring([key for key in after.keys if key.id != gone], "")))
    assert gone not in read_ring(path).verifiers
    keeper = Keeper(local.cluster, settings=settings)
    try:
        session = opened(keeper, cookie)
        assert (session.was_lost, session.reason, dict(session)) == (True, "lost", {})
        assert held(keeper, ended(keeper, session, cart=1)) == {"cart": 1}
    finally:
        keeper.stub.close()
