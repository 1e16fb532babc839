"""The kept sample of format 2 on PostgreSQL, the last one with a row for each record."""

import signal
import subprocess
import sys
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
from quire.store.base import Delivery, LaneState, WriteBatch
from quire.store.maintenance.export import export
from quire.store.maintenance.findings import Problem
from quire.store.maintenance.open_store import open_for_reading, open_for_writing
from quire.store.maintenance.verify import verify
from quire.store.marks import walk_producers
from quire.store.urls import store_for_url
from tests.postgresql_server import PostgresqlServer
from tests.samples import make_version_2 as sample
from tests.samples.make_version_1 import Record
from tests.unit.store.maintained import findings, mend, problems

pytestmark = pytest.mark.slow

Connection = psycopg.Connection[tuple[Any, ...]]

CATALOG = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage::text,
    a.attcompression::text, coalesce(l.collname, ''), c.reloptions
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0 AND NOT a.attisdropped
    AND c.relname NOT LIKE 'owner%%'
ORDER BY 1, 2
"""


@pytest.fixture
def schema(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    return postgresql_server.schema_of(tmp_path)


@pytest.fixture
def url(postgresql_server: PostgresqlServer, tmp_path: Path) -> str:
    """A copy of the sample, and where it is."""
    return postgresql_server.url_for(tmp_path)


@pytest.fixture
def database(postgresql_server: PostgresqlServer, url: str, schema: str) -> Iterator[Connection]:
    """A connection to the copy; each statement is a transaction."""
    with postgresql_server.connect() as connection:
        connection.execute(f"SET search_path TO {schema}")
        connection.execute(sample.POSTGRESQL.read_bytes())
        yield connection


def format_of(url: str) -> int:
    return migrate(url, dry_run=True).found


def test_everything_is_there_after_the_migration(url: str, database: Connection) -> None:
    report = migrate(url)
    assert (report.found, report.current, len(report.steps)) == (2, 3, 1)
    assert "pages" in report.steps[0]
    with open_for_reading(url) as opened:
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


def test_a_migrated_store_goes_on(url: str, database: Connection) -> None:
    migrate(url)
    store = store_for_url(url)
    assert store.try_lock("the new version")
    store.open()
    with closing(store):
        batch = WriteBatch()
        batch.lane(1).appends.append(Message(31, b"message-id:new\n\n"))
        batch.lane(1).removals += [3, 11, 15, 29]
        batch.lane(1).deliveries[31] = Delivery(1)
        batch.lane(sample.LARGE).removals += [3, 6]
        store.apply(batch)
    assert findings(url) == []


def test_a_migrated_store_has_the_tables_of_a_new_one(
    url: str, database: Connection, schema: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    migrate(url, backup=False)
    with closing(store_for_url(postgresql_server.url_for(tmp_path / "new"))) as store:
        store.open()
    new = postgresql_server.schema_of(tmp_path / "new")
    migrated, made = (database.execute(CATALOG, (name,)).fetchall() for name in (schema, new))
    assert migrated == made


def test_rows_are_migrated_a_number_at_a_time(url: str, database: Connection) -> None:
    database.execute(
        "INSERT INTO records SELECT 3, at, length(content), 0, 4, 0, content FROM (SELECT at,"
        " convert_to(repeat('x', CASE WHEN at IN (15, 16, 1500) THEN 3000000 ELSE 9 END), 'LATIN1') AS content"
        " FROM generate_series(9, 2500) at) made"
    )
    database.execute(
        "INSERT INTO links SELECT 3, sequence, sequence - 1, (sequence + 1) % 2501, size, 0 FROM records WHERE lane = 3"
    )
    database.execute("UPDATE links SET previous = 0 WHERE (lane, sequence) = (3, 9)")
    database.execute(
        "UPDATE lanes SET (head, tail, count, bytes, next_sequence) ="
        " (SELECT 9, 2500, count(*), sum(size), 2501 FROM records WHERE lane = 3) WHERE lane = 3"
    )
    migrate(url)
    assert {problem for problem, _ in problems(url)} == {Problem.DAMAGED_RECORD}  # the checksums are made up
    with open_for_reading(url) as opened:
        assert [link.sequence for link in opened.store.links(3, 0, 3000)] == list(range(9, 2501))


def test_damage_is_carried_over_for_repair_to_see(url: str, database: Connection, tmp_path: Path) -> None:
    at = "WHERE (lane, sequence) = (1, %s)"
    database.execute(f"DELETE FROM links {at}", (5,))
    database.execute(f"DELETE FROM records {at}", (7,))
    database.execute(f"UPDATE records SET content = 'x' {at}", (9,))
    database.execute(f"UPDATE links SET next = 25 {at}", (16,))
    database.execute(f"UPDATE links SET checksum = 1 {at}", (18,))
    database.execute(f"UPDATE links SET size = -1 {at}", (20,))
    database.execute("DELETE FROM lanes WHERE lane = 2")
    migrate(url)
    assert {
        (Problem.BROKEN_NEXT, 5),
        (Problem.BROKEN_PREVIOUS, 5),
        (Problem.DAMAGED_RECORD, 7),
        (Problem.DAMAGED_RECORD, 9),
        (Problem.BROKEN_NEXT, 16),
        (Problem.WRONG_LINK, 18),
        (Problem.WRONG_LINK, 20),
        (Problem.WRONG_COUNT, 0),
    } <= problems(url)
    report = mend(url, tmp_path / "damaged")
    assert (report.damaged, report.lost, report.lanes) == (1, 1, 2)
    with open_for_reading(url) as opened:
        kept = [link.sequence for link in opened.store.links(1, 0, 100)]
    assert kept == [record.sequence for record in sample.records(1) if record.sequence not in (7, 9)]


def test_the_backup_is_the_store_as_it_was(url: str, database: Connection, schema: str) -> None:
    report = migrate(url, clock=ManualClock(1_700_000_000_000))
    assert report.backup == f"{schema}_backup_format2_20231114t221320z"
    backup = url.replace(schema, report.backup)
    store = store_for_url(backup)
    with pytest.raises(StoreOutdated):
        store.open()
    store.close()
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = %s"
    assert database.execute(indexes, (report.backup,)).fetchone() == (9,)
    with open_for_reading(url) as opened:
        expected = list(export(opened.store))
    # It is whole: it can be migrated as the store was.
    migrate(backup, backup=False)
    with open_for_reading(backup) as opened:
        assert list(export(opened.store)) == expected


def test_the_schema_may_be_named_in_the_url(url: str, database: Connection, schema: str) -> None:
    named = url.replace(f"options=-csearch_path%3D{schema}", f"schema={schema}")
    assert migrate(named, clock=ManualClock(0)).backup == f"{schema}_backup_format2_19700101t000000z"
    with open_for_writing(named) as opened:
        opened.maintenance.compact()
        assert sorted(opened.maintenance.lanes()) == sorted(sample.NEXT_SEQUENCES)
    assert findings(named) == findings(url) == []


def test_a_broker_of_the_old_version_keeps_its_store(url: str, database: Connection) -> None:
    database.execute("UPDATE lease SET owner = 'old', expires = extract(epoch FROM clock_timestamp()) + 9")
    for attempt in (migrate, prepare):
        with pytest.raises(StoreLocked, match="old"):
            attempt(url)
    assert format_of(url) == 2
    with closing(store_for_url(url)) as standby:
        assert not standby.try_lock("a standby of this version")
        assert standby.lock_owner() == "old"
    database.execute("UPDATE lease SET expires = extract(epoch FROM clock_timestamp()) - 1")
    assert migrate(url).found == 2
    # One that was only suspended cannot commit: it needs its lease.
    with pytest.raises(psycopg.errors.UndefinedTable):
        database.execute('UPDATE lease SET "commit" = "commit" + 1')


def test_a_killed_migration_leaves_the_store_as_it_was(url: str, database: Connection) -> None:
    program = f"""
import os, signal
from quire.migrations import migrate
from quire.migrations.sql.sql_migration import SqlMigration

run = SqlMigration._run
SqlMigration._run = lambda *arguments: (run(*arguments), os.kill(os.getpid(), signal.SIGKILL))
migrate({url!r})
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    # The server may not have noticed yet that the process is gone.
    database.execute("LOCK TABLE meta IN ACCESS SHARE MODE; COMMIT")
    assert format_of(url) == 2


def test_a_second_migration_has_nothing_to_do(url: str, database: Connection) -> None:
    assert prepare(url) is not None
    assert prepare(url) is None
    assert migrate(url) == MigrationReport(3, 3, ())
