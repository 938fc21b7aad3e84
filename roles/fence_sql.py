"""Refuse a replaced owner's write inside the SQL transaction that would make it.

One row for each key keeps the greatest lease number seen (`roles.fence` has the idea). The row is
read and raised by a single statement, and stays locked until the caller's transaction ends: two
owners of one key wait for each other, and the later one sees what the earlier one committed.
Works with any DB-API driver to PostgreSQL (9.5 or later) or SQLite (3.35 or later).

What always holds, for each key of each namespace, whatever the isolation level:
  Q1  A number less than one committed before is refused, and changes nothing. (Above READ
      COMMITTED the database may raise its serialization error instead.)
  Q2  The number and the caller's write are committed together, or neither is. That needs a
      transaction around both: on a connection in autocommit mode this guards nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from roles.fence import check_number

NAME_BYTES_MAX = 1024  # Of a namespace or key. PostgreSQL's indexes take about 2700 for both.
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "named": ":{0}", "pyformat": "%({0})s"}

_CREATE = """CREATE TABLE IF NOT EXISTS {table} (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (namespace, key)
)"""
# A row that fails the condition is not updated, so it is not returned either.
_ADMIT = """INSERT INTO {table} AS seen (namespace, key, number)
VALUES ({namespace}, {key}, {number})
ON CONFLICT (namespace, key) DO UPDATE SET number = excluded.number
WHERE seen.number <= excluded.number
RETURNING number"""


class Cursor(Protocol):
    """What we need of a DB-API cursor."""

    def execute(
        self, operation: str, parameters: Sequence[str | int] | Mapping[str, str | int] = ..., /
    ) -> object: ...

    def fetchall(self) -> Sequence[object]: ...


class SqlFence:
    def __init__(self, paramstyle: str, *, table: str = "softstate_fence") -> None:
        """`paramstyle` is the driver's own: `sqlite3.paramstyle`, `psycopg.paramstyle`."""
        if paramstyle not in _PLACEHOLDERS:
            raise ValueError(f"paramstyle is one of {', '.join(_PLACEHOLDERS)}; not {paramstyle!r}")
        if not _TABLE.fullmatch(table):  # It becomes part of the statement.
            raise ValueError(
                f"a table is named like softstate_fence or schema.fence; not {table!r}"
            )
        self._by_name = "{0}" in _PLACEHOLDERS[paramstyle]
        marks = {
            name: _PLACEHOLDERS[paramstyle].format(name) for name in ("namespace", "key", "number")
        }
        self._create = _CREATE.format(table=table)
        self._admit = _ADMIT.format(table=table, **marks)

    def create(self, cursor: Cursor) -> None:
        """Make the table unless it is there. Once, where the rest of the schema is made."""
        cursor.execute(self._create)

    def admit(self, cursor: Cursor, namespace: str, key: str, number: int) -> bool:
        """May this transaction go on under lease `number`? If not, roll it back.

        Call it before anything else in the transaction, also before reads that decide what is
        written: what an owner reads through the fence, no earlier owner can change any more.
        """
        parameters: dict[str, str | int] = {
            "namespace": _checked("namespace", namespace),
            "key": _checked("key", key),
            "number": check_number(number),
        }
        # Q2: the caller's cursor, so the caller's transaction.
        cursor.execute(self._admit, parameters if self._by_name else tuple(parameters.values()))
        return bool(cursor.fetchall())  # Q1


def _checked(what: str, name: str) -> str:
    """The name, if every database keeps it as it is."""
    if not isinstance(name, str) or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(
            f"a {what} is a str of at most {NAME_BYTES_MAX} bytes without NUL; not {name!r:.80}"
        )
    return name
