"""One generator of an open loop, in a process of its own: hyperactive sessions on a timetable."""

import sys
from random import Random

from loadtest.arrivals import duration_s, poisson
from loadtest.child import answer_all, tell
from loadtest.goodput import Outcome
from loadtest.greenlets import read_line
from loadtest.hyperactive import Crowd
from loadtest.open_loop import OpenLoop
from loadtest.session_requests import Drive
from roles.cluster import Cluster
from roles.stub import Stub


def main(config: str) -> None:
    cluster = Cluster.load(config)
    cluster.member("generator")  # For as long as we run: each drive has a stub of its own.
    tell({})
    answer_all(Drive, lambda drive: driven(cluster, drive), read_line)


def driven(cluster: Cluster, drive: Drive) -> Outcome:
    shape = tuple(drive.shape)
    stub = Stub(cluster, **drive.settings)
    try:
        outcome = Outcome.of(duration_s(shape), drive.interval_s, drive.timeout_s)
        crowd = Crowd(stub, drive.sessions, drive.value_bytes, f"user-{drive.seed}")
        return OpenLoop(crowd, poisson(shape, Random(drive.seed)), outcome).run(drive.begin_at)
    finally:
        stub.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
