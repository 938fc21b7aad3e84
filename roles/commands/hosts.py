"""Show the network namespaces that `softstate up --hosts` made; `exec NODE -- COMMAND` runs a
command in one."""

import argparse

import msgspec

from bus.config import find, load
from bus.errors import ConfigError
from roles.hosts_up import enter, note_of


def main(arguments: list[str]) -> int:
    own, command = arguments, []
    if "--" in arguments:
        place = arguments.index("--")
        own, command = arguments[:place], arguments[place + 1 :]
    options = _parser().parse_args(own)
    note = note_of(load(find(options.config)))
    if options.action == "exec":
        if not command:
            raise ConfigError("say what to run: `softstate hosts exec n1 -- softstate status`")
        enter(note, options.node, command)
    cluster = load(note.config)
    rows = [
        {"node": name, "address": cluster.address_of(name), "pid": pid}
        for name, pid in note.pids.items()
    ]
    if options.json:
        print(msgspec.json.encode({"config": note.config, "hosts": rows}).decode())
        return 0
    print(f"by {note.config}")
    for row in rows:
        print(f"{row['node']}  {row['address']}  kept by process {row['pid']}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="softstate hosts", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="the cluster.toml that `up` was given")
    parser.add_argument("--json", action="store_true", help="for programs")
    actions = parser.add_subparsers(dest="action", metavar="exec")
    run = actions.add_parser("exec", help="run a command in the network of a node")
    run.add_argument("node", metavar="NODE")
    return parser
