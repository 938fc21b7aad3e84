"""Remember, across lives of a node agent, the last incarnation of each id. One small file.

The wall clock alone would do (an incarnation is never less than its milliseconds), were it not
set back now and then. So losing this file is no harm by itself, and neither reading nor writing
it is worth ending an agent for: trouble is returned as a sentence, for an event.
"""

import os
from pathlib import Path

import msgspec

FILE_BYTES_MAX = 1 << 20


def recall(path: Path) -> tuple[dict[str, int], str]:
    """What was remembered, and what was wrong with it; an empty sentence for nothing."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"cannot read {path}: {error.strerror}"
    try:
        return msgspec.json.decode(content, type=dict[str, int]), ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}, f"{path} is damaged; incarnations go by the clock"


def remember(path: Path, incarnations: dict[str, int]) -> str:
    """Replace the file as a whole; the value says what went wrong, empty for nothing."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(incarnations))
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        return f"cannot write {path}: {error.strerror}"
    return ""
