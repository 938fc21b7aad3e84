"""End processes in good order, and keep them ended until `softstate start`: nobody heals them."""

from roles.commands.processes import run
from roles.process_control import stop


def main(arguments: list[str]) -> int:
    return run(arguments, "stop", __doc__, stop, "has ended")
