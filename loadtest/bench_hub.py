"""`softstate bench hub`: what one hub carries, and what a thousand processes cost one listener.

Two measurements, both on hubs as the hub role runs them (`loadtest.hub_members`). The *flood*
(`loadtest.hub_flood`) keeps one hub busy with beacons for ten subscribers, and counts
deliveries, and losses by sequence number. The *crowd* (`loadtest.hub_crowd`) is a thousand
processes at one beacon a second through two hubs; the CPU share of a member that hears
them is all it uses: user and system time of all its threads, with nothing subtracted.
"""

import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from bus.clock import now
from bus.config import local
from loadtest import machine
from loadtest.beacon_frames import Impostor
from loadtest.hub_requests import Flood, Flooded, Listen, Listened
from loadtest.processes import START_S_MAX, Child, ChildError, Children
from loadtest.tally import Tally

SUBSCRIBER_PROCESSES = 2
SUBSCRIBERS_EACH = 5
WINDOW = 2000  # Enough to keep the hub busy; a fifth of its high-water mark.
CROWD_PROCESSES = 2
CROWD = 1000
GATHER_S_MAX = 20.0  # For the listener to know them all: two periods, on a good day.

AIMS = {
    "beacons_per_s": {"at_least": 300_000},
    "lost": {"exactly": 0},
    "cpu_share_1000": {"at_most": 0.05},
}
METHOD = (
    "flood: closed loop, at most "
    f"{WINDOW} beacons ahead of the slowest subscriber, so that the hub is always busy and no "
    "high-water mark is overrun; deliveries are counted when they reached every subscriber. "
    "Figures are medians over the rounds; lost is their sum"
)


class Pace(msgspec.Struct, frozen=True):
    """How long to take: so many rounds of each measurement, and of what length."""

    floods: int
    flood_s: float
    warm_up_s: float
    listens: int
    listen_s: float
    """At least 5 s to be of use: a member does some things only once a second."""
    settle_s: float = 2.0
    """From when the listener knows everybody to the first measurement."""
    crowd: int = CROWD


FULL = Pace(floods=7, flood_s=3.0, warm_up_s=1.0, listens=6, listen_s=10.0)
QUICK = Pace(floods=3, flood_s=2.0, warm_up_s=0.5, listens=3, listen_s=5.0)


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before = machine.machine()
    floods = []
    for number in range(pace.floods):
        progress(f"flood {number + 1} of {pace.floods}")
        floods.append(flood(pace))
    listens = listen(pace, progress)
    return {
        "beacons_per_s": round(median(each["deliveries_per_s"] for each in floods)),
        "lost": sum(each["lost"] for each in floods),
        "cpu_share_1000": round(median(each["cpu_share"] for each in listens), 5),
        "repeated": sum(each["repeated"] for each in floods),
        "beacon_bytes": len(Impostor(0).frame(0)),
        "subscribers": SUBSCRIBER_PROCESSES * SUBSCRIBERS_EACH,
        "cpu_us_per_delivery": round(median(each["hub_cpu_us"] for each in floods), 4),
        "aims": AIMS,
        "method": METHOD,
        "samples": {"flood": floods, "listen": listens},
        "versions": machine.versions(),
        "machine": before,
    }


def flood(pace: Pace) -> dict[str, Any]:
    """One round with fresh processes."""
    hubs = free_hubs(1)
    with Children() as children:
        (relay,) = start_hubs(children, hubs)
        publisher = children.start("publisher", "loadtest.hub_flood", "publisher")
        reports_at = publisher.receive(START_S_MAX)["reports_at"]
        subscribers = [
            children.start(
                f"subscribers {number}",
                "loadtest.hub_flood",
                "subscribers",
                *(hubs[0], reports_at, str(number), str(SUBSCRIBERS_EACH)),
            )
            for number in range(SUBSCRIBER_PROCESSES)
        ]
        asked = Flood(
            hub=hubs[0],
            hub_pid=relay.pid,
            processes=SUBSCRIBER_PROCESSES,
            subscribers=SUBSCRIBER_PROCESSES * SUBSCRIBERS_EACH,
            window=WINDOW,
            warm_up_s=pace.warm_up_s,
            duration_s=pace.flood_s,
        )
        wait_s = START_S_MAX + pace.warm_up_s + pace.flood_s
        flooded = msgspec.convert(publisher.ask(asked, wait_s), Flooded)
        answers = [child.ask({}, START_S_MAX) for child in subscribers]
        tallies = [tally for each in answers for tally in msgspec.convert(each, list[Tally])]
    measured = flooded.measured
    return {
        "deliveries_per_s": measured.messages / measured.elapsed_s,
        "sent": flooded.sent,
        "lost": sum(tally.lost(flooded.sent) for tally in tallies),
        "repeated": sum(tally.repeated for tally in tallies),
        "hub_cpu_us": 1e6 * measured.server_cpu_s / max(measured.messages, 1),
    }


def listen(pace: Pace, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """The listener's share of a CPU, several times over, once it knows everybody."""
    hubs = free_hubs(2)
    with Children() as children:
        start_hubs(children, hubs)
        listener = children.start(
            "listener", "loadtest.hub_members", "listener", ",".join(hubs), "1"
        )
        listener.receive(START_S_MAX)
        share = pace.crowd // CROWD_PROCESSES
        for first in range(0, pace.crowd, share):
            arguments = (",".join(hubs), str(first), str(share))
            crowd = children.start(f"crowd from {first}", "loadtest.hub_crowd", *arguments)
            crowd.receive(START_S_MAX)
        progress(f"the listener gets to know {pace.crowd} processes")
        gather(listener, pace.crowd)
        watch(listener, pace.settle_s)
        found = []
        for number in range(pace.listens):
            progress(f"listen {number + 1} of {pace.listens}")
            listened = watch(listener, pace.listen_s)
            if listened.peers != pace.crowd:
                raise ChildError(f"the listener lost sight: {listened.peers} of {pace.crowd}")
            found.append({"cpu_share": listened.cpu_s / listened.elapsed_s, **_fields(listened)})
        return found


def gather(listener: Child, crowd: int) -> None:
    """Until the listener knows them all."""
    deadline = now() + GATHER_S_MAX
    while (peers := watch(listener, 0.25).peers) != crowd:
        if now() > deadline:
            raise ChildError(f"the listener knows only {peers} of {crowd} processes")


def watch(listener: Child, duration_s: float) -> Listened:
    answer = listener.ask(Listen(duration_s), START_S_MAX + duration_s)
    return msgspec.convert(answer, Listened)


def start_hubs(children: Children, hubs: tuple[str, ...]) -> list[Child]:
    started = []
    for number in range(1, len(hubs) + 1):
        arguments = ("hub", ",".join(hubs), str(number))
        started.append(children.start(f"hub {number}", "loadtest.hub_members", *arguments))
    for child in started:
        child.receive(START_S_MAX)
    return started


def free_hubs(count: int) -> tuple[str, ...]:
    """Addresses of hubs that are not there yet."""
    return local(tempfile.gettempdir(), nodes=1, run={"hub": count}).hubs


def _fields(listened: Listened) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(listened)
    return fields
