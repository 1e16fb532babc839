"""Creates the schema and the tables of a store. Other processes may do so at the same time: each finds all or none."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.schema import CreateSchema

from quire.store.format import SQL_FORMAT
from quire.store.postgresql.database import Database
from quire.store.postgresql.tables import meta, metadata, owner, ownership

_CREATION_LOCK = 0x51756972
_HAS_LZ4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
_COMPRESSED = (
    "ALTER TABLE pages ALTER COLUMN entries SET STORAGE MAIN",
    "ALTER TABLE pages ALTER COLUMN entries SET COMPRESSION lz4",
    "ALTER TABLE pages ALTER COLUMN body SET COMPRESSION lz4",
)
_PLAIN = (  # the compression that every server has costs three times as much as it saves
    "ALTER TABLE pages ALTER COLUMN entries SET STORAGE MAIN",
    "ALTER TABLE pages ALTER COLUMN body SET STORAGE EXTERNAL",
)
_FREE = "INSERT INTO owner VALUES (1, 0, 0, '', '', '', 0, 'epoch')"


def found_format(database: Database) -> int | None:
    """The format of the store; None if there is no store."""
    with _connected(database) as connection:
        if not inspect(connection).has_table(meta.name, schema=database.schema or None):
            return None
        return int(connection.scalar(select(meta.c.value).where(meta.c.key == "format")) or 0)


def create_store(database: Database) -> None:
    """Create the tables at the current format, if there are none."""
    with _creating(database) as connection:
        if not inspect(connection).has_table(meta.name, schema=database.schema or None):
            create_tables(connection)
            connection.execute(meta.insert().values(key="format", value=str(SQL_FORMAT)))


def create_tables(connection: Connection) -> None:
    """Create the tables of the current format, empty, in the first schema of the search path."""
    metadata.create_all(connection)
    for statement in _COMPRESSED if connection.scalar(text(_HAS_LZ4)) else _PLAIN:
        connection.exec_driver_sql(statement)


def create_owner(database: Database) -> None:
    """Create the table of the owner with its row, free, if it is not there."""
    with _connected(database) as connection:
        if inspect(connection).has_table(owner.name, schema=database.schema or None):
            return
    with _creating(database) as connection:
        if not inspect(connection).has_table(owner.name, schema=database.schema or None):
            ownership.create_all(connection)
            connection.exec_driver_sql(_FREE)


@contextmanager
def _connected(database: Database) -> Iterator[Connection]:
    with database.telling("cannot be opened"), database.engine().begin() as connection:
        yield connection


@contextmanager
def _creating(database: Database) -> Iterator[Connection]:
    """A transaction that creates tables, one process at a time, in the schema of the URL."""
    with _connected(database) as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CREATION_LOCK})
        if database.schema and not inspect(connection).has_schema(database.schema):
            connection.execute(CreateSchema(database.schema))
        yield connection
