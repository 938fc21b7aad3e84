"""`softstate up`: run the whole cluster in this terminal until Ctrl-C, which leaves nothing behind.

With no configuration at all it makes up a small cluster on free ports, in a temporary directory.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bus.config import Config, dump, find_file, load, local, remember
from bus.errors import ConfigError
from roles.hosts_up import inside, namespaces_of, up_in_hosts
from roles.hub_ports import check_hub_ports
from roles.invoke import environment, softstate
from roles.key_ring_file import ensure_ring
from roles.watchdog import SILENT_S_MAX, Watchdog


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="softstate up",
        description="Run every node of the cluster on this machine, in this terminal. "
        "Ctrl-C ends all of them.",
    )
    parser.add_argument("--config", metavar="FILE", help="default: ./cluster.toml, else made up")
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="each node in a network namespace of its own, as on a machine of its own (root)",
    )
    parser.add_argument("--passing", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--namespaces", type=namespaces_of, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    with ExitStack() as temporary:
        path = find_file(options.config)
        if path is None:
            path = _make_up(temporary.enter_context(_directory()))
        config = load(path)
        if not config.nodes:
            raise ConfigError(f"{path}: no [nodes.NAME] in it, so there is nothing to start")
        if options.hosts:
            return up_in_hosts(config)
        if not options.namespaces:  # Their ports are none of this machine's.
            check_hub_ports(config, config.nodes)
        if ensure_ring(config):
            print(f"made {config.key_ring_path}, which signs session cookies", flush=True)
        if not options.passing:  # A test's cluster is nobody's "last `softstate up`".
            _note(config)
        print(_announcement(config), flush=True)
        # This process is the watchdog of all the agents: it needs none in between.
        commands = {
            name: [
                *(inside(options.namespaces[name]) if options.namespaces else ()),
                *softstate("node", name, "--config", config.source, "--agent"),
            ]
            for name in config.nodes
        }
        return Watchdog(commands, environment(), silent_s_max=SILENT_S_MAX).run()


def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="softstate-", ignore_cleanup_errors=True)


def _make_up(directory: str) -> str:
    """A sensible cluster of this machine alone, written where `softstate status` finds it."""
    path = Path(directory) / "cluster.toml"
    path.write_text(dump(local(directory)), encoding="utf-8")
    return str(path)


def _note(config: Config) -> None:
    try:
        remember(config.source)
    except ConfigError as error:
        print(f"softstate: {error}; `softstate status` will need --config", file=sys.stderr)


def _announcement(config: Config) -> str:
    count = len(config.components())
    return f"starting {count} processes on {len(config.nodes)} nodes, as {config.source} says"
