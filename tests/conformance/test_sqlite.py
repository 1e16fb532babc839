"""The SQL store on SQLite passes the conformance suite."""

import sqlite3
from pathlib import Path

from quire.store.base import Store
from quire.store.sql.store import SqlStore
from quire.testing.store_suite import SharedStoreSuite

DAMAGE = "UPDATE records SET content = CAST('X' || substr(content, 2) AS BLOB) WHERE lane = ? AND sequence = ?"


class TestSqliteStore(SharedStoreSuite):
    def make(self, place: Path) -> Store:
        return SqlStore(f"sqlite://{place}.db")

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        connection = sqlite3.connect(f"{self._place}.db")
        with connection:
            assert connection.execute(DAMAGE, (lane, sequence)).rowcount == 1
        connection.close()

    def break_down(self, store: Store) -> None:
        """Write over the file."""
        store.sync()
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._place}.db{ending}").write_bytes(b"no database" * 10_000)
