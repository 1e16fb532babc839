"""Maintenance of a SQL store: what SQLite and PostgreSQL have in common."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import and_, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.schema import Table

from quire.store.base import Store, StoreReader
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.findings import Finding, Problem, RepairReport
from quire.store.maintenance.sql_repair import SqlLaneRepair
from quire.store.maintenance.store_maintenance import StoreMaintenance
from quire.store.sql.reader import SqlReader
from quire.store.sql.store import SqlStore
from quire.store.sql.tables import lanes, links, records

_UNLINKED = (
    select(records.c.sequence)
    .outerjoin(links, and_(links.c.lane == records.c.lane, links.c.sequence == records.c.sequence))
    .where(links.c.sequence.is_(None))
    .order_by(records.c.sequence)
)


class SqlMaintenance(StoreMaintenance):
    """Maintenance through the tables."""

    errors = (SQLAlchemyError, sqlite3.Error)

    def __init__(self, store: Store) -> None:
        assert isinstance(store, SqlStore)
        self._backend = store.backend

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
                SqlLaneRepair(connection, lane, damaged, done).run()
            damaged.close()
        return RepairReport(**done, damaged_file=damaged.path)
