"""Damages stores on purpose, behind their backs. The lane is always lane 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
from sqlalchemy import ColumnElement, Connection, delete, insert, update
from sqlalchemy.sql.schema import Table

from quire.store.base import Delivery, LaneState, Sync
from quire.store.lmdb_lane import LANE, STATE, Databases, pack_delivery
from quire.store.maintenance.lmdb_pages import page_pairs
from quire.store.maintenance.page_pair import PagePair, pack_entries
from quire.store.pages import KEY
from quire.store.postgresql.database import Database
from quire.store.sql.sqlite import Sqlite
from quire.store.sql.tables import deliveries, destinations, lanes, links, records
from quire.store.urls import store_path


class LmdbTampering:
    """Damages an LMDB store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def editing(self) -> Iterator[tuple[lmdb.Transaction, Databases]]:
        """A write transaction."""
        with lmdb.open(str(self._path), map_size=1 << 28, max_dbs=16) as env:
            dbs = Databases(*[env.open_db(name.encode(), create=False) for name in Databases._fields])
            with env.begin(write=True) as txn:
                yield txn, dbs

    def set_link(self, at: int, **fields: int) -> None:
        """Change an entry of a links page."""
        with self.editing() as (txn, dbs):
            pair = page_of(txn, dbs, at)
            entries = [e._replace(**fields) if e.sequence == at else e for e in pair.entries()]
            txn.put(KEY.pack(1, pair.first), pack_entries(entries), db=dbs.links)

    def set_state(self, **fields: int) -> None:
        """Change the lane's state."""
        with self.editing() as (txn, dbs):
            state = LaneState(*STATE.unpack(txn.get(LANE.pack(1), b"", dbs.lanes)))._replace(**fields)
            txn.put(LANE.pack(1), STATE.pack(*state), db=dbs.lanes)

    def damage_content(self, sequence: int) -> None:
        """Turn over the last byte of a record's content."""
        with self.editing() as (txn, dbs):
            pair = page_of(txn, dbs, sequence)
            (entry,) = [entry for entry in pair.entries() if entry.sequence == sequence]
            body = bytearray(pair.body)
            body[entry.offset + entry.size - 1] ^= 0xFF
            txn.put(KEY.pack(1, pair.first), bytes(body), db=dbs.bodies)

    def add_delivery(self, sequence: int) -> None:
        """Add a delivery state of a record that is not there."""
        with self.editing() as (txn, dbs):
            txn.put(KEY.pack(1, sequence), pack_delivery(Delivery(1)), db=dbs.deliveries)

    def lose_destination(self) -> None:
        """Remove the destination and leave its lane."""
        with self.editing() as (txn, dbs):
            txn.delete(LANE.pack(1), db=dbs.destinations)


class SqliteTampering:
    """Damages an SQLite store."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def editing(self) -> Iterator[Connection]:
        """A write transaction."""
        backend = Sqlite(str(store_path(self._url)), Sync.ALWAYS)
        try:
            with backend.writer.begin() as connection:
                yield connection
        finally:
            backend.reader.dispose()
            backend.writer.dispose()

    def set_link(self, at: int, **fields: int) -> None:
        """Change a link."""
        with self.editing() as connection:
            connection.execute(update(links).where(*_at(links, at)).values(**fields))

    def set_state(self, **fields: int) -> None:
        """Change the lane's state."""
        with self.editing() as connection:
            connection.execute(update(lanes).where(lanes.c.lane == 1).values(**fields))

    def damage_content(self, sequence: int) -> None:
        """Replace a record's content."""
        with self.editing() as connection:
            connection.execute(update(records).where(*_at(records, sequence)).values(content=b"damaged"))

    def add_delivery(self, sequence: int) -> None:
        """Add a delivery state of a record that is not there."""
        state = {"lane": 1, "sequence": sequence, "deliveries": 1, "failures": 0, "not_before": 0, "cause": ""}
        with self.editing() as connection:
            connection.execute(insert(deliveries), state)

    def lose_destination(self) -> None:
        """Remove the destination and leave its lane."""
        with self.editing() as connection:
            connection.execute(delete(destinations).where(destinations.c.id == 1))

    def lose_link(self, sequence: int) -> None:
        """Delete a link and leave its record."""
        with self.editing() as connection:
            connection.execute(delete(links).where(*_at(links, sequence)))

    def lose_record(self, sequence: int) -> None:
        """Delete a record and leave its link."""
        with self.editing() as connection:
            connection.execute(delete(records).where(*_at(records, sequence)))


class PostgresqlTampering:
    """Damages a PostgreSQL store."""

    def __init__(self, url: str) -> None:
        self._engine = Database(url).engine()

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement in a transaction; returns its rows."""
        with self._engine.begin() as connection:
            result = connection.exec_driver_sql(statement, values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def page_of(self, sequence: int) -> PagePair:
        """The page that a sequence belongs to."""
        query = "SELECT first, entries, body FROM pages WHERE lane = 1 AND first <= %s ORDER BY first DESC LIMIT 1"
        ((first, entries, body),) = self.execute(query, sequence)
        return PagePair(first, 2**63 - 1, entries, body)

    def set_page(self, first: int, **columns: object) -> None:
        """Change columns of a page."""
        changes = ", ".join([f"{name} = %s" for name in columns])
        self.execute(f"UPDATE pages SET {changes} WHERE lane = 1 AND first = %s", *columns.values(), first)

    def set_link(self, at: int, **fields: int) -> None:
        """Change an entry."""
        page = self.page_of(at)
        entries = [e._replace(**fields) if e.sequence == at else e for e in page.entries()]
        self.set_page(page.first, entries=pack_entries(entries))

    def set_state(self, **fields: int) -> None:
        """Change the lane's state."""
        changes = ", ".join([f"{name} = %s" for name in fields])
        self.execute(f"UPDATE lanes SET {changes} WHERE lane = 1", *fields.values())

    def damage_content(self, sequence: int) -> None:
        """Turn over the last byte of a record's content."""
        page = self.page_of(sequence)
        (entry,) = [entry for entry in page.entries() if entry.sequence == sequence]
        body = bytearray(page.body)
        body[entry.offset + entry.size - 1] ^= 0xFF
        self.set_page(page.first, body=bytes(body))

    def add_delivery(self, sequence: int) -> None:
        """Add a delivery state of a record that is not there."""
        self.execute("INSERT INTO deliveries VALUES (1, %s, 1, 0, 0, '')", sequence)

    def lose_destination(self) -> None:
        """Remove the destination and leave its lane."""
        self.execute("DELETE FROM destinations WHERE id = 1")


Tampering = LmdbTampering | SqliteTampering | PostgresqlTampering


def tampering_for(url: str) -> Tampering:
    """What damages the store of a URL."""
    path = store_path(url)
    if path is None:
        return PostgresqlTampering(url)
    return LmdbTampering(path) if url.startswith("lmdb:") else SqliteTampering(url)


def page_of(txn: lmdb.Transaction, dbs: Databases, sequence: int) -> PagePair:
    """The page of lane 1 that a sequence belongs to."""
    return next(pair for pair in page_pairs(txn, dbs, 1) if pair.first <= sequence < pair.end)


def _at(table: Table, sequence: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return table.c.lane == 1, table.c.sequence == sequence
