"""Maintenance of an SQLite store."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import and_, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.schema import Table

from quire.store.base import Store, StoreReader
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.data_files import flush, new_file
from quire.store.maintenance.findings import Finding, Problem, RepairReport
from quire.store.maintenance.sqlite_repair import SqliteLaneRepair
from quire.store.maintenance.store_maintenance import StoreMaintenance
from quire.store.sql.reader import SqlReader
from quire.store.sql.store import SqlStore
from quire.store.sql.tables import lanes, links, records
from quire.store.urls import store_path

_UNLINKED = (
    select(records.c.sequence)
    .outerjoin(links, and_(links.c.lane == records.c.lane, links.c.sequence == records.c.sequence))
    .where(links.c.sequence.is_(None))
    .order_by(records.c.sequence)
)


class SqliteMaintenance(StoreMaintenance):
    """Maintenance through the tables and through SQLite itself."""

    errors = (SQLAlchemyError, sqlite3.Error)

    def __init__(self, store: Store) -> None:
        assert isinstance(store, SqlStore)
        self._backend = store.backend
        path = store_path(store.url)
        assert path is not None
        self._path = path

    def lanes(self) -> list[int]:
        """Every lane that has a state, records or links."""
        return sorted({lane for table in (lanes, records, links) for lane in self._lanes_of(table)})

    def _lanes_of(self, table: Table) -> Iterator[int]:
        with self._backend.reader.begin() as connection:
            lane = connection.scalar(select(func.min(table.c.lane)))
            while lane is not None:
                yield lane
                lane = connection.scalar(select(func.min(table.c.lane)).where(table.c.lane > lane))

    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """Records without a link."""
        assert isinstance(reader, SqlReader)
        for sequence in reader.connection.scalars(_UNLINKED.where(records.c.lane == lane)):
            text = f"record {sequence} exists, but no link refers to it"
            yield Finding(Problem.MISSING_LINK, lane, sequence, text)

    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links and states from the records."""
        damaged = DamagedFile(damaged_file)
        done: Counter[str] = Counter()
        numbers = self.lanes()
        with self._backend.writer.begin() as connection:
            for lane in numbers:
                SqliteLaneRepair(connection, lane, damaged, done).run()
            damaged.close()
        return RepairReport(**done, damaged_file=damaged.path)

    def compact(self) -> None:
        """Rewrite the file (``VACUUM``), then empty the log."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: Path) -> None:
        """Copy the newest commit into a new file."""
        with new_file(target) as part:
            copy_database(self._path, part)

    def files(self) -> list[Path]:
        """The file and its log."""
        return [path for path in (self._path, Path(f"{self._path}-wal")) if path.exists()]


def copy_database(source: Path, target: Path) -> None:
    """Copy the newest commit of a database, log included, into a new file, and put it on disk."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    flush(target)
