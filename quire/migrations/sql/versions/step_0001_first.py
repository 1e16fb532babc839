"""The first format."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _key(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    meta = op.create_table(
        "meta", sa.Column("key", sa.String(100), primary_key=True), sa.Column("value", sa.String(100), nullable=False)
    )
    op.create_table(
        "destinations",
        _key("id"),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("lanes", sa.JSON, nullable=False),
    )
    state = ("head", "tail", "count", "bytes", "next_sequence", "dispatch_mark")
    op.create_table("lanes", _key("lane"), *[_number(name) for name in state])
    op.create_table(
        "records",
        _key("lane"),
        _key("sequence"),
        _number("size"),
        _number("expiration"),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "records_expiration",
        "records",
        ["expiration", "lane", "sequence"],
        sqlite_where=sa.text("expiration > 0"),
        postgresql_where=sa.text("expiration > 0"),
    )
    link = ("previous", "next", "size")
    op.create_table("links", _key("lane"), _key("sequence"), *[_number(name) for name in link], sqlite_with_rowid=False)
    op.create_table(
        "deliveries",
        _key("lane"),
        _key("sequence"),
        _number("deliveries"),
        _number("failures"),
        _number("not_before"),
        sa.Column("cause", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table("producers", sa.Column("producer", sa.Text, primary_key=True), _number("sequence"))
    op.create_table(
        "marks", sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.LargeBinary, nullable=False)
    )
    op.bulk_insert(meta, [{"key": "format", "value": "1"}])
