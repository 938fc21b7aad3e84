"""Remember, across lives of a node agent, the last incarnation of each id, and what is held. Two
small files.

The wall clock alone would do for incarnations (they are never less than its milliseconds), were it
not set back now and then; and who looks for what is held is refused, or finds it failing again. So
losing a file is little harm, and neither reading nor writing one is worth ending an agent for:
trouble is returned as a sentence, for an event. One bad entry spoils itself alone.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bus.identity import INCARNATION_MAX
from roles.agent_states import Hold

FILE_BYTES_MAX = 1 << 20

_BAD_BYTES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def recall(path: Path) -> tuple[dict[str, int], str]:
    """What was remembered, and what was wrong with it; an empty sentence for nothing."""
    content, trouble = _read(path)
    if content is None:
        return {}, trouble
    try:
        entries = msgspec.json.decode(content, type=dict[str, object])
    except _BAD_BYTES:
        return {}, f"{path} is damaged; incarnations go by the clock"
    known = {
        component_id: number
        for component_id, number in entries.items()
        if type(number) is int and 0 <= number < INCARNATION_MAX
    }
    return known, _left_out(path, len(entries) - len(known))


def remember(path: Path, incarnations: dict[str, int]) -> str:
    """Replace the file as a whole; the value says what went wrong, empty for nothing."""
    return _replace(path, msgspec.json.encode(incarnations))


def recall_holds(path: Path) -> tuple[list[Hold], str]:
    """As `recall`."""
    content, trouble = _read(path)
    if content is None:
        return [], trouble
    try:
        entries = msgspec.json.decode(content, type=list[msgspec.Raw])
    except _BAD_BYTES:
        return [], f"{path} is damaged; nothing is held any more"
    holds = [hold for hold in map(_hold, entries) if hold is not None]
    return holds, _left_out(path, len(entries) - len(holds))


def remember_holds(path: Path, holds: Sequence[Hold]) -> str:
    """As `remember`."""
    return _replace(path, msgspec.json.encode(holds))


def _hold(entry: msgspec.Raw) -> Hold | None:
    try:
        return msgspec.json.decode(entry, type=Hold)
    except _BAD_BYTES:
        return None


def _left_out(path: Path, count: int) -> str:
    return f"{path} has entries that cannot be: {count} are left out" if count else ""


def _read(path: Path) -> tuple[bytes | None, str]:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"


def _replace(path: Path, content: bytes) -> str:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        return f"cannot write {path}: {error.strerror}"
    return ""
