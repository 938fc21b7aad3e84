"""Which faults this process suffers on purpose, how bad, and until when. Decides only.

`bus.fault_shell` makes them true; `softstate chaos` asks for them with `InjectFault`.

What always holds:
  F1  A fault that may begin has an amount and a length that are sound, and within a bound: no
      message makes a process sick for longer than `DURATION_S_MAX`.
  F2  A fault is over at its time by itself, whoever forgot it; nobody has to come and heal it.
  F3  There is one of each kind; the later takes the place of the earlier.
"""

import math
from typing import NamedTuple

from bus.messages import InjectFault

DURATION_S_MAX = 3600.0
AMOUNT_MAX = {
    "slow": 10.0,  # Seconds before each message; more is a hang, which has a verb of its own.
    "drop": 1.0,
    "leak": 1e9,
    "flip": 1e6,
    "clock": 10 * 366 * 86_400.0,
}
_UNITS = {"slow": "s a message", "drop": "of what goes out", "leak": "B/s", "clock": "s ahead"}


class Fault(NamedTuple):
    amount: float
    until: float


def unsound(ask: InjectFault) -> str:
    """Why this cannot be done, in words; empty if it can (F1)."""
    amount, most = ask.amount, AMOUNT_MAX[ask.fault]
    least = -most if ask.fault == "clock" else 0.0
    if not (math.isfinite(amount) and least <= amount <= most):
        return f"{ask.fault} of {amount:g}: from {least:g} to {most:g}"
    if not (math.isfinite(ask.duration_s) and 0 < ask.duration_s <= DURATION_S_MAX):
        return f"for {ask.duration_s:g} s: above 0, at most {DURATION_S_MAX:g}"
    return ""


def spoken(ask: InjectFault) -> str:
    """For people: `slow, 0.001 s a message, for 10 s`."""
    if ask.amount == 0:
        return f"{ask.fault} healed early"
    return f"{ask.fault}, {ask.amount:g} {_UNITS[ask.fault]}, for {ask.duration_s:g} s"


class Faults:
    def __init__(self) -> None:
        self._on: dict[str, Fault] = {}

    def put(self, ask: InjectFault, now: float) -> None:
        """It begins, or with an amount of 0 is over."""
        self._on.pop(ask.fault, None)  # F3
        if ask.amount:
            self._on[ask.fault] = Fault(ask.amount, now + ask.duration_s)

    def amount(self, kind: str, now: float) -> float:
        """How bad it is now; 0 if there is none."""
        fault = self._on.get(kind)
        return 0.0 if fault is None or fault.until <= now else fault.amount  # F2

    def healed(self, now: float) -> list[str]:
        """Those whose time has come, each told once."""
        over = [kind for kind, fault in self._on.items() if fault.until <= now]
        for kind in over:
            del self._on[kind]
        return over

    @property
    def wake_at(self) -> float:
        return min((fault.until for fault in self._on.values()), default=math.inf)
