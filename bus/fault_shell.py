"""Make this process sick on purpose, as it is told. Sleeps, loses, fills memory; decides nothing.

A process has this only if its configuration says `chaos = true`, and only if an agent started it:
a program that merely links us is never made sick. Nothing of it survives the process, so a restart
cures everything. While it is well, its messages cost nothing more than without.

A record is lost before it is counted as sent: news for all hubs at once, as one record goes to
all of them. So a beacon that is lost is lost at every hub, which is harder than a bad network.
A hub passes the news of others on unharmed; only what it says itself is lost.
"""

import math
from collections.abc import Callable
from random import Random

import gevent
from gevent.monkey import get_original

from bus.clock import now, set_wall_ahead
from bus.faults import Faults, spoken, unsound
from bus.identity import Identity
from bus.messages import InjectFault, Message, Pong, Refused
from bus.pump import Pump
from bus.server import Call
from bus.statistics import Statistics

ANSWER_S = 0.02  # Losses begin so late that the answer has left.
STEP_S = 0.1  # How often a leak grows, and how late a fault may be told to be over.
LEAK_BYTES_MAX = 1 << 30
"""What all leaks of a process may hold together: it is to be sick, not its machine."""

_sleep = get_original("time", "sleep")  # Not gevent's: all of the process is to stand still.

Flip = Callable[[int], int]
"""Spoil one bit in each of so many values; how many there were to spoil."""


class FaultShell:
    def __init__(
        self,
        pump: Pump,
        statistics: Statistics,
        identity: Identity,
        tell: Callable[[str, str, str], None],
    ) -> None:
        """`tell(kind, subject, reason)` publishes an event."""
        self._pump = pump
        self._identity = identity
        self._tell = tell
        self._faults = Faults()
        self._random = Random()
        self._flip: Flip | None = None
        self._leaked: list[bytes] = []
        self._leaked_bytes = 0
        self._timer: gevent.Greenlet[..., None] | None = None
        self._leak: gevent.Greenlet[..., None] | None = None
        # A counter, which is in no beacon: who judges by statistics is not to be told.
        self._injected = statistics.counter("chaos", "Faults injected on purpose")

    def on_flip(self, flip: Flip) -> None:
        """What a role does when bits of what it holds are to flip."""
        self._flip = flip

    def inject(self, call: Call[InjectFault]) -> Message | Refused:
        """Handles `InjectFault`."""
        ask = call.message
        problem = unsound(ask)
        if problem:
            return Refused("failed", problem)
        if ask.fault == "flip":
            return self._spoil(ask, call.sender)
        self._injected.add()
        self._tell("chaos", self._identity.id, f"{spoken(ask)}, asked by {call.sender}")
        if ask.fault == "drop" and ask.amount:
            gevent.spawn_later(ANSWER_S, self._begin, ask)
        else:
            self._begin(ask)
        return self._answer()

    def close(self) -> None:
        """Well again, at once."""
        gevent.killall([each for each in (self._timer, self._leak) if each is not None])
        self._faults = Faults()
        self._apply()

    def _spoil(self, ask: InjectFault, sender: str) -> Message | Refused:
        if self._flip is None:
            detail = f"a {self._identity.role} holds no values whose bits could flip"
            return Refused("failed", detail)
        spoilt = self._flip(int(ask.amount))
        if ask.amount >= 1 and not spoilt:
            return Refused("failed", f"{self._identity.id} holds no value yet")
        self._injected.add()
        noun = "value" if spoilt == 1 else "values"
        reason = f"flip, a bit in {spoilt} {noun}, asked by {sender}"
        self._tell("chaos", self._identity.id, reason)
        return self._answer()

    def _answer(self) -> Pong:
        return Pong(self._identity.id, self._identity.incarnation)

    def _begin(self, ask: InjectFault) -> None:
        self._faults.put(ask, now())
        self._apply()
        if self._timer is None or self._timer.dead:
            self._timer = gevent.spawn(self._heal)

    def _heal(self) -> None:
        while self._faults.wake_at < math.inf:
            gevent.sleep(min(max(self._faults.wake_at - now(), 0.001), STEP_S))
            for kind in self._faults.healed(now()):
                self._apply()
                self._tell("chaos", self._identity.id, f"{kind} is over")

    def _apply(self) -> None:
        """Bring everything in line with the faults that are on."""
        at = now()
        meddles = any(self._faults.amount(kind, at) for kind in ("slow", "drop"))
        self._pump.meddler = self._meddle if meddles else None
        set_wall_ahead(self._faults.amount("clock", at))
        if not self._faults.amount("leak", at):
            self._leaked.clear()
            self._leaked_bytes = 0
        elif self._leak is None or self._leak.dead:
            self._leak = gevent.spawn(self._fill)

    def _meddle(self, *, outgoing: bool, peer: str) -> float:
        if outgoing:
            lost = self._random.random() < self._faults.amount("drop", now())
            return math.inf if lost else 0.0
        slow_s = self._faults.amount("slow", now())
        if slow_s:
            _sleep(slow_s)
        return 0.0

    def _fill(self) -> None:
        while (rate := self._faults.amount("leak", now())) and self._leaked_bytes < LEAK_BYTES_MAX:
            more = min(int(rate * STEP_S) + 1, LEAK_BYTES_MAX - self._leaked_bytes)
            self._leaked.append(b"\1" * more)  # Not zeros: a page of those is not touched.
            self._leaked_bytes += more
            gevent.sleep(STEP_S)
