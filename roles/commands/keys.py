"""Make, list and revoke the keys that encrypt a cluster and say who may ask for what."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bus.allow_list import EVERYTHING, PERMISSIONS, SERVICE_MAY, Allowed
from bus.config import keys_directory
from bus.config_rules import did_you_mean
from bus.errors import ConfigError
from bus.keys import CLUSTER, COMPONENT, create_cluster, create_key, listed, revoke
from bus.pump import new_keypair

DEFAULT_DIRECTORY = "keys"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
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
    return 0


def default_directory(environ: Mapping[str, str]) -> str:
    """Where the keys are unless `--directory` says: the environment, the configuration, ./keys."""
    return environ.get("SOFTSTATE_KEYS") or keys_directory(environ) or DEFAULT_DIRECTORY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="softstate keys", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="new|list|revoke")
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
    return parser


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
