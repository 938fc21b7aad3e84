"""Benchmark processes end with the benchmark, whatever happens, and every wait has a bound.

Method: real children; whether a process still exists is asked of the system.
"""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loadtest.processes import ChildError, Children
from tests.waiting import until

ECHO = "loadtest.echo_zmq"
pytestmark = pytest.mark.slow


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def ended(pid: int) -> bool:
    """Gone, or waiting for whoever adopted it to notice."""
    return gone(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_processes_end_with_the_block_that_started_them() -> None:
    with Children() as children:
        server = children.start("server", ECHO, "server", "raw")
        client = children.start("client", ECHO, "client", "raw")
        assert "endpoint" in server.receive(30)
    assert gone(server.pid)
    assert gone(client.pid)


def test_processes_end_when_the_block_fails() -> None:
    pids = []

    def fail() -> None:
        with Children() as children:
            server = children.start("server", ECHO, "server", "raw")
            server.receive(30)
            pids.append(server.pid)
            raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"):
        fail()
    assert [gone(pid) for pid in pids] == [True]


def test_process_that_ignores_the_end_of_its_input_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stubborn.py").write_text("import threading; threading.Event().wait()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Children(end_s_max=0.2) as children:
        child = children.start("stubborn", "stubborn")
    assert gone(child.pid)


def test_silent_process_is_an_error_with_its_name() -> None:
    with Children() as children:
        client = children.start("the client", ECHO, "client", "raw")
        with pytest.raises(ChildError, match=r"the client did not answer within 0\.05 s"):
            client.receive(0.05)


def test_process_that_ends_before_it_answers_is_an_error_with_its_exit_code() -> None:
    with Children() as children:
        child = children.start("the child", "loadtest.no_such_module")
        with pytest.raises(ChildError, match=r"the child ended \(exit code 1\)"):
            child.receive(30)


def test_children_end_when_the_benchmark_itself_is_killed() -> None:
    program = (
        "import sys\n"
        "from loadtest.processes import Children\n"
        "with Children() as children:\n"
        f"    server = children.start('server', '{ECHO}', 'server', 'raw')\n"
        "    server.receive(30)\n"
        "    print(server.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as benchmark:
        assert benchmark.stdout is not None
        pid = int(benchmark.stdout.readline())
        benchmark.kill()
    until(lambda: ended(pid), 5, "the server has ended")
