"""The tables of a PostgreSQL store at the current format, and their creation.

Other processes may create them at the same time: each finds all or none.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateSchema

from quire.store.base import SQL_FORMAT, LaneState
from quire.store.postgresql.database import Database

metadata = MetaData()
_HALF_FULL = {"fillfactor": 50}  # room for new versions of a row beside the old one: then no index is written


def _key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


meta = Table(
    "meta",
    metadata,
    Column("key", String(100), primary_key=True),
    Column("value", String(100), nullable=False),
)
"""What is true of the whole store: the row ``format`` has the format version."""

destinations = Table(
    "destinations",
    metadata,
    _key("id"),
    Column("kind", String(20), nullable=False),
    Column("name", Text, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("lanes", JSON, nullable=False),
)

lanes = Table("lanes", metadata, _key("lane"), *map(_number, LaneState._fields), postgresql_with=_HALF_FULL)
"""A row for each lane that was ever written."""

pages = Table(
    "pages",
    metadata,
    _key("lane"),
    _key("first"),
    _number("last"),
    Column("live", Integer, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

expirations = Table("expirations", metadata, _key("expiration"), _key("lane"), _key("sequence"))
"""A row for each record that expires."""

deliveries = Table(
    "deliveries", metadata, _key("lane"), _key("sequence"), _number("deliveries"), _number("failures"),
    _number("not_before"), Column("cause", Text, nullable=False),
)  # fmt: skip

producers = Table("producers", metadata, Column("producer", Text(collation="C"), primary_key=True), _number("sequence"))

marks = Table(
    "marks",
    metadata,
    Column("key", Text(collation="C"), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

ownership = MetaData()

owner = Table(
    "owner",
    ownership,
    _key("id"),
    _number("epoch"),
    _number("commit"),
    Column("name", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("expires", DateTime(timezone=True), nullable=False),
    postgresql_with=_HALF_FULL,
)
"""One row with the id 1: who may write.

Each taking of the lock, and each new connection of the owner, makes a new ``epoch``. Each commit needs the epoch of its
owner and counts ``commit`` up by one. ``token`` is the owner's own: by it an owner recognizes an epoch that it made
over a connection that was lost then. ``process`` says which process of which machine it is. ``name`` is empty and
``expires`` is 1970 while the lock is free; ``pid`` is the server's process of the owner's connection.
"""


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
