"""What process peers and agents promise together, as scenarios: one function a promise.

Each raises AssertionError, with the transcript, if the promise is broken. They take the classes
under test, so that planted faults can be shown to be caught (`test_healing_simulation.py`).
Times: a period is 1 s; a process takes up to 1.5 s to its first beacon; silence is death after 4 s.
"""

from collections.abc import Callable

from bus.config import NODE
from bus.config_shape import RestartsConfig
from bus.liveness import FORGET_S
from bus.messages import Refused
from bus.process_orders import RestartProcess
from roles.agent import Agent
from roles.agent_states import Action, Offline
from tests.simulation.healing_cluster import Cluster, Kinds
from tests.world import CALM, Effect, Weather

Promise = Callable[[int, Kinds], Cluster]

DELAYS_S = (0.001, 0.03, 0.1)
ROUGH = Weather(loss=0.02, loss_direct=0.02, copies=0.1, delay_s=DELAYS_S)
UP_S = 12.0  # After that, at the beginning, all is live and every healer has settled.
VOUCHED_S = 5.0
"""Reaped, noticed, a turn or two of spares, started, heard; with one retry, as news gets lost."""
HUNG_S = 4.0 + 1.0 + VOUCHED_S
WHOLE_S = 45.0
"""After any trouble: silence, a watchdog, spaced starts, and the longest wait between orders."""


def begin(seed: int, kinds: Kinds, weather: Weather = ROUGH) -> Cluster:
    cluster = Cluster(seed, kinds=kinds, weather=weather)
    cluster.world.run(UP_S + cluster.world.chance.uniform(0, 1))
    return cluster


def others(cluster: Cluster) -> list[str]:
    """The names of all but agents."""
    return sorted(name for name in cluster.pids if not name.startswith("node-"))


def a_start_of_everything_is_left_alone(seed: int, kinds: Kinds) -> Cluster:
    """Nobody restarts what is just starting, and nothing at all while all is well."""
    cluster = Cluster(seed, kinds=kinds, weather=ROUGH)
    cluster.world.run(60.0)
    cluster.must(not cluster.restarted(), f"restarted: {cluster.restarted()}")
    cluster.all_must_live_once()
    return cluster


def what_is_killed_is_back_soon_and_nothing_else_is_touched(seed: int, kinds: Kinds) -> Cluster:
    cluster = begin(seed, kinds)
    victims = cluster.world.chance.sample(others(cluster), 2)
    before = dict(cluster.pids)
    for victim in victims:
        cluster.kill(victim)
    cluster.world.run(2 * VOUCHED_S)
    cluster.all_must_live_once()
    changed = {name for name in before if cluster.pids.get(name) != before[name]}
    cluster.must(changed == set(victims), f"killed {victims}, and changed are {changed}")
    return cluster


def what_hangs_is_replaced_soon(seed: int, kinds: Kinds) -> Cluster:
    cluster = begin(seed, kinds)
    victim = cluster.world.chance.choice(others(cluster))
    before = cluster.pids[victim]
    cluster.pause(victim, 1000.0)
    cluster.world.run(HUNG_S + VOUCHED_S)
    cluster.must(cluster.pids.get(victim, before) != before, f"{victim} hangs")
    cluster.all_must_live_once()
    return cluster


def healers_are_spares_of_each_other(seed: int, kinds: Kinds) -> Cluster:
    """Both managers die with a brick: agents see to it."""
    cluster = begin(seed, kinds)
    for component_id in ("manager-1", "manager-2", "brick-1"):
        cluster.kill(cluster.run_of(component_id)[0])
    cluster.world.run(2 * VOUCHED_S)
    cluster.all_must_live_once()
    return cluster


def a_hung_healer_holds_nobody_up(seed: int, kinds: Kinds) -> Cluster:
    """The first healer stops, and then a brick dies, before anybody could miss the healer."""
    cluster = begin(seed, kinds)
    cluster.pause("manager-1@n1", 1000.0)
    cluster.world.run(0.2)
    cluster.kill(cluster.run_of("brick-3")[0])
    cluster.world.run(2 * VOUCHED_S)
    cluster.must(len(cluster.run_of("brick-3")) == 1, "nobody started brick-3")
    return cluster


def orders_that_come_late_or_twice_change_nothing(seed: int, kinds: Kinds) -> Cluster:
    """Of a life that was over long ago, from each healer, to each agent."""
    cluster = begin(seed, kinds, CALM)
    before = dict(cluster.pids)
    for me in cluster.running():
        order = RestartProcess(me.id, me.incarnation - 1, "yesterday's")
        for healer in ("manager-1@n1", "node-2"):
            if me.role != NODE:
                cluster.have_asked(healer, cluster.agents[me.node], order)
    cluster.world.run(5.0)
    cluster.must(dict(cluster.pids) == before, "something was restarted")
    return cluster


def what_was_on_a_lost_node_runs_elsewhere_and_only_there(seed: int, kinds: Kinds) -> Cluster:
    """The node comes back later: what lives elsewhere stays there, and is not started again."""
    cluster = begin(seed, kinds, Weather(delay_s=DELAYS_S))
    cluster.lose("n3", 40.0)
    cluster.world.run(30.0)
    names = cluster.run_of("brick-3")
    cluster.must(names in (["brick-3@n1"], ["brick-3@n2"]), f"brick-3 runs as {names}")
    pid = cluster.pids[names[0]]

    def never_twice() -> None:
        cluster.must(len(cluster.run_of("brick-3")) == 1, f"{cluster.run_of('brick-3')}")

    cluster.world.run(30.0, never_twice)
    cluster.must(cluster.pids.get(names[0]) == pid, "it was restarted needlessly")
    cluster.all_must_live_once()
    return cluster


def who_is_cut_off_starts_nothing(seed: int, kinds: Kinds) -> Cluster:
    """One node of three is cut off for a while; it goes on with what it has, and is blind."""
    cluster = begin(seed, kinds, Weather(delay_s=DELAYS_S))
    return cut_off(cluster, cluster.world.chance.uniform(10.0, 40.0))


def who_is_cut_off_for_long_starts_nothing(seed: int, kinds: Kinds) -> Cluster:
    """For so long that it forgets the others, and is blind no more."""
    cluster = Cluster(seed, kinds=kinds, weather=Weather(delay_s=DELAYS_S), hubs=3)
    cluster.world.run(UP_S)
    return cut_off(cluster, FORGET_S + 30.0)


def cut_off(cluster: Cluster, seconds: float) -> Cluster:
    world = cluster.world
    here = cluster.node_names("n3")
    there = [name for name in (*world.nodes, *world.hubs) if name not in here]
    for mine in here:
        for other in there:
            world.cut(mine, other, seconds)
            world.cut(other, mine, seconds)
    before = len(cluster.node_names("n3"))
    world.run(seconds, lambda: cluster.must(len(cluster.node_names("n3")) <= before, "it started"))
    cluster.must_be_whole_within(WHOLE_S)
    return cluster


def the_loss_of_half_is_healed_when_the_blindness_ends(seed: int, kinds: Kinds) -> Cluster:
    """Of two nodes the one with more processes is lost, for good: the other cannot tell that from
    being cut off itself."""
    cluster = Cluster(seed, kinds=kinds, weather=Weather(delay_s=DELAYS_S), nodes=2)
    cluster.world.run(UP_S)
    cluster.lose("n1", 10_000.0)
    cluster.world.run(FORGET_S - 10.0)
    cluster.must(not cluster.restarted(), f"blind, and restarted {cluster.restarted()}")
    cluster.world.run(10.0 + WHOLE_S)
    names = sorted(cluster.pids)
    here = ["brick-1@n2", "brick-2@n2", "brick-3@n2", "hub-2", "manager-1@n2", "manager-2@n2"]
    cluster.must(names == [*here, "node-2"], f"there are {names}")
    return cluster


def what_is_ended_on_purpose_stays_ended(seed: int, kinds: Kinds) -> Cluster:
    """By a person, and by a node that ends in good order."""
    cluster = begin(seed, kinds)
    name = cluster.run_of("brick-2")[0]
    node = cluster.world.nodes["node-2"]
    if seed % 2:
        node.do(
            lambda _, now: perform(cluster, lambda agent: agent.end("brick-2", "term", now), now)
        )
        cluster.world.run(30.0)
    else:
        cluster.lost.add("n2")  # Nobody starts it again.
        node.do(lambda _, now: perform(cluster, lambda agent: agent.stop(now), now))
        cluster.world.run(0.3)
        cluster.kill("node-2", 0)
        cluster.world.run(30.0)
    cluster.must(name not in cluster.pids, f"{name} was brought back")
    cluster.must(not cluster.run_of("brick-2"), f"runs: {cluster.run_of('brick-2')}")
    cluster.must(not cluster.restarted(), f"restarted: {cluster.restarted()}")
    return cluster


def perform(
    cluster: Cluster, ask: Callable[[Agent], list[Action] | Refused], now: float
) -> list[Effect]:
    agent = cluster.agent("n2")
    actions = ask(agent.agent)
    assert isinstance(actions, list)
    return agent.perform(actions, now)


def what_keeps_failing_goes_offline_and_nothing_else(seed: int, kinds: Kinds) -> Cluster:
    restarts = RestartsConfig(offline_after=3, crash_s=5.0)
    cluster = Cluster(seed, kinds=kinds, weather=ROUGH, restarts=restarts)
    cluster.world.run(UP_S)
    starts = 0
    for _ in range(40):
        for name in cluster.run_of("brick-2"):
            starts += 1
            cluster.kill(name)
        cluster.world.run(2.0)
    cluster.must(starts == 4, f"it was started {starts} times")
    offline = [
        component_id
        for node in cluster.agents
        for component_id, state in cluster.agent(node).agent.states().items()
        if isinstance(state, Offline)
    ]
    cluster.must(offline == ["brick-2"], f"offline: {offline}")
    return cluster


def all_is_whole_after_any_trouble(seed: int, kinds: Kinds) -> Cluster:
    """Whatever was killed, stopped, cut off or lost: when that is over, every planned process is
    live once, wherever. Meanwhile a node never has two of one id (checked as it goes)."""
    cluster = Cluster(seed, kinds=kinds)
    world = cluster.world
    world.run(UP_S)
    loss = world.chance.choice([0.0, 0.05, 0.3])
    world.weather = Weather(loss=loss, loss_direct=loss, copies=0.1, delay_s=DELAYS_S)
    world.hurt(world.chance.choice([1.0, 3.0]), lambda: harm(cluster))
    world.run(30.0)
    world.heal(start=False)
    cluster.find_nodes()
    cluster.must_be_whole_within(WHOLE_S)
    return cluster


def harm(cluster: Cluster) -> None:
    world = cluster.world
    names = sorted(cluster.pids)
    if not names:
        return
    name, seconds = world.chance.choice(names), world.chance.uniform(0.0, 12.0)
    match world.chance.choice(["kill", "kill", "pause", "isolate", "lose"]):
        case "kill":
            cluster.kill(name)
        case "pause":
            cluster.pause(name, seconds)
        case "isolate":
            world.isolate(name, seconds)
        case _:
            cluster.lose(world.chance.choice(sorted(cluster.agents)), 2.5 * seconds)


PROMISES: dict[Promise, int] = {
    a_start_of_everything_is_left_alone: 4,
    what_is_killed_is_back_soon_and_nothing_else_is_touched: 20,
    what_hangs_is_replaced_soon: 10,
    healers_are_spares_of_each_other: 10,
    a_hung_healer_holds_nobody_up: 10,
    orders_that_come_late_or_twice_change_nothing: 5,
    what_was_on_a_lost_node_runs_elsewhere_and_only_there: 10,
    who_is_cut_off_starts_nothing: 10,
    who_is_cut_off_for_long_starts_nothing: 1,
    the_loss_of_half_is_healed_when_the_blindness_ends: 2,
    what_is_ended_on_purpose_stays_ended: 10,
    what_keeps_failing_goes_offline_and_nothing_else: 4,
    all_is_whole_after_any_trouble: 40,
}
"""Each with how many seeds it is run for."""
