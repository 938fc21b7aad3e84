"""Have a guard undo faults, even if this process ends or hangs meanwhile. Starts it, and asks.

The guard (`roles.chaos_guard`) is a small process of its own. It is told how to undo a fault before
the fault begins, so there is no moment in which nobody would. If it is killed, another is started
and told what is left; of a process that has ended meanwhile that one cannot find the network.

What always holds:
  K1  What is kept is undone, and told of once, whatever becomes of the guard; in the end by us.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import gevent
from gevent.event import Event as Flag
from gevent.os import make_nonblocking, nb_read

from bus.clock import now
from bus.errors import NotReady
from roles import chaos_guard
from roles.chaos_guard import Kept, Undo

ANSWER_S_MAX = 10.0
END_S_MAX = 15.0
GUARDS_MAX = 5
"""So many may be lost; then all is undone at once, and by us, for no other would fare better."""
_LOOK_S = 0.01

Healed = Callable[[str], None]
"""Called once, with what went wrong; empty if nothing did."""


class _Left:
    """One fault that is not undone yet."""

    def __init__(self, for_s: float, undo: list[Undo], healed: Healed) -> None:
        self.until = now() + for_s
        self.undo = undo
        self.healed = healed
        self.kept = Flag()


class Keeper:
    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._reader: gevent.Greenlet[..., None] | None = None
        self._number = 0
        self._lost = 0
        """How many guards ended though there was something left to undo."""
        self._left: dict[int, _Left] = {}

    def keep(self, for_s: float, undo: list[Undo], healed: Healed) -> int:
        """The number under which the guard knows how to undo it, from now on."""
        if self._guard is None:
            self._start()
        self._number += 1
        number = self._number
        left = self._left[number] = _Left(for_s, undo, healed)
        self._tell_guard(number, left)
        if not left.kept.wait(ANSWER_S_MAX):
            raise NotReady("the guard that is to undo faults does not answer")
        return number

    def heal(self, number: int, in_s: float = 0.0) -> None:
        """Undo it now, or then; `healed` is called when that is done."""
        if number in self._left:
            self._left[number].until = now() + in_s
            self._say({"heal": number, "in_s": in_s})

    def close(self) -> None:
        """Undo all that is left; returns when it is done."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        guard.stdin.close()
        deadline = now() + END_S_MAX
        while guard.poll() is None and now() < deadline:
            gevent.sleep(_LOOK_S)
        if self._reader is not None:
            self._reader.join(ANSWER_S_MAX)

    def _start(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", chaos_guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us; the guard has work to do then.
        )
        self._reader = gevent.spawn(self._read, self._guard)

    def _tell_guard(self, number: int, left: _Left) -> None:
        for_s = max(left.until - now(), 0.0)
        self._say({"keep": number, "for_s": for_s, "undo": left.undo})

    def _say(self, order: dict[str, object]) -> None:
        """If it has ended, the next one is told what is left; so this may be lost."""
        guard = self._guard
        if guard is None:
            return
        assert guard.stdin is not None
        with suppress(OSError):
            guard.stdin.write(json.dumps(order).encode() + b"\n")

    def _read(self, guard: "subprocess.Popen[bytes]") -> None:
        assert guard.stdout is not None
        descriptor = guard.stdout.fileno()
        make_nonblocking(descriptor)
        rest = b""
        while chunk := nb_read(descriptor, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                word, number, trouble = json.loads(line)
                if word == "kept":
                    self._left[number].kept.set()
                else:
                    self._left.pop(number).healed(trouble)
        assert guard.stdin is not None
        guard.stdin.close()
        guard.stdout.close()
        guard.wait()
        self._go_on_without(guard)

    def _go_on_without(self, guard: "subprocess.Popen[bytes]") -> None:
        """It has ended. What it has not undone is left to another one, or to us."""  # K1
        is_closing = self._guard is not guard
        self._guard = None
        self._lost += bool(self._left)
        if self._left and not is_closing and self._lost < GUARDS_MAX:
            self._start()
            for number, left in self._left.items():
                self._tell_guard(number, left)
            return
        while self._left:
            _, left = self._left.popitem()
            left.healed(Kept(0.0, left.undo).heal())
