"""The lines of a recording: ticks as JSON, and before them under which settings they were judged.

A line that is an object is a `Header`: here a run, or the next part of one, begins. A line that is
an array is a `Tick`. What is neither was torn by a crash or a full disk, and is counted.
"""

from pathlib import Path

import msgspec

from bus.config_shape import PinpointConfig
from pinpoint.samples import Tick

FORMAT = 1
NAME_END = ".jsonl"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Who recorded what follows, and how it judged."""

    softstate_ticks: int = FORMAT
    by: str
    incarnation: int
    part: int
    """Of one run, from 0; files are begun anew when they are long enough."""
    period_s: float
    """From tick to tick."""
    needed: dict[str, int]
    """Of each role, how many must stay live."""
    settings: PinpointConfig

    def continues(self, before: "Header | None") -> bool:
        return before is not None and before == msgspec.structs.replace(self, part=self.part - 1)

    def is_same_life(self, before: "Header | None") -> bool:
        """If it does not continue it, ticks between them are lost."""
        return before is not None and (before.by, before.incarnation) == (self.by, self.incarnation)


_encoder = msgspec.json.Encoder()
_headers = msgspec.json.Decoder(Header)
_ticks = msgspec.json.Decoder(Tick)


def older_of(path: Path) -> Path:
    """Where the older half is of what is recorded there."""
    name, end, packed = path.name.rpartition(NAME_END)
    return path.with_name(f"{name}.older{end}{packed}")


def line_of(what: Header | Tick) -> bytes:
    return _encoder.encode(what) + b"\n"


def read_line(line: bytes) -> Header | Tick | None:
    """None for what cannot be read."""
    try:
        if not line.startswith(b"{"):
            return _ticks.decode(line)
        header = _headers.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return header if header.softstate_ticks == FORMAT else None
