"""Keep the rows of a `Store` in one SQLite file, for managers that share a machine.

In WAL mode a process that was stopped inside a commit blocks other commits, never a read. Waiting
for a lock is bounded by `timeout_s`; waiting for a disk that hangs is not, by anyone.
To put a copy back while managers run: remove `-wal` and `-shm` beside the file, then move the copy
over it in one step. Left in place, the old `-wal` would be read as if it belonged to the copy.

What always holds:
  Q1  The file comes into being complete and readable by its owner only; one that is there is
      never made anew, and one that is not ours is refused, not changed.
  Q2  Each call is answered from the file that has the path now: one opened before is let go.
  Q3  A commit is true only once it is on the disk, in the file that still has the path then.
  Q4  After trouble the connection is let go, so that nothing of it reaches the next call.
"""

import os
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from roles.store import ALL_BYTES_MAX, StoreError, StoreInDoubt, StoreLocked, check_commit

APPLICATION_ID = 0x534F4653  # "SOFS"
SCHEMA_VERSION = 1
_SCHEMA = f"""
PRAGMA journal_mode = WAL;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE rows (key TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_READONLY: "it cannot be written: look at its mode, its directory and its mount",
    sqlite3.SQLITE_CORRUPT: "it is damaged: put a copy back, or move it away to begin anew",
    sqlite3.SQLITE_NOTADB: "it is no SQLite file: name another one, or move it away",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: look at its mode and its directory",
    sqlite3.SQLITE_IOERR: "its disk fails or is full: look at the system's log",
    sqlite3.SQLITE_ERROR: "it has other tables than ours: name another file, or move it away",
}


class SqliteStore:
    """See `roles.store.Store`."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Opens the file, made first if there is none; its directory must be there."""
        self._path = path
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._closed = False
        with self._told():
            if not path.exists():
                self._create()
            self._current()

    def read_all(self) -> dict[str, bytes]:
        rows: dict[str, bytes] = {}
        size = 0
        with self._told():
            # One statement is one snapshot.
            for key, value in self._current().execute("SELECT key, value FROM rows"):
                size += len(key) + len(value)
                if size > ALL_BYTES_MAX:
                    raise StoreError(f"{self._path} holds more than {ALL_BYTES_MAX} bytes")
                rows[key] = value
        return rows

    def read(self, key: str) -> bytes | None:
        with self._told():
            return _value(self._current(), key)

    def commit(
        self,
        expect: Mapping[str, bytes | None],
        put: Mapping[str, bytes],
        delete: Collection[str] = (),
    ) -> bool:
        check_commit(expect, put, delete)
        with self._told():
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                if any(_value(connection, key) != value for key, value in expect.items()):
                    return False
                connection.executemany("REPLACE INTO rows VALUES (?, ?)", put.items())
                connection.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in delete])
                self._finish(connection)
            finally:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # Q4: or it ends with the connection.
                        connection.execute("ROLLBACK")
        return True

    def close(self) -> None:
        self._closed = True
        self._let_go()

    def _finish(self, connection: sqlite3.Connection) -> None:
        """Q3: what is known once COMMIT has been said."""
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Neither of these leaves a whole commit in the log; a failed sync may have.
            if _code(error) in {*_BUSY, sqlite3.SQLITE_FULL}:
                raise
            raise StoreInDoubt(f"{self._path}: {error}, while committing") from error
        try:
            same = self._identity == self._identity_now()
        except OSError:
            same = False
        if not same:
            raise StoreInDoubt(f"{self._path} was replaced while committing")

    def _current(self) -> sqlite3.Connection:
        """A connection to the file that has the path now."""  # Q2
        assert not self._closed, "a closed store was asked"
        identity = self._identity_now()
        if self._connection is not None and identity == self._identity:
            return self._connection
        self._let_go()
        self._connection = connection = self._open()
        if identity != self._identity_now():  # Which of the two was opened, nobody knows.
            raise StoreError(f"{self._path} is being replaced: ask again")
        self._identity = identity
        return connection

    def _open(self) -> sqlite3.Connection:
        # "rw": a file that vanished since is not made anew (Q1).
        connection = sqlite3.connect(
            f"file:{quote(str(self._path.absolute()))}?mode=rw",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,  # No transaction but those we begin.
            check_same_thread=False,  # One call at a time, as promised; from any thread.
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        found = (_pragma(connection, "application_id"), _pragma(connection, "user_version"))
        if found != (APPLICATION_ID, SCHEMA_VERSION):  # Q1
            raise StoreError(
                f"{self._path} is not a lease store of this version (application_id and "
                f"user_version are {found}): name another file, or move it away"
            )
        # A copy may have lost the mode. Where it has not, this takes no lock.
        if _pragma(connection, "journal_mode = WAL") != "wal":
            raise StoreError(f"{self._path} is where WAL does not work: use a local disk")
        connection.execute("PRAGMA synchronous = FULL")  # Q3

    def _create(self) -> None:
        """Q1: made under another name, then given its own in one step, unless another was first."""
        folder = self._path.parent
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=folder)  # Mode 0600.
        os.close(handle)
        try:
            with closing(sqlite3.connect(name, isolation_level=None)) as connection:
                connection.executescript(_SCHEMA)
            with suppress(FileExistsError):
                os.link(name, self._path)
        finally:
            for ending in ("", "-wal", "-shm"):
                Path(name + ending).unlink(missing_ok=True)
        _sync_directory(folder)

    def _identity_now(self) -> tuple[int, int]:
        status = self._path.stat()
        return status.st_dev, status.st_ino

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """The one seam where SQLite's errors and the system's become ours."""
        try:
            yield
        except sqlite3.Error as error:
            if _code(error) in _BUSY:
                raise StoreLocked(
                    f"{self._path}: another process has held its lock for {self._timeout_s:g} s"
                ) from error
            self._let_go()  # Q4
            advice = _ADVICE.get(_code(error), "it cannot be used")
            raise StoreError(f"{self._path}: {advice} ({error})") from error
        except FileNotFoundError as error:
            self._let_go()
            missing = self._path if self._path.parent.is_dir() else self._path.parent
            raise StoreError(f"{missing} is not there: put it back, or begin anew") from error
        except OSError as error:
            self._let_go()
            raise StoreError(f"{self._path}: {error.strerror}") from error
        except StoreError:
            self._let_go()  # Q4
            raise


def _value(connection: sqlite3.Connection, key: str) -> bytes | None:
    row = connection.execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
    return None if row is None else bytes(row[0])


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    return connection.execute(f"PRAGMA {text}").fetchone()[0]


def _code(error: sqlite3.Error) -> int:
    """The primary code; the library's own complaints (a closed connection) have none."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF


def _sync_directory(folder: Path) -> None:
    """So that after a power cut the name is there as well as the file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
