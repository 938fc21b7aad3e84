"""`softstate pinpoint`: judge once more what Pinpoint recorded (`pinpoint replay FILE`).

The same name is a role, which node agents start: what begins with an option is meant for it.
"""

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bus.config_shape import PINPOINT
from bus.errors import ConfigError
from bus.events import printable
from pinpoint.replay import Replayed, Said, replay
from pinpoint.verdict import WHY

PLACE = "pinpoint.process:main"
COLUMNS_MAX = 400


def main(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("--") and arguments[0] != "--help":
        from bus.role_process import run_role  # Here: it brings in the sockets.

        return run_role(PINPOINT, PLACE, arguments)
    options = _options(arguments)
    replayed = replay(_lines([Path(name) for name in options.files]))
    if not replayed.runs:
        raise ConfigError(f"{options.files[0]}: no line of it is of a recording of Pinpoint's")
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(replayed), indent=1).decode())
    else:
        print(text(replayed), end="")
    return 0


def text(replayed: Replayed) -> str:
    """For people."""
    lines = [f"{replayed.ticks} ticks of {replayed.seconds:.0f} s"]
    if replayed.runs > 1:
        lines[0] += f" in {replayed.runs} runs"
    if replayed.unreadable:
        lines.append(f"{replayed.unreadable} lines are not readable")
    lines += [_line("condemned", said) for said in replayed.condemned]
    lines += [_line(f"not done ({said.withheld})", said) for said in replayed.would]
    if not (replayed.condemned or replayed.would):
        lines.append("no verdict")
    for why, times in sorted(replayed.withheld.items()):
        words = next((words for name, words in WHY.items() if name == why), "")
        lines.append(f"{times} times nothing was done: {why} ({words})")
    return "\n".join(lines) + "\n"


def _line(what: str, said: Said) -> str:
    return f"{said.at_s:9.1f} s  {what}  {printable(said.id, 64)}: " + printable(
        said.reason, COLUMNS_MAX
    )


def _lines(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                yield from file
        except (OSError, EOFError) as error:
            raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="softstate pinpoint",
        description="Pinpoint records what it sees in its run_directory; replay judges that again. "
        "With --id first this is the role pinpoint, which node agents start: "
        "`softstate pinpoint --id pinpoint-1 --help` has its options.",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    again = actions.add_parser("replay", help="judge recorded ticks once more")
    again.add_argument("files", nargs="+", metavar="FILE", help="a recording; its parts in order")
    again.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)
