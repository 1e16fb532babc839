"""Makes the kept samples of format 1: ``python -m tests.samples.make_version_1``.

It holds what wrote format 1, so that the samples can be made again. They need it only once: tests read the kept files.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import lmdb

HERE = Path(__file__).parent
LMDB, SQLITE, POSTGRESQL = HERE / "version-1-lmdb", HERE / "version-1.sqlite", HERE / "version-1-postgresql.sql"

PAGE_RECORDS = 8
ENTRY = Struct("<QQQqIIBxxx")
RECORD = Struct("<QqIBxxx")
KEY = Struct(">IQ")
LANE = Struct(">I")
STATE = Struct("<QQQQQQ")
EXPIRATION = Struct(">QIQ")
DELIVERY = Struct("<IIq")

DESTINATIONS = [
    (1, "queue", "orders", {}, [1]),
    (2, "queue", "ActiveMQ.DLQ", {"paused": True}, [2]),
    (3, "queue", "empty", {}, [3]),
]
NEXT_SEQUENCES = {1: 31, 2: 4, 3: 9}
MARKS = {1: 20, 2: 0, 3: 8}
REMOVED = {1: {1, 2, 12, 13, 14, 30}, 2: set()}
DELIVERIES = {(1, 5): (2, 1, 0, "nack"), (1, 9): (1, 0, 1_900_000_000_000, "consumer gone")}
PRODUCERS = {"producer-1": 30}
TRANSACTIONS = {"transaction-1": b"\x00done"}


class Record(NamedTuple):
    lane: int
    sequence: int
    expiration: int
    priority: int
    content: bytes


def all_records() -> Iterator[Record]:
    """Every record that was ever there, removed ones too."""
    for sequence in range(1, 31):
        expiration = 1_950_000_000_000 + sequence if sequence % 10 == 7 else 0
        head = f"message-id:orders-{sequence}\ntimestamp:1700000000000\nnote:a\\cb\n\n".encode()
        yield Record(1, sequence, expiration, sequence % 10, head + bytes(range(256))[: 5 * sequence])
    for sequence in range(1, 4):
        yield Record(2, sequence, 0, 4, f"message-id:dead-{sequence}\ntimestamp:1700000000000\n\nwhy".encode())


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


def make_lmdb(directory: Path) -> None:
    """Write format 1 as the LMDB store did."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with lmdb.open(str(directory), map_size=1 << 20, max_dbs=16) as env:
        names = (
            "meta", "destinations", "lanes", "links", "bodies", "deliveries", "expirations", "producers", "marks",
        )  # fmt: skip
        dbs = {name: env.open_db(name.encode()) for name in names}
        with env.begin(write=True) as txn:
            txn.put(b"format", b"1", db=dbs["meta"])
            for number, *rest in DESTINATIONS:
                txn.put(LANE.pack(number), json.dumps(rest, separators=(",", ":")).encode(), db=dbs["destinations"])
            for lane in NEXT_SEQUENCES:
                txn.put(LANE.pack(lane), STATE.pack(*state(lane)), db=dbs["lanes"])
            for lane in REMOVED:
                for key, entries, body in _lmdb_pages(lane):
                    txn.put(key, entries, db=dbs["links"])
                    txn.put(key, body, db=dbs["bodies"])
                for record in records(lane):
                    if record.expiration:
                        txn.put(EXPIRATION.pack(record.expiration, lane, record.sequence), b"", db=dbs["expirations"])
            for at, (*numbers, cause) in DELIVERIES.items():
                txn.put(KEY.pack(*at), DELIVERY.pack(*numbers) + str(cause).encode(), db=dbs["deliveries"])
            for producer, sequence in PRODUCERS.items():
                txn.put(producer.encode(), sequence.to_bytes(8, "big"), db=dbs["producers"])
            for transaction, value in TRANSACTIONS.items():
                txn.put(transaction.encode(), value, db=dbs["marks"])
    (directory / "lock.mdb").unlink()


def _lmdb_pages(lane: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    every = [record for record in all_records() if record.lane == lane]
    linked = links(lane)
    for start in range(0, len(every), PAGE_RECORDS):
        page, entries, body = every[start : start + PAGE_RECORDS], b"", b""
        for record in page:
            _, sequence, expiration, priority, content = record
            body += RECORD.pack(sequence, expiration, len(content), priority)
            if sequence in linked:
                entries += ENTRY.pack(sequence, *linked[sequence], expiration, len(body), len(content), priority)
            body += content
        yield KEY.pack(lane, page[0].sequence), entries, body


SQLITE_TABLES = """
CREATE TABLE meta ("key" VARCHAR(100) NOT NULL PRIMARY KEY, value VARCHAR(100) NOT NULL);
CREATE TABLE destinations (id BIGINT NOT NULL PRIMARY KEY, kind VARCHAR(20) NOT NULL, name TEXT NOT NULL,
    settings JSON NOT NULL, lanes JSON NOT NULL);
CREATE TABLE lanes (lane BIGINT NOT NULL PRIMARY KEY, head BIGINT NOT NULL, tail BIGINT NOT NULL,
    count BIGINT NOT NULL, bytes BIGINT NOT NULL, next_sequence BIGINT NOT NULL, dispatch_mark BIGINT NOT NULL);
CREATE TABLE records (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, size BIGINT NOT NULL,
    expiration BIGINT NOT NULL, priority SMALLINT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (lane, sequence));
CREATE INDEX records_expiration ON records (expiration, lane, sequence) WHERE expiration > 0;
CREATE TABLE links (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, previous BIGINT NOT NULL, next BIGINT NOT NULL,
    size BIGINT NOT NULL, PRIMARY KEY (lane, sequence)) WITHOUT ROWID;
CREATE TABLE deliveries (lane BIGINT NOT NULL, sequence BIGINT NOT NULL, deliveries BIGINT NOT NULL,
    failures BIGINT NOT NULL, not_before BIGINT NOT NULL, cause TEXT NOT NULL, PRIMARY KEY (lane, sequence))
    WITHOUT ROWID;
CREATE TABLE producers (producer TEXT NOT NULL PRIMARY KEY, sequence BIGINT NOT NULL);
CREATE TABLE marks ("key" TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL);
"""
POSTGRESQL_TABLES = SQLITE_TABLES.replace(" WITHOUT ROWID", "").replace("BLOB", "BYTEA").replace("\n    ;", ";")

Row = tuple[object, ...]


def sql_rows() -> dict[str, list[Row]]:
    there = [record for lane in REMOVED for record in records(lane)]
    linked = {lane: links(lane) for lane in REMOVED}
    return {
        "meta": [("format", "1")],
        "destinations": [(*rest, json.dumps(settings), json.dumps(lanes)) for *rest, settings, lanes in DESTINATIONS],
        "lanes": [(lane, *state(lane)) for lane in NEXT_SEQUENCES],
        "records": [(r.lane, r.sequence, len(r.content), r.expiration, r.priority, r.content) for r in there],
        "links": [(r.lane, r.sequence, *linked[r.lane][r.sequence], len(r.content)) for r in there],
        "deliveries": [(*key, *value) for key, value in DELIVERIES.items()],
        "producers": list(PRODUCERS.items()),
        "marks": list(TRANSACTIONS.items()),
    }


def make_sqlite(file: Path) -> None:
    """Write format 1 as the SQL store did on SQLite."""
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SQLITE_TABLES)
        for table, rows in sql_rows().items():
            places = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        connection.commit()


def make_postgresql(file: Path) -> None:
    """Write format 1 as statements for PostgreSQL."""
    lines = [POSTGRESQL_TABLES.strip()]
    for table, rows in sql_rows().items():
        values = ",\n".join("(" + ", ".join(_literal(value) for value in row) + ")" for row in rows)
        lines.append(f"INSERT INTO {table} VALUES\n{values};")
    file.write_text("\n".join(lines) + "\n")


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


if __name__ == "__main__":
    make_lmdb(LMDB)
    make_sqlite(SQLITE)
    make_postgresql(POSTGRESQL)
