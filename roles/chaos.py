"""Make a running cluster sick on purpose, one verb each; what heals does so by itself.

    with Chaos(cluster, seed=7) as chaos:
        fault = chaos.hang("brick-1", for_s=5)        # returns once it is so
        chaos.crash(*chaos.pick("brick", 2))
        fault.wait()                                  # or `fault.heal()`, at once

`cluster` is a `roles.Cluster`; with a `LocalCluster`, its `local.cluster`, made with
`settings={"chaos": True}`. Every verb takes one id or more, and does it to all of them at the same
time. It waits as gevent does, and raises a `BusError` with a sentence if it cannot be done; then
nothing is left of it. Times (`began_at`, `healed_at`) are of `bus.clock.now`.

`slow`, `drop`, `leak`, `clock` and `flip_value` are asked of the process itself, over the bus,
wherever it runs. All else is done from outside, to processes of this machine. docs/chaos.md says
of each what it is a model of.

What always holds:
  C1  Nothing is done to a cluster whose configuration does not say `chaos = true`.
  C2  Nothing is done to a program that merely links the cluster, nor to anybody else's process.
  C3  What can heal does so after `for_s`, on `close`, or when this process ends, however it ends:
      a guard outside of it sees to that, and knows how before the fault begins.
  C4  Who is stopped or cannot write already is refused, for the end of one of two such faults would
      be that of both, or of none.
"""

import itertools
import os
import signal
from collections.abc import Sequence
from functools import partial
from random import Random, SystemRandom
from types import TracebackType

from bus.config import HUB, MANAGER
from bus.errors import ConfigError, NotReady
from bus.messages import InjectFault
from roles.chaos_filters import check_namespace, lose
from roles.chaos_guard import Undo
from roles.chaos_injected import Injected, Injector, Told, all_of
from roles.chaos_processes import (
    Found,
    check_goes_on,
    file_limits,
    find,
    is_running,
    limit_files,
    send,
    spoil_stack,
    stop,
    wait_gone,
    watchdog_of,
)
from roles.chaos_targets import agent_of, chosen
from roles.cluster import Cluster

__all__ = ["Chaos", "Injected"]

FOR_S = 10.0
SLOW_S = 0.001
LEAK_BYTES_PER_S = 10e6
LOST_SHARE = 0.7
AHEAD_S = 3600.0
SEED_MAX = 2**32 - 1

_tables = itertools.count(1)


class Chaos:
    """Use it in one thread, with `with`, or `close` it."""

    def __init__(
        self, cluster: Cluster, *, seed: int | None = None, told: Told | None = None
    ) -> None:
        """`seed`: what chance decides by; drawn if not given. `told`: hears of every fault, and of
        its end, as a `roles.chaos_record.Record`. Raises `ConfigError` if this cluster is not to
        be harmed."""
        if not cluster.config.chaos:  # C1
            raise ConfigError(
                f"{cluster.config.source} does not say `chaos = true`, so nothing is done to this "
                "cluster; say it there, and start the cluster again, if it may be harmed"
            )
        self.config = cluster.config
        self.seed = SystemRandom().randint(0, SEED_MAX) if seed is None else seed
        self._random = Random(self.seed)
        self._injector = Injector(cluster, self.seed, told)

    def pick(self, role: str, count: int = 1) -> list[str]:
        """So many of that role that run on this machine, by chance."""
        ids = chosen(list(find(self.config)), role, count, self._random)
        if not ids:
            raise NotReady(f"no {role} of {self.config.source} runs on this machine")
        return ids

    def everyone(self, role: str) -> list[str]:
        """All of that role that run on this machine."""
        return sorted(self.pick(role, len(find(self.config))))

    # From outside.

    def crash(self, *ids: str) -> Injected:
        """SIGKILL. Returns when it has ended; an agent takes its node with it."""
        processes = self._processes(ids)
        for process in processes:
            send(process, signal.SIGKILL)
        wait_gone(processes)
        return self._injector.done(Injected("crash", ids, "killed"))

    def hang(self, *ids: str, for_s: float = FOR_S) -> Injected:
        """SIGSTOP, and SIGCONT at the end: it is there, and does nothing."""
        processes = self._processes(ids)
        undo = [_to_continue(process) for process in processes]

        def begin() -> None:
            for process in processes:
                send(process, signal.SIGSTOP)
            for process in processes:
                stop(process)

        return self._injector.outside(Injected("hang", ids, "stopped", for_s), undo, begin)

    def flip_image(self, *ids: str) -> Injected:
        """Flip bits in its memory, near the stack pointer, until it ends or has had so many that
        it seems not to mind; `detail` says which."""
        processes = self._processes(ids)
        flips = sum(
            all_of(
                [
                    partial(spoil_stack, process, Random(self._random.random()))
                    for process in processes
                ]
            )
        )
        alive = [process.life.id for process in processes if is_running(process)]
        end = f"{' '.join(alive)} lived on" if alive else "ended"
        noun = "bit" if flips == 1 else "bits"
        return self._injector.done(Injected("flip-image", ids, f"{flips} {noun} flipped, {end}"))

    def disk(self, *ids: str, for_s: float = FOR_S) -> Injected:
        """The store of the lease managers takes no more: whatever these (without ids, all of this
        machine) write to a file fails. They go on under that until they end."""
        if self.config.store.kind != "sqlite":
            raise ConfigError(
                f"the store is {self.config.store.kind}, which is no process of this cluster"
            )
        ids = ids or tuple(self.everyone(MANAGER))
        others = [each for each in ids if each.rpartition("-")[0] != MANAGER]
        if others:
            raise ConfigError(f"{others[0]} has no store; that is a matter of lease managers")
        processes = self._processes(ids)
        undo = [_to_write(process) for process in processes]

        def begin() -> None:
            for process in processes:
                limit_files(process, 0)

        injected = Injected("disk", ids, "writes to files fail", for_s)
        return self._injector.outside(injected, undo, begin)

    def hub(self, *ids: str, for_s: float = FOR_S, hang: bool = False) -> Injected:
        """Lose hubs (without ids, one by chance): killed, or with `hang` stopped."""
        ids = ids or tuple(self.pick(HUB))
        others = [each for each in ids if each.rpartition("-")[0] != HUB]
        if others:
            raise ConfigError(f"{others[0]} is no hub")
        return self.hang(*ids, for_s=for_s) if hang else self.crash(*ids)

    def node(self, *nodes: str, for_s: float = FOR_S) -> Injected:
        """Lose nodes: all of their processes are killed, and nobody starts them again or vouches
        for their end. Then their watchdogs go on, and bring them back."""
        agents = self._processes([self._agent_id(node) for node in nodes])
        watchdogs = {agent: watchdog_of(agent) for agent in agents}
        orphans = [agent.life.id for agent, watchdog in watchdogs.items() if watchdog is None]
        if orphans:
            raise NotReady(f"{orphans[0]} has no watchdog, so it would not come back")
        stopped = {watchdog for watchdog in watchdogs.values() if watchdog is not None}

        def begin() -> None:
            for watchdog in stopped:
                stop(watchdog)
            for agent in agents:
                send(agent, signal.SIGKILL)
            wait_gone(agents)

        undo = [_to_continue(watchdog) for watchdog in stopped]
        return self._injector.outside(Injected("node", nodes, "gone", for_s), undo, begin)

    def packets(self, *nodes: str, for_s: float = FOR_S, share: float = LOST_SHARE) -> Injected:
        """Lose that share of the packets from and to these nodes; their processes reach each
        other. Needs `softstate up --hosts`."""
        if not 0 < share <= 1:
            raise ConfigError(f"a share of {share:g}: above 0, at most 1")
        cuts = [
            (self._agent_id(other), "" if other == node else self.config.address_of(node))
            for node in nodes
            for other in self.config.nodes
        ]
        injected = Injected("packets", nodes, f"{share:.0%} of packets lost", for_s)
        return self._filtered(injected, cuts, share)

    def partition(
        self, one: str, other: str, *, for_s: float = FOR_S, one_way: bool = False
    ) -> Injected:
        """What node `one` sends no longer reaches node `other`; nor the other way round, unless
        `one_way`. Needs `softstate up --hosts`."""
        if one == other:
            raise ConfigError(f"{one} cannot be cut off from itself")
        cuts = [(self._agent_id(other), self.config.address_of(one))]
        if not one_way:
            cuts.append((self._agent_id(one), self.config.address_of(other)))
        detail = f"nothing from {one} reaches {other}" if one_way else "cut off from each other"
        return self._filtered(Injected("partition", (one, other), detail, for_s), cuts, 1.0)

    # From inside.

    def slow(self, *ids: str, for_s: float = FOR_S, seconds: float = SLOW_S) -> Injected:
        """Stand still for so long before each message that comes in."""
        ask = InjectFault("slow", seconds, for_s)
        return self._injector.inside(
            Injected("slow", ids, f"{seconds:g} s before each message", for_s), ask
        )

    def drop(self, *ids: str, for_s: float = FOR_S, share: float = LOST_SHARE) -> Injected:
        """Lose that share of what it sends: requests, answers, beacons, events."""
        ask = InjectFault("drop", share, for_s)
        return self._injector.inside(
            Injected("drop", ids, f"{share:.0%} of what it sends is lost", for_s), ask
        )

    def leak(
        self, *ids: str, for_s: float = FOR_S, bytes_per_s: float = LEAK_BYTES_PER_S
    ) -> Injected:
        """Use so much more memory each second, up to a bound; given back in the end."""
        ask = InjectFault("leak", bytes_per_s, for_s)
        return self._injector.inside(
            Injected("leak", ids, f"{bytes_per_s / 1e6:g} MB/s", for_s), ask
        )

    def clock(self, *ids: str, for_s: float = FOR_S, ahead_s: float = AHEAD_S) -> Injected:
        """Its wall clock is so much ahead, or behind if negative."""
        ask = InjectFault("clock", ahead_s, for_s)
        return self._injector.inside(Injected("clock", ids, f"{ahead_s:+g} s", for_s), ask)

    def flip_value(self, *ids: str, count: int = 1) -> Injected:
        """Flip a bit in so many of the values that a brick holds."""
        noun = "value" if count == 1 else "values"
        ask = InjectFault("flip", float(count), 1.0)
        self._injector.ask(ids, ask)
        return self._injector.done(Injected("flip-value", ids, f"a bit in {count} {noun}"))

    # The end.

    def close(self) -> None:
        """Heal what is left, and leave the cluster."""
        self._injector.close()  # C3

    def __enter__(self) -> "Chaos":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # How it is done.

    def _processes(self, ids: Sequence[str]) -> list[Found]:
        if not ids:
            raise ConfigError("name at least one component")
        found = find(self.config)
        for component_id in ids:
            if component_id not in found:  # C2
                raise NotReady(
                    f"{component_id} is no process that the agents of {self.config.source} run on "
                    "this machine, as far as this user sees; there are "
                    f"{', '.join(sorted(found)) or 'none'}"
                )
        return [found[component_id] for component_id in dict.fromkeys(ids)]

    def _agent_id(self, node: str) -> str:
        agent = agent_of(self.config, node)
        if agent is None:
            raise ConfigError(f"no node {node}; there are {', '.join(self.config.nodes)}")
        return agent.id

    def _filtered(self, injected: Injected, cuts: list[tuple[str, str]], share: float) -> Injected:
        """`cuts`: the agent in whose namespace it is lost, and whose packets; empty: all."""
        places = []
        for agent_id, sender in cuts:
            agent = self._processes([agent_id])[0]
            check_namespace(agent.pid, agent_id)
            table = f"softstate_chaos_{os.getpid()}_{next(_tables)}"
            places.append((agent, table, sender))
        undo: list[Undo] = [
            ["filter", agent.pid, agent.started, table] for agent, table, _ in places
        ]

        def begin() -> None:
            for agent, table, sender in places:
                lose(agent.pid, table, share, sender)

        return self._injector.outside(injected, undo, begin)


def _to_continue(process: Found) -> Undo:
    check_goes_on(process)  # C4
    return ["continue", process.pid, process.started]


def _to_write(process: Found) -> Undo:
    soft, hard = file_limits(process)
    if soft == 0:  # C4
        raise NotReady(f"{process.life.id} cannot write as it is; wait until that fault is over")
    return ["limit", process.pid, process.started, soft, hard]
