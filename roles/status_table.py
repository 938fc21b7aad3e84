"""What `softstate status` shows: a row a process. Decides only how it looks."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from bus.events import duration, printable
from bus.messages import State
from bus.peers import Peer
from roles.messages import Component

_HEADINGS = ("ID", "NODE", "PID", "STATE", "UP", "RESTARTS", "CPU", "MEMORY", "")
_RIGHT = {"PID", "UP", "RESTARTS", "CPU", "MEMORY"}
_STATES: tuple[State, ...] = get_args(State)
_WORD_LENGTH_MAX = 40


def component(peer: Peer, now: float) -> Component:
    """A row made of what we heard ourselves."""
    statistics = peer.statistics
    return Component(
        id=peer.id,
        role=peer.role,
        node=peer.node,
        pid=peer.pid,
        state=peer.state,
        age_s=peer.age_s + max(0.0, now - peer.heard_at),
        restarts=peer.restarts,
        cpu=statistics.get("cpu", 0.0),
        rss_bytes=int(statistics.get("rss_bytes", 0)),
        linked=peer.linked,
    )


def table(components: Sequence[Component]) -> str:
    """Every process on a line, node by node, and below them how many there are of each state."""
    rows = [_HEADINGS, *(_row(each) for each in sorted(components, key=_place))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([*lines, "", _summary(components)]) + "\n"


def _row(each: Component) -> tuple[str, ...]:
    runs = each.pid != 0
    return (
        printable(each.id, _WORD_LENGTH_MAX),
        printable(each.node, _WORD_LENGTH_MAX) or "-",
        str(each.pid) if runs else "-",
        each.state,
        duration(each.age_s) if runs else "-",
        str(each.restarts),
        f"{100 * each.cpu:.0f} %" if runs else "-",
        f"{each.rss_bytes / 1e6:.0f} MB" if runs else "-",
        "linked" if each.linked else "",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        f"{cell:>{width}}" if heading in _RIGHT else f"{cell:<{width}}"
        for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _place(each: Component) -> tuple[str, bool, str, int]:
    """Node by node, its agent first, then by role, and 2 before 10."""
    number = re.search(r"-([0-9]{1,9})$", each.id)
    return each.node, each.role != "node", each.role, int(number[1]) if number else 0


def _summary(components: Sequence[Component]) -> str:
    counts = Counter(each.state for each in components)
    told = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    noun = "process" if len(components) == 1 else "processes"
    return f"{len(components)} {noun}: {told}" if components else "no process"
