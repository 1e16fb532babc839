"""The SQLite store passes the conformance suite."""

from pathlib import Path

from quire.store.base import Store
from quire.store.sqlite import SqliteStore
from quire.testing.faults import tear
from quire.testing.store_suite import SharedStoreSuite


class TestSqliteStore(SharedStoreSuite):
    def make(self, place: Path) -> Store:
        return SqliteStore(f"{place}.db")

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        tear(store, lane, sequence)

    def break_down(self, store: Store) -> None:
        """Write over the file."""
        store.sync()
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._place}.db{ending}").write_bytes(b"no database" * 10_000)
