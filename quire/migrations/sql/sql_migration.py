"""Migrates a SQL store: all steps in one transaction. The backup of an SQLite store is a copy of its file."""

from abc import ABC, abstractmethod
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from quire.errors import StoreError, StoreLocked, StoreUnreachable
from quire.store.base import SQL_FORMAT
from quire.store.maintenance.embedded import copy_database
from quire.store.sqlite import connect, found_format

_FORMAT = text("SELECT value FROM meta WHERE key = 'format'")


class SqlMigration(ABC):
    """The migration of a store in a database."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine  # makes connections for the migration
        self._name = name  # how messages call the store
        self._config = Config()
        self._config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))

    @abstractmethod
    def format(self) -> int: ...

    def steps(self, found: int) -> tuple[str, ...]:
        script = ScriptDirectory.from_config(self._config)
        revisions = list(script.iterate_revisions(_revision(SQL_FORMAT), _revision(found)))
        return tuple(" ".join((revision.doc or "").split()) for revision in reversed(revisions))

    def upgrade(self, found: int, backup: str) -> str:
        try:
            return self._upgrade(found, backup)
        except (OSError, SQLAlchemyError) as error:
            text = f"the store in {self._name} could not be migrated and is unchanged: {error}"
            raise StoreError(text, name=self._name) from error

    @abstractmethod
    def _upgrade(self, found: int, backup: str) -> str:
        """As ``upgrade``, with the errors of the database."""

    def _run(self, connection: Connection, found: int) -> None:
        """Run the revisions in the transaction of a connection, which keeps other brokers out."""
        if read_format(connection) != found:
            raise StoreLocked(f"another broker has migrated the store in {self._name}: start again", name=self._name)
        self._config.attributes["connection"] = connection
        command.stamp(self._config, _revision(found))
        command.upgrade(self._config, _revision(SQL_FORMAT))
        # The row in ``meta`` is what says which format there is; two such places could come to differ.
        connection.execute(text("DROP TABLE alembic_version"))


def read_format(connection: Connection) -> int:
    return int(connection.scalar(_FORMAT) or "")


def _revision(number: int) -> str:
    return f"{number:04}"


class SqliteMigration(SqlMigration):
    def __init__(self, path: Path) -> None:
        self._path = path
        engine = create_engine("sqlite://", creator=lambda: connect(path), poolclass=NullPool)
        event.listen(engine, "begin", _begin)
        super().__init__(engine, str(path))

    def format(self) -> int:
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
