"""`softstate bench million`: a million sessions, and how many survive which crashes.

Sessions of 512 B on six bricks. Two bricks are killed, one after the other, and between the two
every session is loaded once, which makes new copies of what has too few: none may be lost. Then two
are killed at once, with nobody reading in between: as many as a cookie names copies. What is lost
then must be just the sessions all of whose named copies were there, and as many as plain
combinatorics says: of those with two copies one in six, the pairs among the four bricks left.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import comb
from typing import Any

import msgspec
import psutil

from bus.clock import now
from loadtest import machine
from loadtest.processes import START_S_MAX, Child, Children
from loadtest.session_field import CLUSTER_END_S_MAX, END_S_MAX, start_cluster
from loadtest.session_requests import ClusterAsked, ClusterUp, Held, Hold, Obeyed, Order

BRICKS = 6
ONE_BY_ONE = (1, 2)
AT_ONCE = (3, 4)
HOLDERS = 2
VALUE_BYTES = 512
HOLD_S_MAX = 1800.0
MEMORY_BYTES_MAX = 2 << 30  # Of a brick.

AIMS = {
    "lost_one_by_one": {"exactly": 0},
    "wrong": {"exactly": 0},
    "lost_unexpectedly": {"exactly": 0},
    "loss_ratio": {"at_least": 0.9, "at_most": 1.1},
}
METHOD = (
    "every session is written once, W=3 WQ=2, and loaded after each of two crashes; then two "
    "bricks of the four that are left are killed at once, and all is loaded again. "
    "lost_unexpectedly: lost, though a cookie named a brick that lived, or not lost though none "
    "did. loss_ratio: lost then, by what C(2, copies)/C(4, copies) of each number of copies makes"
)


class Pace(msgspec.Struct, frozen=True):
    sessions: int


FULL = Pace(1_000_000)
QUICK = Pace(50_000)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    sessions: int
    lost: int
    doomed: int
    copies: dict[int, int]
    wrong: int
    refused: int
    refreshed: int
    per_s: float
    elapsed_s: float


def bench(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """The benchmark, as the entry point names it."""
    return run(QUICK if quick else FULL, progress)


def run(pace: Pace, progress: Callable[[str], None]) -> dict[str, Any]:
    before, began_at = machine.machine(), now()
    # On one node: so that any two bricks are as likely to have the copies.
    asked = ClusterAsked(
        nodes=1, bricks=BRICKS, sessions={"memory_bytes_max": MEMORY_BYTES_MAX, "timeout_ms": 200.0}
    )
    steps = []
    with Children(CLUSTER_END_S_MAX) as children:
        up, cluster = start_cluster(children, asked)
        holders = start_holders(children, up)

        def step(what: str, hold: Hold) -> None:
            steps.append(together(what, holders, hold))
            progress(f"{what}: {msgspec.structs.asdict(steps[-1])}")

        step("written", Hold(write=pace.sessions // HOLDERS, value_bytes=VALUE_BYTES))
        rss_bytes = sum(psutil.Process(pid).memory_info().rss for pid in up.bricks.values())
        for number in ONE_BY_ONE:
            kill(cluster, number)
            step(f"without brick-{number}", Hold(dead=list(range(1, number + 1))))
        for number in AT_ONCE:
            kill(cluster, number)
        dead = [*ONE_BY_ONE, *AT_ONCE]
        step("without two more", Hold(dead=dead, dead_before=list(ONE_BY_ONE)))
    return {
        **figures(steps),
        "sessions": pace.sessions,
        "bricks_rss_bytes": rss_bytes,
        "steps": msgspec.to_builtins(steps, str_keys=True),
        "aims": AIMS,
        "method": METHOD,
        "elapsed_s": round(now() - began_at, 1),
        "samples": msgspec.to_builtins(steps, str_keys=True),
        "versions": machine.versions(),
        "machine": before,
    }


def start_holders(children: Children, up: ClusterUp) -> list[Child]:
    holders = [
        children.start(f"holder {n}", "loadtest.session_holder", up.config, f"holder-{n}")
        for n in range(HOLDERS)
    ]
    for each in holders:
        each.receive(START_S_MAX)
    return holders


def kill(cluster: Child, number: int) -> None:
    msgspec.convert(cluster.ask(Order("kill", f"brick-{number}"), END_S_MAX), Obeyed)


def together(what: str, holders: Sequence[Child], hold: Hold) -> Step:
    for each in holders:
        each.send(hold)
    found = [msgspec.convert(each.receive(HOLD_S_MAX), Held, strict=False) for each in holders]
    elapsed_s = max(each.elapsed_s for each in found)
    sessions = sum(each.sessions for each in found)
    lost = sum(each.lost for each in found)
    return Step(
        what=what,
        sessions=sessions,
        lost=lost,
        doomed=sum(each.doomed for each in found),
        copies=dict(sum((Counter(each.copies) for each in found), Counter())),
        wrong=sum(each.wrong for each in found),
        refused=sum(each.refused for each in found),
        refreshed=sum(each.refreshed for each in found),
        per_s=round((sessions + lost) / elapsed_s, 1),
        elapsed_s=round(elapsed_s, 1),
    )


def figures(steps: Sequence[Step]) -> dict[str, float]:
    *calm, last = steps
    left = BRICKS - len(ONE_BY_ONE)
    expected = sum(count * share_lost(left, copies) for copies, count in last.copies.items())
    return {
        "lost_one_by_one": sum(each.lost for each in calm),
        "wrong": sum(each.wrong for each in steps),
        "lost_at_once": last.lost,
        "lost_unexpectedly": abs(last.lost - last.doomed),
        "expected_lost_at_once": round(expected, 1),
        "loss_ratio": round(last.lost / expected, 4),
    }


def share_lost(bricks: int, copies: int, killed: int = len(AT_ONCE)) -> float:
    """How likely all copies of a session are among the bricks killed, any being as likely."""
    return comb(killed, copies) / comb(bricks, copies)
