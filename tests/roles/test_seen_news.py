"""What the stubs of a process tell of real bricks: all of them together, a life at a time.

Method: one small cluster; what is published is heard where it is published, and added up. A brick
is stopped, killed and started for real.
"""

import contextlib
from collections.abc import Iterator

import pytest

from bus.errors import SystemOverloaded
from bus.headers import News
from bus.messages import PeerSeen, PeersSeen
from roles import Stub
from roles.seen_news import SEEN_TOPIC, _of_members
from roles.testing import LocalCluster
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 10.0
Life = tuple[str, int]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(hubs=1, nodes=1, bricks=3, preset="fast") as made:
        yield made


class Heard:
    """All that was told since, by life."""

    def __init__(self, local: LocalCluster) -> None:
        self.news: list[PeersSeen] = []
        self.senders: set[str] = set()
        local.cluster.member().subscribe(SEEN_TOPIC, PeersSeen, self._heard)
        local.cluster.release()

    def _heard(self, header: News, seen: PeersSeen) -> None:
        self.senders.add(header.sender)
        self.news.append(seen)

    def rows(self) -> list[PeerSeen]:
        return [row for seen in self.news for row in seen.seen]

    def total(self, of: str) -> dict[Life, int]:
        """The sum of one count, of each life that has any."""
        sums: dict[Life, int] = {}
        for row in self.rows():
            sums[row.id, row.incarnation] = sums.get((row.id, row.incarnation), 0) + getattr(
                row, of
            )
        return {life: count for life, count in sums.items() if count}


def test_all_stubs_of_a_process_tell_together_what_they_asked(local: LocalCluster) -> None:
    first, second = Stub(local.cluster, timeout_ms=2000), Stub(local.cluster, timeout_ms=2000)
    heard = Heard(local)
    for stub in (first, second):
        for number in range(20):
            stub.write(f"user-{number}", b"value", ttl_s=60)
    until(lambda: sum(heard.total("answered").values()) >= 120, PATIENCE_S, "all answers")
    assert heard.total("asked") == heard.total("answered")  # W = 3 of three, from both.
    assert list(heard.total("asked").values()) == [40, 40, 40]
    assert heard.total("silent") == heard.total("refused") == {}
    assert all(0 < row.wait_s < 2 for row in heard.rows() if row.answered)
    assert all(row.room >= 64 for row in heard.rows())  # Of two stubs.
    assert len(heard.senders) == 1
    assert {seen.role for seen in heard.news} == {"brick"}
    for seen in heard.news:
        assert len({row.id for row in seen.seen}) == len(seen.seen)
    first.close()
    assert len(_of_members) == 1
    second.close()
    assert _of_members == {}


def test_brick_that_hangs_is_silent_and_its_next_life_is_not(local: LocalCluster) -> None:
    stub = Stub(local.cluster)
    heard = Heard(local)
    [before] = [each for each in stub._bricks.live.values() if each.id == "brick-1"]
    hung = before.id, before.incarnation
    local.pause("brick-1")
    asked = [0]

    def told_silent() -> bool:
        asked[0] += 1
        with contextlib.suppress(SystemOverloaded):
            stub.write(f"user-{asked[0]}", b"value", ttl_s=60)
        return heard.total("silent").get(hung, 0) > 0

    until(told_silent, PATIENCE_S, "its silence")
    assert set(heard.total("silent")) == {hung}
    local.kill("brick-1")
    local.start("brick-1")
    local.wait_live("brick-1", timeout_s=PATIENCE_S)

    def told_of_next() -> bool:
        told_silent()
        return any(life > hung for life in heard.total("answered") if life[0] == "brick-1")

    until(told_of_next, PATIENCE_S, "answers of its next life")
    assert set(heard.total("silent")) == {hung}
    stub.close()
