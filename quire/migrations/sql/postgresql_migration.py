"""Migrates a PostgreSQL store; its backup is a schema beside it, made in the same transaction."""

from urllib.parse import urlsplit

import psycopg
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from quire.errors import StoreError, StoreLocked, StoreUnreachable
from quire.migrations.sql.sql_migration import SqlMigration, read_format
from quire.store.postgresql.database import Database, kind_of

_NO_PART = {"lease", "owner"}
"""Tables that say who uses the store now. They are no part of its format, nor of a backup."""

_LEASE = text("SELECT owner FROM lease WHERE expires >= extract(epoch FROM clock_timestamp())")


class PostgresqlMigration(SqlMigration):
    def __init__(self, url: str) -> None:
        super().__init__(engine_for(Database(url)), urlsplit(url).path.strip("/"))

    def format(self) -> int:
        try:
            with self._engine.connect() as connection:
                return read_format(connection)
        except DBAPIError as error:
            cause = f"the store in {self._name} cannot be read: {error.orig}"
            kind = StoreError if error.orig is None else kind_of(error.orig)
            raise (StoreUnreachable if kind is StoreError else kind)(cause, name=self._name) from error
        except (SQLAlchemyError, ValueError) as error:
            cause = f"there is no readable store in {self._name}: {error}"
            raise StoreUnreachable(cause, name=self._name) from error

    def _upgrade(self, found: int, backup: str) -> str:
        with self._engine.begin() as connection:
            self._keep_others_out(connection)
            kept = _copy_tables(connection, backup) if backup else ""
            self._run(connection, found)
        return kept

    def _keep_others_out(self, connection: Connection) -> None:
        """Until the transaction ends: the lock of the store may be lost in a long migration.

        Up to format 2, brokers locked the store by the table ``lease``, and each of their commits needs it.
        """
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        if inspect(connection).has_table("lease"):
            connection.execute(text("LOCK TABLE lease IN ACCESS EXCLUSIVE MODE"))
            if user := connection.scalar(_LEASE):
                advice = f"stop it, or wait until its lease has expired; it is {user}"
                raise StoreLocked(f"a broker of an older version uses the store in {self._name}: {advice}", owner=user)
        connection.execute(text("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE"))


def engine_for(database: Database) -> Engine:
    """Connections that find the store's tables."""
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.conninfo), poolclass=NullPool
    )  # fmt: skip
    if path := database.search_path:
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(path))
    return engine


def _copy_tables(connection: Connection, backup: str) -> str:
    """Copy the tables, with their indexes, into a schema of their own, named after the one they are in."""
    own = connection.scalar(select(func.current_schema()))
    schema = f"{own}{backup}".replace(".", "_").replace("-", "_").lower()
    connection.execute(CreateSchema(schema))
    quote = connection.dialect.identifier_preparer.quote
    for name in sorted(set(inspect(connection).get_table_names()) - _NO_PART):
        copy = f"{quote(schema)}.{quote(name)}"
        connection.execute(text(f"CREATE TABLE {copy} (LIKE {quote(name)} INCLUDING ALL)"))
        connection.execute(text(f"INSERT INTO {copy} TABLE {quote(name)}"))
    return schema
