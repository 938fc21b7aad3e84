"""A process that owns registers and increments them for whoever asks.

    python -m tests.jepsen.owner NAME CONFIG DATABASE HOST PORT WAYS

Asked by a line of JSON, `[op, register]`, it answers by one: `{"ok": value}`, `{"elsewhere": [url,
number]}`, `{"fail": why}` if nothing was done for certain, or `{"unknown": why}`. WAYS: see
`tests.jepsen.registers.way_of`. It writes a line when it has
read and one when it is done, so that whoever stops it can tell between which it was.
SIGTERM ends it in order: its registers are handed over first.
"""

import json
import random
import signal
import sqlite3
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from gevent.server import StreamServer

from bus.parent import tie_to_parent
from roles import Cluster, LeaseLost, NotOwner, Owner
from tests.jepsen.registers import (
    NAMESPACE,
    InDoubtError,
    RefusedByFenceError,
    Registers,
    Way,
    way_of,
)

PAUSE_S = 0.05, 0.25
DRAIN_S_MAX = 3.0
LINE_BYTES_MAX = 1000


class RegisterOwner:
    def __init__(self, owner: Owner, registers: Registers, ways: str) -> None:
        self._owner = owner
        self._registers = registers
        self._ways = ways
        self._chance = random.Random()
        self._pool = gevent.get_hub().threadpool
        # A fence does not order one owner's own writes.
        self._locks: defaultdict[str, BoundedSemaphore] = defaultdict(BoundedSemaphore)

    def serve(self, connection: Any, _: object) -> None:  # noqa: ANN401 (gevent's socket)
        with connection, connection.makefile("rwb") as stream:
            line = stream.readline(LINE_BYTES_MAX)
            if line:
                op, register = json.loads(line)
                with self._locks[register]:
                    answer = self._answer(op, register)
                    print("ended", op, flush=True)
                stream.write(json.dumps(answer).encode() + b"\n")

    def _answer(self, op: str, register: str) -> dict[str, object]:
        way = way_of(register, self._ways)
        try:
            return {"ok": self._increment(way, register, op)}
        except NotOwner as error:
            route = error.route
            return {"elsewhere": None if route is None else [route.url, route.number]}
        except LeaseLost as error:
            return {"unknown": str(error)}  # Written and admitted, or not written.
        except RefusedByFenceError as error:
            print("refused", op, error, flush=True)
            return {"fail": f"refused by the fence: {error}"}
        except InDoubtError as error:
            return {"unknown": str(error)}
        except sqlite3.Error as error:
            return {"fail": str(error)}

    def _increment(self, way: Way, register: str, op: str) -> int:
        increment = self._registers.increment
        pause = partial(self._pause, way, register, op)
        if way == "unsafe":  # What is looked at before, and never after.
            lease = self._owner.check_lease_now(register)
            if lease is None:
                raise NotOwner("not mine", self._owner.route(register))
            value = self._pool.apply(increment, (way, register, op, lease.number, pause))
        else:
            with self._owner.guard(register) as lease:
                value = self._pool.apply(increment, (way, register, op, lease.number, pause))
        return value

    def _pause(self, way: Way, register: str, op: str) -> None:
        """In a native thread."""
        print("read", op, register, way, flush=True)
        gevent.sleep(self._chance.uniform(*PAUSE_S))


def main() -> None:
    tie_to_parent()
    name, config, database, host, port, ways = sys.argv[1:]
    url = f"tcp://{host}:{port}"
    # The name decides who gets which registers: the same in every run, whatever the port.
    owner = Owner(Cluster.load(config), namespace=NAMESPACE, url=url, id=name)
    owner.start()
    serving = RegisterOwner(owner, Registers(Path(database)), ways)
    server = StreamServer((host, int(port)), serving.serve)

    def end() -> None:
        owner.close(drain_s=DRAIN_S_MAX)
        server.stop()

    gevent.signal_handler(signal.SIGTERM, end)
    server.serve_forever()


if __name__ == "__main__":
    main()
