"""How long `find` and `check_lease_now` take, against nothing but the bisection both need.

An owner and a lookup as a service links them, with the machines fed as by a manager but no manager
about: both are local. Each round measures all four loops one right after the other; the peer
is the expression itself, not a function, over the very list that ours searches.
"""

from bisect import bisect
from collections.abc import Callable
from random import Random
from time import perf_counter_ns

from xxhash import xxh3_64_intdigest

from bus.clock import now
from bus.config import Config
from bus.identity import Identity
from loadtest.child import answer_all, tell
from loadtest.lease_requests import NAMESPACE, Speed, Timed
from roles.assignment import Vnodes
from roles.cluster import Cluster
from roles.lease_messages import AskMap, MapAnswered, MapPart, MapSpan, OwnerAnswer, Span
from roles.lease_session import LeaseSession
from roles.lookup import LookupCore
from roles.owner import Owner
from roles.owner_machine import OwnerMachine, OwnerName, SendAsk
from roles.range_map import RangeMap

KEY_LENGTH = 16
TTL_S = 3600.0  # No lease runs out while we measure.
SLICES = 20  # A round asks other keys than the one before, so that no cache has the answer.
ROUTE = "tcp://127.0.0.1:7000"


class HeldOwner(Owner):
    """An owner that was granted what `machine` holds."""

    def __init__(self, machine: OwnerMachine) -> None:
        super().__init__(Cluster(Config(hubs=())), namespace=NAMESPACE, url=ROUTE)
        self._machine = machine
        self.starts = machine.held.starts


def names(count: int) -> list[str]:
    return [f"owner-{number:04d}" for number in range(count)]


def lookup_of(plan: RangeMap[str], session: LeaseSession) -> LookupCore:
    owners = sorted(set(plan.values))
    places = {owner: place for place, owner in enumerate(owners)}
    spans = [
        MapSpan(start, end - 1, number, number, places[owner])
        for number, (start, end, owner) in enumerate(plan.pieces(), 1)
    ]
    part = MapPart([(owner, ROUTE) for owner in owners], spans)
    core = LookupCore(NAMESPACE, session)
    answer = MapAnswered(
        NAMESPACE, 1, leading=True, whole=True, version_term=1, version_lsn=len(spans)
    )
    core.perform(core.machine.answered(answer, part, AskMap(NAMESPACE, 0, -1), now()))
    return core


def owner_of(plan: RangeMap[str], name: str, session: LeaseSession) -> HeldOwner:
    machine = OwnerMachine(
        OwnerName(
            namespace=NAMESPACE,
            owner=name,
            url=ROUTE,
            process=name,
            process_incarnation=1,
            incarnation=1,
            nonce=1,
        ),
        session.timing,
        session.chance,
        now(),
    )
    (asked,) = machine.advance(now() + TTL_S)  # As if from the future: it holds until then.
    assert isinstance(asked, SendAsk)
    ranges = [
        Span(start, end - 1, number, number)
        for number, (start, end, owner) in enumerate(plan.pieces(), 1)
        if owner == name
    ]
    machine.answered(1, OwnerAnswer(NAMESPACE, name, 1, 1, 1, "", ranges), now())
    return HeldOwner(machine)


def keys(count: int, draw: Random, wanted: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        key = f"{draw.getrandbits(4 * KEY_LENGTH):0{KEY_LENGTH}x}"
        if wanted(key):
            found.append(key)
    return found


def time_call(call: Callable[[str], object], asked: list[str]) -> float:
    """Nanoseconds for each key."""
    began = perf_counter_ns()
    for key in asked:
        call(key)
    return (perf_counter_ns() - began) / len(asked)


def time_bisect(starts: list[int], asked: list[str]) -> float:
    """The same of the peer, without even a call."""
    began = perf_counter_ns()
    for key in asked:
        bisect(starts, xxh3_64_intdigest(key.encode()))
    return (perf_counter_ns() - began) / len(asked)


def measure(speed: Speed) -> list[Timed]:
    session = LeaseSession(Config(hubs=()), Identity("bench", "bench", "n1", 1))
    plan = Vnodes().plan(names(speed.owners))
    lookup = lookup_of(plan, session)
    owner = owner_of(plan, names(1)[0], session)
    draw = Random(speed.owners)
    everyone = keys(speed.keys * SLICES, draw, lambda _: True)
    ours = keys(speed.keys, draw, lambda key: owner.check_lease_now(key) is not None)
    starts, held = lookup.machine.view.starts, owner.starts
    found = []
    for number in range(speed.rounds):
        place = number % SLICES * speed.keys
        asked = everyone[place : place + speed.keys]
        found.append(
            Timed(
                round=number,
                owners=speed.owners,
                find_ns=time_call(lookup.find, asked),
                find_bisect_ns=time_bisect(starts, asked),
                check_ns=time_call(owner.check_lease_now, ours),
                check_bisect_ns=time_bisect(held, ours),
            )
        )
    return found


def main() -> None:
    tell({})
    answer_all(Speed, measure)


if __name__ == "__main__":
    main()
