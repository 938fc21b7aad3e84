"""`softstate bench bus`: our requests against bare pyzmq, zmq.green and zerorpc.

Each contestant is a server process and a client process on loopback. A round starts a fresh
pair for each (so that no process's luck with memory or hashing lasts), then goes through the
cases, and in each case through the contestants, one right after the other.

Ours does more than the bare loops: each request has a header, a deadline, an answer matched
to it and a greenlet of its own that waits. What that costs is what this measures.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from bus.clock import now
from loadtest import machine
from loadtest.meter import Run
from loadtest.processes import START_S_MAX, Child, Children
from loadtest.runner import FIELDS, METHOD, Case, Measured, Sample, middle, ratio, sample, turned

CASES = (Case(64, 1), Case(64, 256), Case(8192, 1), Case(8192, 256))

CONTESTANTS = {
    "raw": ("loadtest.echo_zmq", "raw"),
    "green": ("loadtest.echo_zmq", "green"),
    "zerorpc": ("loadtest.echo_zerorpc",),
    "ours": ("loadtest.echo_ours",),
}

AIMS = {
    "ratio_raw_64": {"at_least": 0.8},
    "ratio_raw_8192": {"at_least": 0.6},
    "latency_ratio_raw_64": {"at_most": 1.7},
    "ratio_green_64": {"at_least": 4},
    "ratio_zerorpc_64": {"at_least": 15},
}


class Pace(msgspec.Struct, frozen=True):
    """How long to take. More rounds make a median that one busy second cannot move."""

    rounds: int
    warm_up_s: float
    duration_s: float
    """Of each measurement; a round has sixteen."""
    last_round_begins_s: float
    """No round begins later than this, however many are left: a slow machine gets fewer."""


FULL = Pace(rounds=11, warm_up_s=0.25, duration_s=1.0, last_round_begins_s=480.0)
QUICK = Pace(rounds=5, warm_up_s=0.15, duration_s=0.5, last_round_begins_s=75.0)


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before = machine.machine()  # The load average of the machine as we found it.
    names = contestants()
    began_at, samples, rounds = now(), list[Sample](), 0
    while rounds < pace.rounds and (not rounds or now() - began_at < pace.last_round_begins_s):
        progress(f"round {rounds + 1} of {pace.rounds}: {', '.join(turned(names, rounds))}")
        samples += one_round(rounds, turned(names, rounds), pace)
        rounds += 1
    return {
        **figures(samples),
        "rounds": rounds,
        "cases": cases(samples, names),
        "aims": AIMS,
        "method": METHOD,
        "samples": msgspec.to_builtins(samples),
        "versions": machine.versions(),
        "machine": before,
    }


def contestants() -> list[str]:
    """Those that are installed; the others have no figures."""
    missing = set() if machine.installed("zerorpc") else {"zerorpc"}
    return [name for name in CONTESTANTS if name not in missing]


def one_round(number: int, names: list[str], pace: Pace) -> list[Sample]:
    with Children() as children:
        pairs = {name: start(children, name) for name in names}
        servers = {name: server.receive(START_S_MAX) for name, (server, _) in pairs.items()}
        samples = []
        for case in CASES:
            for name in names:
                server, client = pairs[name]
                asked = Run(
                    case=case,
                    endpoint=servers[name]["endpoint"],
                    server_pid=server.pid,
                    warm_up_s=pace.warm_up_s,
                    duration_s=pace.duration_s,
                )
                wait_s = START_S_MAX + pace.warm_up_s + pace.duration_s
                measured = msgspec.convert(client.ask(asked, wait_s), Measured)
                samples.append(sample(number, name, case, measured))
        return samples


def start(children: Children, name: str) -> tuple[Child, Child]:
    """Both processes of a contestant: (server, client)."""
    module, *arguments = CONTESTANTS[name]
    return (
        children.start(f"{name} server", module, "server", *arguments),
        children.start(f"{name} client", module, "client", *arguments),
    )


def figures(samples: list[Sample]) -> dict[str, Any]:
    """The keys other people's programs read; a contestant that is absent is None."""

    def against(peer: str, case: str) -> float | None:
        return ratio(samples, case, "per_s", ours="ours", peer=peer)

    return {
        "ratio_raw_64": against("raw", "64x256"),
        "ratio_raw_8192": against("raw", "8192x256"),
        "latency_ratio_raw_64": ratio(samples, "64x1", "p50_us", ours="ours", peer="raw"),
        "ratio_green_64": against("green", "64x256"),
        "ratio_zerorpc_64": against("zerorpc", "64x256"),
        "cpu_us_per_message": {
            name: {
                case.name: {
                    "client": middle(samples, name, case.name, "client_cpu_us"),
                    "server": middle(samples, name, case.name, "server_cpu_us"),
                }
                for case in CASES
            }
            for name in CONTESTANTS
        },
    }


def cases(samples: list[Sample], names: list[str]) -> list[dict[str, Any]]:
    """The medians behind the ratios, a row each, for people."""
    return [
        {
            "contestant": name,
            "bytes x in flight": case.name,
            **{field: middle(samples, name, case.name, field) for field in FIELDS},
        }
        for case in CASES
        for name in names
    ]
