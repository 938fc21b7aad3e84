"""End processes in good order, one after the other, and start each again."""

from roles.commands.processes import run
from roles.process_control import restart


def main(arguments: list[str]) -> int:
    return run(arguments, "restart", __doc__, restart, "is live again")
