"""A process that dies with the one that started it, even if that one is killed.

Whoever starts a process of ours puts its own pid into SOFTSTATE_PARENT. The child asks the kernel
to be killed when its parent ends, and then looks whether the parent was gone before it asked.
Imports nothing heavy: the watchdog uses it too.
"""

import ctypes
import os
import signal
import sys
from collections.abc import MutableMapping

PARENT = "SOFTSTATE_PARENT"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def tie_to_parent(environ: MutableMapping[str, str] = os.environ) -> None:
    """Die with our parent, if SOFTSTATE_PARENT says who that is. Linux only; elsewhere nothing.

    The kernel means the parent's *thread*: a process that a short-lived thread started would die
    with that thread.
    """
    parent = environ.pop(PARENT, "")  # Ours alone: a grandchild has another parent.
    if not parent.isdigit() or not sys.platform.startswith("linux"):
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(0)  # It died before we asked; nobody is left to read a complaint.


def adopt_orphans() -> None:
    """Become the parent of whatever our children leave behind, so that we can reap it."""
    if sys.platform.startswith("linux"):
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
