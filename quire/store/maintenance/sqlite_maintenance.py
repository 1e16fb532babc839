"""Maintenance of an SQLite store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from quire.store.base import Store
from quire.store.maintenance.data_files import flush, new_file
from quire.store.maintenance.sql_maintenance import SqlMaintenance
from quire.store.urls import store_path


class SqliteMaintenance(SqlMaintenance):
    """Maintenance through SQLite itself."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        path = store_path(store.url)
        assert path is not None
        self._path = path

    def compact(self) -> None:
        """Rewrite the file (``VACUUM``), then empty the log."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: Path) -> None:
        """Copy the newest commit into a new file."""
        with new_file(target) as part:
            copy_database(self._path, part)

    def files(self) -> list[Path]:
        """The file and its log."""
        return [path for path in (self._path, Path(f"{self._path}-wal")) if path.exists()]


def copy_database(source: Path, target: Path) -> None:
    """Copy the newest commit of a database, log included, into a new file, and put it on disk."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    flush(target)
