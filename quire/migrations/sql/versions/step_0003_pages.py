"""On PostgreSQL, messages are kept in pages, and an epoch in the table owner says who may write."""

from collections.abc import Iterator
from struct import Struct

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_PAGE_BYTES = 60 * 1024
_GROUP_BYTES = 4 * 1024 * 1024
_ROWS_AT_ONCE = 1000

_ENTRY = Struct("<QQQqIIIBxxx")  # sequence, previous, next, expiration, offset, size, checksum, priority
_RECORD = Struct("<QqIIBxxx")  # sequence, expiration, size, checksum, priority
_U64, _U32, _U8 = 2**64 - 1, 2**32 - 1, 2**8 - 1

_TABLES = """
CREATE TABLE pages (lane bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL, live integer NOT NULL,
    entries bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (lane, first));
CREATE TABLE expirations (expiration bigint NOT NULL, lane bigint NOT NULL, sequence bigint NOT NULL,
    PRIMARY KEY (expiration, lane, sequence));
ALTER TABLE pages ALTER entries SET STORAGE MAIN;
ALTER TABLE lanes SET (fillfactor = 50);
ALTER TABLE producers ALTER producer TYPE text COLLATE "C";
ALTER TABLE marks ALTER key TYPE text COLLATE "C";
"""
_HAS_LZ4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
_WITH_LZ4 = "ALTER TABLE pages ALTER entries SET COMPRESSION lz4, ALTER body SET COMPRESSION lz4"
_WITHOUT_LZ4 = "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL"

_ROWS = """
SELECT lane, sequence, l.previous, l.next, l.size AS linked_size, l.checksum AS linked_checksum,
    r.expiration, r.priority, r.checksum, octet_length(r.content) AS size
FROM records r FULL JOIN links l USING (lane, sequence) ORDER BY lane, sequence
"""
_CONTENTS = "SELECT sequence, content FROM records WHERE lane = %s AND sequence BETWEEN %s AND %s"
_INSERT = "INSERT INTO pages (lane, first, last, live, entries, body) VALUES (%s, %s, %s, %s, %s, %s)"
_INDEX = "INSERT INTO expirations SELECT expiration, lane, sequence FROM records WHERE expiration > 0"

_Page = list[sa.Row[tuple[int, ...]]]
"""The rows of one page. A column is None where a record or its link is missing."""


def upgrade() -> None:
    """Write the pages some at a time, then drop the tables that they replace."""
    connection = op.get_bind()
    # What the server knows of the tables may be old, and a plan that reads all of a table is repeated for each group.
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    connection.exec_driver_sql(_TABLES)
    connection.exec_driver_sql(_WITH_LZ4 if connection.exec_driver_sql(_HAS_LZ4).scalar() else _WITHOUT_LZ4)
    rows = connection.execute(sa.text(_ROWS), execution_options={"yield_per": _ROWS_AT_ONCE})
    for group in _groups(_pages(rows)):
        first, last = group[0][0], group[-1][-1]
        found = connection.exec_driver_sql(_CONTENTS, (first.lane, first.sequence, last.sequence))
        contents = {sequence: bytes(content) for sequence, content in found}
        connection.exec_driver_sql(_INSERT, [_packed(page, contents) for page in group])
    connection.exec_driver_sql(_INDEX)
    for table in ("records", "links", "lease"):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    connection.exec_driver_sql("UPDATE meta SET value = '3' WHERE key = 'format'")


def _pages(rows: "sa.CursorResult[tuple[int, ...]]") -> Iterator[_Page]:
    """Rows of one lane that make a page; a large record has one of its own."""
    page: _Page = []
    size = 0
    for row in rows:
        length = _RECORD.size + (row.size or 0)
        if page and (row.lane != page[0].lane or size + length > _PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(row)
        size += length
    if page:
        yield page


def _groups(pages: Iterator[_Page]) -> Iterator[list[_Page]]:
    """Pages of one lane that fit into memory together."""
    group: list[_Page] = []
    size = 0
    for page in pages:
        length = sum([row.size or 0 for row in page])
        if group and (page[0].lane != group[0][0].lane or size + length > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(page)
        size += length
    if group:
        yield group


def _packed(page: _Page, contents: dict[int, bytes]) -> tuple[int | bytes, ...]:
    """The row of a page. What does not agree goes on doing so, for verify to find and for repair to mend."""
    entries: list[bytes] = []
    body: list[bytes] = []
    offset = 0
    for index, row in enumerate(page):
        expiration, priority = row.expiration or 0, (row.priority or 0) & _U8
        content = contents.get(row.sequence)
        if content is None:
            start = _U32  # the link leads nowhere
        else:
            header = (row.sequence, expiration, len(content), row.checksum & _U32, priority)
            body += [_RECORD.pack(*header), content]
            start = offset + _RECORD.size
            offset = start + len(content)
        previous, following = (row.previous or 0) & _U64, (row.next or 0) & _U64
        if index == len(page) - 1:
            following = 0  # the next page begins with it
        size, checksum = (row.size, row.checksum) if row.linked_size is None else (row.linked_size, row.linked_checksum)
        fields = (row.sequence, previous, following, expiration, start, size & _U32, checksum & _U32, priority)
        entries.append(_ENTRY.pack(*fields))
    return page[0].lane, page[0].sequence, page[-1].sequence, len(page), b"".join(entries), b"".join(body)
