"""Every planned process is live again, once: agents and process peers in a world that hurts them.

Method: each promise of `healing_promises.py` for many seeds. Then the simulation's teeth: a fault
of a line or two is planted by subclassing, and some seed of the named promise must fail.
"""

import os
from collections.abc import Callable, Iterable, Mapping

import msgspec
import pytest

from bus.config_shape import Config, Planned
from bus.identity import Identity
from bus.messages import Exited, Refused
from bus.peers import Peer
from bus.places import Places
from bus.process_orders import ProcessesHeld
from bus.process_peers import ProcessPeers, Restart
from roles.agent import Agent
from roles.agent_states import Action, Running
from tests.simulation import healing_promises as promises
from tests.simulation.healing_cluster import Kinds
from tests.simulation.healing_promises import PROMISES, Promise

TIMES = 50 if "SOFTSTATE_SOAK" in os.environ else 1
SEED_STEP = 1000
RUNS = [
    pytest.param(promise, seed, id=f"{promise.__name__}-seed-{seed}")
    for promise, seeds in PROMISES.items()
    for seed in range(seeds)
]


@pytest.mark.parametrize(("promise", "seed"), RUNS)
def test_promise_is_kept(promise: Promise, seed: int) -> None:
    for again in range(TIMES):
        promise(seed + again * SEED_STEP, Kinds())


def test_same_seed_gives_the_same_run() -> None:
    first, second = (
        promises.all_is_whole_after_any_trouble(7, Kinds()).world.noted for _ in range(2)
    )
    assert first == second


def test_simulation_meets_what_it_is_meant_to_survive() -> None:
    seen = [promises.all_is_whole_after_any_trouble(seed, Kinds()) for seed in range(5)]
    for name in ("kill", "pause", "isolate", "Restarted"):
        times = sum(cluster.world.seen[name] for cluster in seen)
        assert times >= 5, f"{name} came up only {times} times"


class TakesAllOfThemForGone(Places):  # G3
    def _give_up(self, now: float) -> None:
        self._given_up |= set(self._dead_since)


class ActsThoughItIsBlind(ProcessPeers):  # P1
    def __init__(self, me: Identity, config: Config, now: float) -> None:
        super().__init__(me, config, now)
        self._places = TakesAllOfThemForGone(me, config)

    def look(
        self,
        peers: Iterable[Peer],
        *,
        blind: bool,
        now: float,
        draw: Callable[[], float],
        room: int = 16,
    ) -> list[Restart]:
        judged = [
            msgspec.structs.replace(each, state="dead") if each.state == "suspect" else each
            for each in peers
        ]
        return super().look(judged, blind=False, now=now, draw=draw, room=room)


class BringsBackWhatWasEndedOnPurpose(ProcessPeers):  # P2
    def exited(self, exited: Exited) -> None:
        pass

    def held(self, agent_id: str, message: ProcessesHeld, now: float) -> None:
        pass


class NoNodeButThePlanned(Places):  # G1
    def _elsewhere(self, planned: Planned) -> str | None:
        return None


class LooksAtNoNodeButThePlanned(ProcessPeers):  # P3
    def __init__(self, me: Identity, config: Config, now: float) -> None:
        super().__init__(me, config, now)
        self._places = NoNodeButThePlanned(me, config)


class GivesUpWhoeverItCannotHear(ProcessPeers):  # P3
    def __init__(self, me: Identity, config: Config, now: float) -> None:
        super().__init__(me, config, now)
        self._places = TakesAllOfThemForGone(me, config)


class ActsOnlyIfItIsTheFirst(ProcessPeers):  # P5
    def _rank(self, table: Mapping[str, Peer]) -> int:
        return 0 if self._healers[0].id == self._me.id else 1000


class TakesTheSilentForLive(ProcessPeers):
    def look(
        self,
        peers: Iterable[Peer],
        *,
        blind: bool,
        now: float,
        draw: Callable[[], float],
        room: int = 16,
    ) -> list[Restart]:
        vouched = [each for each in peers if each.state != "dead" or each.id in self._exits]
        return super().look(vouched, blind=blind, now=now, draw=draw, room=room)


class KillsLaterLivesToo(Agent):  # A9
    def restart(
        self, component_id: str, incarnation: int, cause: str, now: float, *, seen: int = 0
    ) -> list[Action] | Refused:
        return super().restart(component_id, incarnation + 10**9, cause, now, seen=seen)


class LeavesWhatHangsAlone(Agent):  # A9
    def restart(
        self, component_id: str, incarnation: int, cause: str, now: float, *, seen: int = 0
    ) -> list[Action] | Refused:
        if isinstance(self.states().get(component_id), Running):
            return []
        return super().restart(component_id, incarnation, cause, now, seen=seen)


class NeverGivesUp(Agent):  # A10
    def _give_up(self, *words: object) -> list[Action]:
        return []


SABOTAGES: list[tuple[str, Kinds, Promise]] = [
    ("acts blind", Kinds(peers=ActsThoughItIsBlind), promises.who_is_cut_off_starts_nothing),
    (
        "brings back what was ended",
        Kinds(peers=BringsBackWhatWasEndedOnPurpose),
        promises.what_is_ended_on_purpose_stays_ended,
    ),
    (
        "no other node",
        Kinds(peers=LooksAtNoNodeButThePlanned),
        promises.what_was_on_a_lost_node_runs_elsewhere_and_only_there,
    ),
    (
        "gives up the majority",
        Kinds(peers=GivesUpWhoeverItCannotHear),
        promises.who_is_cut_off_for_long_starts_nothing,
    ),
    ("no spares", Kinds(peers=ActsOnlyIfItIsTheFirst), promises.healers_are_spares_of_each_other),
    ("no spare", Kinds(peers=ActsOnlyIfItIsTheFirst), promises.a_hung_healer_holds_nobody_up),
    ("silent is live", Kinds(peers=TakesTheSilentForLive), promises.what_hangs_is_replaced_soon),
    (
        "kills later lives",
        Kinds(agent=KillsLaterLivesToo),
        promises.orders_that_come_late_or_twice_change_nothing,
    ),
    ("spares the hung", Kinds(agent=LeavesWhatHangsAlone), promises.what_hangs_is_replaced_soon),
    (
        "never offline",
        Kinds(agent=NeverGivesUp),
        promises.what_keeps_failing_goes_offline_and_nothing_else,
    ),
    (
        "does not listen first",
        Kinds(settle_periods=0.0),
        promises.what_was_on_a_lost_node_runs_elsewhere_and_only_there,
    ),
]


@pytest.mark.parametrize(
    ("kinds", "promise"),
    [(kinds, promise) for _, kinds, promise in SABOTAGES],
    ids=[name for name, _, _ in SABOTAGES],
)
def test_planted_fault_breaks_its_promise(kinds: Kinds, promise: Promise) -> None:
    assert any(_is_broken(promise, seed, kinds) for seed in range(PROMISES[promise])), (
        f"no seed of {promise.__name__} noticed: the simulation has lost a tooth"
    )


def _is_broken(promise: Promise, seed: int, kinds: Kinds) -> bool:
    try:
        promise(seed, kinds)
    except AssertionError:
        return True
    return False
