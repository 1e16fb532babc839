"""Migrates an SQLite store; its backup is a copy of the file."""

from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, event

from quire.errors import StoreUnreachable
from quire.migrations.sql.sql_migration import SqlMigration
from quire.store.format import SQL_FORMAT
from quire.store.maintenance.embedded import copy_database
from quire.store.sqlite import connect, found_format


class SqliteMigration(SqlMigration):
    """The migration of a store in an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        engine = create_engine("sqlite://", creator=lambda: connect(path), poolclass=NullPool)
        event.listen(engine, "begin", _begin)
        super().__init__(engine, str(path), SQL_FORMAT)

    def format(self) -> int:
        """The format in the table ``meta``."""
        found = found_format(self._path)
        if found is None:
            raise StoreUnreachable(f"there is no readable store in {self._path}", path=str(self._path))
        return found

    def _upgrade(self, found: int, backup: str) -> str:
        target = self._path.with_name(self._path.name + backup)
        if backup:
            copy_database(self._path, target)
        with self._engine.begin() as connection:
            self._run(connection, found)
        return str(target) if backup else ""


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
