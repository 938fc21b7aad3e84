"""One owner of `make soak`, in a process of its own: acts under its leases, and notes each act.

    python -m loadtest.soak_owner NAME CONFIG FILE

A line of FILE is one act whose lease was held from its beginning to its end. It acts on every key
of the soak that it holds, in turn, and hands over what it has when it is told to end.
"""

import os
import sys
from pathlib import Path
from random import Random
from typing import BinaryIO

import gevent
import msgspec

from bus.clock import now
from bus.errors import LeaseLost, NotOwner
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.lease_acts import Act
from roles.cluster import Cluster
from roles.owner import Owner

NAMESPACE = "soak"
KEYS = [f"key-{number}" for number in range(24)]
ACT_S = 0.002, 0.05
REST_S = 0.1
READY_S_MAX = 60.0
DRAIN_S_MAX = 3.0


class Ask(msgspec.Struct, frozen=True):
    """Nothing is asked of it: it acts until its input ends."""


def act_for_ever(owner: Owner, life: str, file: BinaryIO, random: Random) -> None:
    while True:
        for key in KEYS:
            begin_at = now()
            try:
                with owner.guard(key) as lease:
                    gevent.sleep(random.uniform(*ACT_S))
                    held_at = now()
            except (NotOwner, LeaseLost):
                continue
            # The guard has looked once more: it was held all the time until `held_at`.
            file.write(msgspec.json.encode(Act(life, key, lease.number, begin_at, held_at)) + b"\n")
        gevent.sleep(REST_S)


def main(name: str, config: str, path: str) -> None:
    life = f"{name}/{os.getpid()}"
    owner = Owner(Cluster.load(config), namespace=NAMESPACE, url=f"tcp://soak/{name}", id=name)
    owner.start()
    owner.ready(READY_S_MAX)
    with Path(path).open("ab", buffering=0) as file:
        acting = gevent.spawn(act_for_ever, owner, life, file, Random(life))
        tell({})
        answer_all(Ask, lambda _: {}, read_line)
        acting.kill()
    owner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
