"""The guard undoes what it was told to: at the time, when asked, at the end of who asked; and the
keeper sees to it that there is a guard.

Method: a real guard, and a process that sleeps, stopped by the test; whether it goes on is read
from the kernel. What namespaces need is in test_chaos_hosts.py.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.config import local as local_config
from roles import chaos_guard
from roles.chaos_guard import Undo, started
from roles.chaos_injected import Injected, Injector
from roles.chaos_keeper import GUARDS_MAX, Keeper
from roles.cluster import Cluster
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 10.0


class Guard:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", chaos_guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def say(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def heard(self) -> Any:  # noqa: ANN401 (it is JSON)
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()


@pytest.fixture
def victim() -> Iterator[int]:
    """A process that only sleeps."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stopped(pid), PATIENCE_S, "stopped")


def test_stopped_process_goes_on_at_its_time(guard: Guard, victim: int) -> None:
    guard.say({"keep": 1, "for_s": 0.3, "undo": [["continue", victim, started(victim)]]})
    assert guard.heard() == ["kept", 1, ""]
    stop(victim)
    assert guard.heard() == ["healed", 1, ""]
    until(lambda: not stopped(victim), PATIENCE_S, "going on")


def test_it_goes_on_when_asked_and_what_is_unknown_is_no_matter(guard: Guard, victim: int) -> None:
    guard.say({"keep": 1, "for_s": 1000.0, "undo": [["continue", victim, started(victim)]]})
    guard.say({"heal": 2, "in_s": 0.0})
    guard.say({"heal": 1, "in_s": 0.0})
    stop(victim)
    assert [guard.heard(), guard.heard()] == [["kept", 1, ""], ["healed", 1, ""]]
    guard.say({"heal": 1, "in_s": 0.0})


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_it_goes_on_when_nobody_asks_any_more(victim: int, end: signal.Signals | None) -> None:
    guard = Guard()
    guard.say({"keep": 1, "for_s": 1000.0, "undo": [["continue", victim, started(victim)]]})
    assert guard.heard() == ["kept", 1, ""]
    stop(victim)
    if end is not None:
        guard.process.send_signal(end)
        guard.process.wait(PATIENCE_S)
    guard.close()
    until(lambda: not stopped(victim), PATIENCE_S, "going on")


def test_limit_of_files_is_as_it_was(guard: Guard, victim: int) -> None:
    before = resource.prlimit(victim, resource.RLIMIT_FSIZE)
    guard.say({"keep": 1, "for_s": 1000.0, "undo": [["limit", victim, started(victim), *before]]})
    assert guard.heard() == ["kept", 1, ""]
    resource.prlimit(victim, resource.RLIMIT_FSIZE, (0, before[1]))
    guard.say({"heal": 1, "in_s": 0.0})
    assert guard.heard() == ["healed", 1, ""]
    assert resource.prlimit(victim, resource.RLIMIT_FSIZE) == before


def test_stranger_with_the_same_pid_is_left_alone(guard: Guard, victim: int) -> None:
    stop(victim)
    others = started(victim) - 1
    undo = [["continue", victim, others], ["limit", victim, others, 0, 0]]
    guard.say({"keep": 1, "for_s": 0.01, "undo": undo})
    assert [guard.heard(), guard.heard()] == [["kept", 1, ""], ["healed", 1, ""]]
    assert stopped(victim)
    assert resource.prlimit(victim, resource.RLIMIT_FSIZE)[0] != 0


def test_what_is_gone_has_nothing_to_be_undone(guard: Guard) -> None:
    gone = subprocess.Popen(["sleep", "1000"])
    undo = [["continue", gone.pid, started(gone.pid)], ["filter", gone.pid, 1, "no_such_table"]]
    guard.say({"keep": 1, "for_s": 1000.0, "undo": undo})
    assert guard.heard() == ["kept", 1, ""]
    gone.kill()
    gone.wait()
    guard.say({"heal": 1, "in_s": 0.0})
    assert guard.heard() == ["healed", 1, ""]


def test_signal_in_the_middle_of_undoing_breaks_nothing_off(  # G3
    victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, waits = slow_nsenter(tmp_path, monkeypatch)
    guard = Guard()
    here = os.getpid()
    undo = [
        ["filter", here, started(here), "no_such_table"],
        ["continue", victim, started(victim)],
    ]
    guard.say({"keep": 1, "for_s": 1000.0, "undo": undo})
    assert guard.heard() == ["kept", 1, ""]
    stop(victim)
    guard.say({"heal": 1, "in_s": 0.0})
    until(begun.exists, PATIENCE_S, "undoing")
    guard.process.send_signal(signal.SIGTERM)
    waits.unlink()
    assert guard.heard() == ["healed", 1, ""]
    until(lambda: not stopped(victim), PATIENCE_S, "going on")
    assert guard.process.wait(PATIENCE_S) == 0
    guard.close()


def slow_nsenter(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The guard enters no network: it waits. Two files: one says so, and it ends with the other."""
    begun, waits, script = directory / "begun", directory / "waits", directory / "nsenter"
    waits.touch()
    script.write_text(f"#!/bin/sh\ntouch {begun}\nwhile [ -e {waits} ]; do sleep 0.01; done\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return begun, waits


# The keeper, which has a guard.


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    yield made
    made.close()
    assert guards() == []


def guards() -> list[int]:
    """Guards that this process has started, and that have not ended."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [pid for pid, line in lines.items() if chaos_guard.__file__.encode() in line]


def kill_guard() -> None:
    (guard,) = guards()
    os.kill(guard, signal.SIGKILL)
    until(lambda: guard not in guards(), PATIENCE_S, "its end")


def test_guard_that_is_killed_is_followed_by_another(  # K1
    keeper: Keeper, victim: int, told: list[str]
) -> None:
    keeper.keep(1000.0, [["continue", victim, started(victim)]], told.append)
    stop(victim)
    kill_guard()
    until(guards, PATIENCE_S, "another")
    assert (told, stopped(victim)) == ([], True)
    keeper.heal(1)
    until(lambda: told == [""], PATIENCE_S, "healed")
    until(lambda: not stopped(victim), PATIENCE_S, "going on")


def test_what_was_to_be_undone_as_the_guard_was_killed_is_undone_by_the_next(  # K1
    keeper: Keeper, victim: int, told: list[str]
) -> None:
    keeper.keep(1000.0, [["continue", victim, started(victim)]], told.append)
    stop(victim)
    (guard,) = guards()
    os.kill(guard, signal.SIGSTOP)
    keeper.heal(1)
    os.kill(guard, signal.SIGKILL)
    until(lambda: told == [""], PATIENCE_S, "healed")
    until(lambda: not stopped(victim), PATIENCE_S, "going on")


def test_without_any_guard_it_is_undone_all_the_same(  # K1
    keeper: Keeper, victim: int, told: list[str]
) -> None:
    keeper.keep(1000.0, [["continue", victim, started(victim)]], told.append)
    stop(victim)
    for _ in range(GUARDS_MAX):
        until(guards, PATIENCE_S, "a guard")
        assert told == []
        kill_guard()
    until(lambda: told == [""], PATIENCE_S, "healed")
    until(lambda: not stopped(victim), PATIENCE_S, "going on")
    assert guards() == []


def test_guard_that_ends_in_peace_is_followed_by_another_when_there_is_need(
    keeper: Keeper, victim: int, told: list[str]
) -> None:
    undo: list[Undo] = [["continue", victim, started(victim)]]
    keeper.keep(1000.0, undo, told.append)
    os.kill(guards()[0], signal.SIGTERM)
    until(lambda: told == [""] and guards() == [], PATIENCE_S, "healed, and its end")
    keeper.keep(1000.0, undo, told.append)
    assert len(guards()) == 1


def test_what_was_undone_before_it_was_done_is_undone_again(victim: int, tmp_path: Path) -> None:
    """The guard is ended by somebody while a fault begins, and undoes it too soon."""
    injector = Injector(Cluster(local_config(tmp_path)), 0, None)

    def begin() -> None:
        os.kill(guards()[0], signal.SIGTERM)
        until(lambda: guards() == [], PATIENCE_S, "its end")
        stop(victim)

    fault = Injected("hang", ["brick-1"], "stopped", 1000.0)
    injector.outside(fault, [["continue", victim, started(victim)]], begin)
    until(lambda: not stopped(victim), PATIENCE_S, "going on")
    injector.close()
    assert fault.healed_at is not None
