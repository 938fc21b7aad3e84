"""Lose packets of nodes that have a network namespace of their own. Runs `nft` there.

What always holds:
  F1  A filter is only ever made in a namespace that `roles.hosts` made, never in the machine's.
  F2  Packets are lost where they arrive: as with a broken wire, the sender is not told.
"""

import ipaddress
import subprocess

from bus.errors import ConfigError, NotReady
from roles.hosts import TABLE, program

COMMAND_S_MAX = 10.0


def lose(pid: int, table: str, share: float, sender: str = "") -> None:
    """In the namespace of that process, lose a share of what comes from outside, or of what comes
    from that address; under a table of that name, by which it is removed again."""
    who = f"{_family(sender)} saddr {sender}" if sender else 'iifname != "lo"'
    chance = "" if share >= 1 else f"numgen random mod 1000 < {share * 1000:.0f}"
    # F2: in the hook of what arrives.
    chain = f"type filter hook input priority 0; policy accept; {who} {chance} counter drop;"
    _nft(pid, f"table inet {table} {{\n chain arriving {{ {chain} }}\n}}\n", "-f", "-")


def check_namespace(pid: int, node: str) -> None:
    """Raises `NotReady` unless that process is in a namespace that we made."""  # F1
    try:
        _nft(pid, "", "list", "table", "inet", TABLE)
    except NotReady as error:
        raise NotReady(
            f"{node} has no network namespace of its own, so no wire of it can be cut; start the "
            f"cluster as root with `softstate up --hosts` ({error})"
        ) from None


def _nft(pid: int, text: str, *words: str) -> None:
    command = [program("nsenter"), f"--net=/proc/{pid}/ns/net", "--", program("nft"), *words]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReady(f"nft: {error}") from None
    if done.returncode != 0:
        raise NotReady(f"nft: {done.stderr.strip().splitlines()[0] if done.stderr else 'failed'}")


def _family(address: str) -> str:
    try:
        return "ip" if ipaddress.ip_address(address).version == 4 else "ip6"
    except ValueError:
        raise ConfigError(f"{address}: packets are told apart by addresses, not names") from None
