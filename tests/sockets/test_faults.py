"""A process that is told to be sick is so until its time, and answers for it; no other ever is.

Method: members in this process over loopback, of a configuration with `chaos = true`; one of them
asks, the other is sick. `sick` serves an `Echo`, by which is seen what is lost or slow.
"""

from collections.abc import Iterator
from pathlib import Path

import gevent
import psutil
import pytest

from bus.clock import now, wall_s
from bus.config import local, publish_address
from bus.errors import RequestTimeoutError
from bus.identity import Identity
from bus.member import Member
from bus.messages import Happening, InjectFault, Pong, Refused
from bus.pump import Pump, Relay
from bus.replies import Reply
from tests.sockets.pair import Echo, echo
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0
SOON_S = 0.4


class Scene:
    """`sick`, which may be made so, and who asks it."""

    def __init__(self, directory: Path, *, chaos: bool = True) -> None:
        config = local(directory, 1, {"hub": 1}, preset="fast", settings={"chaos": chaos})
        self._hubs = Pump()
        for hub in config.hubs:
            Relay(self._hubs, hub, publish_address(hub))
        self.sick = Member.join(config, Identity("sick-1", "sick", "n1", 1))
        self.sick.server.on(Echo, echo)
        self.asker = Member.join(config, Identity("asker-1", "asker", "n1", 1), linked=True)
        self.events: list[tuple[str, str, str]] = []
        self.asker.subscribe(
            "event",
            Happening,
            lambda _, told: self.events.append((told.kind, told.subject, told.reason)),
        )
        for member in (self.sick, self.asker):
            member.live()
        until(lambda: self.asker.peers("sick"), PATIENCE_S, "sick-1 seen")
        until(lambda: self.sick.peers("asker"), PATIENCE_S, "asker-1 seen")

    def inject(self, fault: InjectFault) -> Pong | Refused:
        reply = self.asker.client.ask(
            self.sick.server.endpoint, fault, expect=Pong, timeout_s=PATIENCE_S
        )
        return reply.message if isinstance(reply, Reply) else reply

    def answers(self, timeout_s: float) -> bool:
        """Whether it answers in that time."""
        try:
            reply = self.asker.client.ask(
                self.sick.server.endpoint, Echo(), expect=Echo, timeout_s=timeout_s
            )
        except RequestTimeoutError:
            return False
        return isinstance(reply, Reply)

    def told(self, reason: str) -> bool:
        return ("chaos", "sick-1", reason) in self.events

    def close(self) -> None:
        self.asker.close()
        self.sick.close()
        self._hubs.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_slow_process_stands_still_before_each_message_until_it_heals(scene: Scene) -> None:
    began_at = now()
    assert scene.inject(InjectFault("slow", 0.1, SOON_S)) == Pong("sick-1", 1)
    until(lambda: scene.sick.pump.meddler, PATIENCE_S, "the fault")
    asked_at = now()
    assert scene.answers(PATIENCE_S)
    assert now() - asked_at >= 0.1
    until(lambda: scene.sick.pump.meddler is None, PATIENCE_S, "its end")
    assert now() - began_at >= SOON_S
    until(lambda: scene.told("slow is over"), PATIENCE_S, "the event")
    assert scene.told("slow, 0.1 s a message, for 0.4 s, asked by asker-1")


def test_all_that_goes_out_is_lost_answers_and_news_alike_until_it_heals(scene: Scene) -> None:
    assert scene.inject(InjectFault("drop", 1.0, 1.5)) == Pong("sick-1", 1), "the answer still left"
    until(lambda: scene.sick.pump.meddler, PATIENCE_S, "the fault")
    assert not scene.answers(0.1)
    until(lambda: not scene.asker.peers("sick"), PATIENCE_S, "its beacons missed")
    until(lambda: scene.asker.peers("sick"), PATIENCE_S, "healed by itself")
    assert scene.answers(PATIENCE_S)


def test_share_of_what_goes_out_is_lost(scene: Scene) -> None:
    scene.inject(InjectFault("drop", 0.7, 60.0))
    until(lambda: scene.sick.pump.meddler, PATIENCE_S, "the fault")
    asking = [gevent.spawn(scene.answers, 1.0) for _ in range(200)]
    gevent.joinall(asking)
    assert 30 <= sum(each.get() for each in asking) <= 95, "60, five standard deviations around"


def test_leak_fills_memory_that_is_given_back_in_the_end(scene: Scene) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    scene.inject(InjectFault("leak", 500e6, 60.0))
    until(lambda: process.memory_info().rss > before + 100e6, PATIENCE_S, "100 MB more")
    scene.inject(InjectFault("leak", 0.0, 60.0))
    until(lambda: process.memory_info().rss < before + 50e6, PATIENCE_S, "as before")


def test_wall_clock_is_wrong_until_it_heals_and_no_deadline_moves(scene: Scene) -> None:
    before, began_at = wall_s(), now()
    scene.inject(InjectFault("clock", -3600.0, SOON_S))
    until(lambda: wall_s() < before - 3000, PATIENCE_S, "an hour ago")
    assert scene.answers(PATIENCE_S)
    assert 0 <= now() - began_at < 60
    until(lambda: wall_s() >= before, PATIENCE_S, "right again")


def test_flip_is_the_matter_of_a_role_that_holds_values(scene: Scene) -> None:
    answer = scene.inject(InjectFault("flip", 2, 1.0))
    assert answer == Refused("failed", "a sick holds no values whose bits could flip")
    asked: list[int] = []

    def flip(count: int) -> int:
        asked.append(count)
        return 1

    assert scene.sick.faults is not None
    scene.sick.faults.on_flip(flip)
    assert scene.inject(InjectFault("flip", 2, 1.0)) == Pong("sick-1", 1)
    assert asked == [2]
    until(lambda: scene.told("flip, a bit in 1 value, asked by asker-1"), PATIENCE_S, "the event")


def test_amount_of_nothing_heals_at_once_and_faults_are_counted(scene: Scene) -> None:
    scene.inject(InjectFault("slow", 0.01, 60.0))
    until(lambda: scene.sick.pump.meddler, PATIENCE_S, "the fault")
    scene.inject(InjectFault("slow", 0.0, 60.0))
    until(lambda: scene.sick.pump.meddler is None, PATIENCE_S, "well again")
    counted = {each.name: each.value for each in scene.sick.statistics.families()}
    assert counted["softstate_chaos"] == 2
    assert "chaos" not in "".join(scene.sick.statistics.sample(now())), "no judge is told"


def test_unsound_fault_is_refused(scene: Scene) -> None:
    answer = scene.inject(InjectFault("drop", 7.0, 1.0))
    assert answer == Refused("failed", "drop of 7: from 0 to 1")


def test_end_of_a_process_is_the_end_of_its_faults(scene: Scene) -> None:
    before = wall_s()
    scene.inject(InjectFault("clock", 3600.0, 60.0))
    until(lambda: wall_s() > before + 3000, PATIENCE_S, "an hour ahead")
    scene.sick.close()
    assert wall_s() < before + 3000


def test_without_chaos_in_the_configuration_nobody_knows_the_message(tmp_path: Path) -> None:
    scene = Scene(tmp_path, chaos=False)
    try:
        answer = scene.inject(InjectFault("slow", 0.1, 1.0))
        assert isinstance(answer, Refused)
        assert answer.reason == "unknown"
    finally:
        scene.close()


def test_linked_program_is_never_made_sick(scene: Scene) -> None:
    assert scene.asker.faults is None
    reply = scene.sick.client.ask(
        scene.asker.server.endpoint,
        InjectFault("slow", 0.1, 1.0),
        expect=Pong,
        timeout_s=PATIENCE_S,
    )
    assert isinstance(reply, Refused)
    assert reply.reason == "unknown"
