"""The kept samples of format 2 on SQLite and PostgreSQL, the last one with a row for each record."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from quire.clock import ManualClock
from quire.errors import StoreLocked, StoreOutdated
from quire.message import Message
from quire.migrations import MigrationReport, migrate, prepare
from quire.store.base import Delivery, LaneState, WriteBatch, walk_producers
from quire.store.maintenance.base import Problem
from quire.store.maintenance.open_store import open_for_reading, open_for_writing
from quire.store.maintenance.transfer import export
from quire.store.maintenance.verify import verify
from quire.store.sqlite import SqliteStore
from quire.store.urls import store_for_url
from tests.postgresql_server import PostgresqlServer
from tests.samples import make_version_2 as sample
from tests.samples.make_version_1 import Record
from tests.unit.store.maintained import findings, mend, problems

Connection = psycopg.Connection[tuple[Any, ...]]

CATALOG = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage::text,
    a.attcompression::text, coalesce(l.collname, ''), c.reloptions
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0 AND NOT a.attisdropped
    AND c.relname NOT LIKE 'owner%%'
ORDER BY 1, 2
"""


class Copy:
    """A copy of a sample, and a connection to it; each statement is a transaction."""

    def __init__(self, url: str, connection: sqlite3.Connection | Connection) -> None:
        self.url = url
        self.connection = connection

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; returns its rows."""
        if isinstance(self.connection, sqlite3.Connection):
            return self.connection.execute(statement.replace("%s", "?"), values).fetchall()
        done = self.connection.execute(statement.encode(), values or None)
        return done.fetchall() if done.description else []


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    if request.param == "sqlite":
        shutil.copy(sample.SQLITE, tmp_path / "store")
        with closing(sqlite3.connect(tmp_path / "store", isolation_level=None)) as connection:
            yield Copy(f"sqlite://{tmp_path}/store", connection)
    else:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        url = server.url_for(tmp_path)
        with server.connect() as database:
            database.execute(f"SET search_path TO {server.schema_of(tmp_path)}")
            database.execute(sample.POSTGRESQL.read_bytes())
            yield Copy(url, database)


SQLITE = pytest.mark.parametrize("copy", ["sqlite"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("copy", [pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def schema(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    return postgresql_server.schema_of(tmp_path)


def format_of(url: str) -> int:
    return migrate(url, dry_run=True).found


def test_everything_is_there_after_the_migration(copy: Copy) -> None:
    report = migrate(copy.url)
    assert (report.found, report.current, len(report.steps)) == (2, 3, 1)
    assert "pages" in report.steps[0]
    with open_for_reading(copy.url) as opened:
        store = opened.store
        assert list(verify(store, opened.maintenance)) == []
        assert [tuple(found) for found in store.destinations()] == [
            (number, kind, name, settings, tuple(lanes)) for number, kind, name, settings, lanes in sample.DESTINATIONS
        ]
        for lane in sample.REMOVED:
            page = store.page(lane, 0, 10**9, 1000)
            found = [Record(lane, m.sequence, m.expiration, m.priority, m.content) for m in page.messages]
            assert found == sample.records(lane)
            links = store.links(lane, 0, 1000)
            assert {link.sequence: (link.previous, link.next) for link in links} == sample.links(lane)
        for lane in sample.NEXT_SEQUENCES:
            assert store.lane_state(lane) == LaneState(*sample.state(lane))
        for lane in (1, sample.LARGE):
            states = {(lane, at): tuple(state) for at, state in store.deliveries(lane, 0, 100)}
            assert states == {key: state for key, state in sample.DELIVERIES.items() if key[0] == lane}
        expiring = [(r.expiration, r.lane, r.sequence) for lane in sample.REMOVED for r in sample.records(lane)]
        assert store.expired(2**62, 100) == sorted(key for key in expiring if key[0])
        assert dict(walk_producers(store)) == sample.PRODUCERS
        assert dict(store.marks("")) == sample.TRANSACTIONS


def test_a_migrated_store_goes_on(copy: Copy) -> None:
    migrate(copy.url)
    store = store_for_url(copy.url)
    assert store.try_lock("the new version")
    store.open()
    with closing(store):
        batch = WriteBatch()
        batch.lane(1).appends.append(Message(31, b"message-id:new\n\n"))
        batch.lane(1).removals += [3, 11, 15, 29]
        batch.lane(1).deliveries[31] = Delivery(1)
        batch.lane(sample.LARGE).removals += [3, 6]
        store.apply(batch)
    assert findings(copy.url) == []


@POSTGRESQL
def test_a_migrated_store_has_the_tables_of_a_new_one(
    copy: Copy, schema: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    migrate(copy.url, backup=False)
    with closing(store_for_url(postgresql_server.url_for(tmp_path / "new"))) as store:
        store.open()
    new = postgresql_server.schema_of(tmp_path / "new")
    migrated, made = (copy.execute(CATALOG, (name,)) for name in (schema, new))
    assert migrated == made


@POSTGRESQL
def test_rows_are_migrated_a_number_at_a_time(copy: Copy) -> None:
    copy.execute(
        "INSERT INTO records SELECT 3, at, length(content), 0, 4, 0, content FROM (SELECT at,"
        " convert_to(repeat('x', CASE WHEN at IN (15, 16, 1500) THEN 3000000 ELSE 9 END), 'LATIN1') AS content"
        " FROM generate_series(9, 2500) at) made"
    )
    copy.execute(
        "INSERT INTO links SELECT 3, sequence, sequence - 1, (sequence + 1) % 2501, size, 0 FROM records WHERE lane = 3"
    )
    copy.execute("UPDATE links SET previous = 0 WHERE (lane, sequence) = (3, 9)")
    copy.execute(
        "UPDATE lanes SET (head, tail, count, bytes, next_sequence) ="
        " (SELECT 9, 2500, count(*), sum(size), 2501 FROM records WHERE lane = 3) WHERE lane = 3"
    )
    migrate(copy.url)
    assert {problem for problem, _ in problems(copy.url)} == {Problem.DAMAGED_RECORD}  # the checksums are made up
    with open_for_reading(copy.url) as opened:
        assert [link.sequence for link in opened.store.links(3, 0, 3000)] == list(range(9, 2501))


def test_damage_is_carried_over_for_repair_to_see(copy: Copy, tmp_path: Path) -> None:
    at = "WHERE (lane, sequence) = (1, %s)"
    copy.execute(f"DELETE FROM links {at}", (5,))
    copy.execute(f"DELETE FROM records {at}", (7,))
    copy.execute("UPDATE records SET content = %s WHERE (lane, sequence) = (1, 9)", (b"x",))
    copy.execute(f"UPDATE links SET next = 25 {at}", (16,))
    copy.execute(f"UPDATE links SET checksum = 1 {at}", (18,))
    copy.execute(f"UPDATE links SET size = -1 {at}", (20,))
    copy.execute("DELETE FROM lanes WHERE lane = 2")
    migrate(copy.url)
    assert {
        (Problem.BROKEN_NEXT, 5),
        (Problem.BROKEN_PREVIOUS, 5),
        (Problem.DAMAGED_RECORD, 7),
        (Problem.DAMAGED_RECORD, 9),
        (Problem.BROKEN_NEXT, 16),
        (Problem.WRONG_LINK, 18),
        (Problem.WRONG_LINK, 20),
        (Problem.WRONG_COUNT, 0),
    } <= problems(copy.url)
    report = mend(copy.url, tmp_path / "damaged")
    assert (report.damaged, report.lost, report.lanes) == (1, 1, 2)
    with open_for_reading(copy.url) as opened:
        kept = [link.sequence for link in opened.store.links(1, 0, 100)]
    assert kept == [record.sequence for record in sample.records(1) if record.sequence not in (7, 9)]


@POSTGRESQL
def test_the_backup_is_the_store_as_it_was(copy: Copy, schema: str) -> None:
    report = migrate(copy.url, clock=ManualClock(1_700_000_000_000))
    assert report.backup == f"{schema}_backup_format2_20231114t221320z"
    backup = copy.url.replace(schema, report.backup)
    store = store_for_url(backup)
    with pytest.raises(StoreOutdated):
        store.open()
    store.close()
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = %s"
    assert copy.execute(indexes, (report.backup,)) == [(9,)]
    with open_for_reading(copy.url) as opened:
        expected = list(export(opened.store))
    # It is whole: it can be migrated as the store was.
    migrate(backup, backup=False)
    with open_for_reading(backup) as opened:
        assert list(export(opened.store)) == expected


@POSTGRESQL
def test_the_schema_may_be_named_in_the_url(copy: Copy, schema: str) -> None:
    named = copy.url.replace(f"options=-csearch_path%3D{schema}", f"schema={schema}")
    assert migrate(named, clock=ManualClock(0)).backup == f"{schema}_backup_format2_19700101t000000z"
    with open_for_writing(named) as opened:
        opened.maintenance.compact()
        assert sorted(opened.maintenance.lanes()) == sorted(sample.NEXT_SEQUENCES)
    assert findings(named) == findings(copy.url) == []


@POSTGRESQL
def test_a_broker_of_the_old_version_keeps_its_store(copy: Copy) -> None:
    copy.execute("UPDATE lease SET owner = 'old', expires = extract(epoch FROM clock_timestamp()) + 9")
    for attempt in (migrate, prepare):
        with pytest.raises(StoreLocked, match="old"):
            attempt(copy.url)
    assert format_of(copy.url) == 2
    with closing(store_for_url(copy.url)) as standby:
        assert not standby.try_lock("a standby of this version")
        assert standby.lock_owner() == "old"
    copy.execute("UPDATE lease SET expires = extract(epoch FROM clock_timestamp()) - 1")
    assert migrate(copy.url).found == 2
    # One that was only suspended cannot commit: it needs its lease.
    with pytest.raises(psycopg.errors.UndefinedTable):
        copy.execute('UPDATE lease SET "commit" = "commit" + 1')


@POSTGRESQL
def test_a_killed_migration_leaves_the_store_as_it_was(copy: Copy) -> None:
    program = f"""
import os, signal
from quire.migrations import migrate
from quire.migrations.sql.sql_migration import SqlMigration

run = SqlMigration._run
SqlMigration._run = lambda *arguments: (run(*arguments), os.kill(os.getpid(), signal.SIGKILL))
migrate({copy.url!r})
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    # The server may not have noticed yet that the process is gone.
    copy.execute("LOCK TABLE meta IN ACCESS SHARE MODE; COMMIT")
    assert format_of(copy.url) == 2


@SQLITE
def test_a_migrated_file_has_the_tables_of_a_new_one(copy: Copy, tmp_path: Path) -> None:
    migrate(copy.url, backup=False)
    with closing(SqliteStore(tmp_path / "new")) as store:
        store.open()
    tables = "SELECT name, sql FROM sqlite_master WHERE name <> 'meta' ORDER BY name"
    columns = "SELECT name, \"notnull\", pk FROM pragma_table_info('meta')"
    with closing(sqlite3.connect(tmp_path / "new")) as new:
        for query in (tables, columns):
            # SQLite quotes a name that it was told to change.
            assert [(name, *rest) for name, *rest in copy.execute(query)] == new.execute(query).fetchall()


@SQLITE
def test_rows_of_any_number_and_size_are_migrated(copy: Copy) -> None:
    copy.execute("BEGIN")
    for at in range(1, 2501):
        content = b"message-id:%d\n\n" % at + b"x" * (3_000_000 if at in (5, 6, 1500) else at % 7)
        row = (at, len(content), 9_000 + at if at % 100 == 0 else 0, zlib.crc32(content))
        copy.execute("INSERT INTO records VALUES (3, ?, ?, ?, 4, ?, ?)", (*row, content))
        copy.execute("INSERT INTO links VALUES (3, ?, ?, ?, ?, ?)", (at, at - 1, (at + 1) % 2501, len(content), row[3]))
    total = "(SELECT sum(size) FROM records WHERE lane = 3)"
    state = f"(head, tail, count, bytes, next_sequence) = (1, 2500, 2500, {total}, 2501)"
    copy.execute(f"UPDATE lanes SET {state} WHERE lane = 3")
    long = "é" * 400
    copy.execute("INSERT INTO producers VALUES (?, 7)", (long,))
    copy.execute("COMMIT")
    migrate(copy.url)
    assert findings(copy.url) == []
    with open_for_reading(copy.url) as opened:
        assert [link.sequence for link in opened.store.links(3, 0, 3000)] == list(range(1, 2501))
        assert [at for _, _, at in opened.store.expired(12_000, 99)] == list(range(100, 2501, 100))
        assert opened.store.producer(long) == 7


@SQLITE
@pytest.mark.slow
def test_a_migration_that_is_killed_anywhere_begins_again(copy: Copy) -> None:
    """Killed at its first statements, among the pages, among the other tables, before its commit."""
    before = dump(copy)
    for statement in (3, 12, 22, 30, 45):
        program = f"""
import os, signal
from quire.migrations import migrate
from quire.migrations.sql import sql_migration

def connect(path, connect=sql_migration.connect, seen=[]):
    connection = connect(path)
    def count(text):
        seen.append(text)
        if len(seen) == {statement} or text == "COMMIT":
            os.kill(os.getpid(), signal.SIGKILL)
    connection.set_trace_callback(count)
    return connection

sql_migration.connect = connect
migrate({copy.url!r}, backup=False)
"""
        done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert format_of(copy.url) == 2
        assert dump(copy) == before
    assert migrate(copy.url).found == 2
    assert findings(copy.url) == []


def dump(copy: Copy) -> list[str]:
    assert isinstance(copy.connection, sqlite3.Connection)
    return list(copy.connection.iterdump())


def test_a_second_migration_has_nothing_to_do(copy: Copy) -> None:
    assert prepare(copy.url) is not None
    assert prepare(copy.url) is None
    assert migrate(copy.url) == MigrationReport(3, 3, ())
