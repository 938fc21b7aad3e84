"""Ask the store what the manager wants asked, in a native thread. Calls and waits only.

A store that cannot be opened is tried again with the next question, so a manager whose store is
missing, locked or down waits for it as a standby does; it does not end.
"""

from collections.abc import Callable
from pathlib import Path

from bus.config import Config
from roles.lease_rows import LEADER
from roles.manager import Commit, Done, Failed, InDoubt, Outcome, ReadAll, ReadLeader, StoreOp
from roles.store import Store, StoreError, StoreInDoubt, StoreLocked
from roles.store_etcd import EtcdStore
from roles.store_sqlite import SqliteStore


class StoreCaller:
    """One call at a time, each bounded by what `open_store` was told."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._store: Store | None = None

    def call(self, op: StoreOp) -> Outcome:
        """Blocks its thread."""
        try:
            if self._store is None:
                self._store = self._open()
            return _call(self._store, op)
        except StoreInDoubt:
            return InDoubt()
        except StoreLocked as error:
            return Failed(str(error), locked=True)
        except (StoreError, ValueError) as error:  # ValueError: more than any store would take.
            return Failed(str(error))

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _call(store: Store, op: StoreOp) -> Outcome:
    match op:
        case ReadLeader():
            return Done(row=store.read(LEADER))
        case ReadAll():
            return Done(rows=store.read_all())
        case Commit(expect=expect, put=put, delete=delete):
            return Done(committed=store.commit(expect, put, delete))


def store_of(config: Config, timeout_s: float) -> Store:
    """The store that the configuration names; StoreError if it cannot be used now."""
    settings = config.store
    if settings.kind == "etcd":
        return EtcdStore(
            settings.endpoints,
            settings.prefix,
            timeout_s,
            username=settings.user,
            password=settings.password,
        )
    path = Path(config.store_path)
    if not settings.path:
        _make(path.parent)
    return SqliteStore(path, timeout_s)


def _make(directory: Path) -> None:
    """The run directory is ours to make; one that was named must be there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory}: {error.strerror}") from error
