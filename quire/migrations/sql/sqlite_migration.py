"""Migrates an SQLite store; its backup is a copy of the file."""

from pathlib import Path

from sqlalchemy.exc import DBAPIError

from quire.errors import StoreError
from quire.migrations.sql.sql_migration import SqlMigration
from quire.store.base import Sync
from quire.store.format import FORMAT_VERSION
from quire.store.maintenance.sqlite_maintenance import copy_database
from quire.store.sql.sqlite import Sqlite


class SqliteMigration(SqlMigration):
    """The migration of a store in an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = Sqlite(str(path), Sync.ALWAYS)
        super().__init__(self._database.writer, self._database.reader, str(path), FORMAT_VERSION)

    def close(self) -> None:
        self._database.close()

    def _upgrade(self, found: int, backup: str) -> str:
        target = self._path.with_name(self._path.name + backup)
        if backup:
            copy_database(self._path, target)
        with self._writer.begin() as connection:
            self._run(connection, found)
        return str(target) if backup else ""

    def _kind(self, error: DBAPIError) -> type[StoreError]:
        return self._database.error(error)
