"""How many bytes a process has sent and received on its TCP connections, as the kernel counts them.

Asks `ss`, of iproute2; where that is missing there is no figure. A connection that has closed takes
its count with it, so this is for processes whose connections last.
"""

import re
import shutil
import subprocess

PROGRAM = shutil.which("ss")
ASK_S_MAX = 10.0

_COUNT = re.compile(r"\bbytes_(?:sent|received):(\d+)")


def socket_bytes(pid: int) -> int | None:
    """The sum over all connections that are open now; None without `ss`."""
    if PROGRAM is None:
        return None
    told = subprocess.run(
        [PROGRAM, "--tcp", "--info", "--processes", "--no-header", "--oneline", "--numeric"],
        capture_output=True,
        timeout=ASK_S_MAX,
        check=True,
        text=True,
    )
    return counted(told.stdout, pid)


def counted(listing: str, pid: int) -> int:
    """The bytes of the lines that name the process."""
    mine = [line for line in listing.splitlines() if f",pid={pid}," in line]
    return sum(int(count) for line in mine for count in _COUNT.findall(line))
