"""Say why a key is where it is: who owns it, since when, by which decision."""

import argparse

import msgspec

from bus.config import Config, find, load
from bus.errors import NotReady
from bus.replies import Reply
from roles.commands.leases import unknown_namespace
from roles.key_range import KEYS_END, Key, position
from roles.lease_inquiry import ask_leader
from roles.lease_table import why_json, why_text
from roles.messages import (
    DescribeLeases,
    ExplainKey,
    KeyExplained,
    LeaseRows,
    LeasesDescribed,
    decode_rows,
)
from roles.observer import Observer


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    key: Key = int(options.key.lstrip("0") or "0") if options.int else options.key
    at = position(key)
    with Observer(config) as observer:
        namespace = options.namespace or _only_namespace(observer, config)
        question = ExplainKey(namespace, at)
        found = ask_leader(observer, config, question, KeyExplained).message
        if not found.known:
            raise NotReady(unknown_namespace(namespace, _names(observer, config)))
    if options.json:
        print(msgspec.json.encode(why_json(options.key, namespace, at, found)).decode())
    else:
        print(why_text(options.key, namespace, at, found), end="")
    return 0


def _only_namespace(observer: Observer, config: Config) -> str:
    names = _names(observer, config)
    if len(names) == 1:
        return names[0]
    if names:
        raise NotReady(f"name one with --namespace: there are {', '.join(names)}")
    raise NotReady("no namespace has had an owner yet, so nobody owns anything")


def _names(observer: Observer, config: Config) -> list[str]:
    # Of no namespace that there is: only the names of all.
    nothing = DescribeLeases("-")
    reply: Reply[LeasesDescribed] = ask_leader(observer, config, nothing, LeasesDescribed)
    return decode_rows(reply.body, LeaseRows).names


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="softstate why", description=__doc__)
    parser.add_argument("key", help="text, hashed as UTF-8 as `find` does it")
    parser.add_argument("--int", action="store_true", help="the key is a whole number")
    parser.add_argument("--namespace", default="", help="needed if there is more than one")
    parser.add_argument("--config", metavar="FILE", help="the cluster to look at")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    if options.int and not _is_key(options.key):
        parser.error(f"--int: {options.key[:40]!r} is no whole number from 0 to 2**64 - 1")
    if not options.int and not _is_text(options.key):
        parser.error("the key is not UTF-8")
    return options


def _is_key(text: str) -> bool:
    digits = text.lstrip("0") or "0"
    return text.isascii() and digits.isdecimal() and len(digits) <= 20 and int(digits) < KEYS_END


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
