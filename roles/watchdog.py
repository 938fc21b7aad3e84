"""Keep a few child processes running until told to end, and leave none behind.

Runs as `softstate node`, the parent of one node agent, and as `softstate up`, of several. Small
and dull on purpose, so that nothing ends it by accident: no gevent, no ZeroMQ, one thread, and
signals are not handled but waited for (`sigtimedwait`), so nothing ever interrupts anything.

What always holds:
  W1  A name has at most one process, and what that left behind is gone before the next begins.
  W2  A process that ends unasked is started again, after the wait that `roles.restarts` gives.
  W3  Told to end, it asks every child to; after `end_s_max`, or when told again, it kills them.
  W4  It returns only when every process that it or its children started has been reaped.
  W5  A child that says `REFUSED` in its first life would say so for ever, and one that says
      `REPLACED` must not come back: then everything ends.
  W6  With `silent_s_max`, a child whose event loop stands still for so long is killed, and so
      started again. Time in which we did not look ourselves is nobody's silence.
  W7  A machine that is out of descriptors, or of processes, is a child that could not be started.
"""

import math
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bus.clock import now
from bus.parent import PARENT, adopt_orphans
from roles.endings import spoken
from roles.restarts import Restarts

REFUSED = 78
"""Exit code of a process that cannot work with its configuration (sysexits' EX_CONFIG)."""

REPLACED = 79
"""Exit code of a process that found a later life of itself elsewhere."""

END_S_MAX = 4.5
"""More than an agent grants its children, less than the 5 s that honcho grants us."""

PULSE = "SOFTSTATE_PULSE"
"""In the environment of a child: the descriptor of a pipe, into which it writes a byte a second."""

_PULSE_DESCRIPTOR = 3

SILENT_S_MAX = 4.5
"""Longer than anything honest: an agent's longest step takes milliseconds, and on a machine with
ten runnable processes a core it still runs several times a second. What it costs if it is wrong:
every process of the node begins anew."""

LOOKS = 4  # In the time that a child may be silent, at least.
FIRST_S_MAX = 60.0  # To the first byte: on a busy machine, imports alone may take a while.

_ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_ORPHANS_S_MAX = 2.0  # They are being killed; how long to wait for that before a new start.
_WAIT_S_MAX = 1.0
_LINE_BYTES_MAX = 4096


class Watchdog:
    def __init__(
        self,
        commands: Mapping[str, list[str]],
        environ: Mapping[str, str],
        *,
        end_s_max: float = END_S_MAX,
        silent_s_max: float = math.inf,
    ) -> None:
        """`commands`: the command line for each name; `--restarts N` is added to it.
        `silent_s_max`: the children write into the pipe that `PULSE` names, far more often."""
        self._commands = dict(commands)
        self._environ = {**environ, PARENT: str(os.getpid())}
        self._end_s_max = end_s_max
        self._silent_s_max = silent_s_max
        self._look_s = min(silent_s_max / LOOKS, _WAIT_S_MAX)
        self._pulses: dict[int, _Pulse] = {}
        self._pids: dict[int, str] = {}
        self._due = dict.fromkeys(commands, now())
        self._starts = dict.fromkeys(commands, 0)
        self._intensity = {name: Restarts() for name in commands}
        self._kill_at: float | None = None
        self._code = 0

    def run(self) -> int:
        """Serve until SIGTERM, SIGINT or SIGHUP; the value is an exit code."""
        waited = {signal.SIGCHLD, *_ENDS}
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            waited.discard(signal.SIGHUP)  # nohup means it.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Ignored, children would reap themselves.
        signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        adopt_orphans()  # W4
        while True:
            self._reap()
            self._kill_silent()
            if self._kill_at is None:
                self._start_due()
            elif now() >= self._kill_at:
                self._kill_everything()
            if self._kill_at is not None and not self._pids and not self._orphans():
                return self._code
            heard = signal.sigtimedwait(waited, self._wait_s())
            if heard is not None and heard.si_signo in _ENDS:
                self._told_to_end()

    def _start_due(self) -> None:
        for name, due_at in list(self._due.items()):
            if due_at > now():
                continue
            if self._orphans() and now() < due_at + _ORPHANS_S_MAX:
                return  # W1: they may still hold the ports that the next one needs.
            del self._due[name]
            self._start(name)

    def _start(self, name: str) -> None:
        command = [*self._commands[name], "--restarts", str(self._starts[name])]
        self._starts[name] += 1
        try:
            if self._silent_s_max == math.inf:
                pid = self._spawn(command)
            else:
                pulse = _Pulse(Silence(self._silent_s_max, self._look_s, now()))
                pid = self._spawn_beating(command, pulse)
                self._pulses[pid] = pulse
        except OSError as error:
            self._ended(name, f"could not be started: {error.strerror}")  # W7
        else:
            self._pids[pid] = name

    def _spawn_beating(self, command: list[str], pulse: "_Pulse") -> int:
        try:
            return self._spawn(
                command,
                {PULSE: str(_PULSE_DESCRIPTOR)},
                (os.POSIX_SPAWN_DUP2, pulse.writer, _PULSE_DESCRIPTOR),
            )
        except OSError:
            pulse.close()
            raise
        finally:
            pulse.hand_over()

    def _spawn(
        self, command: list[str], more: Mapping[str, str] | None = None, *actions: tuple[int, ...]
    ) -> int:
        return os.posix_spawn(
            command[0],
            command,
            {**self._environ, **(more or {})},
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *actions],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )

    def _kill_silent(self) -> None:
        for pid, pulse in self._pulses.items():
            if pulse.silence.is_too_long(now(), wrote=pulse.has_come()):
                say(f"{self._pids[pid]} | it has stood still for too long; it is killed")
                os.kill(pid, signal.SIGKILL)  # W6

    def _reap(self) -> None:
        """Every child that has ended, ours and the orphans that became ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._pids.pop(pid, None)
            if name is not None:
                if pulse := self._pulses.pop(pid, None):
                    pulse.close()
                self._exited(name, os.waitstatus_to_exitcode(status))

    def _exited(self, name: str, code: int) -> None:
        self._kill_orphans()  # W1
        if self._kill_at is not None:
            return
        if code == REPLACED or (code == REFUSED and self._starts[name] == 1):  # W5
            self._code = 1
            self._told_to_end()
            return
        self._ended(name, spoken(code))

    def _ended(self, name: str, reason: str) -> None:
        at = self._due[name] = self._intensity[name].ended(now())  # W2
        wait_s = at - now()
        when = f"in {wait_s:.1f} s" if wait_s > 0 else "now"
        say(f"{name} | its process ended ({reason}); it is started again {when}")

    def _told_to_end(self) -> None:
        if self._kill_at is not None:
            self._kill_at = now()  # W3: told twice, somebody is in a hurry.
            return
        self._kill_at = now() + self._end_s_max
        self._due.clear()
        for pid in self._pids:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # One that is stopped would not see the other.

    def _kill_everything(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        self._kill_orphans()
        self._kill_at = now() + self._end_s_max

    def _orphans(self) -> set[int]:
        """Children that we did not start: their parents have ended."""
        pid = os.getpid()
        try:
            listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            return set()  # Not this kernel: they die with their parents all the same.
        return {int(child) for child in listed.split()} - self._pids.keys()

    def _kill_orphans(self) -> None:
        for pid in self._orphans():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _wait_s(self) -> float:
        wakes = [*self._due.values(), *([] if self._kill_at is None else [self._kill_at])]
        wait_s = min(wakes, default=now() + _WAIT_S_MAX) - now()
        # An orphan that we wait for may be dead already; then no signal tells of it.
        return min(max(wait_s, 0.02), self._look_s)


class Silence:
    """For how long one child has not written. Decides only."""

    def __init__(self, silent_s_max: float, look_s: float, now: float) -> None:
        """`look_s`: how often we look, if nothing holds us up."""
        self._silent_s_max = silent_s_max
        self._look_s = look_s
        self._looked_at = now
        self._silent_s = 0.0
        self._has_begun = False

    def is_too_long(self, now: float, *, wrote: bool) -> bool:
        """`wrote`: since the last look. What we did not look at counts as little more than a look,
        for then it was us, or the machine, that stood still (W6)."""
        self._silent_s += min(now - self._looked_at, 2 * self._look_s)
        self._looked_at = now
        if wrote:
            self._silent_s, self._has_begun = 0.0, True
        return self._silent_s > (self._silent_s_max if self._has_begun else FIRST_S_MAX)


class _Pulse:
    """The pipe of one child."""

    def __init__(self, silence: Silence) -> None:
        self.silence = silence
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def hand_over(self) -> None:
        """The child has its end; ours must not go to the next one too."""
        os.close(self.writer)

    def close(self) -> None:
        os.close(self._reader)

    def has_come(self) -> bool:
        """Whether it wrote since we last asked."""
        try:
            return bool(os.read(self._reader, _LINE_BYTES_MAX))
        except BlockingIOError:
            return False


def say(sentence: str) -> None:
    """One line on standard output, or none if that is stuck: a watchdog must not be."""
    line = sentence.encode(errors="replace")[: _LINE_BYTES_MAX - 1] + b"\n"
    poller = select.poll()
    poller.register(1, select.POLLOUT)
    try:
        if any(event & select.POLLOUT for _, event in poller.poll(100)):
            os.write(1, line)
    except OSError:
        pass  # Nobody reads it; that is no reason to end.
