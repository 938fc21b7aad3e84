"""The `softstate` command: finds the sub-command, runs it, and turns its outcome into an exit code.

It knows no sub-command itself. Each layer registers its own in an entry-point group, and one is
imported only when it is used: some are heavy, and one of them patches the standard library.

  softstate.commands   NAME = package.module:function, a function (arguments: list[str]) -> int
  softstate.roles      NAME = package.module:function, a function (member: Member) -> None

A `cluster.toml` may name further roles under [roles]. A command wins over a role of its name.

What always holds:
  X1  Nothing but the sub-command that is used is imported, not even for help (`bus.cli_help`).
  X2  What is wrong with the input is one sentence on standard error, never a traceback; what is
      wrong with us is a traceback, never a sentence.
  X3  Exit codes: 0 done, 1 it failed, 2 no such command or option, 3 another process has our id
      (roles only), 4 a brick found its memory damaged, 130 interrupted, 141 nobody reads our
      output any more.
"""

import argparse
import difflib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from bus.cli_help import help_text
from bus.errors import BusError, ConfigError

if TYPE_CHECKING:
    from bus.config import Config

COMMANDS = "softstate.commands"
ROLES = "softstate.roles"

FAILED, MISUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141  # X3

Command = Callable[[list[str]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; the value is the exit code of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not __debug__:
        return _complain("run without -O and PYTHONOPTIMIZE: our checks are assertions", MISUSED)
    if "SOFTSTATE_PARENT" in os.environ:
        from bus.parent import tie_to_parent  # Here: it needs ctypes, and most commands do not.

        tie_to_parent()  # Before all else, so that an agent that dies leaves nobody behind.
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # Here, where a broken pipe is still caught.
    except BusError as error:
        return _complain(str(error), FAILED)  # X2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"softstate {version('softstate')}")
        return 0
    name, rest = words[0], words[1:]
    commands, roles = _registered(COMMANDS), _registered(ROLES)
    if name in commands:
        return _load(commands[name])(rest)
    if name in roles:
        return _run_role(name, roles[name].value, rest)
    own = _own_roles(_config_argument(rest))
    if name in own:
        return _run_role(name, own[name], rest)
    return _complain(_unknown(name, [*commands, *roles, *own]), MISUSED)


def _load(found: EntryPoint) -> Command:
    """Import a command now that it is wanted. What it needs may not be installed."""
    try:
        command: Command = found.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == found.module.partition(".")[0]:
            raise
        extras = f"; install it with `pip install 'softstate[{found.extras[0]}]'`"
        raise ConfigError(
            f"`softstate {found.name}` needs `{missing}`, which is not installed"
            + (extras if found.extras else "")
        ) from error
    return command


def _run_role(name: str, place: str, rest: list[str]) -> int:
    from bus.role_process import run_role  # X1: it brings in the sockets.

    return run_role(name, place, rest)


def _registered(group: str) -> dict[str, EntryPoint]:
    return {found.name: found for found in sorted(entry_points(group=group))}


def _own_roles(argument: str | None) -> dict[str, str]:
    """The roles that the configuration names itself. None if there is no configuration.

    A configuration that was asked for by name and is wrong is an error; one that merely lies
    around must not keep `softstate --help` from helping.
    """
    config = _config(argument)
    return {} if config is None else {name: role.main for name, role in config.roles.items()}


def _config(argument: str | None) -> "Config | None":
    from bus.config import find, load  # Here: commands that need no configuration start sooner.

    try:
        config = load(find(argument))
    except BusError:
        if argument is not None:
            raise
        return None
    sys.path.append(str(Path(config.source).parent))  # Its own roles may lie beside it.
    return config


def _config_argument(words: list[str]) -> str | None:
    """The value of `--config`, before we know which command's options these are."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--config")
    try:
        known, _ = parser.parse_known_args(words)
    except argparse.ArgumentError:
        return None
    value: str | None = known.config
    return value


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"no command `{name}`{hint} (`softstate --help` lists them all)"


def _complain(sentence: str, code: int) -> int:
    print(f"softstate: {sentence}", file=sys.stderr)
    return code


def _help() -> str:
    commands = {name: found.value for name, found in _registered(COMMANDS).items()}
    roles = {name: found.value for name, found in _registered(ROLES).items()}
    return help_text(commands, roles | _own_roles(None), shutil.get_terminal_size().columns)


if __name__ == "__main__":
    sys.exit(main())
