"""Damages stores on purpose, behind their backs. The lane is always lane 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
from sqlalchemy import ColumnElement, Connection, delete, insert, update
from sqlalchemy.sql.schema import Table

from quire.clock import SystemClock
from quire.store.base import Delivery, LaneState, Sync
from quire.store.lmdb_lane import LANE, STATE, Databases, pack_delivery
from quire.store.maintenance.lmdb_pages import page_pairs
from quire.store.maintenance.page_pair import PagePair, pack_entries
from quire.store.pages import KEY
from quire.store.sql.postgresql import Postgresql
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


class SqlTampering:
    """Damages a SQL store."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def editing(self) -> Iterator[Connection]:
        """A write transaction."""
        path = store_path(self._url)
        backend = Sqlite(str(path), Sync.ALWAYS) if path else Postgresql(self._url, Sync.ALWAYS, SystemClock())
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


Tampering = LmdbTampering | SqlTampering


def tampering_for(url: str) -> Tampering:
    """What damages the store of a URL."""
    path = store_path(url)
    return LmdbTampering(path) if path and url.startswith("lmdb:") else SqlTampering(url)


def page_of(txn: lmdb.Transaction, dbs: Databases, sequence: int) -> PagePair:
    """The page of lane 1 that a sequence belongs to."""
    return next(pair for pair in page_pairs(txn, dbs, 1) if pair.first <= sequence < pair.end)


def _at(table: Table, sequence: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return table.c.lane == 1, table.c.sequence == sequence
