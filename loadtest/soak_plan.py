"""What a soak does next, drawn from a seed: a fault, a change of the load, or calm. Decides only.

Most steps hurt one process; some two at once, all of a kind, or a whole node. As a rule the next
step comes when the cluster is whole again; sometimes it comes upon what is not healed yet.

What always holds:
  N1  The same seed and the same cluster give the same steps, however long the cluster takes.
  N2  Each fault is one that heals by a restart, or by itself within `FOR_S_MAX`.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec

from loadtest.heal_requests import Injure, Verb

FOR_S_MAX = 40.0
MIB = float(1 << 20)

LIKELY: dict[Verb, float] = {
    "crash": 4,
    "hang": 4,
    "flip": 2,
    "image": 2,
    "drop": 2,
    "slow": 2,
    "leak": 1,
    "clock": 1,
}
"""Of the faults of one process, how often each is drawn."""

ANYBODY = ("brick", "manager", "pinpoint", "hub", "node")
VICTIMS: dict[Verb, tuple[str, ...]] = {
    "crash": ANYBODY,
    "hang": ANYBODY,
    "image": ("brick", "manager", "pinpoint"),
    "clock": ("brick", "manager", "pinpoint", "hub"),
    "flip": ("brick",),
    "drop": ("brick",),
    "slow": ("brick",),
    "leak": ("brick",),
}
AMOUNTS: dict[Verb, tuple[float, float]] = {
    "flip": (1, 30),
    "drop": (0.5, 0.9),
    "slow": (0.001, 0.003),
    "leak": (4 * MIB, 12 * MIB),
    "clock": (-3600.0, 3600.0),
}
FOR_S: dict[Verb, float] = {
    "hang": 30.0,
    "leak": FOR_S_MAX,
    "drop": 30.0,
    "slow": 30.0,
    "clock": 10.0,
    "flip": 6.0,  # It has no end; but so long it may take to be met.
}
HASTY = 0.15  # Of the steps: the next does not wait until anything is healed.
LOADS = (0.3, 0.5, 1.0, 1.0, 1.5)
"""Of the usual one."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    faults: list[Injure] = []
    """Done one right after the other."""
    load: float | None = None
    """From now on, that many times the usual load."""
    owner: tuple[Verb, str] | None = None
    """Crash or hang an owner of leases, which is nobody's to bring back but the soak's."""
    hasty: bool = False
    """Go on at once, whatever is healed."""
    calm_s: float
    """How long to go on like that once all are well."""


def steps(
    seed: int, components: Mapping[str, str], nodes: Sequence[str], owners: Sequence[str]
) -> Iterator[Step]:
    """Without end. `components`: the role of each."""
    random = Random(seed)  # N1
    by_role: dict[str, list[str]] = {}
    for component_id, role in components.items():
        by_role.setdefault(role, []).append(component_id)
    while True:
        calm_s, hasty = random.uniform(2.0, 8.0), random.random() < HASTY
        lot = random.random()
        if lot < 0.66:
            yield Step(faults=[_single(random, by_role)], hasty=hasty, calm_s=calm_s)
        elif lot < 0.76:
            yield Step(faults=_pair(random, by_role), hasty=hasty, calm_s=calm_s)
        elif lot < 0.80:
            yield Step(faults=[_all_of_a_kind(random, by_role)], calm_s=calm_s)
        elif lot < 0.84:
            node = Injure("node", [random.choice(nodes)], 0.0, random.uniform(1.0, 12.0))
            yield Step(faults=[node], calm_s=calm_s)
        elif lot < 0.87:
            managers = by_role["manager"]
            yield Step(faults=[Injure("disk", managers, 0.0, 6.0)], calm_s=calm_s)
        elif lot < 0.92 and owners:
            verb: Verb = random.choice(("crash", "hang"))
            yield Step(owner=(verb, random.choice(owners)), calm_s=calm_s)
        else:
            yield Step(load=random.choice(LOADS), calm_s=2 * calm_s)


def _single(random: Random, by_role: Mapping[str, Sequence[str]]) -> Injure:
    (verb,) = random.choices(list(LIKELY), list(LIKELY.values()))
    return _fault(random, verb, random.choice(_victims(verb, by_role)))


def _pair(random: Random, by_role: Mapping[str, Sequence[str]]) -> list[Injure]:
    """Two different processes that crash or hang."""
    both = random.sample(_victims("crash", by_role), 2)
    return [_fault(random, random.choice(("crash", "hang")), victim) for victim in both]


def _all_of_a_kind(random: Random, by_role: Mapping[str, Sequence[str]]) -> Injure:
    role = random.choice(("hub", "manager", "pinpoint", "brick"))
    return Injure("crash", list(by_role[role]), for_s=1.0)


def _fault(random: Random, verb: Verb, victim: str) -> Injure:
    amount = random.uniform(*AMOUNTS[verb]) if verb in AMOUNTS else 0.0
    return Injure(verb, [victim], amount, FOR_S.get(verb, 1.0))  # N2


def _victims(verb: Verb, by_role: Mapping[str, Sequence[str]]) -> list[str]:
    return [each for role in VICTIMS[verb] for each in by_role.get(role, ())]


CLEAN_LOADS = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Up and down by large steps: a change of the load is no disease of anybody."""


def clean_steps(seed: int) -> Iterator[Step]:
    """Without end, and without a fault."""
    random = Random(seed)
    while True:
        yield Step(load=random.choice(CLEAN_LOADS), calm_s=random.uniform(2.0, 20.0))
