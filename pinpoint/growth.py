"""When to start a brick more than planned, where, and when to give it back. Decides only.

While stubs keep refusing what users ask, a brick more can help, if a machine has room for it and
the bricks that are planned are all there. Its id is the next after the planned ones, by which
every later Pinpoint knows it for a spare. When one fewer will do (`pinpoint.refusals`), the spare
with the fewest sessions is asked to drain: it takes on nothing new, and ends when it is empty.

What always holds:
  G1  At most `spare_bricks` are there beyond the plan, the coming and draining ones included, and
      those that were heard in the last `RETURN_S`: what looks dead may be back in a moment.
  G2  One at a time: after each order nothing is ordered until its effect is seen, or `EFFECT_S_MAX`
      later, and then not before stubs have refused (or not) for the whole time anew.
  G3  Nothing is started while a planned brick is missing, a restart is on its way, we are blind,
      or all that is short is memory: then the cure is another.
  G4  No id is given that any peer is known by, dead or alive.
  G5  Nothing planned is ever drained.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from bus.config_shape import BRICK, NODE, PinpointConfig, Planned
from pinpoint.refusals import Refusals
from pinpoint.samples import Sample, Tick

EFFECT_S_MAX = 20.0
BUSY_RATIO_MAX = 0.8
BUSY = "machine_busy_ratio"
FULL_SHARE = 15 / 16  # From here on a brick refuses new sessions.
HERE = frozenset({"starting", "live", "suspect", "draining"})
RETURN_S = 60.0


class StartSpare(msgspec.Struct, frozen=True):
    id: str
    node: str
    reason: str


class DrainSpare(msgspec.Struct, frozen=True):
    id: str
    reason: str


Step = StartSpare | DrainSpare

Short = Literal["bricks", "restart", "memory", "spares", "room"]
SHORT: dict[Short, str] = {
    "bricks": "planned bricks are missing",
    "restart": "a brick is being restarted",
    "memory": "only memory is short",
    "spares": "all the spares that may be are there",
    "room": "no node has room",
}
"""Why none is started although stubs refuse, in words for people."""


class Grown(msgspec.Struct, frozen=True):
    step: Step | None = None
    short: Short | None = None


class Growth:
    def __init__(
        self,
        settings: PinpointConfig,
        plan: Iterable[Planned],
        nodes: Mapping[str, bool],
        brick_bytes_max: int,
    ) -> None:
        """`nodes`: each node's name, and whether it is overflow."""
        self._settings = settings
        self._planned = frozenset(each.id for each in plan if each.role == BRICK)
        self._nodes = nodes
        self._brick_bytes_max = brick_bytes_max
        self._refusals = Refusals(settings)
        self._ordered: tuple[Step, float] | None = None

    def tick(self, tick: Tick, *, restarting: bool) -> Grown:
        """`restarting`: whether one of the bricks is being replaced just now."""
        if tick.blind or self._settings.mode == "off":
            self._refusals.begin_anew()  # G3
            return Grown()
        bricks = {each.id: each for each in tick.samples if each.role == BRICK}
        live = sum(each.state == "live" for each in bricks.values())
        self._refusals.look(tick.demand, tick.at, live)
        spares = [each for each in bricks.values() if each.id not in self._planned]
        if self._is_waiting(bricks, tick.at):
            return Grown()
        if self._refusals.are_too_many(tick.at):
            grown = self._more(tick, bricks, spares, restarting=restarting)
        else:
            grown = self._fewer(tick.at, bricks, spares)
        match grown.step:
            case StartSpare():
                self._refusals.one_more(tick.at)
            case DrainSpare():
                self._refusals.one_fewer(tick.at)
            case None:
                return grown
        self._ordered = grown.step, tick.at
        self._refusals.begin_anew()  # G2
        return grown

    def _is_waiting(self, bricks: Mapping[str, Sample], at: float) -> bool:
        """G2: whether the effect of the last order is still to be seen."""
        if self._ordered is None:
            return False
        step, ordered_at = self._ordered
        brick = bricks.get(step.id)
        if isinstance(step, StartSpare):
            done = brick is not None and brick.state == "live"
        else:
            done = brick is None or brick.state not in HERE
        # One that drains for long is still seen to drain; until it does, the order may be lost.
        if done or not 0 <= at - ordered_at < EFFECT_S_MAX:
            self._ordered = None
            return False
        return True

    def _more(
        self,
        tick: Tick,
        bricks: Mapping[str, Sample],
        spares: Collection[Sample],
        *,
        restarting: bool,
    ) -> Grown:
        live = [each for each in bricks.values() if each.state == "live"]
        if self._planned - {each.id for each in live}:
            return Grown(short="bricks")  # G3
        if restarting:
            return Grown(short="restart")  # G3
        if self._is_memory_alone(live):
            return Grown(short="memory")  # G3
        self._refusals.for_want_of_bricks()
        if sum(map(_counts, spares)) >= self._settings.spare_bricks:
            return Grown(short="spares")  # G1
        node = self._node_with_room(tick, bricks)
        if node is None:
            return Grown(short="room")
        demand = tick.demand
        share = demand.refused_per_s / max(demand.asked_per_s, demand.refused_per_s)
        reason = (
            f"stubs refused {share:.0%} of {demand.asked_per_s:.0f} requests a second "
            f"for {self._settings.refused_s:g} s; {node} has room"
        )
        return Grown(StartSpare(self._free_id(bricks), node, reason))

    def _fewer(self, at: float, bricks: Mapping[str, Sample], spares: Collection[Sample]) -> Grown:
        calm_s = self._refusals.calm_s(at)
        if calm_s is None:
            return Grown()
        if self._planned - {each.id for each in bricks.values() if each.state == "live"}:
            return Grown()  # The spare stands in for one of them.
        if any(each.state == "draining" for each in spares):
            return Grown()  # G2
        live = [each for each in spares if each.state == "live"]  # G5
        if not live:
            return Grown()
        least = min(live, key=lambda each: (_statistic(each, "items"), each.id))
        reason = f"hardly anything was refused for {calm_s:.0f} s, and one fewer will do"
        return Grown(DrainSpare(least.id, reason))

    def _is_memory_alone(self, live: Collection[Sample]) -> bool:
        full = sum(
            _statistic(each, "memory_bytes") >= FULL_SHARE * self._brick_bytes_max for each in live
        )
        loaded = any(_statistic(each, "overloaded") > 0 for each in live)
        return full * 2 > len(live) and not loaded

    def _node_with_room(self, tick: Tick, bricks: Mapping[str, Sample]) -> str | None:
        """With the fewest bricks; overflow last; the first of the configuration, if still equal."""
        crowd = Counter(each.node for each in bricks.values() if each.state in HERE)
        order = {name: number for number, name in enumerate(self._nodes)}
        rooms = [
            (self._nodes[each.node], crowd[each.node], order[each.node], each.node)
            for each in tick.samples
            if each.role == NODE
            and each.state == "live"
            and each.node in self._nodes
            and _statistic(each, BUSY) < BUSY_RATIO_MAX
        ]
        return min(rooms)[-1] if rooms else None

    def _free_id(self, bricks: Mapping[str, Sample]) -> str:
        number = len(self._planned) + 1
        while f"{BRICK}-{number}" in bricks:
            number += 1  # G4
        return f"{BRICK}-{number}"


def _counts(spare: Sample) -> bool:
    """G1: whether it is there, or may be."""
    return spare.state in HERE or (spare.state == "dead" and spare.beacon_age_s < RETURN_S)


def _statistic(sample: Sample, name: str) -> float:
    """0 unless it is told."""
    value = sample.statistics.get(name, 0.0)
    return value if math.isfinite(value) else 0.0
