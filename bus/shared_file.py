"""Files that many processes watch and one at a time replaces: keys, and who may use them.

What always holds:
  H1  A file is replaced whole, so that whoever reads it finds the old text or the new one, also
      after a crash; where that fails, what was there stays, and nothing is left beside it.
  H2  One writer at a time holds the lock, for a bounded wait; the kernel lets go of it if we die.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bus.clock import now
from bus.errors import ConfigError

LOCK_S_MAX = 5.0  # How long to wait for another `softstate keys`; each takes milliseconds.
_LOCK_STEP_S = 0.02


def signature_of(path: Path) -> tuple[int, ...]:
    """Changes whenever the file does; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def trouble(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: {error.strerror}; check who owns it and its mode")


def replace(path: Path, text: str, mode: int) -> None:
    """H1; the mode is the file's whatever the umask."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # Of one that died. It may have had another mode.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise trouble(path, error) from error


@contextmanager
def locked(
    lock: int, path: Path, pause: Callable[[float], object], wait_s_max: float = LOCK_S_MAX
) -> Iterator[None]:
    """Hold the lock of that descriptor, which is closed in the end (H2). `pause` waits, in the
    way of whoever asks; `path` is what to speak of if another holds it for long."""
    try:
        deadline = now() + wait_s_max
        while not _try(lock):
            if now() >= deadline:
                raise ConfigError(f"{path}: another `softstate keys` is busy there; try again")
            pause(_LOCK_STEP_S)
        yield
    finally:
        os.close(lock)


def _try(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
