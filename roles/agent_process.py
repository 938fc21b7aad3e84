"""Be the agent of one node: wiring only. `softstate node NAME` runs this as its child."""

import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bus.clock import now, wall_s
from bus.config import NODE, Config, installed_roles
from bus.descriptors import raise_limit
from bus.errors import ConfigError
from bus.identity import Identity, next_incarnation
from bus.member import Member
from roles.agent import Agent, AgentConfig
from roles.incarnations import recall, recall_holds
from roles.lines import Lines
from roles.node import NodeShell, holds_beside
from roles.output import Output
from roles.process import Children
from roles.watchdog import PULSE, REFUSED, REPLACED

SETTLE_S_MAX = 10.0
"""After a restart, for the hubs to tell what of ours lives elsewhere; mostly it takes a period."""


PULSE_S = 0.5  # No more often: it would take the watchdog a while to read what we wrote before.


def run_agent(config: Config, node: str, restarts: int) -> int:
    """Serve until told to end; the value is an exit code."""
    components = config.components()
    agent_id = next(
        planned.id for planned in components if (planned.role, planned.node) == (NODE, node)
    )
    raise_limit()
    beat = _pulse()
    output = Output(1)
    _log_to(output, agent_id)
    store = Path(config.run_directory) / f"incarnations-{node}.json"
    incarnations, trouble = recall(store)
    holds, holds_trouble = recall_holds(holds_beside(store))
    wall_ms = int(wall_s() * 1000)
    incarnation = next_incarnation(incarnations.get(agent_id, 0), wall_ms)
    try:
        member = Member.join(config, Identity(agent_id, NODE, node, incarnation), restarts=restarts)
    except ConfigError as error:
        output.say(f"{agent_id} | {error}")
        output.close()
        return REFUSED
    try:
        for complaint in filter(None, (trouble, holds_trouble)):
            member.event("degraded", agent_id, complaint)
        if restarts:
            how = f"noticed dead, or hung; its watchdog started it again, with all of {node}"
            member.event("restarted", agent_id, how)
        agent = Agent(
            [planned for planned in components if planned.node == node and planned.role != NODE],
            AgentConfig(
                roles=installed_roles() | config.roles.keys(),
                heal=config.heal,
                restarts=config.restarts,
            ),
            incarnations=incarnations,
            restarts=restarts,
            wall_ms=wall_ms,
            now=now(),
            settle_s=SETTLE_S_MAX if restarts or incarnations else 0.0,
            holds=holds,
        )
        NodeShell(member, agent, output, Children(output), store, beat).run()
    finally:
        member.close()
        output.close()
    return REPLACED if member.resigned else 0


def _pulse() -> Callable[[], None]:
    """What our loop calls each time it comes round: it writes to our watchdog, if that wants it."""
    named = os.environ.pop(PULSE, "")  # Ours alone: our children have other parents.
    if not named.isdigit():
        return lambda: None
    writer = os.dup(int(named))  # A copy is not inherited by our children.
    os.close(int(named))
    os.set_blocking(writer, False)
    beat_at = -math.inf

    def beat() -> None:
        nonlocal beat_at
        if now() >= beat_at:
            beat_at = now() + PULSE_S
            with suppress(OSError):  # Nobody has read for a day, or it has just died.
                os.write(writer, b".")

    return beat


class _ToOutput(logging.Handler):
    """Our own log lines go the way of our children's, so that a stuck terminal stops nothing."""

    def __init__(self, output: Output, name: str) -> None:
        super().__init__()
        self._output = output
        self._lines = Lines(name)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record).encode(errors="replace")
        self._output.write(self._lines.add(text + b"\n"))


def _log_to(output: Output, name: str) -> None:
    handler = _ToOutput(output, name)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
