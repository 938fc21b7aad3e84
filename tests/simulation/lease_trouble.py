"""What goes wrong in a simulated cluster of leases: drawn from the seed, and how badly.

Every seed is another cluster (its size, its policy, its timing) and another kind of trouble; a seed
that has everything at once would get nothing done, and so break nothing.
"""

from collections.abc import Callable

import msgspec

from tests.simulation.lease_cluster import ASSIGNMENTS, HUBS, TIMINGS, Cluster, Parts, Watch
from tests.simulation.lease_store import STORE, StoreWeather
from tests.world import Weather

NAMESPACES = ("red", "blue")
DELAYS_S = [
    (0.001, 0.02),
    (0.001, 0.02),
    (0.001, 0.05, 0.3),
    (0.01, 0.2, 1.0, 4.0),
    (0.01, 4.0, 7.0),  # About as long as a lease: the hardest of all.
    (0.01, 0.1, 30.0),
]
LEAVE_S, STOP_S = 2.0, 0.2
"""How long an orderly end may take."""
ROLL_BACK_S_MIN, ROLL_BACK_S_MAX = 4.0, 40.0
"""How old a backup is: nobody restores one that is younger than a term's watch."""


class Trouble(msgspec.Struct, frozen=True):
    """How bad it is."""

    weather: Weather
    store: StoreWeather
    every_s: float
    harm_s_max: float
    harms: list[str]
    answers_s: float = 0.0
    """How long answers to owners take, if that is special."""


def drawn_cluster(
    seed: int,
    watch: Callable[[Cluster], Watch],
    parts: Parts,
    transcript_lines: int | None = 60,
    timing: str = "",
) -> Cluster:
    """A cluster of a size and policy that the seed says, all of it just started."""
    cluster = Cluster(
        seed,
        watch,
        parts=parts,
        timing=timing or list(TIMINGS)[seed % len(TIMINGS)],
        managers=2 + seed % 2,
        # Mostly the quick ones: one in eleven has the 64 points of the papers.
        assignment=ASSIGNMENTS[2 if seed % 11 == 10 else seed // 2 % 2],
        transcript_lines=transcript_lines,
    )
    chance = cluster.world.chance
    cluster.drops_late = chance.random() < 0.3
    slow = parts.slow_clock if parts.slow_clock < 1 else None
    owners = chance.choice([2, 2, 3, 4, 6])
    for number in range(owners):
        name = f"owner-{number + 1}"
        spaces = NAMESPACES[: 1 + (seed + number) % 2] if seed % 3 == 0 else NAMESPACES[:1]
        looks = NAMESPACES[:1] if chance.random() < 0.3 else ()
        rate = slow if number == 0 else None
        cluster.add_program(name, dict.fromkeys(spaces, name), looks, rate)
    if chance.random() < 0.3:
        cluster.add_program("twin", {"red": "owner-1"})  # Somebody copied a configuration.
    for number in range(2):
        cluster.add_program(f"lookup-{number + 1}", {}, NAMESPACES if seed % 3 == 0 else ("red",))
    return cluster


def any_kind(cluster: Cluster) -> Trouble:
    """Some of everything."""
    chance = cluster.world.chance
    weather = Weather(
        loss=chance.choice([0.0, 0.02, 0.2]),
        loss_direct=chance.choice([0.0, 0.02, 0.2]),
        copies=chance.choice([0.0, 0.1]),
        delay_s=chance.choice(DELAYS_S),
        delay_s_max=120.0,
        steady=chance.random() < 0.5,
        stragglers=chance.choice([0.0, 0.02, 0.1, 0.3]),
    )
    store = StoreWeather(
        delay_s=chance.choice([0.002, 0.002, 0.02, 0.2]),
        slow=chance.choice([0.0, 0.0, 0.02, 0.2]),
        failing=chance.choice([0.0, 0.0, 0.05]),
        in_doubt=chance.choice([0.0, 0.02, 0.2]),
    )
    harms = ["restart", "pause", "cut", "isolate", "leave", "hub", "resign"]
    for kind, share in (("kill", 0.7), ("store", 0.5), ("hubs", 0.3), ("roll_back", 0.1)):
        if chance.random() < share:
            harms.append(kind)
    every_s, harm_s_max = chance.choice([2.0, 5.0, 10.0]), chance.choice([2.0, 6.0, 15.0])
    return Trouble(weather, store, every_s, harm_s_max, harms)


def slow_answers(cluster: Cluster) -> Trouble:
    """Answers take about as long as leases last, asks do not: every race there is."""
    chance = cluster.world.chance
    weather = Weather(copies=0.1, delay_s=(0.001, 0.1), delay_s_max=120.0, steady=True)
    answers_s = cluster.timing.owner_ttl_s * chance.uniform(0.7, 1.1)
    harms = ["restart", "kill", "leave", "pause", "isolate"]
    every_s, harm_s_max = chance.choice([(2.0, 6.0), (8.0, 6.0), (8.0, 25.0)])
    return Trouble(weather, StoreWeather(), every_s, harm_s_max, harms, answers_s)


def stragglers(cluster: Cluster) -> Trouble:
    """Frames of long ago keep coming in, while owners come and go."""
    chance = cluster.world.chance
    share = chance.choice([0.1, 0.3, 0.6])
    weather = Weather(loss_direct=0.1, copies=0.2, delay_s_max=120.0, stragglers=share)
    harms = ["restart", "kill", "leave", "pause", "isolate"]
    return Trouble(weather, StoreWeather(), chance.choice([1.0, 3.0]), 8.0, harms)


def store_trouble(cluster: Cluster) -> Trouble:
    """The network is fine; the store is slow, fails and leaves in doubt, and leaders pause."""
    chance = cluster.world.chance
    store = StoreWeather(
        delay_s=chance.choice([0.002, 0.1, 0.3]),
        slow=chance.choice([0.05, 0.2, 0.6]),
        failing=chance.choice([0.0, 0.05]),
        in_doubt=chance.choice([0.0, 0.05, 0.3]),
    )
    weather = Weather(delay_s=(0.001, 0.05), delay_s_max=120.0, stragglers=0.02)
    harms = ["leader", "leader", "restart", "resign", "leave", "store", "cut"]
    return Trouble(weather, store, chance.choice([1.0, 3.0]), 4.0, harms)


def rolled_back(cluster: Cluster) -> Trouble:
    """An old copy of the store is put in its place, with or without restarting the managers."""
    chance = cluster.world.chance
    weather = Weather(delay_s=(0.001, 0.05), delay_s_max=120.0, stragglers=0.05)
    harms = ["roll_back", "roll_back", "restart", "kill", "leader", "isolate", "leave"]
    return Trouble(weather, StoreWeather(), chance.choice([2.0, 4.0]), 8.0, harms)


class Troubles:
    """Does harm to a cluster."""

    def __init__(self, cluster: Cluster, trouble: Trouble, rolled_back: Callable[[], None]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._trouble = trouble
        self._rolled_back = rolled_back
        self._verbs: dict[str, Callable[[str, float], None]] = {
            "restart": self._restart,
            "kill": self._kill,
            "pause": self._world.pause,
            "leader": self._pause_leader,
            "cut": self._cut,
            "isolate": self._world.isolate,
            "leave": self._leave,
            "resign": self._resign,
            "hub": self._one_hub,
            "hubs": self._both_hubs,
            "store": self._trouble_store,
            "roll_back": self._roll_back,
        }

    def begin(self) -> None:
        trouble = self._trouble
        self._world.log(f"trouble: {trouble}")
        self._world.weather = trouble.weather
        self._cluster.store.weather = trouble.store
        if trouble.answers_s:
            for manager in self._cluster.managers:
                for program in self._cluster.programs:
                    self._world.slow_down(manager, program, trouble.answers_s)
        self._world.hurt(trouble.every_s, self._harm)

    def end(self) -> None:
        self._cluster.store.heal()
        self._world.heal()

        def start() -> None:
            for name in self._processes:
                self._cluster.start(name)

        self._world.after(LEAVE_S + STOP_S, start)  # Some are about to leave.

    def _harm(self) -> None:
        chance = self._world.chance
        seconds = chance.uniform(0, self._trouble.harm_s_max)
        # The leader is worth more trouble than others.
        one = chance.choice([*self._processes, *self._cluster.leaders() * 2])
        self._verbs[chance.choice(self._trouble.harms)](one, seconds)

    @property
    def _processes(self) -> list[str]:
        return [*self._cluster.managers, *self._cluster.programs]

    def _restart(self, name: str, seconds: float) -> None:
        self._kill(name, 0.0)

    def _pause_leader(self, name: str, seconds: float) -> None:
        for leader in self._cluster.leaders():
            self._world.pause(leader, seconds)

    def _cut(self, name: str, seconds: float) -> None:
        others = [each for each in [*self._processes, *HUBS, STORE] if each != name]
        self._world.cut(name, self._world.chance.choice(others), seconds)

    def _kill(self, name: str, seconds: float) -> None:
        self._cluster.kill(name, vouched=self._world.chance.random() < 0.4)
        self._world.after(seconds, lambda: self._cluster.start(name))

    def _leave(self, name: str, seconds: float) -> None:
        name = self._world.chance.choice(self._cluster.programs)
        self._cluster.leave(name, LEAVE_S)
        self._world.after(LEAVE_S + STOP_S + seconds, lambda: self._cluster.start(name))

    def _resign(self, name: str, seconds: float) -> None:
        name = self._world.chance.choice(self._cluster.managers)
        self._cluster.resign(name)
        self._world.after(1.0 + seconds, lambda: self._cluster.start(name))

    def _one_hub(self, name: str, seconds: float) -> None:
        self._hub_down(self._world.chance.choice(HUBS), seconds)

    def _both_hubs(self, name: str, seconds: float) -> None:
        for hub in HUBS:
            self._hub_down(hub, seconds)

    def _hub_down(self, hub: str, seconds: float) -> None:
        self._world.kill(hub)
        self._world.after(seconds, lambda: self._world.start(hub))

    def _trouble_store(self, name: str, seconds: float) -> None:
        kind = self._world.chance.choice(["locked", "full", "down"])
        self._cluster.store.trouble(kind, seconds)

    def _roll_back(self, name: str, seconds: float) -> None:
        chance = self._world.chance
        restored = [name for name in self._cluster.managers if chance.random() < 0.5]
        for each in restored:
            self._cluster.kill(each)
        self._cluster.store.roll_back(chance.uniform(ROLL_BACK_S_MIN, ROLL_BACK_S_MAX))
        self._rolled_back()

        def start() -> None:
            for each in restored:
                self._cluster.start(each)

        self._world.after(0.1, start)
