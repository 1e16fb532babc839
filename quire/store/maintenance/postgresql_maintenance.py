"""Maintenance of a PostgreSQL store."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from quire.errors import InvalidArgument, StoreLocked
from quire.store.base import Store, StoreReader
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.findings import Finding, Notice, Problem, RepairReport
from quire.store.maintenance.page_pair import live_page, pack_entries
from quire.store.maintenance.postgresql_pages import Connection, PostgresqlPage, fetch, stored_pages
from quire.store.maintenance.postgresql_repair import (
    PostgresqlLaneRepair,
    clear_deliveries_without_lane,
    clear_expirations,
    deliveries_without_lane,
    stray_expirations,
)
from quire.store.maintenance.postgresql_server import examine_server
from quire.store.maintenance.store_maintenance import StoreMaintenance
from quire.store.postgresql.database import Database
from quire.store.postgresql.tables import metadata

_PAGES_AT_ONCE = 1000
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LOCK = "LOCK TABLE lanes, pages, expirations, deliveries IN SHARE ROW EXCLUSIVE MODE"
_LANES = """WITH RECURSIVE paged (lane) AS (SELECT min(lane) FROM pages UNION ALL
    SELECT (SELECT min(lane) FROM pages p WHERE p.lane > paged.lane) FROM paged WHERE lane IS NOT NULL)
    SELECT lane FROM lanes UNION SELECT lane FROM paged WHERE lane IS NOT NULL ORDER BY lane"""
_UNINDEXED = """SELECT sequence FROM unnest(%s::bigint[], %s::bigint[]) AS e (expiration, sequence) WHERE NOT EXISTS
    (SELECT FROM expirations x WHERE x.expiration = e.expiration AND x.lane = %s AND x.sequence = e.sequence)"""
_SHRINK = "UPDATE pages SET last = %s, entries = %s, body = %s WHERE lane = %s AND first = %s"
_WHO = "SELECT token FROM owner WHERE id = 1"
_HAS_OWNER = "SELECT to_regclass('owner') IS NOT NULL"
_WRONG_OWNERS = "SELECT id, name FROM owner WHERE id <> 1 ORDER BY id"
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"""


class PostgresqlMaintenance(StoreMaintenance):
    """Maintenance through the tables. What only reads has a snapshot of its own, beside that of verify."""

    errors = (psycopg.Error, SQLAlchemyError)

    def __init__(self, store: Store) -> None:
        self._database = Database(store.url)

    @contextmanager
    def _transaction(self, *beginning: str) -> Iterator[Connection]:
        """A transaction that finds the store's tables; it begins with some statements, and may take long."""
        engine = self._database.engine()
        with engine.begin() as connection:
            for statement in ("SET LOCAL statement_timeout = 0", *beginning):
                connection.exec_driver_sql(statement)
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            yield driver

    def lanes(self) -> list[int]:
        """Every lane that has a state or pages."""
        with self._transaction() as connection:
            return [lane for (lane,) in fetch(connection, _LANES)]

    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong within pages, and between them."""
        before = 0
        with self._transaction(_SNAPSHOT) as connection:
            for page in stored_pages(connection, lane):
                if not (page.pair.readable and page.pair.in_order):
                    text = f"the entries of the page of record {page.pair.first} cannot be read"
                    yield Finding(Problem.UNREADABLE, lane, page.pair.first, text)
                else:
                    yield from _inspect_page(lane, page, before)
                    yield from _unindexed(connection, lane, page)
                    before = page.pair.entries()[-1].sequence

    def inspect_indexes(self, reader: StoreReader) -> Iterator[Finding]:
        """Expirations that belong to no record, delivery states that belong to no lane, and the row of the owner."""
        with self._transaction(_SNAPSHOT) as connection:
            for expiration, lane, sequence in stray_expirations(connection):
                text = f"the index has an expiration at {expiration} of record {sequence}, which is missing"
                yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)
            for lane, sequence in deliveries_without_lane(connection):
                text = f"the store has a delivery state of record {sequence} of lane {lane}, which is missing"
                yield Finding(Problem.STRAY_DELIVERY, lane, sequence, text)
            for number, name in _wrong_owners(connection):
                text = f"the table owner has a row {number} of {name!r}; only row 1 says who may write"
                yield Finding(Problem.WRONG_OWNER, 0, 0, text)

    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, states and indexes from the bodies of the pages."""
        damaged = DamagedFile(damaged_file)
        done: Counter[str] = Counter()
        numbers = self.lanes()
        with self._transaction(_LOCK) as connection:
            token = fetch(connection, _WHO)
            for lane in numbers:
                PostgresqlLaneRepair(connection, lane, damaged, done).run()
            done["cleared"] += clear_expirations(connection) + clear_deliveries_without_lane(connection)
            done["owners"] += connection.execute("DELETE FROM owner WHERE id <> 1").rowcount
            damaged.close()
            if fetch(connection, _WHO) != token:
                raise StoreLocked("another broker took the store during the repair, which changed nothing: stop it")
        return RepairReport(**done, damaged_file=damaged.path)

    def compact(self) -> None:
        """Rewrite pages of which less than half is in use, then every table (``VACUUM FULL``), locked meanwhile."""
        for lane in self.lanes():
            start: int | None = 0
            while start is not None:
                with self._transaction() as connection:
                    start = _shrink(connection, lane, start)
        with self._database.engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in metadata.sorted_tables:
                connection.exec_driver_sql(f"VACUUM FULL {self._database.prefix}{table.name}")

    def backup(self, target: Path) -> None:
        """Refused: the database server makes backups."""
        raise InvalidArgument("a PostgreSQL store is copied with PostgreSQL's own tools: pg_dump and pg_restore")

    def files(self) -> list[Path]:
        """None: the files belong to the database server."""
        return []

    def disk_bytes(self) -> int:
        """What the tables and their indexes take, as the server counts it."""
        with self._transaction() as connection:
            return int(fetch(connection, _SIZE)[0][0])

    def surroundings(self) -> Iterator[Notice]:
        """What the server should be told about."""
        with self._transaction() as connection:
            yield from examine_server(connection)


def _inspect_page(lane: int, page: PostgresqlPage, before: int) -> Iterator[Finding]:
    """What is wrong with a page that can be read; ``before`` is the last record of the page before."""
    entries = page.pair.entries()
    if wrong := page.wrong_columns():
        text = f"the page of record {page.pair.first}: {wrong}"
        yield Finding(Problem.WRONG_PAGE, lane, page.pair.first, text)
    first, last = entries[0], entries[-1]
    if not before <= first.previous < first.sequence:
        text = f"record {first.sequence}: previous is {first.previous}; by the records it is {before}"
        yield Finding(Problem.BROKEN_PREVIOUS, lane, first.sequence, text)
    if last.next:
        text = f"record {last.sequence}: next is {last.next}; the last record of a page has none"
        yield Finding(Problem.BROKEN_NEXT, lane, last.sequence, text)
    yield from page.pair.wrong_links(lane)


def _unindexed(connection: Connection, lane: int, page: PostgresqlPage) -> Iterator[Finding]:
    """Records of a page that expire, but are not in the index."""
    expiring = [(entry.expiration, entry.sequence) for entry in page.pair.entries() if entry.expiration > 0]
    if not expiring:
        return
    times, sequences = (list(column) for column in zip(*expiring, strict=True))
    for (sequence,) in fetch(connection, _UNINDEXED, (times, sequences, lane)):
        text = f"record {sequence} expires, but its expiration is not in the index"
        yield Finding(Problem.WRONG_EXPIRATION, lane, sequence, text)


def _wrong_owners(connection: Connection) -> list[tuple[int, str]]:
    """Rows of the table ``owner`` that no broker reads; the table is made with the first lock."""
    return fetch(connection, _WRONG_OWNERS) if fetch(connection, _HAS_OWNER)[0][0] else []


def _shrink(connection: Connection, lane: int, start: int) -> int | None:
    """Rewrite the sparse ones among some pages of a lane; returns where to continue, None at the lane's end."""
    last: int | None = None
    for page in islice(stored_pages(connection, lane, start), _PAGES_AT_ONCE):
        pair, last = page.pair, page.pair.first
        if pair.readable and pair.sparse():
            entries, body = live_page(pair.entries(), pair.body)
            change = (entries[-1].sequence, pack_entries(entries), body, lane, pair.first)
            connection.execute(_SHRINK, change)
    return None if last is None else last + 1
