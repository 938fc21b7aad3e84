"""Pinpoint among real processes: it finds the sick brick, and leaves the others alone.

Method: one cluster of six bricks and two Pinpoints under a light load of this process; what is
told in it is kept. The tests go on from each other's end, in the order they are written: first all
is well, then one Pinpoint dies, then a brick stands still for a moment before each message.
"""

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from bus.errors import BusError
from bus.headers import News
from bus.member import EVENT_TOPIC, Member
from bus.messages import Happening, InjectFault, Pong
from bus.replies import Reply
from pinpoint.command import main
from roles import Stub
from roles.testing import LocalCluster
from tests.waiting import until

pytestmark = pytest.mark.slow

GRACE_S = 2.0
SLOW_S = 0.003
SETTINGS = {"chaos": True, "pinpoint": {"grace_s": GRACE_S}}
USERS = 6


class Town:
    """The cluster, who loads it, and what was told in it."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.member: Member = local.cluster.member()
        self.told: list[Happening] = []
        self.served = 0
        self._stub = Stub(local.cluster)
        self.member.subscribe(EVENT_TOPIC, Happening, self._heard)
        self._users = [gevent.spawn(self._use, number) for number in range(USERS)]

    def of_kind(self, kind: str) -> list[str]:
        return [each.subject for each in self.told if each.kind == kind]

    def serve(self, requests: int) -> None:
        """Until so many more are done."""
        goal = self.served + requests
        until(lambda: self.served >= goal, 30, f"{requests} requests more")

    def statistic(self, component_id: str, name: str) -> float:
        peer = self.member.liveness.peer(component_id)
        return -1.0 if peer is None else peer.statistics.get(name, -1.0)

    def close(self) -> None:
        gevent.killall(self._users)
        self._stub.close()

    def _heard(self, header: News, happening: Happening) -> None:
        self.told.append(happening)

    def _use(self, number: int) -> None:
        while True:
            try:
                cookie = self._stub.write(f"user-{number}", b"x" * 500, ttl_s=60)
                self._stub.read(cookie)
                self.served += 1
            except BusError:
                pass  # How few of these there are is for a benchmark.
            gevent.sleep(0.005)


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    with LocalCluster(bricks=6, pinpoint=2, managers=1, preset="fast", settings=SETTINGS) as local:
        town = Town(local)
        try:
            yield town
        finally:
            town.close()


def test_all_are_judged_and_nobody_is_condemned_while_all_is_well(town: Town) -> None:
    both = ("pinpoint-1", "pinpoint-2")
    until(lambda: all(town.statistic(each, "judged") >= 6 for each in both), 20, "both judge")
    town.serve(1000)
    assert town.of_kind("condemned") == []


def test_pinpoint_that_dies_is_started_again_and_condemns_nobody_who_is_well(town: Town) -> None:
    town.local.kill("pinpoint-1")
    town.local.wait_live("pinpoint-1", timeout_s=20)
    until(lambda: town.statistic("pinpoint-1", "judged") >= 6, 20, "pinpoint-1 judges again")
    town.serve(500)
    assert town.of_kind("condemned") == []


def test_slow_brick_is_condemned_by_one_and_comes_back_well(
    town: Town,
) -> None:
    sick = town.member.liveness.peer("brick-3")
    assert sick is not None
    told = town.member.client.ask(
        sick.endpoint, InjectFault("slow", SLOW_S, 60.0), expect=Pong, timeout_s=5
    )
    assert isinstance(told, Reply)
    until(lambda: town.of_kind("condemned"), 30, "a verdict")

    def is_back() -> bool:
        peer = town.member.liveness.peer("brick-3")
        return peer is not None and peer.incarnation > sick.incarnation and peer.state == "live"

    until(is_back, 30, "brick-3 is back")
    town.serve(500)
    assert town.of_kind("condemned") == ["brick-3"]


def test_what_was_recorded_gives_the_same_verdict(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = next(each.reason for each in town.told if each.kind == "condemned")
    directory = Path(town.local.cluster.config.run_directory)
    assert main(["replay", str(directory / "pinpoint-1.ticks.jsonl")]) == 0
    assert f"condemned  brick-3: {sentence}\n" in capsys.readouterr().out
