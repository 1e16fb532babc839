"""Makes the kept samples of format 2 on SQLite and PostgreSQL: ``python -m tests.samples.make_version_2``.

It holds what wrote format 2 there, so that the samples can be made again. LMDB still has format 2.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.samples import make_version_1 as version_1
from tests.samples.make_version_1 import Record, Row

HERE = Path(__file__).parent
SQLITE, POSTGRESQL = HERE / "version-2.sqlite", HERE / "version-2-postgresql.sql"

LARGE = 4
"""A lane whose records need several pages, and one of them a page of its own."""

DESTINATIONS = [*version_1.DESTINATIONS, (LARGE, "queue", "large", {}, [LARGE])]
NEXT_SEQUENCES = {**version_1.NEXT_SEQUENCES, LARGE: 12}
MARKS = {**version_1.MARKS, LARGE: 1}
REMOVED = {**version_1.REMOVED, LARGE: {1, 4}}
DELIVERIES = {**version_1.DELIVERIES, (LARGE, 7): (1, 1, 0, "nack")}
PRODUCERS, TRANSACTIONS = version_1.PRODUCERS, version_1.TRANSACTIONS
FILLING = {sequence: 200_000 if sequence == 6 else 17_000 for sequence in range(1, 12)}

TABLES = """
CREATE TABLE meta (key VARCHAR(100) NOT NULL PRIMARY KEY, value VARCHAR(100) NOT NULL);
CREATE TABLE destinations (id BIGINT NOT NULL PRIMARY KEY, kind VARCHAR(20) NOT NULL, name TEXT NOT NULL,
    settings JSON NOT NULL, lanes JSON NOT NULL);
CREATE TABLE lanes (lane BIGINT NOT NULL PRIMARY KEY, head BIGINT NOT NULL, tail BIGINT NOT NULL,
    count BIGINT NOT NULL, bytes BIGINT NOT NULL, next_sequence BIGINT NOT NULL, dispatch_mark BIGINT NOT NULL);
CREATE TABLE records (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, size BIGINT NOT NULL, expiration BIGINT NOT NULL,
    priority SMALLINT NOT NULL, checksum BIGINT NOT NULL, content BYTEA NOT NULL, PRIMARY KEY (lane, sequence));
CREATE INDEX records_expiration ON records (expiration, lane, sequence) WHERE expiration > 0;
CREATE TABLE links (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, previous BIGINT NOT NULL, next BIGINT NOT NULL,
    size BIGINT NOT NULL, checksum BIGINT NOT NULL, PRIMARY KEY (lane, sequence));
CREATE TABLE deliveries (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, deliveries BIGINT NOT NULL,
    failures BIGINT NOT NULL, not_before BIGINT NOT NULL, cause TEXT NOT NULL, PRIMARY KEY (lane, sequence));
CREATE TABLE producers (producer TEXT NOT NULL PRIMARY KEY, sequence BIGINT NOT NULL);
CREATE TABLE marks (key TEXT NOT NULL PRIMARY KEY, value BYTEA NOT NULL);
"""
LEASE = """CREATE TABLE lease (id BIGINT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, token TEXT NOT NULL,
    expires DOUBLE PRECISION NOT NULL, commit BIGINT NOT NULL DEFAULT 0);
"""


def all_records() -> Iterator[Record]:
    """Every record that was ever there, removed ones too."""
    yield from version_1.all_records()
    for sequence, length in FILLING.items():
        head = f"message-id:large-{sequence}\ntimestamp:1700000000000\n\n".encode()
        yield Record(LARGE, sequence, 1_960_000_000_000 * (sequence == 9), 4, head + b"x" * length)


def records(lane: int) -> list[Record]:
    return [record for record in all_records() if record.lane == lane and record.sequence not in REMOVED[lane]]


def links(lane: int) -> dict[int, tuple[int, int]]:
    sequences = [0, *[record.sequence for record in records(lane)], 0]
    return {sequences[i]: (sequences[i - 1], sequences[i + 1]) for i in range(1, len(sequences) - 1)}


def state(lane: int) -> tuple[int, ...]:
    """Head, tail, count, bytes, next sequence, dispatch mark."""
    there = records(lane) if lane in REMOVED else []
    head, tail = (there[0].sequence, there[-1].sequence) if there else (0, 0)
    return head, tail, len(there), sum(len(r.content) for r in there), NEXT_SEQUENCES[lane], MARKS[lane]


def rows() -> dict[str, list[Row]]:
    there = [(record, zlib.crc32(record.content)) for lane in REMOVED for record in records(lane)]
    linked = {lane: links(lane) for lane in REMOVED}
    return {
        "meta": [("format", "2")],
        "destinations": [(*rest, json.dumps(settings), json.dumps(lanes)) for *rest, settings, lanes in DESTINATIONS],
        "lanes": [(lane, *state(lane)) for lane in NEXT_SEQUENCES],
        "records": [(r.lane, r.sequence, len(r.content), r.expiration, r.priority, c, r.content) for r, c in there],
        "links": [(r.lane, r.sequence, *linked[r.lane][r.sequence], len(r.content), c) for r, c in there],
        "deliveries": [(*key, *value) for key, value in DELIVERIES.items()],
        "producers": list(PRODUCERS.items()),
        "marks": list(TRANSACTIONS.items()),
    }


def make_sqlite(file: Path) -> None:
    """Write format 2 as the SQL store did on SQLite."""
    file.unlink(missing_ok=True)
    tables = TABLES.replace("BYTEA", "BLOB").replace("key VARCHAR", '"key" VARCHAR').replace("key TEXT", '"key" TEXT')
    for without_row_numbers in ("links", "deliveries"):
        before, table, after = tables.partition(f"CREATE TABLE {without_row_numbers} ")
        tables = before + table + after.replace(";", " WITHOUT ROWID;", 1)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(tables)
        for name, found in rows().items():
            places = ",".join("?" * len(found[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", found)
        connection.commit()


def make_postgresql(file: Path) -> None:
    """Write format 2 as statements for PostgreSQL."""
    lines = [TABLES.strip(), LEASE.strip()]
    leased: dict[str, list[Row]] = {**rows(), "lease": [(1, "", "", 0, 17)]}
    for table, found in leased.items():
        values = ",\n".join("(" + ", ".join(_literal(value) for value in row) + ")" for row in found)
        lines.append(f"INSERT INTO {table} VALUES\n{values};")
    file.write_text("\n".join(lines) + "\n")


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        kept = value.rstrip(b"x")
        return f"'\\x{kept.hex()}'::bytea || convert_to(repeat('x', {len(value) - len(kept)}), 'LATIN1')"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


if __name__ == "__main__":
    make_sqlite(SQLITE)
    make_postgresql(POSTGRESQL)
