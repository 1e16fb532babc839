"""Maintenance of a PostgreSQL store. Copies of a server's data are the server's business."""

from pathlib import Path

from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from quire.clock import SystemClock
from quire.errors import InvalidArgument, StoreUnreachable
from quire.store.base import Sync
from quire.store.maintenance.sql import SqlUpkeep
from quire.store.sql.postgresql import Postgresql, for_driver
from quire.store.sql.tables import meta, metadata

ITS_OWN_TOOLS = "a PostgreSQL store is copied with PostgreSQL's own tools: pg_dump and pg_restore"


class PostgresqlUpkeep(SqlUpkeep):
    """What maintenance does with PostgreSQL itself.

    Args:
        url: as ``store_for_url`` takes it.
    """

    def __init__(self, url: str) -> None:
        super().__init__(Postgresql(url, Sync.ALWAYS, SystemClock()))

    def compact(self) -> None:
        """Rewrite the tables (``VACUUM FULL``); each is locked meanwhile."""
        with self._backend.writer.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in metadata.sorted_tables:
                connection.exec_driver_sql(f"VACUUM FULL {table.name}")

    def backup(self, target: Path) -> None:
        """Refused.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(ITS_OWN_TOOLS)

    def files(self) -> list[Path]:
        """None that are ours."""
        return []


def has_store(url: str) -> bool:
    """Whether a database has a store.

    Raises:
        StoreUnreachable: the server does not answer.
    """
    engine = create_engine(for_driver(url))
    try:
        with engine.connect() as connection:
            return inspect(connection).has_table(meta.name)
    except SQLAlchemyError as error:
        place = engine.url.render_as_string()
        raise StoreUnreachable(f"cannot open the store {place}: {error}", url=place) from error
    finally:
        engine.dispose()
