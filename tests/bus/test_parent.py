"""A child that dies with its parent: real processes, and kill -9.

Method: a parent process starts a child tied to it and prints the child's pid; we kill the parent.
"""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import until

pytestmark = pytest.mark.slow

CHILD = """
import sys
from bus.parent import tie_to_parent
tie_to_parent()
print("tied", flush=True)
sys.stdin.read()
"""

PARENT = f"""
import os, subprocess, sys
environ = {{**os.environ, "SOFTSTATE_PARENT": str(os.getpid())}}
child = subprocess.Popen(
    [sys.executable, "-c", {CHILD!r}], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
assert child.stdout.readline() == b"tied\\n"
print(child.pid, flush=True)
child.wait()
"""


def python(script: str, **environ: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_child_is_gone_once_its_parent_was_killed() -> None:
    with python(PARENT) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        until(lambda: gone(child), 2.0, "the child's end")


def gone(process: psutil.Process) -> bool:
    """Ended, even if nobody has reaped it yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_child_whose_parent_was_gone_before_it_asked_ends_at_once() -> None:
    with python(CHILD, SOFTSTATE_PARENT="1") as child:
        assert child.stdout is not None
        assert child.stdout.read() == b""
        assert child.wait(timeout=5) == 0


def test_grandchild_does_not_take_its_grandparent_for_its_parent() -> None:
    script = CHILD.replace('print("tied", flush=True)', "import os; print(dict(os.environ))")
    with python(script, SOFTSTATE_PARENT=str(os.getpid())) as child:
        out, _ = child.communicate(b"", timeout=5)
        assert child.returncode == 0
        assert b"PATH" in out
        assert b"SOFTSTATE_PARENT" not in out


def test_process_without_a_known_parent_is_tied_to_nobody() -> None:
    with python(CHILD) as child:
        out, _ = child.communicate(b"", timeout=5)
        assert (child.returncode, out) == (0, b"tied\n")
