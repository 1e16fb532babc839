"""The tables of an SQLite store at the current format. Links are apart from records: relinking rewrites no body."""

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, MetaData, SmallInteger, String, Table, Text

from quire.store.records import LaneState

metadata = MetaData()


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

lanes = Table("lanes", metadata, _key("lane"), *map(_number, LaneState._fields))
"""A row for each lane that was ever written."""

records = Table(
    "records",
    metadata,
    _key("lane"),
    _key("sequence"),
    _number("size"),
    _number("expiration"),
    Column("priority", SmallInteger, nullable=False),
    _number("checksum"),
    Column("content", LargeBinary, nullable=False),
)

Index(
    "records_expiration",
    records.c.expiration,
    records.c.lane,
    records.c.sequence,
    sqlite_where=records.c.expiration > 0,
)

_LINK = map(_number, ("previous", "next", "size", "checksum"))
links = Table("links", metadata, _key("lane"), _key("sequence"), *_LINK, sqlite_with_rowid=False)

deliveries = Table(
    "deliveries", metadata, _key("lane"), _key("sequence"), _number("deliveries"), _number("failures"),
    _number("not_before"), Column("cause", Text, nullable=False), sqlite_with_rowid=False,
)  # fmt: skip

producers = Table("producers", metadata, Column("producer", Text, primary_key=True), _number("sequence"))

marks = Table("marks", metadata, Column("key", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

MOST_VALUES = 10_000
"""How many values one statement lists at the most; SQLite allows 32,766 parameters."""
