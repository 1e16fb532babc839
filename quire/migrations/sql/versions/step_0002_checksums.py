"""Every record gets a CRC-32 checksum of its content, beside it and in its link."""

import zlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_GROUP_BYTES = 4 * 1024 * 1024
_GROUP_ROWS = 1000

_meta = sa.table("meta", sa.column("key", sa.String), sa.column("value", sa.String))
_records = sa.table(
    "records",
    sa.column("lane", sa.BigInteger),
    sa.column("sequence", sa.BigInteger),
    sa.column("size", sa.BigInteger),
    sa.column("checksum", sa.BigInteger),
    sa.column("content", sa.LargeBinary),
)
_links = sa.table(
    "links",
    sa.column("lane", sa.BigInteger),
    sa.column("sequence", sa.BigInteger),
    sa.column("checksum", sa.BigInteger),
)
_KEY = sa.tuple_(_records.c.lane, _records.c.sequence)


def upgrade() -> None:
    """Add the columns and fill them."""
    connection = op.get_bind()
    for table in ("records", "links"):
        op.add_column(table, sa.Column("checksum", sa.BigInteger, nullable=False, server_default="0"))
    for first, last in _groups(connection):
        _fill(connection, first, last)
    same = sa.and_(_records.c.lane == _links.c.lane, _records.c.sequence == _links.c.sequence)
    checksum = sa.select(_records.c.checksum).where(same).scalar_subquery()
    connection.execute(sa.update(_links).values(checksum=checksum))
    if connection.dialect.name != "sqlite":  # which cannot take a default back without copying the table
        for table in ("records", "links"):
            op.alter_column(table, "checksum", server_default=None)
    connection.execute(sa.update(_meta).where(_meta.c.key == "format").values(value="2"))


def _groups(connection: sa.Connection) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The first and the last key of runs of records that fit into memory together."""
    start = (0, 0)
    while True:
        query = sa.select(_records.c.lane, _records.c.sequence, _records.c.size).where(start < _KEY)
        rows = connection.execute(query.order_by(_records.c.lane, _records.c.sequence).limit(_GROUP_ROWS)).all()
        if not rows:
            return
        first, size = rows[0], 0
        last = first
        for row in rows:
            if size and size + row.size > _GROUP_BYTES:
                break
            last, size = row, size + row.size
        start = (last.lane, last.sequence)
        yield (first.lane, first.sequence), start


def _fill(connection: sa.Connection, first: tuple[int, int], last: tuple[int, int]) -> None:
    query = sa.select(_records.c.lane, _records.c.sequence, _records.c.content)
    rows = connection.execute(query.where(first <= _KEY, last >= _KEY)).all()
    at = (_records.c.lane == sa.bindparam("at_lane"), _records.c.sequence == sa.bindparam("at_sequence"))
    connection.execute(
        sa.update(_records).where(*at).values(checksum=sa.bindparam("found")),
        [{"at_lane": row[0], "at_sequence": row[1], "found": zlib.crc32(row[2])} for row in rows],
    )
