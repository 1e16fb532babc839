"""Damages stores on purpose, behind their backs. The lane is always lane 1."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import lmdb

from quire.store.base import Delivery
from quire.store.lmdb import LmdbTransaction
from quire.store.maintenance.embedded import page_pairs
from quire.store.maintenance.page_repair import PagePair, pack_entries
from quire.store.pages import KEY, LANE, STATE, Tables, Transaction, pack_delivery, read_state
from quire.store.postgresql.database import Database
from quire.store.sqlite import SqliteStore, SqliteTransaction, connect
from quire.store.urls import store_path


class PagedTampering:
    """Damages an LMDB or an SQLite store."""

    def __init__(self, url: str) -> None:
        path = store_path(url)
        assert path is not None
        self._path = path
        self._is_lmdb = url.startswith("lmdb:")

    @contextmanager
    def editing(self) -> Iterator[tuple[Transaction, Tables]]:
        """A write transaction."""
        if self._is_lmdb:
            with lmdb.open(str(self._path), map_size=1 << 28, max_dbs=16) as env:
                tables = Tables(*[env.open_db(name.encode(), create=False) for name in Tables._fields])
                with env.begin(write=True) as txn:
                    yield LmdbTransaction(txn), tables
        else:
            with closing(connect(self._path)) as connection:
                connection.execute("BEGIN")
                yield SqliteTransaction(connection), SqliteStore.tables
                connection.execute("COMMIT")

    def set_link(self, at: int, **fields: int) -> None:
        """Change an entry of a links page."""
        with self.editing() as (txn, tables):
            pair = page_of(txn, tables, at)
            entries = [e._replace(**fields) if e.sequence == at else e for e in pair.entries()]
            txn.put(KEY.pack(1, pair.first), pack_entries(entries), db=tables.links)

    def set_state(self, **fields: int) -> None:
        """Change the lane's state."""
        with self.editing() as (txn, tables):
            state = read_state(txn, tables, 1)._replace(**fields)
            txn.put(LANE.pack(1), STATE.pack(*state), db=tables.lanes)

    def damage_content(self, sequence: int) -> None:
        """Turn over the last byte of a record's content."""
        with self.editing() as (txn, tables):
            pair = page_of(txn, tables, sequence)
            (entry,) = [entry for entry in pair.entries() if entry.sequence == sequence]
            body = bytearray(pair.body)
            body[entry.offset + entry.size - 1] ^= 0xFF
            txn.put(KEY.pack(1, pair.first), bytes(body), db=tables.bodies)

    def add_delivery(self, sequence: int) -> None:
        """Add a delivery state of a record that is not there."""
        with self.editing() as (txn, tables):
            txn.put(KEY.pack(1, sequence), pack_delivery(Delivery(1)), db=tables.deliveries)

    def lose_destination(self) -> None:
        """Remove the destination and leave its lane."""
        with self.editing() as (txn, tables):
            txn.delete(LANE.pack(1), db=tables.destinations)


class PostgresqlTampering:
    """Damages a PostgreSQL store."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement in a transaction; returns its rows."""
        with self._database.transaction() as connection:
            result = connection.execute(statement.encode(), values)
            return result.fetchall() if result.description else []

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


Tampering = PagedTampering | PostgresqlTampering


def tampering_for(url: str) -> Tampering:
    """What damages the store of a URL."""
    return PagedTampering(url) if store_path(url) else PostgresqlTampering(url)


def page_of(txn: Transaction, tables: Tables, sequence: int) -> PagePair:
    """The page of lane 1 that a sequence belongs to."""
    return next(pair for pair in page_pairs(txn, tables, 1) if pair.first <= sequence < pair.end)
