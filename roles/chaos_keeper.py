"""Have a guard undo faults, even if this process ends or hangs meanwhile. Starts it, and asks.

The guard (`roles.chaos_guard`) is a small process of its own. It is told how to undo a fault before
the fault begins, so there is no moment in which nobody would.
"""

import json
import subprocess
import sys
from collections.abc import Callable

import gevent
from gevent.event import Event as Flag
from gevent.os import make_nonblocking, nb_read

from bus.clock import now
from bus.errors import NotReady
from roles import chaos_guard
from roles.chaos_guard import Undo

ANSWER_S_MAX = 10.0
END_S_MAX = 15.0
_LOOK_S = 0.01

Healed = Callable[[str], None]
"""Called once, with what went wrong; empty if nothing did."""


class Keeper:
    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._reader: gevent.Greenlet[..., None] | None = None
        self._number = 0
        self._kept: dict[int, Flag] = {}
        self._healed: dict[int, Healed] = {}

    def keep(self, for_s: float, undo: list[Undo], healed: Healed) -> int:
        """The number under which the guard knows how to undo it, from now on."""
        if self._guard is None:
            self._start()
        self._number += 1
        number = self._number
        kept = self._kept[number] = Flag()
        self._healed[number] = healed
        self._say({"keep": number, "for_s": for_s, "undo": undo})
        if not kept.wait(ANSWER_S_MAX):
            raise NotReady("the guard that is to undo faults does not answer")
        return number

    def heal(self, number: int) -> None:
        """Undo it now; `healed` is called when that is done."""
        if number in self._healed:
            self._say({"heal": number})

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

    def _say(self, order: dict[str, object]) -> None:
        guard = self._guard
        assert guard is not None
        assert guard.stdin is not None
        try:
            guard.stdin.write(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise NotReady(f"the guard that is to undo faults has ended: {error}") from None

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
                    self._kept.pop(number).set()
                else:
                    self._healed.pop(number)(trouble)
        guard.stdout.close()
        for healed in list(self._healed.values()):
            healed("the guard ended before it could undo this")
        self._healed.clear()
