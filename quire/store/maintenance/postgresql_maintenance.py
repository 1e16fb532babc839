"""Maintenance of a PostgreSQL store."""

from pathlib import Path

from quire.errors import InvalidArgument
from quire.store.maintenance.sql_maintenance import SqlMaintenance
from quire.store.sql.tables import metadata


class PostgresqlMaintenance(SqlMaintenance):
    """Maintenance through PostgreSQL itself, which has its own tools for backups."""

    def compact(self) -> None:
        """Rewrite the tables (``VACUUM FULL``); each is locked meanwhile."""
        with self._backend.writer.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in metadata.sorted_tables:
                connection.exec_driver_sql(f"VACUUM FULL {table.name}")

    def backup(self, target: Path) -> None:
        """Refused: the database server makes backups."""
        raise InvalidArgument("a PostgreSQL store is copied with PostgreSQL's own tools: pg_dump and pg_restore")

    def files(self) -> list[Path]:
        """None: the files belong to the database server."""
        return []
