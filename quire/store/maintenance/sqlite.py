"""Maintenance of an SQLite store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from quire.errors import InvalidArgument
from quire.store.base import Sync
from quire.store.maintenance.files import flush
from quire.store.maintenance.sql import SqlUpkeep
from quire.store.sql.sqlite import Sqlite


class SqliteUpkeep(SqlUpkeep):
    """What maintenance does with SQLite itself.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Sqlite(str(path), Sync.ALWAYS))
        self._path = path

    def compact(self) -> None:
        """Rewrite the file (``VACUUM``), then empty the log."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: Path) -> None:
        """Copy the newest commit into a file of its own."""
        if target.exists():
            raise InvalidArgument(f"{target} is there already: name a place that is not", path=str(target))
        part = target.with_name(target.name + ".part")
        part.unlink(missing_ok=True)
        copy_database(self._path, part)
        part.rename(target)
        flush(target.parent)

    def files(self) -> list[Path]:
        """The file and its log."""
        return [path for path in (self._path, Path(f"{self._path}-wal")) if path.exists()]


def copy_database(source: Path, target: Path) -> None:
    """Copy the newest commit of a database, log included, into a new file, and put it on disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    flush(target)
