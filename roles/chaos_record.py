"""What was done to a cluster, for a history that programs read. Decides only."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from bus.errors import ConfigError

FOR_S_MAX = 3600.0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a history: a fault began, or healed; or it was done, and a restart is its end."""

    at_s: float
    """Since 1970."""
    what: Literal["began", "healed", "done"]
    verb: str
    targets: Sequence[str]
    detail: str
    for_s: float
    """How long it is to last; 0 for what is done."""
    seed: int
    trouble: str = ""
    """What went wrong while it was healed."""


def line(record: Record, when: str) -> str:
    """For people: `12:03:44  began   hang  brick-2  for 10 s`."""
    names = " ".join(record.targets)
    end = f", for {record.for_s:g} s" if record.what == "began" else ""
    trouble = f" ({record.trouble})" if record.trouble else ""
    return f"{when}  {record.what:<6}  {record.verb:<10}  {names}  {record.detail}{end}{trouble}"


def check_length(for_s: float) -> None:
    """Raises `ConfigError` unless a fault may last so long."""
    if not (math.isfinite(for_s) and 0 < for_s <= FOR_S_MAX):
        raise ConfigError(f"for {for_s:g} s: longer than 0 s, at most {FOR_S_MAX:g} s")
