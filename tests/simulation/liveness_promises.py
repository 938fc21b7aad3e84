"""What the liveness table promises, as scenarios: one function a promise, run for many seeds.

Each raises AssertionError, with the transcript, if the promise is broken. They take the class of
the table, so that planted faults can be shown to be caught (`test_liveness_sabotage.py`).
Times: a period is 1 s; clocks run up to 1 % fast or slow; a path takes up to 0.4 s.
"""

from collections.abc import Callable

from bus.liveness import FORGET_S, Liveness
from bus.peers import Died, Forgotten, HubsSuspected, ResignTo, Suspected
from tests.simulation.liveness_cluster import HUBS, PERIOD_S, Cluster
from tests.world import HARM_S_MAX, Weather

Promise = Callable[[int, type[Liveness]], Cluster]

DELAYS_S = (0.001, 0.03, 0.1, 0.2)
ROUGH = Weather(loss=0.02, copies=0.1, delay_s=DELAYS_S)
DEAD_S = 4 * PERIOD_S + PERIOD_S + 1.0
"""Three and one periods, one of slack, and two delays with a drift of 1 %."""
TWO_PERIODS_S = 2 * PERIOD_S + 0.1
"""Two periods by the slowest clock, with calm delays."""


def the_killed_are_dead_within_the_bound(seed: int, table: type[Liveness]) -> Cluster:
    """Who is killed is dead in every table in time, even if its beacons were lost before."""
    cluster = Cluster(seed, table=table, weather=ROUGH)
    world = cluster.world
    if seed % 2:
        for hub in HUBS:
            world.cut_news("brick-1", hub)  # Its beacons are lost; it still answers pings.
        world.run(world.chance.uniform(5, 8))
        cluster.must(not cluster.wrongly_dead(), f"died, yet answers: {cluster.wrongly_dead()}")
    world.kill("brick-1")
    world.run(DEAD_S)
    for observer in cluster.up():
        seen = observer.table.peer("brick-1")
        cluster.must(seen and seen.state == "dead", f"{observer.id} sees {seen}")
    cluster.must(not cluster.wrongly_dead(), f"died, yet live: {cluster.wrongly_dead()}")
    return cluster


def hub_trouble_kills_nobody(seed: int, table: type[Liveness]) -> Cluster:
    """However many beacons are lost, up to all, who answers pings is not declared dead.

    Hubs are stopped, killed and started, bricks cut off from them or stopped for a moment;
    direct paths are slow but whole. (A hub that is down may be declared dead: it is.)
    """
    cluster = Cluster(seed, table=table, deduplicates=seed % 2 == 0)
    world = cluster.world
    loss = world.chance.choice([0.1, 0.3, 0.7, 1.0])
    world.weather = Weather(loss=loss, copies=0.1, delay_s=DELAYS_S, delay_s_max=0.35)
    for _ in range(6):
        hub, brick = world.chance.choice(HUBS), world.chance.choice(cluster.members[2:])
        seconds = world.chance.uniform(0, HARM_S_MAX)
        match world.chance.choice(["pause", "kill", "start", "cut", "stop"]):
            case "pause":
                world.pause(hub, seconds)
            case "kill":
                world.kill(hub)
            case "start":
                world.start(hub)
            case "cut":
                world.cut_news(brick, hub, seconds)
                world.cut_news(hub, brick, seconds)
            case _:
                world.pause(brick, world.chance.uniform(0, 0.2))
        world.run(world.chance.uniform(0.5, 4))
    dead = [note for note in cluster.wrongly_dead() if note[2].id not in HUBS]
    cluster.must(not dead, f"died of hub trouble: {dead}")
    world.heal()
    world.run(TWO_PERIODS_S)
    cluster.everyone_is_live_in_every_table()
    return cluster


def one_hub_of_two_is_not_missed(seed: int, table: type[Liveness]) -> Cluster:
    """Nobody but the hub that was killed is ever suspect, and the hubs are not suspected."""
    cluster = Cluster(seed, table=table, weather=Weather(copies=0.1, delay_s=(0.001, 0.03, 0.1)))
    cluster.world.run(cluster.world.chance.uniform(0, PERIOD_S))
    cluster.world.kill("hub-1")
    cluster.world.run(10)
    suspected = {note[2].id for note in cluster.notes(Suspected)}
    cluster.must(suspected == {"hub-1"}, f"suspected: {suspected}")
    cluster.must(not cluster.notes(HubsSuspected), "one hub is enough")
    return cluster


def both_hubs_down_and_back_kill_nobody(seed: int, table: type[Liveness]) -> Cluster:
    """No `Died` at all, not even of the hubs themselves: there is nobody to tell by."""
    cluster = Cluster(seed, table=table, weather=Weather(delay_s=DELAYS_S))
    world = cluster.world
    world.run(world.chance.uniform(0, PERIOD_S))
    for hub in HUBS:
        world.kill(hub)
    world.run(world.chance.uniform(1, 20))
    for hub in HUBS:
        world.start(hub)
    world.run(6)
    cluster.must(not cluster.notes(Died), f"died: {cluster.notes(Died)}")
    world.heal()
    world.run(TWO_PERIODS_S)
    cluster.everyone_is_live_in_every_table()
    return cluster


def who_is_cut_off_condemns_nobody(seed: int, table: type[Liveness]) -> Cluster:
    """Isolated from all, then joined again: its table declares no one dead, then or after."""
    cluster = Cluster(seed, table=table, weather=Weather(delay_s=DELAYS_S))
    world = cluster.world
    world.run(world.chance.uniform(0, PERIOD_S))
    world.isolate("brick-1", world.chance.uniform(2, 15))
    world.run(25)
    died = cluster.notes(Died, by="brick-1")
    cluster.must(not died, f"the one cut off condemned {died}")
    cluster.everyone_is_live_in_every_table()
    return cluster


def who_was_stopped_suspects_nobody(seed: int, table: type[Liveness]) -> Cluster:
    """A pause of any length of the observer itself is not taken for its peers' silence.

    It says nothing more after the first words, that the others appeared.
    """
    cluster = Cluster(seed, table=table, weather=Weather(delay_s=(0.001, 0.03)))
    world = cluster.world
    world.run(world.chance.uniform(0, PERIOD_S))
    world.pause("brick-1", world.chance.uniform(1, 30))
    world.run(34)
    said = [note for note in world.noted if note[1] == "brick-1"][len(cluster.members) - 1 :]
    cluster.must(not said, f"the one that was stopped said {said}")
    return cluster


def a_vouched_exit_counts_even_when_blind(seed: int, table: type[Liveness]) -> Cluster:
    """Most are killed at once: nobody is condemned until an agent vouches, then all at once."""
    cluster = Cluster(seed, table=table, weather=Weather(copies=0.1, delay_s=DELAYS_S))
    world = cluster.world
    lives = {
        name: member.incarnation for name in cluster.members if (member := cluster.member(name))
    }
    killed = ["hub-2", "brick-2", "brick-3", "brick-4"]
    for name in killed:
        world.kill(name)
    world.run(world.chance.uniform(5, 9))
    cluster.must(not cluster.notes(Died), f"condemned while blind: {cluster.notes(Died)}")
    agent = cluster.member("hub-1")
    assert agent is not None
    for name in killed:
        world.perform("hub-1", agent.vouch(name, lives[name]))
    world.run(1.0)
    for observer in cluster.up():
        states = {name: observer.table.peer(name) for name in killed}
        dead = [name for name, peer in states.items() if peer and peer.state == "dead"]
        cluster.must(dead == killed, f"{observer.id} knows only {dead} to be dead")
    return cluster


def the_lesser_of_two_with_one_id_resigns(seed: int, table: type[Liveness]) -> Cluster:
    """A second brick-1 is started: the first is told to resign, the second never is."""
    cluster = Cluster(seed, table=table, weather=ROUGH)
    cluster.add("twin", "brick-1")
    cluster.world.run(3 * PERIOD_S + 1.0)
    told = {note[1] for note in cluster.notes(ResignTo)}
    cluster.must(told == {"brick-1"}, f"told to resign: {told}")
    return cluster


def the_dead_are_forgotten(seed: int, table: type[Liveness]) -> Cluster:
    """No sooner and not much later than the table says."""
    cluster = Cluster(seed, table=table, bricks=2)
    cluster.world.kill("brick-2")
    cluster.world.run(0.98 * FORGET_S)
    cluster.must(not cluster.notes(Forgotten), "forgotten too soon")
    cluster.world.run(0.02 * FORGET_S + 0.01 * FORGET_S + DEAD_S)
    forgotten = {note[1] for note in cluster.notes(Forgotten)}
    cluster.must(forgotten == {*HUBS, "brick-1"}, f"forgotten only by {forgotten}")
    return cluster


def all_is_well_after_any_trouble(seed: int, table: type[Liveness]) -> Cluster:
    """Whatever happened, two periods after it ended everyone is live in every table.

    Meanwhile, after every beacon: no table goes back to an older life or an older beacon, and
    nobody vouched dead comes back (checked by the members as they go).
    """
    cluster = Cluster(seed, table=table, deduplicates=seed % 2 == 0)
    world = cluster.world
    loss = world.chance.choice([0.0, 0.05, 0.3])
    world.weather = Weather(loss=loss, loss_direct=loss, copies=0.1, delay_s=DELAYS_S)
    world.hurt(every_s=world.chance.choice([0.7, 2.0, 5.0]))
    for _ in range(3):
        world.run(8)
        cluster.kill_and_vouch(world.chance.choice(cluster.members[2:]))
    world.heal()
    world.run(TWO_PERIODS_S)
    cluster.everyone_is_live_in_every_table()
    return cluster


PROMISES: dict[Promise, int] = {
    the_killed_are_dead_within_the_bound: 40,
    hub_trouble_kills_nobody: 40,
    one_hub_of_two_is_not_missed: 20,
    both_hubs_down_and_back_kill_nobody: 40,
    who_is_cut_off_condemns_nobody: 40,
    who_was_stopped_suspects_nobody: 20,
    a_vouched_exit_counts_even_when_blind: 20,
    the_lesser_of_two_with_one_id_resigns: 20,
    the_dead_are_forgotten: 1,
    all_is_well_after_any_trouble: 60,
}
"""Each with how many seeds it is run for."""
