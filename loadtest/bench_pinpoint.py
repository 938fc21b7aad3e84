"""`softstate bench pinpoint`: what it costs to judge a thousand components every second.

The role `pinpoint` as it really runs, on two real hubs, hears a thousand bricks that do not exist
(`loadtest.pinpoint_crowd`), each with 20 statistics of its own, of which 16 are judged, and with
what three stubs saw of it, which makes five more. The CPU share is all that the process uses, user
and system time of all its threads: hearing the beacons, keeping the table of who is alive, judging,
and recording every tick. The crowd grows from 250 over 500 to 1,000, so that it shows how cost
grows with their number.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from bus.clock import now
from loadtest import machine
from loadtest.bench_hub import free_hubs, start_hubs
from loadtest.hub_requests import Listen
from loadtest.pinpoint_member import Judged
from loadtest.processes import START_S_MAX, Child, ChildError, Children

EACH = 250
"""Bricks of one process of the crowd, and of what one stub tells."""
SIZES = (250, 500, 1000)
GATHER_S_MAX = 20.0

AIMS = {"cpu_share_1000": {"at_most": 0.2}}
METHOD = (
    "one pinpoint process, two hubs, one beacon a second of each brick and one telling a second of "
    "each of three stubs about it; shares are CPU time by wall-clock time, medians over the "
    "listens. Histories are compared once they are 40 s old: in the quick run, those of the bricks "
    "that came first"
)


class Pace(msgspec.Struct, frozen=True):
    """How long to take."""

    listens: int
    listen_s: float
    """At least 5 s to be of use: some things are done only once a second."""
    settle_s: tuple[float, ...]
    """At each size, from when all are known."""
    sizes: tuple[int, ...] = SIZES
    """As many as there are keys."""
    each: int = EACH


FULL = Pace(listens=6, listen_s=10.0, settle_s=(60.0, 60.0, 60.0))
QUICK = Pace(listens=2, listen_s=5.0, settle_s=(15.0, 10.0, 20.0))


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before = machine.machine()
    found = listen(pace, progress)
    shares = zip(SIZES, map(share, found.values()), strict=True)
    last = found[pace.sizes[-1]]
    return {
        **{f"cpu_share_{size}": value for size, value in shares},
        "rss_bytes_1000": max(each.rss_bytes for each in last),
        "tick_ms_1000": round(1000 * median(each.statistics["tick_s"] for each in last), 1),
        "condemned": sum(heard[-1].statistics["condemned"] for heard in found.values()),
        "aims": AIMS,
        "method": METHOD,
        "samples": {str(size): msgspec.to_builtins(heard) for size, heard in found.items()},
        "versions": machine.versions(),
        "machine": before,
    }


def share(heard: list[Judged]) -> float:
    return round(median(each.cpu_s / each.elapsed_s for each in heard), 4)


def listen(pace: Pace, progress: Callable[[str], None]) -> dict[int, list[Judged]]:
    """What it costs at each size, several times over."""
    hubs = free_hubs(2)
    found: dict[int, list[Judged]] = {}
    with Children() as children:
        start_hubs(children, hubs)
        pinpoint = children.start("pinpoint", "loadtest.pinpoint_member", ",".join(hubs))
        pinpoint.receive(START_S_MAX)
        there = 0
        for size, settle_s in zip(pace.sizes, pace.settle_s, strict=True):
            progress(f"pinpoint gets to know {size} bricks")
            for first in range(there, size, pace.each):
                arguments = (",".join(hubs), str(first), str(pace.each))
                crowd = children.start(f"crowd {first}", "loadtest.pinpoint_crowd", *arguments)
                crowd.receive(START_S_MAX)
            there = size
            gather(pinpoint, size)
            watch(pinpoint, settle_s)
            found[size] = heard = []
            for number in range(pace.listens):
                progress(f"listen {number + 1} of {pace.listens}, {size} bricks")
                heard.append(watch(pinpoint, pace.listen_s))
                if heard[-1].peers != size:
                    raise ChildError(f"pinpoint lost sight: {heard[-1].peers} of {size}")
    return found


def gather(pinpoint: Child, size: int) -> None:
    """Until it knows them all."""
    deadline = now() + GATHER_S_MAX
    while (peers := watch(pinpoint, 0.25).peers) != size:
        if now() > deadline:
            raise ChildError(f"pinpoint knows only {peers} of {size} bricks")


def watch(pinpoint: Child, duration_s: float) -> Judged:
    answer = pinpoint.ask(Listen(duration_s), START_S_MAX + duration_s)
    return msgspec.convert(answer, Judged)
