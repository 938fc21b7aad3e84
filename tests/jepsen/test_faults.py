"""Registers are incremented through leases while processes die and stop; nothing lost or doubled.

Method, after Jepsen: a real cluster, three owners and ten clients as processes of their own; faults
are real signals. Clients write a history of what they asked and heard; at the end it is compared
with what is in the registers (`tests.jepsen.history`). A third of the registers has no fence: there
a paused owner, going on where it was, must do damage, and the checker find it. A run in which it
finds none tells nothing. SOFTSTATE_SOAK=1 has faults drawn by chance instead of a fixed dozen, for
ten minutes or SOFTSTATE_JEPSEN_S seconds.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest

from bus.clock import now
from bus.lease_timing import LEASE_PRESETS
from roles.testing import LocalCluster
from tests.jepsen.fleet import Fleet
from tests.jepsen.registers import Way
from tests.managers import go_on, leader

pytestmark = pytest.mark.slow

FAST = LEASE_PRESETS["fast"]
BUSY_S = 3.0  # What a machine with other things to do may take beyond a bound.
OWNED_AGAIN_S_MAX = FAST.manager_ttl_s + 1 + BUSY_S
SOAK = "SOFTSTATE_SOAK" in os.environ
SOAK_S = float(os.environ.get("SOFTSTATE_JEPSEN_S", "600"))
WAYS = "whole,split,unsafe"
SAFE: tuple[Way, ...] = ("whole", "split")
TRIES_MAX = 6
OWNERS = ("a", "b", "c")


@contextmanager
def running(directory: Path) -> Iterator[tuple[LocalCluster, Fleet]]:
    """A cluster, with owners and clients at work."""
    with (
        LocalCluster(preset="fast", managers=3, hubs=2, nodes=2) as local,
        Fleet(directory, local.cluster.config.source, WAYS) as fleet,
    ):
        for name in OWNERS:
            fleet.add_owner(name)
        fleet.start_clients()
        fleet.wait_for_all(20, "at first")
        yield local, fleet


def test_nothing_fenced_is_lost_or_doubled_by_faults_and_what_is_not_is_found_out(
    tmp_path: Path,
) -> None:
    if SOAK:
        pytest.skip("the long one has all of it")
    with running(tmp_path) as (local, fleet):
        # An owner stops in the middle of its work; meanwhile the leader dies, and the next stops.
        read = fleet.pause_inside("a", "split", "unsafe")
        first = leader(local)
        local.kill(first)
        second = leader(local, after=first)
        local.pause(second)
        local.kill("hub-1")
        fleet.wait_for_others(read, OWNED_AGAIN_S_MAX + FAST.manager_ttl_s, "by others")
        fleet.resume("a")
        go_on(local, second)
        fleet.wait_for_all(10, "after the owner went on")
        stop_until_too_late(fleet)

        # One dies and comes back under its id, one ends in order, and there is no hub for a while.
        fleet.kill_owner("b")
        fleet.start_owner("b")
        for hub in ("hub-1", "hub-2"):
            local.wait_live(hub)
            local.kill(hub)
        fleet.end_owner("c")
        fleet.start_owner("c")
        fleet.wait_for_all(OWNED_AGAIN_S_MAX, "after the death of an owner")
        fleet.finish()
        assert fleet.problems(*SAFE) == []
        assert sum(fleet.done().values()) > 100, "there was something to lose"
        wrong = fleet.problems("unsafe")
        assert any("was acknowledged and is there 0 times" in each for each in wrong), wrong


def stop_until_too_late(fleet: Fleet) -> None:
    """The owner's late writes were to come to the fence, and to where there is none. That was the
    first time, unless the file of registers was too busy for them."""
    for _ in range(TRIES_MAX):
        if fleet.refused() > 0 and fleet.undone():
            return
        read = fleet.pause_inside("a", "split", "unsafe")
        fleet.wait_for_others(read, OWNED_AGAIN_S_MAX, "by others")
        fleet.resume("a")
        fleet.wait_for_all(10, "after the owner went on")
    pytest.fail(f"{TRIES_MAX} times nothing came too late: {fleet.refused()} refused")


# The long one.


@pytest.mark.skipif(not SOAK, reason="ten minutes: SOFTSTATE_SOAK=1, or `make jepsen`")
@pytest.mark.timeout(SOAK_S + 300)
def test_nothing_fenced_is_lost_or_doubled_by_faults_drawn_by_chance(
    tmp_path: Path,
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    with running(tmp_path) as (local, fleet):
        faults = Faults(local, fleet, chance)
        over_at = now() + SOAK_S
        while now() < over_at:
            faults.one()
            took_s = fleet.wait_for_all(3 * OWNED_AGAIN_S_MAX, f"after {faults.log[-3:]}")
            print(f"{faults.log[-1]}: all registers after {took_s:.1f} s", flush=True)
        stop_until_too_late(fleet)
        fleet.finish()
        wrong, found_out = fleet.problems(*SAFE), fleet.problems("unsafe")
    assert wrong == [], f"seed {seed}: {faults.log}"
    assert found_out, f"seed {seed}: {faults.log}"


class Faults:
    """Two at a time, drawn by chance; each undoes itself."""

    def __init__(self, local: LocalCluster, fleet: Fleet, chance: random.Random) -> None:
        self._local = local
        self._fleet = fleet
        self._chance = chance
        self._kinds: dict[str, list[Callable[[], None]]] = {
            "manager": [self._kill_leader, self._pause_leader],
            "owner": [self._pause_owner, self._kill_owner, self._end_owner],
            "hub": [self._kill_hubs, self._pause_hubs],
        }
        self.log: list[str] = []

    def one(self) -> None:
        kinds = self._chance.sample(sorted(self._kinds), k=2)
        drawn = [self._chance.choice(self._kinds[kind]) for kind in kinds]
        self.log.append(" and ".join(each.__name__.strip("_") for each in drawn))
        gevent.joinall([gevent.spawn(each) for each in drawn], raise_error=True)

    def _pause_s(self) -> float:
        return self._chance.choice([0.3, 1.0, 3.0, FAST.manager_ttl_s + 2])

    def _kill_leader(self) -> None:
        killed = leader(self._local)
        self._local.kill(killed)
        self._local.start(killed)
        self._local.wait_live(killed)

    def _pause_leader(self) -> None:
        paused = leader(self._local)
        self._local.pause(paused)
        gevent.sleep(self._pause_s())
        go_on(self._local, paused)

    def _pause_owner(self) -> None:
        name = self._chance.choice(OWNERS)
        self._fleet.pause_inside(name, "split", "unsafe")
        gevent.sleep(self._pause_s())
        self._fleet.resume(name)

    def _kill_owner(self) -> None:
        name = self._chance.choice(OWNERS)
        self._fleet.kill_owner(name)
        self._fleet.start_owner(name)

    def _end_owner(self) -> None:
        name = self._chance.choice(OWNERS)
        self._fleet.end_owner(name)
        self._fleet.start_owner(name)

    def _kill_hubs(self) -> None:
        hubs = self._chance.sample(["hub-1", "hub-2"], k=self._chance.randint(1, 2))
        for hub in hubs:
            self._local.kill(hub)
        for hub in hubs:
            self._local.wait_live(hub)

    def _pause_hubs(self) -> None:
        for hub in ("hub-1", "hub-2"):
            self._local.pause(hub)
        gevent.sleep(self._pause_s())
        for hub in ("hub-1", "hub-2"):
            self._local.resume(hub)
