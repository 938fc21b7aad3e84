"""A process of clients that increment registers through a `Lookup`, and write a history.

    python -m tests.jepsen.clients CONFIG HISTORY CLIENTS REGISTERS

Each attempt is an operation of its own, with its own id: one that failed for certain may be tried
again as another one. SIGTERM ends it, when every operation under way has ended.
"""

import itertools
import json
import random
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

import gevent
import msgspec
from gevent import socket

from bus.parent import tie_to_parent
from roles import Cluster, Lookup, NotOwner, Route
from tests.jepsen.history import Event
from tests.jepsen.registers import NAMESPACE

CONNECT_S_MAX = 0.5
ANSWER_S_MAX = 2.0
CALL_S_MAX = 5.0
BETWEEN_S = 0.02


class Clients:
    def __init__(self, lookup: Lookup, history: TextIO, registers: int) -> None:
        self._lookup = lookup
        self._history = history
        self._registers = registers
        self._chance = random.Random()
        self._ids = itertools.count(1)
        self.ending = False

    def run(self) -> None:
        """One client, from beginning to end."""
        while not self.ending:
            register = f"register-{self._chance.randrange(self._registers)}"
            with suppress(NotOwner):  # All of it is in the history.
                attempt = partial(self._attempt, register)
                self._lookup.call(register, attempt, timeout_s=CALL_S_MAX)
            gevent.sleep(BETWEEN_S)

    def _attempt(self, register: str, route: Route) -> None:
        if self.ending:
            return
        op = f"op-{next(self._ids)}"
        self._write(Event(op, register, "invoke", why=route.url))
        asked = False
        try:
            host, _, port = route.url.removeprefix("tcp://").rpartition(":")
            with socket.create_connection((host, int(port)), timeout=CONNECT_S_MAX) as connection:
                connection.settimeout(ANSWER_S_MAX)
                asked = True  # From here on, it may have been heard.
                connection.sendall(json.dumps([op, register]).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    answer = json.loads(stream.readline())
        except (OSError, ValueError) as error:  # ValueError: it ended within the line.
            self._write(Event(op, register, "unknown" if asked else "fail", why=repr(error)))
            if not asked:
                raise NotOwner(f"{route.url} does not answer") from None
            return
        self._take(op, register, answer)

    def _take(self, op: str, register: str, answer: dict[str, object]) -> None:
        match answer:
            case {"ok": int(value)}:
                self._write(Event(op, register, "ok", value))
            case {"elsewhere": hint}:
                self._write(Event(op, register, "fail", why="elsewhere"))
                raise NotOwner("elsewhere", Route(*hint) if isinstance(hint, list) else None)
            case {"fail": why}:
                self._write(Event(op, register, "fail", why=str(why)))
            case _:
                self._write(Event(op, register, "unknown", why=str(answer)))

    def _write(self, event: Event) -> None:
        self._history.write(msgspec.json.encode(event).decode() + "\n")
        self._history.flush()


def main() -> None:
    tie_to_parent()
    config, path, clients, registers = sys.argv[1:]
    lookup = Lookup(Cluster.load(config), namespace=NAMESPACE)
    lookup.start()
    lookup.ready(20)
    with Path(path).open("a") as history:
        made = Clients(lookup, history, int(registers))
        gevent.signal_handler(signal.SIGTERM, lambda: setattr(made, "ending", True))
        gevent.joinall([gevent.spawn(made.run) for _ in range(int(clients))], raise_error=True)
    lookup.close()


if __name__ == "__main__":
    main()
