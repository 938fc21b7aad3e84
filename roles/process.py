"""Start child processes, hear of their end at once, and pass on what they write.

A child is started with posix_spawn: no Python runs between fork and exec, and descriptors of this
process stay here (Python and ZeroMQ open theirs close-on-exec). It gets a session of its own, so
that Ctrl-C in a terminal reaches whoever is in charge of it and not the child itself; it dies with
this process (`bus.parent`). Its output comes through a pipe, line by line under its name.

What always holds:
  P1  Every child that was started is reaped, and `exited` is called for it once.
  P2  A signal goes only to a child that is not yet reaped, so never to a stranger with its pid.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import gevent
from gevent.os import make_nonblocking, nb_read

from bus.parent import PARENT
from roles.lines import Lines
from roles.output import Output

if TYPE_CHECKING:
    from gevent._types import _ChildWatcher

SIGNALS = {
    "term": signal.SIGTERM,
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}

_READ_BYTES = 1 << 16

Exited = Callable[[int, int], None]
"""`exited(pid, code)`; the code is minus the number of the signal if one ended it."""


class Children:
    """The child processes of this one. Use it in the main thread: it lives on the default loop."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._loop = gevent.get_hub().loop
        self._loop.install_sigchld()
        self._watchers: dict[int, _ChildWatcher] = {}
        self._readers: set[gevent.Greenlet[..., None]] = set()

    def spawn(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], exited: Exited
    ) -> int:
        """Start `command`, and return its pid. Raises OSError if the machine will not have it."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = _spawn(command, environ, writer)
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        # No other greenlet has run since, so not even a child that is dead by now was missed.
        watcher = self._loop.child(pid)
        self._watchers[pid] = watcher
        watcher.start(self._reaped, pid, watcher, exited)
        self._readers.add(greenlet := gevent.spawn(self._pass_on, name, reader))
        greenlet.link(self._readers.discard)
        return pid

    def signal(self, pid: int, name: str) -> bool:
        """Send a signal by name; False if that child has been reaped already."""
        if pid not in self._watchers:  # P2
            return False
        os.kill(pid, SIGNALS[name])
        return True

    def close(self, wait_s: float = 0.5) -> None:
        """Pass on the last words of children that have ended; a grandchild may keep a pipe open."""
        gevent.joinall(list(self._readers), timeout=wait_s)
        gevent.killall(list(self._readers), block=False)

    def _reaped(self, pid: int, watcher: "_ChildWatcher", exited: Exited) -> None:
        watcher.stop()
        del self._watchers[pid]
        code = os.waitstatus_to_exitcode(watcher.rstatus)
        watcher.close()
        exited(pid, code)  # P1

    def _pass_on(self, name: str, reader: int) -> None:
        lines = Lines(name)
        try:
            make_nonblocking(reader)
            while chunk := nb_read(reader, _READ_BYTES):
                self._output.write(lines.add(chunk))
            self._output.write(lines.end())
        finally:
            os.close(reader)


def _spawn(command: Sequence[str], environ: Mapping[str, str], output: int) -> int:
    return os.posix_spawn(
        command[0],
        tuple(command),
        {**environ, PARENT: str(os.getpid())},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
    )
