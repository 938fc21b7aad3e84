"""`softstate pinpoint`: judge once more what Pinpoint recorded (`pinpoint replay FILE`).

The same name is a role, which node agents start: what begins with an option is meant for it.
"""

import argparse
import gzip
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bus.config_shape import PINPOINT
from bus.errors import ConfigError
from bus.events import printable
from pinpoint.recording import older_of
from pinpoint.replay import Replayed, Said, replay
from pinpoint.verdict import WHY

PLACE = "pinpoint.process:main"
COLUMNS_MAX = 400
HEADLESS = (
    "what Pinpoint had seen before is not here, so at first verdicts may be others than it gave"
)


def main(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("--") and arguments[0] != "--help":
        from bus.role_process import run_role  # Here: it brings in the sockets.

        return run_role(PINPOINT, PLACE, arguments)
    options = _options(arguments)
    paths = [Path(name) for name in options.files]
    replayed = replay(_lines(paths if options.only else _whole(paths)))
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
    if replayed.headless:
        which = "it begins" if replayed.runs == 1 else f"{replayed.headless} of them begin"
        lines.append(f"{which} in the middle of a run: {HEADLESS}")
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


def _whole(paths: list[Path]) -> list[Path]:
    """With the older half of each right before it, if there is one."""
    whole: dict[Path, None] = {}
    for path in paths:
        older = older_of(path)
        if older in paths or older.is_file():
            whole.setdefault(older)
        whole.setdefault(path)
    return list(whole)


def _lines(paths: list[Path]) -> Iterator[bytes]:
    with ExitStack() as stack:
        # All at once: Pinpoint may be recording, and begin the next file while one is read.
        files = [stack.enter_context(_opened(path)) for path in paths]
        for path, file in zip(paths, files, strict=True):
            with _told(path):
                yield from file


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    with _told(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield file


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
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
    again.add_argument("--only", action="store_true", help="without the older half beside a FILE")
    again.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)
