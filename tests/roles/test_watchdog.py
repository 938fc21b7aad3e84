"""The watchdog for real: children killed, stuck and stubborn, and nothing left behind.

Method: a watchdog in a process of its own keeps small shell scripts running, which say who they
are into a file. They are called as `keeper --restarts N`, so `$2` is how often they were restarted.
"""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from roles.invoke import environment
from roles.watchdog import Silence
from tests.waiting import until

pytestmark = pytest.mark.slow

RUN = """
import os, sys
from roles.watchdog import Watchdog
scripts = sys.argv[2:]
commands = {f"c-{n}": ["/bin/sh", "-c", s, "keeper"] for n, s in enumerate(scripts, 1)}
real_pipe, pipes = os.pipe, []
def pipe():
    pipes.append(1)
    if str(len(pipes)) in os.environ["NO_PIPE"].split():
        raise OSError(23, os.strerror(23))
    return real_pipe()
os.pipe = pipe
limits = {"end_s_max": float(sys.argv[1]), "silent_s_max": float(os.environ["SILENT_S_MAX"])}
sys.exit(Watchdog(commands, os.environ, **limits).run())
"""

SLEEPER = "echo $2 $$ >> starts; exec sleep 1000"

BEATING = "echo $2 $$ >> starts; while :; do printf . >&$SOFTSTATE_PULSE; sleep 0.05; done"


class Kept:
    """A running watchdog, and what its children wrote into `starts`."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.process = process
        self._starts = directory / "starts"

    def starts(self) -> list[tuple[int, int]]:
        """How often each was restarted before, and its pid, in order."""
        if not self._starts.exists():
            return []
        lines = self._starts.read_text().splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def wait_started(self, count: int) -> list[tuple[int, int]]:
        until(lambda: len(self.starts()) >= count, 5.0, f"{count} starts")
        return self.starts()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.code()

    def code(self) -> int:
        return self.process.wait(timeout=5.0)  # Not in gevent's loop, which might reap it first.


@contextmanager
def kept(
    directory: Path,
    *scripts: str,
    end_s_max: float = 2.0,
    stdout: int = subprocess.DEVNULL,
    silent_s_max: float = math.inf,
    no_pipe: str = "",
) -> Iterator[Kept]:
    """`no_pipe`: which of its pipes the machine refuses it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(end_s_max), *scripts],
        env=environment({**os.environ, "SILENT_S_MAX": str(silent_s_max), "NO_PIPE": no_pipe}),
        cwd=directory,
        stdout=stdout,
    )
    watched = Kept(process, directory)
    try:
        yield watched
    finally:
        process.kill()
        process.wait()
        for _, pid in watched.starts():
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def test_a_child_that_is_killed_is_started_again_and_told_how_often(tmp_path: Path) -> None:  # W2
    with kept(tmp_path, SLEEPER) as watched:
        [(_, first)] = watched.wait_started(1)
        os.kill(first, signal.SIGKILL)
        [_, (_, second)] = watched.wait_started(2)
        os.kill(second, signal.SIGKILL)
        restarts = [restarts for restarts, _ in watched.wait_started(3)]
        assert restarts == [0, 1, 2]


def test_one_child_that_is_killed_does_not_disturb_another(tmp_path: Path) -> None:
    with kept(tmp_path, SLEEPER, SLEEPER) as watched:
        first, second = watched.wait_started(2)
        os.kill(first[1], signal.SIGKILL)
        watched.wait_started(3)
        assert not gone(second[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_told_to_end_it_ends_its_children_first(
    tmp_path: Path, number: signal.Signals
) -> None:  # W3
    with kept(tmp_path, SLEEPER, SLEEPER) as watched:
        pids = [pid for _, pid in watched.wait_started(2)]
        assert watched.end(number) == 0
        assert all(gone(pid) for pid in pids)  # W4


def test_a_child_that_will_not_end_is_killed(tmp_path: Path) -> None:  # W3
    stubborn = "trap '' TERM; " + SLEEPER
    with kept(tmp_path, stubborn, end_s_max=0.2) as watched:
        [(_, pid)] = watched.wait_started(1)
        assert watched.end() == 0
        assert gone(pid)


def test_told_twice_it_does_not_wait(tmp_path: Path) -> None:  # W3
    stubborn = "trap '' TERM; " + SLEEPER
    with kept(tmp_path, stubborn, end_s_max=60.0) as watched:
        [(_, pid)] = watched.wait_started(1)
        watched.process.send_signal(signal.SIGINT)
        assert watched.end(signal.SIGTERM) == 0
        assert gone(pid)


def test_a_stopped_child_ends_in_good_order_too(tmp_path: Path) -> None:
    polite = (
        "trap 'echo 99 $$ >> starts; exit' TERM; echo $2 $$ >> starts; while :; do sleep 0.01; done"
    )
    with kept(tmp_path, polite) as watched:
        [(_, pid)] = watched.wait_started(1)
        os.kill(pid, signal.SIGSTOP)
        assert watched.end() == 0
        assert watched.starts() == [(0, pid), (99, pid)]


def test_what_a_dead_child_left_behind_is_gone_before_the_next_one_starts(tmp_path: Path) -> None:
    # W1: the second life finds whether the first one's own child is still there.
    script = (
        "if [ $2 = 0 ]; then sleep 1000 & echo $! > orphan; "
        "else kill -0 $(cat orphan) && touch still_there; fi; " + SLEEPER
    )
    with kept(tmp_path, script) as watched:
        [(_, pid)] = watched.wait_started(1)
        os.kill(pid, signal.SIGKILL)
        watched.wait_started(2)
        assert not (tmp_path / "still_there").exists()


def test_what_children_left_behind_is_gone_when_it_returns(tmp_path: Path) -> None:  # W4
    with kept(tmp_path, "sleep 1000 & echo $! > orphan; " + SLEEPER) as watched:
        watched.wait_started(1)
        orphan = int((tmp_path / "orphan").read_text())
        assert watched.end() == 0
        assert gone(orphan)


def test_a_child_that_refuses_its_configuration_at_first_ends_it_all(tmp_path: Path) -> None:  # W5
    with kept(tmp_path, SLEEPER, "exit 78") as watched:
        assert watched.code() == 1
        assert all(gone(pid) for _, pid in watched.starts())


def test_a_child_that_refuses_its_configuration_later_is_started_again(
    tmp_path: Path,
) -> None:  # W5
    script = "echo $2 $$ >> starts; if [ $2 = 1 ]; then exit 78; fi; exec sleep 1000"
    with kept(tmp_path, script) as watched:
        [(_, pid)] = watched.wait_started(1)
        os.kill(pid, signal.SIGKILL)
        watched.wait_started(3)


def test_a_child_that_was_replaced_elsewhere_does_not_come_back(tmp_path: Path) -> None:  # W5
    script = "echo $2 $$ >> starts; if [ $2 = 1 ]; then exit 79; fi; exec sleep 1000"
    with kept(tmp_path, script) as watched:
        [(_, pid)] = watched.wait_started(1)
        os.kill(pid, signal.SIGKILL)
        assert watched.code() == 1
        assert [restarts for restarts, _ in watched.starts()] == [0, 1]


def test_a_child_that_cannot_live_is_started_more_than_its_free_times(tmp_path: Path) -> None:  # W2
    with kept(tmp_path, "echo $2 $$ >> starts; exit 1") as watched:
        watched.wait_started(7)
        assert watched.end() == 0


def test_a_child_that_stands_still_is_killed_and_started_again(tmp_path: Path) -> None:  # W6
    with kept(tmp_path, BEATING, BEATING, silent_s_max=0.8) as watched:
        (_, first), (_, second) = watched.wait_started(2)
        until(lambda: has_slept(first), 5.0, "the first beat")
        os.kill(first, signal.SIGSTOP)
        until(lambda: len(watched.starts()) == 3, 5.0, "a third start")
        assert gone(first)
        assert not gone(second)


@pytest.mark.parametrize("no_pipe", ["1", "2 3"])
def test_a_machine_out_of_descriptors_puts_a_start_off(tmp_path: Path, no_pipe: str) -> None:  # W7
    with kept(tmp_path, BEATING, silent_s_max=2.0, no_pipe=no_pipe) as watched:
        (_, first), *_ = watched.wait_started(1)
        os.kill(first, signal.SIGKILL)
        watched.wait_started(2)
        assert watched.end() == 0


def test_a_child_whose_silence_is_not_minded_needs_no_pipe(tmp_path: Path) -> None:
    with kept(tmp_path, SLEEPER, no_pipe=" ".join(map(str, range(100)))) as watched:
        watched.wait_started(1)
        assert watched.end() == 0


def test_a_child_is_silent_for_too_long_a_while_after_it_last_wrote() -> None:  # W6
    silence = Silence(4.5, look_s=1.0, now=100.0)
    assert not silence.is_too_long(101.0, wrote=True)
    looks = [silence.is_too_long(101.0 + n, wrote=False) for n in range(1, 6)]
    assert looks == [False, False, False, False, True]
    assert not silence.is_too_long(107.0, wrote=True)


def test_time_in_which_the_watchdog_itself_was_stopped_is_nobodys_silence() -> None:  # W6
    silence = Silence(4.5, look_s=1.0, now=100.0)
    assert not silence.is_too_long(101.0, wrote=True)
    assert not silence.is_too_long(103.0, wrote=False)
    assert not silence.is_too_long(1000.0, wrote=False)
    assert silence.is_too_long(1001.0, wrote=False)


def test_a_child_that_has_not_written_yet_has_a_minute() -> None:  # W6
    silence = Silence(4.5, look_s=1.0, now=100.0)
    looks = [silence.is_too_long(100.0 + n, wrote=False) for n in range(1, 63)]
    assert looks == [False] * 60 + [True, True]


def has_slept(pid: int) -> bool:
    return any(child.name() == "sleep" for child in psutil.Process(pid).children())


def test_a_reader_that_is_stuck_does_not_stop_it(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    with kept(tmp_path, SLEEPER, stdout=writer) as watched:
        [(_, pid)] = watched.wait_started(1)
        os.kill(pid, signal.SIGKILL)
        watched.wait_started(2)
        assert watched.end() == 0
    os.close(reader)
    os.close(writer)


def test_it_brings_in_neither_gevent_nor_zeromq() -> None:
    script = (
        "import sys, roles.commands.node, roles.commands.up; "
        "sys.exit(bool({'gevent', 'zmq'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], env=environment()).returncode == 0
