"""Which command line is which component of a cluster, and whom chance chooses. Decides only.

What always holds:
  T1  A process is taken for a component only if its command line is, word for word, one that
      node agents and watchdogs start, for the same file of configuration. So a program that
      merely links us is never one, nor a process of another cluster with the same ids.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from bus.config_shape import NODE, Config, Planned


class Life(NamedTuple):
    """One process of the cluster, by its command line."""

    id: str
    incarnation: int
    """0 for a node agent, which finds out by itself."""


def life_of(words: Sequence[str], config: Config, same: Callable[[str], bool]) -> Life | None:
    """Whose command line this is (T1); None for all that is not ours. `same` says whether a path
    is the file of this configuration."""
    if list(words[1:4]) != ["-P", "-m", "bus.cli"]:
        return None
    role, *rest = words[4:] or ("",)
    if role == NODE:
        return _agent(rest, config, same)
    options = dict(zip(rest[::2], rest[1::2], strict=False))
    component_id, incarnation = options.get("--id", ""), options.get("--incarnation", "")
    is_role = bool(role) and component_id.rpartition("-")[0] == role
    if not is_role or not incarnation.isdecimal() or not same(options.get("--config", "")):
        return None
    return Life(component_id, int(incarnation))


def _agent(words: Sequence[str], config: Config, same: Callable[[str], bool]) -> Life | None:
    """`NAME --config FILE --agent --restarts N`."""
    if len(words) != 6 or [words[1], words[3], words[4]] != ["--config", "--agent", "--restarts"]:
        return None
    agent = agent_of(config, words[0])
    return None if agent is None or not same(words[2]) else Life(agent.id, 0)


def agent_of(config: Config, node: str) -> Planned | None:
    """The agent that the configuration has for that node."""
    planned = config.components()
    return next((each for each in planned if (each.role, each.node) == (NODE, node)), None)


def chosen(ids: Sequence[str], role: str, count: int, random: Random) -> list[str]:
    """So many of that role, by chance; fewer if there are no more."""
    of_role = sorted(each for each in ids if each.rpartition("-")[0] == role)
    return random.sample(of_role, min(count, len(of_role)))
