"""The processes of a benchmark: start them, ask them things as JSON lines, leave none behind.

Server and client of every contestant are processes of their own, so that neither takes time
from the other. The benchmark writes one JSON line to a child's standard input and reads one
from its standard output (`loadtest.child` is the other half); a child whose standard input
ends, ends. So children end even when the benchmark itself is killed.

What always holds:
  P1  Leaving `Children` ends and reaps every process it started, however it is left.
  P2  Every wait has a bound; a child that is silent for longer is an error with its name.
"""

import contextlib
import os
import selectors
import subprocess
import sys
from types import TracebackType
from typing import Any

import msgspec

from bus.clock import now
from bus.errors import BusError

START_S_MAX = 30.0  # An interpreter and its imports, on a machine that is busy with other things.
END_S_MAX = 3.0  # From the end of its input to the end of the process, before it is killed.
LINE_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 64 * 1024


class ChildError(BusError):
    """A process of a benchmark ended, or said nothing in time: there is no figure to report."""


class Child:
    """One process, asked in turn: one line out, one line in."""

    def __init__(self, name: str, module: str, arguments: tuple[str, ...]) -> None:
        self.name = name
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Ctrl-C is for us: children then see their input end, without a traceback each.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout.fileno()
        self._stdout = self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, request: object) -> None:
        try:
            self._requests.write(msgspec.json.encode(request) + b"\n")
        except OSError as error:
            raise ChildError(f"{self.name} is gone: {error}") from error

    def receive(self, timeout_s: float) -> Any:  # noqa: ANN401 (whatever the child answers)
        """Its next line, within `timeout_s` (P2)."""
        deadline = now() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(deadline - now(), 0.0)):
                    raise ChildError(f"{self.name} did not answer within {timeout_s:g} s")
                got = os.read(self._answers, READ_BYTES)
                if not got:
                    code = self._process.wait(END_S_MAX)
                    raise ChildError(f"{self.name} ended (exit code {code}) before it answered")
                self._unread += got
                if len(self._unread) > LINE_BYTES_MAX:
                    raise ChildError(f"{self.name} does not stop talking")
        line, _, self._unread = self._unread.partition(b"\n")
        return msgspec.json.decode(line)

    def ask(self, request: object, timeout_s: float) -> Any:  # noqa: ANN401
        self.send(request)
        return self.receive(timeout_s)

    def hang_up(self) -> None:
        """Tell it to end, and do not wait."""
        with contextlib.suppress(OSError):
            self._requests.close()

    def end(self, wait_s: float) -> None:
        """Tell it to end, and see to it within `wait_s`."""
        self.hang_up()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._stdout.close()


class Children:
    """All processes of one stretch of a benchmark; they end with the `with` block (P1)."""

    def __init__(self, end_s_max: float = END_S_MAX) -> None:
        self._end_s_max = end_s_max
        self._started: list[Child] = []

    def start(self, name: str, module: str, *arguments: str) -> Child:
        """Start `python -m module arguments`; `name` is how errors call it."""
        child = Child(name, module, arguments)
        self._started.append(child)
        return child

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in reversed(self._started):
            child.hang_up()  # All at once, so that they end side by side.
        with contextlib.ExitStack() as every_one:  # One that fails to end does not save the rest.
            for child in self._started:
                every_one.callback(child.end, self._end_s_max)
