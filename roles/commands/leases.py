"""Show who owns which keys: namespaces, their owners and maps, pending recalls, who leads."""

import argparse
import difflib

import msgspec

from bus.config import find, load
from bus.errors import NotReady
from roles.lease_inquiry import ask_leader
from roles.lease_table import leases_json, leases_text
from roles.messages import (
    DescribeLeases,
    LeaseRows,
    LeasesDescribed,
    decode_rows,
)
from roles.observer import Observer


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    with Observer(config) as observer:
        question = DescribeLeases(options.namespace, ranges=True)
        reply = ask_leader(observer, config, question, LeasesDescribed)
    rows = decode_rows(reply.body, LeaseRows)
    if options.namespace and options.namespace not in rows.names:
        raise NotReady(unknown_namespace(options.namespace, rows.names))
    if options.json:
        print(msgspec.json.encode(leases_json(reply.message, rows)).decode())
    else:
        print(leases_text(reply.message, rows, whole=bool(options.namespace)), end="")
    return 0


def unknown_namespace(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"no namespace `{name}`; did you mean `{near[0]}`?"
    known = f"there are {', '.join(names)}" if names else "none has had an owner yet"
    return f"no namespace `{name}`; {known}"


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="softstate leases", description=__doc__)
    parser.add_argument("namespace", nargs="?", default="", help="only this one, and all its map")
    parser.add_argument("--config", metavar="FILE", help="the cluster to look at")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)
