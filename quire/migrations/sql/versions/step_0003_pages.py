"""Messages are kept in pages; on PostgreSQL, an epoch in the table owner says who may write."""

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from struct import Struct
from typing import Any

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

_KEY = Struct(">IQ")  # lane, sequence
_LANE = Struct(">I")  # a lane, or a destination
_STATE = Struct("<QQQQQQ")  # head, tail, count, bytes, next sequence, dispatch mark
_EXPIRATION = Struct(">QIQ")  # time, lane, sequence
_DELIVERY = Struct("<IIq")  # deliveries, failures, not before

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

_SAME_NAMES = ("destinations", "lanes", "deliveries", "producers", "marks")
"""The other tables of SQLite whose names stay; ``records`` goes, and ``links`` become entries of pages."""

_KEYED = "CREATE TABLE {} (key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL)"
_SQLITE_ROWS = """
SELECT r.lane, r.sequence, l.previous, l.next, l.size AS linked_size, l.checksum AS linked_checksum,
    r.expiration, r.priority, r.checksum, length(r.content) AS size
FROM records r LEFT JOIN old_links l ON l.lane = r.lane AND l.sequence = r.sequence
UNION ALL SELECT lane, sequence, previous, next, size, checksum, NULL, NULL, NULL, NULL
FROM old_links l WHERE NOT EXISTS (SELECT 1 FROM records r WHERE r.lane = l.lane AND r.sequence = l.sequence)
ORDER BY 1, 2
"""

_Page = list[sa.Row[tuple[int, ...]]]
"""The rows of one page. A column is None where a record or its link is missing."""


def upgrade() -> None:
    """Write the pages some at a time, then drop the tables that they replace."""
    connection = op.get_bind()
    (_upgrade_sqlite if connection.dialect.name == "sqlite" else _upgrade_postgresql)(connection)


def _upgrade_postgresql(connection: sa.Connection) -> None:
    # What the server knows of the tables may be old, and a plan that reads all of a table is repeated for each group.
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    connection.exec_driver_sql(_TABLES)
    connection.exec_driver_sql(_WITH_LZ4 if connection.exec_driver_sql(_HAS_LZ4).scalar() else _WITHOUT_LZ4)
    rows = connection.execute(sa.text(_ROWS), execution_options={"yield_per": _ROWS_AT_ONCE})
    for group in _groups(_pages(rows)):
        first, last = group[0][0], group[-1][-1]
        found = connection.exec_driver_sql(_CONTENTS, (first.lane, first.sequence, last.sequence))
        contents = {sequence: bytes(content) for sequence, content in found}
        connection.exec_driver_sql(_INSERT, [_packed(page, contents, joined=False) for page in group])
    connection.exec_driver_sql(_INDEX)
    for table in ("records", "links", "lease"):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    connection.exec_driver_sql("UPDATE meta SET value = '3' WHERE key = 'format'")


def _upgrade_sqlite(connection: sa.Connection) -> None:
    """Everything becomes values under keys, as LMDB has them."""
    run = connection.exec_driver_sql
    for table in ("links", *_SAME_NAMES):
        run(f"ALTER TABLE {table} RENAME TO old_{table}")
    for table in ("links", "bodies", "expirations", *_SAME_NAMES):
        # Bodies are large: a table without row numbers would keep them in its index.
        run(_KEYED.format(table) + ("" if table == "bodies" else " WITHOUT ROWID"))
    rows = connection.execute(sa.text(_SQLITE_ROWS), execution_options={"yield_per": _ROWS_AT_ONCE})
    for group in _groups(_pages(rows)):
        first, last = group[0][0], group[-1][-1]
        found = run(_CONTENTS.replace("%s", "?"), (first.lane, first.sequence, last.sequence))
        contents = {sequence: bytes(content) for sequence, content in found}
        packed = [_packed(page, contents, joined=True) for page in group]
        _insert(connection, "links", ((_KEY.pack(*row[:2]), row[-2]) for row in packed))
        _insert(connection, "bodies", ((_KEY.pack(*row[:2]), row[-1]) for row in packed))
    for table, query, entry in _ENTRIES:
        rows = connection.execute(sa.text(query), execution_options={"yield_per": _ROWS_AT_ONCE})
        _insert(connection, table, (entry(*row) for row in rows))
    for table in ("records", "old_links", *[f"old_{table}" for table in _SAME_NAMES]):
        run(f"DROP TABLE {table}")
    run("UPDATE meta SET value = '3' WHERE key = 'format'")


def _insert(connection: sa.Connection, table: str, entries: Iterator[tuple[Any, Any]]) -> None:
    while group := list(islice(entries, _ROWS_AT_ONCE)):
        connection.exec_driver_sql(f"INSERT INTO {table} VALUES (?, ?)", group)  # noqa: S608  # one of ours


def _destination(number: int, kind: str, name: str, settings: str, lanes: str) -> tuple[bytes, bytes]:
    value = [kind, name, json.loads(settings), json.loads(lanes)]
    return _LANE.pack(number), json.dumps(value, separators=(",", ":")).encode()


def _lane(lane: int, *state: int) -> tuple[bytes, bytes]:
    return _LANE.pack(lane), _STATE.pack(*[number & _U64 for number in state])


def _delivery(
    lane: int, sequence: int, deliveries: int, failures: int, not_before: int, cause: str
) -> tuple[bytes, bytes]:  # fmt: skip
    return _KEY.pack(lane, sequence), _DELIVERY.pack(deliveries & _U32, failures & _U32, not_before) + cause.encode()


def _producer(producer: str, sequence: int) -> tuple[bytes, bytes]:
    """A key may have 448 bytes; of a longer id it ends with a digest."""
    key = producer.encode()
    if len(key) > 448:
        key = key[:440] + b"#" + hashlib.sha256(key).hexdigest().encode()
    return key, (sequence & _U64).to_bytes(8, "big")


_ENTRIES: tuple[tuple[str, str, Callable[..., tuple[bytes, bytes]]], ...] = (
    (
        "expirations", "SELECT expiration, lane, sequence FROM records WHERE expiration > 0 ORDER BY 1, 2, 3",
        lambda *row: (_EXPIRATION.pack(*row), b""),
    ),
    ("destinations", "SELECT id, kind, name, settings, lanes FROM old_destinations", _destination),
    ("lanes", "SELECT lane, head, tail, count, bytes, next_sequence, dispatch_mark FROM old_lanes", _lane),
    (
        "deliveries", "SELECT lane, sequence, deliveries, failures, not_before, cause FROM old_deliveries", _delivery,
    ),
    ("producers", "SELECT producer, sequence FROM old_producers", _producer),
    ("marks", "SELECT key, value FROM old_marks", lambda key, value: (key.encode(), value)),
)  # fmt: skip
"""Of each other table of SQLite: what is read of the old one, and what a row becomes."""


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


def _packed(page: _Page, contents: dict[int, bytes], *, joined: bool) -> tuple[int | bytes, ...]:
    """The row of a page, joined to the next one or not. What does not agree goes on doing so, for repair to mend."""
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
        if index == len(page) - 1 and not joined:
            following = 0
        size, checksum = (row.size, row.checksum) if row.linked_size is None else (row.linked_size, row.linked_checksum)
        fields = (row.sequence, previous, following, expiration, start, size & _U32, checksum & _U32, priority)
        entries.append(_ENTRY.pack(*fields))
    return page[0].lane, page[0].sequence, page[-1].sequence, len(page), b"".join(entries), b"".join(body)
