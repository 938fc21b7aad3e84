"""Run one role as this process: `softstate hub --id hub-1 --node n1`. Wiring only.

The role's function gets a `Member` that has joined the cluster, and serves until it returns. A
SIGTERM or SIGINT makes `member.wait()` return; a role that does not wait there is ended
`GRACE_S` later all the same. Either way the process ends with 0: it did as it was told. One that
gave way to another process of its id ends with `RESIGNED`: nobody should start it again.
"""

import argparse
import difflib
import importlib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import gevent
from greenlet import GreenletExit, getcurrent

from bus.clock import wall_s
from bus.config import Config, find, load
from bus.descriptors import raise_limit
from bus.errors import ConfigError
from bus.identity import Identity
from bus.member import Member

GRACE_S = 2.0  # For a role's own farewell; below what a node agent grants before it kills.
NUMBER_MAX = 2**63 - 1  # What every reader of our frames can hold.
RESIGNED = 3  # The exit code of a process that gave way to a later life of its id.

Role = Callable[[Member], None]


def run_role(role: str, place: str, words: list[str]) -> int:
    """Join the cluster as `role` and run the function at `place`, `package.module:function`."""
    options = _options(role, words)
    config = load(find(options.config))
    identity = _identity(role, options, config)
    serve = resolve(place, config)  # Before joining: what cannot run must not be announced.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

    def end() -> None:
        gevent.spawn_later(GRACE_S, gevent.kill, main_greenlet)

    raise_limit()
    main_greenlet = getcurrent()
    handlers = [gevent.signal_handler(number, end) for number in (signal.SIGTERM, signal.SIGINT)]
    member = Member.join(config, identity, restarts=options.restarts)
    try:
        serve(member)
    except GreenletExit:
        pass
    finally:
        member.close()
        for handler in handlers:
            handler.cancel()
    return RESIGNED if member.resigned else 0


def resolve(place: str, config: Config) -> Role:
    """The function at `place`; roles of a configuration's own are also looked for beside it."""
    for directory in (os.getcwd(), str(Path(config.source).parent) if config.source else ""):
        if directory and directory not in sys.path:
            sys.path.append(directory)
    module_name, _, function_name = place.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # The role's own imports are broken, and its traceback says where.
        raise ConfigError(
            f"no module `{error.name}` for the role at `{place}`; install it, or put it beside "
            f"{config.source or 'the configuration'}"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"`{module_name}` has no function `{function_name}`") from error
    if not callable(function):
        raise ConfigError(f"`{place}` is no function")
    serve: Role = function
    return serve


def _identity(role: str, options: argparse.Namespace, config: Config) -> Identity:
    if not re.fullmatch(rf"{re.escape(role)}-[1-9][0-9]{{0,8}}", options.id):
        raise ConfigError(f"--id {options.id}: the id of a {role} is `{role}-` and a number from 1")
    planned = {component.id: component.node for component in config.components()}
    node = options.node or planned.get(options.id)
    if node is None:
        raise ConfigError(f"{options.id} is not in {config.source}; say where it runs: --node NAME")
    if config.nodes and node not in config.nodes:
        near = difflib.get_close_matches(node, config.nodes, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; it has {', '.join(config.nodes)}"
        raise ConfigError(f"--node {node}: {config.source} has no such node{hint}")
    incarnation = options.incarnation or int(wall_s() * 1000)
    return Identity(options.id, role, node, incarnation)


def _options(role: str, words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"softstate {role}",
        description=f"Be one {role} of the cluster. Node agents run this for you; by hand it adds "
        "one that no agent watches.",
    )
    add = parser.add_argument
    add("--id", required=True, metavar=f"{role}-N", help="its name; survives restarts")
    add("--node", metavar="NAME", help="the node it belongs to, unless the configuration says so")
    add("--config", metavar="FILE", help="the cluster.toml to join by")
    add("--incarnation", type=_natural, help="greater than in any life before; default: the clock")
    add("--restarts", type=_natural, default=0, help="how often it was started again (default 0)")
    return parser.parse_args(words)


def _natural(text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text}: give a number from 0 to {NUMBER_MAX}")
    return int(text)
