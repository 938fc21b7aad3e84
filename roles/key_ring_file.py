"""The file of the key ring: read when it changed, replaced whole. Decides nothing about keys.

What always holds:
  F1  A ring that others may read is not used; ours is written with mode 0600.
  F2  The file is replaced whole, by one writer at a time, and a ring is never written over by
      one that does not come from it.
  F3  A file that is damaged or gone changes nothing: the last good ring stays, and it is looked
      at again and again until it can be read.
  F4  The file is looked at once in `LOOK_S` at most, unless a cookie names a key that we do not
      have: then at once, so that a rotation refuses nobody for a moment. That costs a `stat`, and
      a reading only if the file changed.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bus.clock import now, wall_s
from bus.config import BRICK, Config
from bus.errors import ConfigError
from bus.shared_file import locked, replace, signature_of, trouble
from roles.cookie import Cookie, UnknownKey, decode
from roles.key_ring import SECRET_BYTES, Ring, first_ring, key_id, parse_ring, ring_text, rotate

log = logging.getLogger(__name__)

LOOK_S = 1.0
MODE = 0o600
_FILE_BYTES_MAX = 1 << 20


class KeyRingFile:
    """The ring as it is now. `current` is asked with every session: it is cheap."""

    def __init__(
        self,
        path: str | Path,
        application: str,
        report: Callable[[str], None] = log.warning,
        clock: Callable[[], float] = now,
    ) -> None:
        """ConfigError if the ring cannot be read now; later trouble is counted and reported."""
        self.failures = 0
        """Looks that found a changed file, but no ring in it."""
        self._path = Path(path)
        self._application = application
        self._report = report
        self._reported = ""
        self._clock = clock
        self._failed: tuple[int, ...] | None = None
        """What the file looked like when it could not be read, until it can."""
        self._signature = signature_of(self._path)  # Before reading: a later change is then seen.
        self._ring = read_ring(self._path, application)
        self._look_at = clock() + LOOK_S

    def current(self) -> Ring:
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_S  # F4
            self._look(signature_of(self._path))
        return self._ring

    def decode(self, text: str) -> Cookie:
        """`roles.cookie.decode` with the ring of this moment. F4."""
        try:
            return decode(text, self.current())
        except UnknownKey:
            signature = signature_of(self._path)
            # Anyone can send such cookies: they must not have a bad file read again and again.
            if signature == self._failed or not self._look(signature):
                raise
            return decode(text, self._ring)

    def _look(self, signature: tuple[int, ...]) -> bool:
        """Read the file again if it changed. True if there is another ring now."""
        if signature == self._signature:
            self._failed, self._reported = None, ""  # It may have been away and come back.
            return False
        try:
            ring = read_ring(self._path, self._application)
        except ConfigError as error:
            self.failures += 1
            self._failed = signature
            if str(error) != self._reported:
                self._reported = str(error)
                self._report(f"the key ring stays as it was: {error}")
            return False  # F3
        changed = ring != self._ring
        self._ring, self._signature = ring, signature
        self._failed, self._reported = None, ""
        return changed


def read_ring(path: str | Path, application: str = "") -> Ring:
    """The ring in the file; every trouble is a ConfigError that says what to do."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no key ring, so cookies cannot be signed; make it with `softstate keys "
            "rotate`, or copy it from a machine that has it"
        ) from error
    except OSError as error:
        raise trouble(Path(path), error) from error
    if mode & 0o077:  # F1
        raise ConfigError(f"{path}: others may read this secret; run `chmod 600 {path}`")
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path}: longer than {_FILE_BYTES_MAX} bytes; is it the right file?")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8; is it the right file?") from error
    return parse_ring(text, str(path), application)


def rotate_file(path: str | Path, lifetime_s: float) -> tuple[Ring | None, Ring]:
    """Rotate the ring in the file, or make a first one. Returns what was there, and what is."""
    place = _real(path)
    with _locked(place):
        before = read_ring(place) if place.exists() else None  # F2: if it is damaged, we end here.
        if before is None:
            after = first_ring(wall_s(), (_new_secret(None), _new_secret(None)))
        else:
            after = rotate(before, wall_s(), _new_secret(before), lifetime_s)
        replace(place, ring_text(after), MODE)  # F1, F2
    return before, after


def ensure_ring(config: Config) -> bool:
    """Make a first ring for a cluster that runs bricks and names no ring of its own, unless it is
    there. True if it was made. A ring that is named is its owner's business."""
    bricks = any(planned.role == BRICK for planned in config.components())
    if config.sessions.key_ring or not bricks:
        return False
    place = _real(config.key_ring_path)
    with _locked(place):
        if place.exists():
            return False
        first = first_ring(wall_s(), (_new_secret(None), _new_secret(None)))
        replace(place, ring_text(first), MODE)  # F1
    return True


def _new_secret(ring: Ring | None) -> bytes:
    """Random, and with an id that the ring does not have: one try in four thousand million has."""
    taken = ring.verifiers if ring is not None else {}
    while True:
        secret = secrets.token_bytes(SECRET_BYTES)
        if key_id(secret) not in taken:
            return secret


def _real(path: str | Path) -> Path:
    """Behind symbolic links, so that a link to the ring is not replaced by a ring."""
    return Path(os.path.realpath(path))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the directory of `path` for writing; made if need be. F2"""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise trouble(path.parent, error) from error
    with locked(lock, path, threading.Event().wait):  # `softstate up` is here, without gevent.
        yield
