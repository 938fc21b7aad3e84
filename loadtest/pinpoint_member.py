"""The Pinpoint of the benchmark: the role as it really runs, asked now and then what it costs.

It joins the benchmark's hubs as a member, judges, and records; it has nobody to restart.
"""

import sys
import tempfile
from functools import partial

import gevent
import msgspec
import psutil

from bus.clock import now
from bus.config import BeaconConfig, Config
from bus.config_shape import PINPOINT
from bus.identity import Identity
from bus.member import Member
from loadtest.brick_frames import ROLE
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.hub_requests import Listen
from loadtest.meter import own_cpu_s
from loadtest.pinpoint_crowd import PERIOD_S
from pinpoint import process

COUNTED = ("judged", "flagged", "condemned", "tick_s", "ticks_lost", "sights_dropped")


class Judged(msgspec.Struct, frozen=True):
    """What it did in the time asked for, and what it is like at the end."""

    cpu_s: float
    elapsed_s: float
    peers: int
    rss_bytes: int
    statistics: dict[str, float]
    """Those `COUNTED`."""


def watch(member: Member, request: Listen) -> Judged:
    cpu_s_before, began_at = own_cpu_s(), now()
    gevent.sleep(request.duration_s)
    families = {family.name: family.value for family in member.statistics.families()}
    return Judged(
        own_cpu_s() - cpu_s_before,
        now() - began_at,
        len(member.peers(ROLE)),
        psutil.Process().memory_info().rss,
        {
            name: families[
                f"softstate_{name.removesuffix('_s')}" + "_seconds" * name.endswith("_s")
            ]
            for name in COUNTED
        },
    )


def main(hubs: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = Config(
            hubs=tuple(hubs.split(",")),
            beacons=BeaconConfig(period_s=PERIOD_S),
            run_directory=directory,
        )
        member = Member.join(config, Identity(f"{PINPOINT}-1", PINPOINT, "n1", 1))
        role = gevent.spawn(process.main, member)
        try:
            tell({})
            answer_all(Listen, partial(watch, member), read_line)
        finally:
            role.kill()
            member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
