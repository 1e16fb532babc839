"""Migrates a SQL store: all steps in one transaction."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, CreateTableAs, Select, func, inspect, literal_column, select, table, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from quire.errors import StoreError, StoreFull, StoreLocked, StoreUnreachable
from quire.migrations.store_migration import StoreMigration
from quire.store.maintenance.sqlite_maintenance import copy_database
from quire.store.sql.store import backend_for_url
from quire.store.sql.tables import meta


class SqlMigration(StoreMigration):
    """The migration of a store in a database; the path is that of an SQLite file."""

    def __init__(self, url: str, path: Path | None) -> None:
        self._path = path
        self._backend = backend_for_url(url)
        self._name = str(path or urlsplit(url).path.strip("/"))
        self._config = Config()
        self._config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))

    def format(self) -> int:
        """The format in the table ``meta``."""
        try:
            with self._backend.reader.begin() as connection:
                return _format(connection)
        except DBAPIError as error:
            is_full = self._backend.error(error) is StoreFull
            text = f"the store in {self._name} cannot be read: {error.orig}"
            raise (StoreFull if is_full else StoreUnreachable)(text, name=self._name) from error
        except (SQLAlchemyError, ValueError) as error:
            text = f"there is no readable store in {self._name}: {error}"
            raise StoreUnreachable(text, name=self._name) from error

    def steps(self, found: int) -> tuple[str, ...]:
        script = ScriptDirectory.from_config(self._config)
        revisions = list(script.iterate_revisions("head", _revision(found)))
        return tuple(" ".join((revision.doc or "").split()) for revision in reversed(revisions))

    def upgrade(self, found: int, backup: str) -> str:
        """Run the revisions in one transaction. PostgreSQL's backup is made in the same one."""
        try:
            kept = ""
            if backup and self._path:
                target = self._path.with_name(self._path.name + backup)
                copy_database(self._path, target)
                kept = str(target)
            with self._backend.writer.begin() as connection:
                self._lock_tables(connection, found)
                if backup and not self._path:
                    kept = _copy_tables(connection, backup)
                self._run(connection, found)
            return kept
        except (OSError, SQLAlchemyError) as error:
            text = f"the store in {self._name} could not be migrated and is unchanged: {error}"
            raise StoreError(text, name=self._name) from error

    def close(self) -> None:
        self._backend.close()

    def _lock_tables(self, connection: Connection, found: int) -> None:
        """Keep other brokers out until the transaction ends: a lease may run out in a long migration."""
        if not self._path:
            connection.execute(text("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE"))
        if _format(connection) != found:
            raise StoreLocked(f"another broker has migrated the store in {self._name}: start again", name=self._name)

    def _run(self, connection: Connection, found: int) -> None:
        self._config.attributes["connection"] = connection
        command.stamp(self._config, _revision(found))
        command.upgrade(self._config, "head")
        # The row in ``meta`` is what says which format there is; two such places could come to differ.
        connection.execute(text("DROP TABLE alembic_version"))


def _format(connection: Connection) -> int:
    return int(connection.scalar(select(meta.c.value).where(meta.c.key == "format")) or "")


def _revision(number: int) -> str:
    return f"{number:04}"


def _copy_tables(connection: Connection, backup: str) -> str:
    """Copy the tables into a schema of their own, named after the one they are in."""
    own = connection.scalar(select(func.current_schema()))
    schema = f"{own}{backup}".replace(".", "_").replace("-", "_").lower()
    connection.execute(CreateSchema(schema))
    for name in inspect(connection).get_table_names():
        rows: Select[Any] = select(literal_column("*")).select_from(table(name))
        connection.execute(CreateTableAs(rows, name, schema=schema))
    return schema
