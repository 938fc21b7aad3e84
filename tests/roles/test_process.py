"""Child processes for real: their ends, their output, what they inherit.

Method: small shell and Python commands as children of this test, their output through a pipe that
the test reads, reads late, or does not read at all.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import psutil
import pytest
from gevent.os import make_nonblocking, nb_read

from roles.output import Output
from roles.process import Children
from tests.waiting import until

pytestmark = pytest.mark.slow

ENVIRON = {"PATH": os.environ["PATH"]}


class Nursery:
    """Children whose output can be read, and a list of how they ended."""

    def __init__(self, *, patience_s: float = 2.0) -> None:
        self.reader, self.writer = os.pipe()
        make_nonblocking(self.reader)
        self.output = Output(self.writer, waiting_bytes_max=1 << 16, patience_s=patience_s)
        self.children = Children(self.output)
        self.ended: dict[int, int] = {}

    def spawn(self, name: str, *command: str) -> int:
        return self.children.spawn(name, command, ENVIRON, self._exited)

    def shell(self, name: str, script: str) -> int:
        return self.spawn(name, "/bin/sh", "-c", script)

    def read_all(self) -> bytes:
        """Until every child has ended and everything they wrote is here."""
        reading = gevent.spawn(self._read)
        self.children.close(wait_s=10)
        self.output.close(wait_s=10)
        self._close_writer()
        reading.join(timeout=10)
        assert isinstance(reading.value, bytes), "the pipe did not end"
        return reading.value

    def _read(self) -> bytes:
        chunks = []
        while chunk := nb_read(self.reader, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)

    def _exited(self, pid: int, code: int) -> None:
        assert pid not in self.ended, "told twice"
        self.ended[pid] = code

    def close_reader(self) -> None:
        descriptor, self.reader = self.reader, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _close_writer(self) -> None:
        descriptor, self.writer = self.writer, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        self.output.close()
        self.close_reader()
        self._close_writer()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def test_the_ends_of_many_children_that_die_together_are_all_noticed_at_once(
    nursery: Nursery,
) -> None:  # P1
    pids = [nursery.shell(f"c-{number}", "exec sleep 60") for number in range(10)]
    for pid in pids:
        assert nursery.children.signal(pid, "kill")
    until(lambda: len(nursery.ended) == 10, 1.0, "ten ends")
    assert nursery.ended == dict.fromkeys(pids, -signal.SIGKILL)


def test_an_exit_code_is_told_as_it_was(nursery: Nursery) -> None:
    pid = nursery.shell("c-1", "exit 7")
    until(lambda: nursery.ended == {pid: 7}, 5.0, "exit code 7")


def test_no_child_stays_behind_as_a_zombie(nursery: Nursery) -> None:
    pid = nursery.shell("c-1", "exit 0")
    until(lambda: bool(nursery.ended), 5.0, "its end")
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_a_signal_to_a_child_that_was_reaped_goes_to_nobody(nursery: Nursery) -> None:  # P2
    pid = nursery.shell("c-1", "exit 0")
    until(lambda: bool(nursery.ended), 5.0, "its end")
    assert not nursery.children.signal(pid, "term")


def test_a_stopped_child_goes_on_when_told(nursery: Nursery, tmp_path: Path) -> None:
    end = tmp_path / "end"
    pid = nursery.shell("c-1", f"until [ -e {end} ]; do sleep 0.05; done; exit 3")
    nursery.children.signal(pid, "stop")
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 5.0, "its stop")
    end.touch()
    assert nursery.ended == {}
    nursery.children.signal(pid, "continue")
    until(lambda: nursery.ended == {pid: 3}, 5.0, "its end")


def test_both_outputs_of_a_child_come_line_by_line_under_its_name(nursery: Nursery) -> None:
    nursery.shell("brick-1", r"echo one; printf '\377\n'; echo two >&2; printf 'no end'")
    assert nursery.read_all() == (
        b"brick-1 | one\nbrick-1 | \xff\nbrick-1 | two\nbrick-1 | no end\n"
    )


def test_nothing_is_lost_when_a_child_writes_faster_than_anyone_reads(
    nursery: Nursery,
) -> None:  # O3
    script = "for number in range(50_000): print(number, '.' * 20)"
    nursery.spawn("c-1", sys.executable, "-c", script)
    expected = [f"c-1 | {number} {'.' * 20}" for number in range(50_000)]
    assert nursery.read_all().decode().splitlines() == expected


def test_lines_of_several_children_do_not_mix(nursery: Nursery) -> None:  # O1
    script = "for number in range(2_000): print('x' * 500)"
    for number in range(3):
        nursery.spawn(f"c-{number}", sys.executable, "-c", script)
    lines = nursery.read_all().decode().splitlines()
    assert sorted(lines) == sorted(f"c-{n} | {'x' * 500}" for n in range(3) for _ in range(2_000))


def test_a_child_goes_on_when_nobody_reads_at_all_and_the_reader_is_told_later() -> None:  # O3
    nursery = Nursery(patience_s=0.2)
    script = "for number in range(20_000): print('x' * 100)"
    pid = nursery.spawn("c-1", sys.executable, "-c", script)
    until(lambda: nursery.ended == {pid: 0}, 10.0, "the end of a child that nobody reads")
    lines = nursery.read_all().decode().splitlines()
    nursery.close()
    told = [line for line in lines if line.startswith("(")]
    dropped = sum(int(line[1:].split()[0]) for line in told)
    assert dropped > 0
    assert len(lines) - len(told) + dropped == 20_000


def test_a_reader_that_is_gone_harms_nobody(nursery: Nursery) -> None:
    nursery.close_reader()
    pid = nursery.shell("c-1", "echo one; echo two; exit 5")
    until(lambda: nursery.ended == {pid: 5}, 5.0, "its end")


def test_a_child_inherits_no_descriptor_and_no_session_of_ours(nursery: Nursery) -> None:
    ours = os.open(os.devnull, os.O_RDONLY)
    script = (
        "import os; names = os.listdir('/proc/self/fd'); "
        f"print('{ours}' in names, '{nursery.reader}' in names, os.getsid(0) == os.getpid())"
    )
    nursery.spawn("c-1", sys.executable, "-c", script)
    assert nursery.read_all() == b"c-1 | False False True\n"
    os.close(ours)


def test_what_cannot_be_started_is_an_error_and_leaves_nothing_open(nursery: Nursery) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        nursery.spawn("c-1", "/no/such/program")
    assert os.listdir("/proc/self/fd") == before
