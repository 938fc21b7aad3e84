"""What `softstate start`, `stop` and `restart` have in common: wiring only."""

import argparse
import sys
from collections.abc import Callable

import msgspec

from bus.config import find, load
from bus.member import Member
from bus.process_orders import ProcessDescribed
from roles.cluster import Cluster
from roles.process_control import check, settle

Do = Callable[[Member, str], ProcessDescribed]


def run(arguments: list[str], command: str, description: str | None, do: Do, done: str) -> int:
    """Do it to one after the other; the first that does not work is the last."""
    parser = argparse.ArgumentParser(prog=f"softstate {command}", description=description)
    parser.add_argument("ids", metavar="ID", nargs="+", help="as in `softstate status`: brick-2")
    parser.add_argument("--config", metavar="FILE", help="the cluster it is in")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    cluster = Cluster(load(find(options.config)))
    member = cluster.member("operator")
    rows: list[dict[str, str | int]] = []
    try:
        settle(member)
        check(member, options.ids)
        for component_id in options.ids:
            answer = do(member, component_id)
            rows.append({"id": component_id, "pid": answer.pid, "incarnation": answer.incarnation})
            if not options.json:
                print(f"{component_id} {done}")
                sys.stdout.flush()
    finally:
        cluster.release()
        if options.json:
            print(msgspec.json.encode({"processes": rows}).decode())
    return 0
