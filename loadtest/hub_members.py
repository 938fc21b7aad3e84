"""The members of the hub benchmark's cluster: hubs as they really run, and one listener.

The listener is a whole member with nothing left out: it decodes, drops what the second hub
brings again, keeps its table of who is alive, and sends its own beacons.
"""

import sys
import tempfile
from functools import partial

import gevent

from bus.clock import now
from bus.config import BeaconConfig, Config
from bus.identity import Identity
from bus.member import Member
from loadtest.beacon_frames import ROLE
from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.greenlets import read_line
from loadtest.hub_crowd import PERIOD_S
from loadtest.hub_requests import Listen, Listened
from loadtest.meter import own_cpu_s
from roles import hub


def join(hubs: str, role: str, number: str, directory: str) -> Member:
    config = Config(
        hubs=tuple(hubs.split(",")),
        beacons=BeaconConfig(period_s=PERIOD_S),
        run_directory=directory,
    )
    return Member.join(config, Identity(f"{role}-{number}", role, "n1", 1))


def listen(member: Member) -> None:
    """Tell the benchmark, whenever it asks, what being a member costs."""
    member.live()
    tell({})
    answer_all(Listen, partial(watch, member), read_line)


def watch(member: Member, request: Listen) -> Listened:
    cpu_s_before, began_at = own_cpu_s(), now()
    gevent.sleep(request.duration_s)
    return Listened(own_cpu_s() - cpu_s_before, now() - began_at, len(member.peers(ROLE)))


def main(role: str, hubs: str, number: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        member = join(hubs, role, number, directory)
        try:
            if role == "hub":
                end_with_the_benchmark()
                tell({})
                hub.main(member)
            else:
                listen(member)
        finally:
            member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
