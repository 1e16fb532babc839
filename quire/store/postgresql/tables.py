"""The tables of a PostgreSQL store, at format 3. The owner's row is no part of the format: it is made for the lock.

A row of ``pages`` has the records of one lane and one commit, as ``quire.store.pages`` writes them. ``first`` and
``last`` are the sequences of the first and the last record of ``body``, and never change. ``entries`` has the records
that are still there, ``live`` says how many. In ``entries`` the links within the page are exact. Across pages they are
derived from the order of the pages, so that neither an append nor the removal of a whole page rewrites a neighbour: the
``next`` of a page's last entry is 0, and the ``previous`` of its first entry is the record that was before it when the
page was written, which may be gone since.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from quire.store.records import LaneState

metadata = MetaData()
_HALF_FULL = {"fillfactor": 50}
"""Room for new versions of a row beside the old one: then no index is written."""


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
