"""Where time comes from. Decision code never reads a clock: it is handed `now`.

`now` is seconds of CLOCK_BOOTTIME: it only goes forward and goes on while the machine
sleeps, so a lease that ran out during a suspend has run out. It means nothing to any
other process; no message carries one, but for `sent_us`, of use only for differences.
"""

import time

_BOOTTIME = time.CLOCK_BOOTTIME
_ahead_s = 0.0


def now() -> float:
    """Seconds that only go forward, from an origin of no meaning."""
    return time.clock_gettime(_BOOTTIME)


def wall_s() -> float:
    """Seconds since 1970, for people and first incarnations. It jumps: decide nothing by it."""
    return time.time() + _ahead_s  # noqa: TID251 (the one place)


def set_wall_ahead(ahead_s: float) -> None:
    """Let the wall clock of this process be wrong by so much, as a fault for tests."""
    global _ahead_s
    _ahead_s = ahead_s
