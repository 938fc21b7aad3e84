"""Start processes, whatever held them back: ended on purpose, or offline after failing again."""

from roles.commands.processes import run
from roles.process_control import start


def main(arguments: list[str]) -> int:
    return run(arguments, "start", __doc__, start, "is live")
