"""What a lease manager needs of a store: rows that change all together or not at all. Types only.

A store is a small table from text to bytes, shared by all managers. The one way to change it is
`commit`: these rows are still what I read, so write those. Nothing else is asked of it (no lease,
no watch, no lock), so that one file and a cluster of machines can both be one. An error says by its
type what is known: `StoreInDoubt` that a commit may have happened, any other that it did not.

What always holds, for each store:
  S1  A commit is seen whole or not at all, by everyone, and is still there after a crash.
  S2  `False`, and every error but `StoreInDoubt`: nothing was written, nor ever will be.
  S3  `read` and `read_all` show every commit that ended before they began, and no half of one.
  S4  What one store takes, the other takes too: the limits are those of the tighter one.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from bus.errors import BusError

OPERATIONS_MAX = 128
"""Rows that one commit may compare, and rows that it may change: etcd's `--max-txn-ops`."""
COMMIT_BYTES_MAX = 1_572_864
"""Keys and values, compared and written, of one commit: etcd's `--max-request-bytes`."""
OPERATION_BYTES = 256
"""Counted for each row of a commit besides its key and value: a prefix, lengths, tags."""
ALL_BYTES_MAX = 64 << 20
"""What `read_all` takes into memory. A row per owner is some KiB; this is ten thousands."""


class StoreError(BusError):
    """The store cannot be asked, refused, or said something odd. Its sentence says what to do."""


class StoreLocked(StoreError):  # noqa: N818 (a public name, fixed by the design)
    """Another process held the write lock for longer than the time given. Nothing was written."""


class StoreInDoubt(StoreError):  # noqa: N818 (a public name, fixed by the design)
    """The commit may have happened, or may yet: read to find out."""


class Store(Protocol):
    """Each call blocks its native thread, for a time set at construction; one call at a time."""

    def read_all(self) -> dict[str, bytes]:
        """Every row, as of one moment."""  # S3

    def read(self, key: str) -> bytes | None:
        """One row; None if there is none."""  # S3

    def commit(
        self,
        expect: Mapping[str, bytes | None],
        put: Mapping[str, bytes],
        delete: Collection[str] = (),
    ) -> bool:
        """Write, if each row in `expect` has exactly these bytes (None: is absent). False: some
        row differs, and nothing was written. Deleting what is absent is no difference."""  # S1, S2

    def close(self) -> None: ...


def check_commit(
    expect: Mapping[str, bytes | None], put: Mapping[str, bytes], delete: Collection[str]
) -> None:
    """ValueError for a commit that no store would take."""  # S4
    changes = len(put) + len(delete)
    if max(len(expect), changes) > OPERATIONS_MAX:
        raise ValueError(
            f"a commit of {len(expect)} comparisons and {changes} changes: "
            f"at most {OPERATIONS_MAX} of each"
        )
    if len(set(delete)) < len(delete) or not put.keys().isdisjoint(delete):
        raise ValueError("a commit may change each row once")
    size = sum(_size(key, value or b"") for key, value in expect.items())
    size += sum(_size(key, value) for key, value in put.items())
    size += sum(_size(key, b"") for key in delete)
    if size > COMMIT_BYTES_MAX:
        raise ValueError(f"a commit of {size} bytes: at most {COMMIT_BYTES_MAX}")


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value) + OPERATION_BYTES
