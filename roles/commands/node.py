"""`softstate node NAME`: run one node of the cluster, that is its agent and what that starts.

This process is only the agent's watchdog: it starts the agent again if that ends, and ends when
it is told to (SIGTERM, Ctrl-C). It imports neither gevent nor ZeroMQ.
"""

import argparse
import difflib

from bus.config import Config, find, load
from bus.config_rules import is_loopback
from bus.errors import ConfigError
from roles.hub_ports import check_hub_ports
from roles.invoke import environment, softstate
from roles.key_ring_file import ensure_ring
from roles.watchdog import SILENT_S_MAX, Watchdog


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    _check_node(config, options.name)
    if options.agent:
        from roles.agent_process import run_agent  # Gevent and ZeroMQ: here only.

        return run_agent(config, options.name, options.restarts)
    check_hub_ports(config, [options.name])
    if is_on_one_machine(config) and ensure_ring(config):
        print(f"made {config.key_ring_path}, which signs session cookies", flush=True)
    words = softstate("node", options.name, "--config", config.source, "--agent")
    return Watchdog({options.name: words}, environment(), silent_s_max=SILENT_S_MAX).run()


def _check_node(config: Config, name: str) -> None:
    if name not in config.nodes:
        near = difflib.get_close_matches(name, config.nodes, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(config.nodes)}"
        raise ConfigError(f"{config.source} has no node `{name}`; {hint}")


def is_on_one_machine(config: Config) -> bool:
    """Then all web servers share the key ring that we make here; else somebody has to copy it."""
    return all(is_loopback(config.address_of(name)) for name in config.nodes)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="softstate node",
        description="Run one node of the cluster: its agent, and every process that the "
        "configuration lists for it. Ctrl-C ends all of them.",
    )
    parser.add_argument("name", metavar="NAME", help="the node, as in [nodes.NAME]")
    parser.add_argument("--config", metavar="FILE", help="the cluster.toml it is in")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--restarts", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)
