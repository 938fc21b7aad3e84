"""Make, list and revoke the keys of a cluster; rotate those that sign session cookies."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bus.allow_list import EVERYTHING, PERMISSIONS, SERVICE_MAY, Allowed
from bus.clock import wall_s
from bus.config import find, find_file, keys_directory, load
from bus.config_rules import did_you_mean
from bus.errors import ConfigError
from bus.keys import CLUSTER, COMPONENT, create_cluster, create_key, listed, revoke
from bus.pump import new_keypair
from roles.key_ring import Ring, RingKey
from roles.key_ring_file import read_ring, rotate_file

DEFAULT_DIRECTORY = "keys"
TTL_S_ALLOWED_MAX = 366 * 86_400.0  # What [sessions] ttl_s_max can be at most.
STAGED_S_MIN = 60.0  # A key that signs sooner after it was staged may be unknown elsewhere.


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    match options.action:
        case "rotate":
            _rotate(*_ring_place(options.ring, options.config))
        case "ring":
            _show_ring(_ring_place(options.ring, options.config)[0], as_json=options.json)
        case _:
            _pairs(options)
    return 0


def _pairs(options: argparse.Namespace) -> None:
    directory = options.directory or default_directory(os.environ)
    match options.action:
        case "new":
            _new(directory, options.name, options.may)
        case "list":
            _list(directory, as_json=options.json)
        case _:
            if options.name == COMPONENT and not options.yes:
                raise ConfigError(
                    f"{COMPONENT} is the key of the cluster's own processes: revoked, all of them "
                    "are cut off from each other; if you mean that, say --yes"
                )
            revoke(directory, options.name)
            print(f"revoked {options.name}; every process cuts it off within 10 s")


def default_directory(environ: Mapping[str, str]) -> str:
    """Where the keys are unless `--directory` says: the environment, the configuration, ./keys."""
    return environ.get("SOFTSTATE_KEYS") or keys_directory(environ) or DEFAULT_DIRECTORY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="softstate keys", description=__doc__)
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="new|list|revoke|rotate|ring"
    )
    directory = argparse.ArgumentParser(add_help=False)
    directory.add_argument(
        "--directory",
        metavar="D",
        help="the keys directory (else SOFTSTATE_KEYS, [keys] of the configuration, ./keys)",
    )

    words = "; ".join(f"{word}: {meaning}" for word, meaning in PERMISSIONS.items())
    new = actions.add_parser(
        "new",
        parents=[directory],
        help="make a key; without NAME, the first ones of a new cluster",
        epilog=f"Permissions: {words}.",
    )
    new.add_argument("name", nargs="?", metavar="NAME", help="who will use it, as in web-shop")
    new.add_argument(
        "--may",
        metavar="WORDS",
        help=f"what it may ask for, with commas between (default {','.join(SERVICE_MAY)})",
    )

    show = actions.add_parser("list", parents=[directory], help="list who may ask for what")
    show.add_argument("--json", action="store_true", help="for programs")

    end = actions.add_parser("revoke", parents=[directory], help="cut a key off, for good")
    end.add_argument("name", metavar="NAME")
    end.add_argument("--yes", action="store_true", help=f"even if it is {COMPONENT}")

    ring = argparse.ArgumentParser(add_help=False)
    ring.add_argument("--ring", metavar="FILE", help="the key ring (else the configuration's)")
    ring.add_argument("--config", metavar="FILE", help="the cluster whose ring it is")
    actions.add_parser(
        "rotate",
        parents=[ring],
        help="renew what signs session cookies; logs no one out",
        description="Sign session cookies with the key staged by the last rotation, and stage a "
        "new one. Without a ring, make it. With several machines, bring the file to all of them "
        "before you rotate again.",
    )
    look = actions.add_parser("ring", parents=[ring], help="list the keys that sign cookies")
    look.add_argument("--json", action="store_true", help="for programs")
    return parser


def _ring_place(ring: str | None, config: str | None) -> tuple[str, float]:
    """The file of the ring, and how long a cookie that it signed may live."""
    if ring is None:
        found = load(find(config))
        return found.key_ring_path, found.sessions.ttl_s_max
    path = find_file(config)
    if path is None:
        return ring, TTL_S_ALLOWED_MAX  # Nobody says: keep keys as long as anybody may need them.
    return ring, load(path).sessions.ttl_s_max


def _rotate(path: str, lifetime_s: float) -> None:
    before, after = rotate_file(path, lifetime_s)
    staged = next(key for key in after.keys if key.state == "staged")
    if before is None:
        print(f"made {path}: {_id(after.active)} signs, {_id(staged)} will be next")
    else:
        _warn_if_sudden(before, after)
        dropped = [_id(key) for key in before.keys if key.id not in after.verifiers]
        print(f"{path}: {_id(after.active)} signs now, {_id(staged)} will be next")
        if dropped:
            print(f"dropped, as nothing that they signed still lives: {', '.join(dropped)}")
    print("on several machines: bring the file to each of them before you rotate again")


def _warn_if_sudden(before: Ring, after: Ring) -> None:
    age_s = wall_s() - after.active.made_wall_s
    if after.active.id != before.active.id and age_s < STAGED_S_MIN:
        print(
            f"note: {_id(after.active)} was staged only {max(age_s, 0):.0f} s ago; a process that "
            "has not read it yet refuses what it signs until it has",
            file=sys.stderr,
        )


def _show_ring(path: str, *, as_json: bool) -> None:
    rows = [_ring_row(key, wall_s()) for key in read_ring(path).keys]
    if as_json:
        print(json.dumps({"path": path, "keys": rows}))
        return
    for row in rows:
        retired = "" if row["retired_s"] is None else f", signed until {row['retired_s']} s ago"
        print(f"{row['id']}  {row['state']:<8}  made {row['age_s']} s ago{retired}")


def _ring_row(key: RingKey, at: float) -> dict[str, object]:
    """Never its secret."""
    return {
        "id": _id(key),
        "state": key.state,
        "age_s": max(0, int(at) - key.made_wall_s),
        "retired_s": max(0, int(at) - key.retired_wall_s) if key.retired_wall_s else None,
    }


def _id(key: RingKey) -> str:
    return key.id.hex()


def _new(directory: str, name: str | None, may: str | None) -> None:
    if name is None:
        create_cluster(directory, new_keypair)
        print(f"made the cluster's keys in {directory}; put this into cluster.toml:")
        print(f"[keys]\ndirectory = {json.dumps(directory)}")
        return
    words = (
        SERVICE_MAY if may is None else [word.strip() for word in may.split(",") if word.strip()]
    )
    for word in words:
        if word not in PERMISSIONS:
            hint = did_you_mean(word, PERMISSIONS)
            print(f'note: softstate itself never asks for "{word}"{hint}', file=sys.stderr)
    create_key(directory, name, words, new_keypair)
    print(f"made {name}, which may: {', '.join(words) or 'only connect'}")
    print(f"a service elsewhere needs {CLUSTER}.public, {name}.public and {name}.secret, no more")


def _list(directory: str, *, as_json: bool) -> None:
    entries = listed(directory)
    if as_json:
        print(json.dumps({"keys": [_row(entry, directory) for entry in entries]}))
        return
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:<{width}}  {entry.public}  {', '.join(_words(entry))}")


def _row(entry: Allowed, directory: str) -> dict[str, object]:
    return {
        "name": entry.name,
        "public": entry.public,
        "may": _words(entry),
        "secret_here": (Path(directory) / f"{entry.name}.secret").is_file(),
    }


def _words(entry: Allowed) -> list[str]:
    return [EVERYTHING] if EVERYTHING in entry.may else sorted(entry.may)
