"""The keys directory: key pairs in files, and the allow-list that every process watches.

    cluster.public, cluster.secret    the pair all servers show; clients need the public half
    NAME.public, NAME.secret          one pair for each kind of client; `component` is ours
    allowed.toml                      who may connect, and what each may ask for

A linked service needs `cluster.public` and its own pair, and no more. What the allow-list means
is decided in `bus.allow_list`.

What always holds:
  K1  A secret is written with mode 0600, is never written over, and is not used if others may
      read it.
  K2  `allowed.toml` is replaced whole, by one writer at a time.
  K3  A list that cannot be read changes nothing: those admitted stay so, nobody else gets in.
  K4  It is read again and again until it can be, so that no revocation is missed.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from bus.allow_list import (
    COMPONENT_MAY,
    NAME,
    Allowed,
    is_key,
    parse_allowed,
    takes_away,
    with_entry,
    without_entry,
)
from bus.errors import ConfigError
from bus.security import Security
from bus.shared_file import LOCK_S_MAX, locked, replace, signature_of, trouble

log = logging.getLogger(__name__)

NewKeypair = Callable[[], tuple[str, str]]

CLUSTER = "cluster"
COMPONENT = "component"
ALLOWED = "allowed.toml"

_FILE_BYTES_MAX = 1 << 20


class AllowList:
    """The allow-list as it is now. `may` is asked for each frame: one look into a dictionary."""

    def __init__(self, path: str | Path, report: Callable[[str], None] = log.warning) -> None:
        """ConfigError if the list cannot be read now; later trouble is only reported."""
        self.version = 1
        self._path = Path(path)
        self._report = report
        self._reported = ""
        self._signature = signature_of(self._path)
        self._entries = parse_allowed(_read(self._path), str(self._path))

    def may(self, public_key: str, permission: str) -> bool:
        entry = self._entries.get(public_key)
        return entry is not None and entry.allows(permission)

    def known(self, public_key: str) -> bool:
        return public_key in self._entries

    def name(self, public_key: str) -> str:
        """Whose key it is; empty for nobody's."""
        entry = self._entries.get(public_key)
        return "" if entry is None else entry.name

    def refresh(self) -> bool:
        """Read the file again if it changed. True if a key was removed or may do less now."""
        signature = signature_of(
            self._path
        )  # Before reading: a later change is then seen next time.
        if signature == self._signature:
            return False
        try:
            entries = parse_allowed(_read(self._path), str(self._path))
        except ConfigError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                self._report(f"the allow-list stays as it was: {error}")
            return False  # K3
        self._signature, self._reported = signature, ""  # K4
        if entries == self._entries:
            return False
        cut = takes_away(self._entries, entries)
        self._entries = entries
        self.version += 1
        return cut


class _Nobody(AllowList):
    """For a process that only connects, and so never has to admit anyone."""

    def __init__(self) -> None:
        self.version = 1
        self._entries = {}

    def refresh(self) -> bool:
        return False


def load_security(
    directory: str | Path, name: str = COMPONENT, *, connects_only: bool = False
) -> Security:
    """The keys a process called `name` uses. Every trouble is a ConfigError that says what to do.

    `connects_only` is for a linked service that binds nothing: it may do without the cluster's
    secret and without the allow-list.
    """
    place = _existing(directory)
    public = _load_key(place / f"{name}.public")
    secret = _load_secret(place / f"{name}.secret")
    server_public = _load_key(place / f"{CLUSTER}.public")
    server_secret = ""
    if not connects_only or (place / f"{CLUSTER}.secret").exists():
        server_secret = _load_secret(place / f"{CLUSTER}.secret")
    if connects_only and not (place / ALLOWED).exists():
        allowed: AllowList = _Nobody()
    else:
        allowed = AllowList(place / ALLOWED)
        if not allowed.known(public):
            raise ConfigError(
                f"{place / ALLOWED}: the key {name} is not listed, so nobody would admit us; "
                f"was it revoked? Make another with `softstate keys new`"
            )
    return Security(
        server_public=server_public,
        server_secret=server_secret,
        public=public,
        secret=secret,
        allowed=allowed,
    )


def create_cluster(directory: str | Path, new_keypair: NewKeypair) -> None:
    """Make the directory, the cluster's pair and the key `component`; or what is missing of it."""
    place = Path(directory)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise trouble(place, error) from error
    with _locked(place):
        if (place / f"{CLUSTER}.public").exists() and (place / ALLOWED).exists():
            raise ConfigError(
                f"{place}: already has its keys; `softstate keys new NAME` makes another"
            )
        if not (place / f"{CLUSTER}.public").exists():
            _write_pair(place, CLUSTER, new_keypair())
        _add(place, COMPONENT, COMPONENT_MAY, new_keypair, before="")


def create_key(
    directory: str | Path, name: str, may: Collection[str], new_keypair: NewKeypair
) -> str:
    """Make the pair `name` and list it; return its public half."""
    place = _existing(directory)
    if not NAME.fullmatch(name) or name == CLUSTER:
        raise ConfigError(
            f'"{name}" cannot be the name of a key; use small letters, digits and hyphens'
        )
    if not (place / f"{CLUSTER}.public").exists():
        raise ConfigError(
            f"{place} has no cluster key yet; first run `softstate keys new --directory {place}`"
        )
    with _locked(place):
        return _add(place, name, may, new_keypair, before=_read(place / ALLOWED))


def revoke(directory: str | Path, name: str, *, wait_s_max: float = LOCK_S_MAX) -> None:
    """Take `name` off the allow-list and delete its pair, which is of no use any more."""
    place = _existing(directory)
    if name == CLUSTER:
        raise ConfigError("the cluster's own pair is not on the list; make a new keys directory")
    with _locked(place, wait_s_max):
        path = place / ALLOWED
        _replace(path, without_entry(_read(path), name, str(path)))
        for half in ("public", "secret"):
            (place / f"{name}.{half}").unlink(missing_ok=True)


def listed(directory: str | Path) -> list[Allowed]:
    """Everyone on the allow-list, in its order."""
    path = _existing(directory) / ALLOWED
    return list(parse_allowed(_read(path), str(path)).values())


def _add(
    place: Path, name: str, may: Collection[str], new_keypair: NewKeypair, *, before: str
) -> str:
    """List first: a crash in between leaves an entry that can be revoked, not a stray secret."""
    public, secret = new_keypair()
    path = place / ALLOWED
    entry = Allowed(name=name, public=public, may=frozenset(may))
    after = with_entry(before, entry, str(path))
    if (place / f"{name}.secret").exists():
        raise ConfigError(
            f"{place / name}.secret: already there, and is not written over; name another key, or "
            "remove the file if nobody uses it"
        )
    _replace(path, after)
    _write_pair(place, name, (public, secret))
    return public


# Files.


def _existing(directory: str | Path) -> Path:
    place = Path(directory)
    if not place.is_dir():
        raise ConfigError(
            f"{place}: no such directory of keys; make it with "
            f"`softstate keys new --directory {place}`"
        )
    return place


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: missing; copy it from where the keys were made, or make keys with "
            f"`softstate keys new`"
        ) from error
    except OSError as error:
        raise trouble(path, error) from error
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path}: longer than {_FILE_BYTES_MAX} bytes; is it the right file?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8; is it the right file?") from error


def _load_key(path: Path) -> str:
    key = _read(path).strip()
    if not is_key(key):
        raise ConfigError(
            f"{path}: not a key (40 characters of z85 on one line); copy it again from where the "
            "keys were made"
        )
    return key


def _load_secret(path: Path) -> str:
    key = _load_key(path)
    if path.stat().st_mode & 0o077:  # K1
        raise ConfigError(f"{path}: others may read this secret; run `chmod 600 {path}`")
    return key


def _write_pair(place: Path, name: str, pair: tuple[str, str]) -> None:
    public, secret = pair
    _write_new(place / f"{name}.secret", secret, mode=0o600)
    _write_new(place / f"{name}.public", public, mode=0o644)


def _write_new(path: Path, key: str, *, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)  # K1
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{key}\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ConfigError(
            f"{path}: already there, and is not written over; name another key or directory, or "
            "remove the file if nobody uses it"
        ) from error
    except OSError as error:
        raise trouble(path, error) from error


def _replace(path: Path, text: str) -> None:
    replace(path, text, path.stat().st_mode & 0o777 if path.exists() else 0o644)  # K2


@contextmanager
def _locked(place: Path, wait_s_max: float = LOCK_S_MAX) -> Iterator[None]:
    """Hold the directory for writing. K2"""
    try:
        lock = os.open(place / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise trouble(place, error) from error
    with locked(lock, place, gevent.sleep, wait_s_max):
        yield
