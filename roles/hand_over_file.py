"""Where a brick leaves its tables for its next life: one file, in memory if there is room. Reads
and writes; `roles.hand_over` says what is in it.

What always holds:
  F1  Only we can read it (mode 0600), and only what is ours is read: a plain file of our own user,
      no link. Anybody may put files into a directory like /dev/shm.
  F2  It is there whole or not at all: it gets its name when all is written.
  F3  It is used at most once: it loses its name before it is read.
  F4  What nobody came back for is removed by the other bricks of its machine (`tidy`).
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import gevent
from xxhash import xxh3_64_hexdigest

from bus.clock import now, wall_s
from bus.config import Config
from roles.hand_over import VALID_S, Head, Reader, Unusable, Writer
from roles.session_tables import SessionTables

IN_MEMORY = Path("/dev/shm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SPARE_BYTES = 16 << 20  # Left to others, wherever the file is.
TURN = 500  # So many sessions, then timers and beacons have their turn.


def cluster_name(config: Config) -> str:
    """The same for all lives of a brick, and another for each cluster on this machine."""
    return xxh3_64_hexdigest(f"{config.source}\0{config.run_directory}".encode())


def places(config: Config, brick_id: str) -> list[Path]:
    """Where the file may be, best first."""
    in_memory = IN_MEMORY / f"{_prefix(config)}{brick_id}"
    on_disk = Path(config.run_directory) / f"{brick_id}.tables"
    return [in_memory, on_disk] if IN_MEMORY.is_dir() else [on_disk]


def _prefix(config: Config) -> str:
    return f"softstate-{cluster_name(config)}-"


def leave(config: Config, brick_id: str, tables: SessionTables) -> int:
    """Write all that is in the tables, which nobody may change meanwhile. The length of the file;
    raises OSError, with nothing left behind, if it can be written nowhere."""
    trouble = OSError("there is no place for it")
    for path in places(config, brick_id):
        try:
            return _leave(path, config, brick_id, tables)
        except OSError as error:
            trouble = error
    raise trouble


def _leave(path: Path, config: Config, brick_id: str, tables: SessionTables) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    status, need = os.statvfs(path.parent), tables.bytes_held + SPARE_BYTES
    if status.f_bavail * status.f_frsize < need:
        raise OSError(f"no room for {need} bytes in {path.parent}")
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # F1
    try:
        with open(descriptor, "wb") as file:
            _write(file.write, config, brick_id, tables)
            length = file.tell()
        temporary.replace(path)  # F2
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return length


def _write(
    write: Callable[[bytes], int], config: Config, brick_id: str, tables: SessionTables
) -> None:
    written_at = now()
    count = sum(1 for _ in tables.kept(written_at))
    writer = Writer()
    head = Head(
        cluster_name(config), brick_id, _boot_id(), tables.data_incarnation, written_at, count
    )
    write(writer.begin(head))
    for number, kept in enumerate(tables.kept(written_at)):
        write(writer.record(kept))
        if number % TURN == 0:
            gevent.sleep(0)
    write(writer.end())


def find(
    config: Config, brick_id: str, new_tables: Callable[[int], SessionTables]
) -> tuple[SessionTables | None, list[str]]:
    """The tables that the life before left, and why any file there was is unusable."""
    found: SessionTables | None = None
    complaints: list[str] = []
    for path in places(config, brick_id):
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                _claim(path, file.fileno())
                # Were there two, both of this boot and this minute, either would do.
                found = _read(Reader(file.read), config, brick_id, new_tables)
        except FileNotFoundError:
            pass
        except Unusable as error:
            complaints.append(f"{path}: {error}")
        except OSError as error:
            complaints.append(f"{path}: {error.strerror}")
    return found, complaints


def tidy(config: Config) -> None:
    """Remove what bricks of this cluster left in memory and can no longer use (F4)."""
    pattern = f"{_prefix(config)}*"
    try:
        paths = list(IN_MEMORY.glob(pattern)) if IN_MEMORY.is_dir() else []
    except OSError:
        return  # No descriptor is free, say; the next one to tidy will do.
    for path in paths:
        try:
            # By the wall clock, as files are; should it be set wrong, a warm start becomes a cold.
            if wall_s() - path.lstat().st_mtime > 2 * VALID_S:
                path.unlink()
        except OSError:
            pass  # Another was quicker, or it is not ours.


def _claim(path: Path, descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise Unusable("it is not ours")  # F1
    path.unlink()  # F3
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise Unusable("others may read or write it")


def _read(
    reader: Reader, config: Config, brick_id: str, new_tables: Callable[[int], SessionTables]
) -> SessionTables:
    head = reader.head(
        cluster=cluster_name(config), brick_id=brick_id, boot_id=_boot_id(), now=now()
    )
    tables = new_tables(head.data_incarnation)
    for number, kept in enumerate(reader.records(head)):
        read_at = now()
        if not tables.adopt(kept, read_at - head.written_at, read_at):
            raise Unusable(f"session {kept.sid.hex()} in it is damaged")
        if number % TURN == 0:
            gevent.sleep(0)
    return tables


def _boot_id() -> str:
    return BOOT_ID.read_text().strip()
