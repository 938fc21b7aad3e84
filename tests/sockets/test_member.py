"""A member goes on whatever happens to it for a moment, and keeps no connection to who has gone.

Method: members and two hubs in this process, over loopback, at the fast preset (five beacons a
second). Who is to vanish has all its traffic dropped; who is to leave says goodbye.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.clock import now
from bus.config import Config, local, publish_address
from bus.errors import ConfigError
from bus.identity import Identity
from bus.liveness import Liveness
from bus.member import BEACON_TOPIC, EVENT_TOPIC, REASON_LENGTH_MAX, SUBJECT_LENGTH_MAX, Member
from bus.messages import Beacon, Exited, Happening, Ping, Pong
from bus.peers import Change, Died, Output, Suspected
from bus.pump import Pump, Relay
from bus.replies import Reply
from tests.descriptors import no_descriptors
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0


class Members:
    """Members of one cluster, made as they are needed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._hubs = Pump()
        for hub in config.hubs:
            Relay(self._hubs, hub, publish_address(hub))
        self._made: list[Member] = []

    def add(self, member_id: str, incarnation: int = 1) -> Member:
        identity = Identity(member_id, member_id.partition("-")[0], "n1", incarnation)
        self._made.append(Member.join(self.config, identity))
        self._made[-1].live()
        return self._made[-1]

    def close(self) -> None:
        for member in self._made:
            member.close()
        self._hubs.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(local(tmp_path, 1, {"hub": 2}, preset="fast"))
    yield made
    made.close()


def wait_seen(member: Member, other: Member) -> None:
    me = other.identity
    until(
        lambda: any((p.id, p.incarnation) == (me.id, me.incarnation) for p in member.peers()),
        PATIENCE_S,
        f"{me.id} seen",
    )


def wait_state(member: Member, peer_id: str, state: str) -> None:
    def state_is() -> bool:
        peer = member.liveness.peer(peer_id)
        return peer is not None and peer.state == state

    until(state_is, PATIENCE_S, f"{peer_id} {state}")


def vanish(member: Member) -> None:
    member.pump.meddler = lambda *, outgoing, peer: math.inf


def counted(member: Member, name: str) -> float:
    return {family.name: family.value for family in member.statistics.families()}[name]


# What must not end it.  B1


def test_beacons_go_on_through_a_moment_without_descriptors(members: Members) -> None:
    one, other = members.add("one-1"), members.add("other-1")
    wait_seen(other, one)
    with no_descriptors():
        peer = other.liveness.peer("one-1")
        assert peer is not None
        until(lambda: _age_s(other) > peer.age_s + 0.5, PATIENCE_S, "beacons all the same")
        assert counted(one, "softstate_statistics_failed") > 0
    until(lambda: "rss_bytes" in _statistics(other), PATIENCE_S, "its memory told again")


def _age_s(member: Member) -> float:
    peer = member.liveness.peer("one-1")
    return 0.0 if peer is None else peer.age_s


def _statistics(member: Member) -> dict[str, float]:
    peer = member.liveness.peer("one-1")
    return {} if peer is None else peer.statistics


def test_mistake_in_a_callback_stops_neither_judgement_nor_other_callbacks(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    member = members.add("one-1")
    heard: list[Change] = []

    def mistaken(change: Change) -> None:
        raise KeyError("a mistake in the role")

    member.on_change(mistaken)
    member.on_change(heard.append)
    others = [members.add(f"other-{number}") for number in range(1, 5)]
    for other in others:
        wait_seen(member, other)
    for other in others[:2]:
        vanish(other)
        wait_state(member, other.identity.id, "dead")
    died = {each.id for each in heard if isinstance(each, Died)}
    assert died == {"other-1", "other-2"}
    assert counted(member, "softstate_callbacks_failed") == len(heard)
    assert "KeyError: 'a mistake in the role'" in caplog.text


class Mistaken(Liveness):
    def advance(self, now: float) -> list[Output]:
        raise AssertionError("a mistake of our own")


class OutOfDescriptors(Liveness):
    def advance(self, now: float) -> list[Output]:
        raise OSError(24, "Too many open files")


def test_mistake_of_our_own_ends_the_process(members: Members) -> None:
    member = members.add("one-1")
    member.liveness = Mistaken("one-1", 1, period_s=0.2, now=now())
    with pytest.raises(AssertionError, match="a mistake of our own"):
        member.wait()


def test_trouble_of_the_machine_ends_no_loop(members: Members) -> None:
    member, other = members.add("one-1"), members.add("other-1")
    wait_seen(member, other)
    sound = member.liveness
    member.liveness = OutOfDescriptors("one-1", 1, period_s=0.2, now=now())
    until(lambda: counted(member, "softstate_steps_failed") > 2, PATIENCE_S, "failing steps")
    member.liveness = sound
    vanish(other)
    wait_state(member, "other-1", "dead")


def test_event_that_is_too_long_is_cut_and_told(members: Members) -> None:
    one = members.add("one-1")
    told: list[Happening] = []
    one.subscribe(EVENT_TOPIC, Happening, lambda _, happening: told.append(happening))
    wait_seen(members.add("two-1"), one)
    until(lambda: one._heard_ourselves, PATIENCE_S, "a hub")
    one.event("degraded", "s" * 30_000, "\udcff" * 30_000)
    one.event("degraded", "one-1", "the next one")
    until(lambda: told[-1:] and told[-1].reason == "the next one", PATIENCE_S, "events")
    assert told[-2] == Happening("degraded", "s" * SUBJECT_LENGTH_MAX, "?" * REASON_LENGTH_MAX)


def test_failure_of_the_role_is_raised_by_wait(members: Members) -> None:
    member = members.add("one-1")
    member.fail(ConfigError("the port is taken"))
    with pytest.raises(ConfigError, match="the port is taken"):
        member.wait()


def test_peer_whose_endpoint_cannot_be_reached_is_judged_in_silence(
    members: Members, capfd: pytest.CaptureFixture[str]
) -> None:
    member, liar = members.add("one-1"), members.add("liar-1")
    others = [members.add(f"other-{number}") for number in range(1, 4)]
    for other in (liar, *others):
        wait_seen(member, other)
    heard: list[Change] = []
    member.on_change(heard.append)
    lie = Beacon(
        "liar",
        "n1",
        1,
        "tcp://no port",
        "live",
        1e9,
        0,
        linked=False,
        period_s=0.2,
        metrics_url="",
        statistics={},
    )
    liar.publish(BEACON_TOPIC, lie)
    vanish(liar)
    wait_state(member, "liar-1", "dead")
    assert any(isinstance(change, Suspected) for change in heard)
    assert "Traceback" not in capfd.readouterr().err


# Connections.  B2


def ask(member: Member, other: Member) -> None:
    endpoint = other.server.endpoint
    assert isinstance(member.client.ask(endpoint, Ping(), expect=Pong, timeout_s=2), Reply)


def wait_disconnected(member: Member, other: Member) -> None:
    until(
        lambda: other.server.endpoint not in member.client._dealers,
        PATIENCE_S,
        "its connection closed",
    )


def test_connection_to_a_peer_that_left_is_closed(members: Members) -> None:
    member, other = members.add("one-1"), members.add("other-1")
    wait_seen(member, other)
    ask(member, other)
    other.close()
    wait_disconnected(member, other)


def test_connection_to_a_replaced_life_is_closed_and_the_later_one_is_kept(
    members: Members,
) -> None:
    member, former = members.add("one-1"), members.add("other-1")
    wait_seen(member, former)
    ask(member, former)
    later = members.add("other-1", incarnation=2)
    wait_seen(member, later)
    wait_disconnected(member, former)
    ask(member, later)
    assert later.server.endpoint in member.client._dealers


def test_connection_to_a_process_that_our_own_agent_reaped_is_closed(members: Members) -> None:
    member, other = members.add("one-1"), members.add("other-1")
    wait_seen(member, other)
    ask(member, other)
    member.exited(Exited("other-1", 1, 77, -9, "killed by SIGKILL"))
    wait_disconnected(member, other)
    wait_state(member, "other-1", "dead")
