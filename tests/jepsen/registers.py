"""Registers in an SQLite file, and the three ways in which an owner may increment one.

  whole   fence, read and write in one transaction, as docs/fencing.md has it
  split   read in one transaction, write in a later one, both through the fence
  unsafe  the same without a fence: what a lease alone does not protect

Between reading and writing, `split` and `unsafe` wait, as a program would that computes or calls
somebody. What the machine has taken in survives the death of a process, so nothing is synced.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, cast

from roles.fence_sql import SqlFence

NAMESPACE = "registers"
LOCKED_S_MAX = 5.0
"""How long a transaction waits for another, which may be one of a process that is stopped."""
LOOK_S = 0.2

Way = Literal["whole", "split", "unsafe"]


def way_of(register: str, ways: str) -> Way:
    """`ways`, by comma: the register's number says which."""
    chosen = ways.split(",")
    return cast("Way", chosen[int(register.rpartition("-")[2]) % len(chosen)])


class RefusedByFenceError(Exception):
    """A later owner was here; nothing was changed."""


class InDoubtError(Exception):
    """The commit failed: who knows what became of it."""


class Registers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._fence = SqlFence(sqlite3.paramstyle)

    def create(self) -> None:
        with self._transaction() as cursor:
            self._fence.create(cursor)
            cursor.execute("CREATE TABLE registers (name TEXT PRIMARY KEY, ids TEXT NOT NULL)")

    def increment(
        self, way: Way, register: str, op: str, number: int, pause: Callable[[], None]
    ) -> int:
        """The value after it. Blocks; `pause` is called between reading and writing."""
        if way == "whole":
            with self._transaction() as cursor:
                self._admit(cursor, register, number)
                return self._write(cursor, register, [*self._read(cursor, register), op])
        with self._transaction() as cursor:
            if way == "split":
                self._admit(cursor, register, number)
            ids = self._read(cursor, register)
        pause()
        with self._transaction() as cursor:
            if way == "split":
                self._admit(cursor, register, number)
            return self._write(cursor, register, [*ids, op])

    def finals(self) -> Mapping[str, list[str]]:
        """Every register, with the ids that it has."""
        with self._transaction() as cursor:
            rows = cursor.execute("SELECT name, ids FROM registers").fetchall()
        return {name: json.loads(ids) for name, ids in rows}

    def locked(self) -> bool:
        """Whether somebody is in the middle of a transaction."""
        try:
            with self._transaction(timeout_s=LOOK_S):
                return False
        except sqlite3.OperationalError:
            return True

    def _admit(self, cursor: sqlite3.Cursor, register: str, number: int) -> None:
        if not self._fence.admit(cursor, NAMESPACE, register, number):
            raise RefusedByFenceError(f"{register}, number {number}")

    def _read(self, cursor: sqlite3.Cursor, register: str) -> list[str]:
        row = cursor.execute("SELECT ids FROM registers WHERE name = ?", [register]).fetchone()
        ids: list[str] = json.loads(row[0]) if row else []
        return ids

    def _write(self, cursor: sqlite3.Cursor, register: str, ids: list[str]) -> int:
        row = register, json.dumps(ids)
        cursor.execute("INSERT OR REPLACE INTO registers VALUES (?, ?)", row)
        return len(ids)

    @contextmanager
    def _transaction(self, timeout_s: float = LOCKED_S_MAX) -> Iterator[sqlite3.Cursor]:
        """Takes the lock at once; sqlite3.Error until its end: nothing was done."""
        connect = sqlite3.connect(self._path, timeout=timeout_s, isolation_level=None)
        with closing(connect) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection.cursor()
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise InDoubtError(str(error)) from error
