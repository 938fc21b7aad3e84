"""The owners and clients of one run, as processes: started, killed, stopped, and heard out.

What always holds:
  E1  After the `with`, no process of ours is left.
  E2  `problems` are looked for when nobody is left who could change anything.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from bus.clock import now
from bus.parent import PARENT
from roles.invoke import environment
from tests.jepsen.history import Event, problems
from tests.jepsen.registers import Registers, Way, way_of
from tests.servers import free_port
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
END_S_MAX = 20.0
REGISTERS = 16
CLIENTS = 10

Start = Callable[[Sequence[str], Path], "subprocess.Popen[str]"]
"""Runs a command with its output appended to a file."""


def start_here(command: Sequence[str], output: Path) -> "subprocess.Popen[str]":
    with output.open("a") as stream:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            text=True,
            env={**environment(), PARENT: str(os.getpid())},
        )


class Fleet:
    def __init__(self, directory: Path, config: str, ways: str) -> None:
        """`ways`: how owners increment; see `tests.jepsen.owner`."""
        self._directory = directory
        self._config = config
        self._ways = ways
        self._registers = Registers(directory / "registers.sqlite")
        self._registers.create()
        self._history = directory / "history"
        self._history.touch()
        self._history_bytes = 0
        self._events: list[Event] = []
        self._owners: dict[str, subprocess.Popen[str]] = {}
        self._urls: dict[str, str] = {}
        self._lives: dict[str, int] = {}
        self._commands: dict[str, tuple[Sequence[str], Start]] = {}
        self._clients: subprocess.Popen[str] | None = None

    # Who takes part.

    def add_owner(self, name: str, host: str = "127.0.0.1", start: Start = start_here) -> None:
        database = str(self._directory / "registers.sqlite")
        port = str(free_port())
        self._urls[name] = f"tcp://{host}:{port}"
        words = [name, self._config, database, host, port, self._ways]
        self._commands[name] = [sys.executable, "-m", "tests.jepsen.owner", *words], start
        self.start_owner(name)

    def start_owner(self, name: str) -> None:
        """Again, under the same id."""
        command, start = self._commands[name]
        self._lives[name] = self._lives.get(name, 0) + 1
        self._owners[name] = start(command, self._log(name))

    def start_clients(self, start: Start = start_here) -> None:
        words = [self._config, str(self._history), str(CLIENTS), str(REGISTERS)]
        command = [sys.executable, "-m", "tests.jepsen.clients", *words]
        self._clients = start(command, self._log("clients"))

    def kill_owner(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)
        self._signal(name, signal.SIGKILL)
        self._wait(self._owners.pop(name))

    def end_owner(self, name: str) -> None:
        """In order; returns when it has ended."""
        self._signal(name, signal.SIGTERM)
        self._wait(self._owners.pop(name))

    def pause(self, name: str) -> None:
        """Returns when every thread of it stands still, which is a while after the signal."""
        self._signal(name, signal.SIGSTOP)
        until(lambda: _stopped(self._owners[name].pid), END_S_MAX, f"{name} stopped")

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def pause_inside(self, name: str, *ways: Way) -> set[str]:
        """Stop it when it has read and not yet written, in each of these ways; the registers that
        it has read. Not in the middle of a transaction: that would stop everybody."""
        found: set[str] = set()

        def inside() -> bool:
            self.pause(name)
            found.clear()
            found.update(self._open(name))
            met = {way_of(register, self._ways) for register in found}
            good = met >= set(ways) and not self._registers.locked()
            if not good:
                self.resume(name)
            return good

        until(inside, END_S_MAX, f"{name} between reading and writing")
        return found

    def refused(self) -> int:
        """How often the fence has refused an owner so far."""
        logs = self._directory.glob("owner-*.log")
        return sum(log.read_text().count("refused op-") for log in logs)

    # What was seen.

    def history(self) -> list[Event]:
        with self._history.open("rb") as file:
            file.seek(self._history_bytes)  # It is long, and asked for often.
            whole, newline, _ = file.read().rpartition(b"\n")
        self._history_bytes += len(whole + newline)
        self._events += [msgspec.json.decode(line, type=Event) for line in whole.splitlines()]
        return self._events

    def done(self, by: str = "") -> dict[str, int]:
        """How many increments of each register were acknowledged, by that owner if one is named."""
        url = self._urls[by] if by else ""
        counts = {f"register-{number}": 0 for number in range(REGISTERS)}
        asked: dict[str, str] = {}
        for event in self.history():
            if event.kind == "invoke":
                asked[event.op] = event.why
            elif event.kind == "ok" and (not url or asked[event.op] == url):
                counts[event.register] += 1
        return counts

    def wait_for_others(self, registers: set[str], timeout_s: float, what: str) -> None:
        """Wait until somebody else has incremented what a stopped owner was working on. Two of
        each: one answer of its own may still have been on its way."""
        self._wait_for(registers, 2, timeout_s, what)

    def wait_for_all(self, timeout_s: float, what: str, by: str = "") -> float:
        """Wait until each register was incremented from now on; how long that took."""
        began_at = now()
        self._wait_for(set(self.done()), 1, timeout_s, what, by)
        return now() - began_at

    def wait_for_any(self, timeout_s: float, what: str, by: str) -> None:
        """Wait until that owner has incremented something from now on."""
        before = self.done(by)
        until(lambda: self.done(by) != before, timeout_s, f"an increment acknowledged {what}")

    def _wait_for(
        self, registers: set[str], more: int, timeout_s: float, what: str, by: str = ""
    ) -> None:
        before = self.done(by)

        def all_done() -> bool:
            self._check_alive()
            counts = self.done(by)
            return all(counts[each] >= before[each] + more for each in registers)

        until(all_done, timeout_s, f"increments acknowledged {what}")

    def finish(self) -> None:
        """End the clients, then the owners."""
        assert self._clients is not None
        self._clients.send_signal(signal.SIGTERM)
        assert self._wait(self._clients) == 0, self._log("clients").read_text()[-3000:]
        for name in list(self._owners):
            self.kill_owner(name)  # E2

    def problems(self, *ways: Way) -> list[str]:
        """What is wrong with what clients saw of, and owners left in, registers of these ways;
        after `finish`."""
        finals = self._registers.finals().items()
        return problems(
            [event for event in self.history() if way_of(event.register, self._ways) in ways],
            {name: ids for name, ids in finals if way_of(name, self._ways) in ways},
        )

    def undone(self) -> bool:
        """Whether something acknowledged is gone; while they are at work."""
        done = {(event.register, event.op) for event in self.history() if event.kind == "ok"}
        there = self._registers.finals()  # In this order: what was acknowledged is there by now.
        return any(op not in there.get(register, ()) for register, op in done)

    def close(self) -> None:
        """E1."""
        for process in (*self._owners.values(), self._clients):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                self._wait(process)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            for log in sorted(self._directory.glob("*.log")):
                error.add_note(f"--- {log.name}\n{log.read_text()[-1500:]}")

    def _open(self, name: str) -> set[str]:
        """The registers of operations that have read, and are not done."""
        reads: dict[str, str] = {}
        for line in self._log(name).read_text().splitlines():
            word, *rest = line.split() or [""]
            if word == "read":
                reads[rest[0]] = rest[1]
            elif word == "ended":
                reads.pop(rest[0], None)
        return set(reads.values())

    def _check_alive(self) -> None:
        for name, process in (*self._owners.items(), ("clients", self._clients)):
            assert process is None or process.poll() is None, f"{name} ended"

    def _wait(self, process: "subprocess.Popen[str]") -> int:
        until(lambda: process.poll() is not None, END_S_MAX, f"{process.pid} ended")
        return int(process.returncode)

    def _signal(self, name: str, number: signal.Signals) -> None:
        self._owners[name].send_signal(number)

    def _log(self, name: str) -> Path:
        """Of its present life."""
        if name == "clients":
            return self._directory / "clients.log"
        return self._directory / f"owner-{name}-{self._lives[name]}.log"


def _stopped(pid: int) -> bool:
    """Of a line in the kernel's words: `pid (name) state …`; the name may have spaces."""
    lines = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(line.rpartition(")")[2].split()[0] == "T" for line in lines)
