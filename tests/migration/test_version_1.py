"""The kept samples of format 1, migrated on every back end that was there then."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, text

from quire.clock import ManualClock
from quire.errors import StoreError, StoreLocked, StoreOutdated, StoreTooNew, StoreUnreachable
from quire.message import Message
from quire.migrations import MigrationReport, migrate, prepare
from quire.migrations.lmdb import STEPS
from quire.migrations.runner import migration_of
from quire.migrations.sql.postgresql_migration import engine_for
from quire.store.base import Delivery, LaneState, WriteBatch, newest_format, walk_producers
from quire.store.maintenance.base import Problem
from quire.store.maintenance.open_store import open_for_reading
from quire.store.maintenance.transfer import export
from quire.store.maintenance.verify import verify
from quire.store.pages import Tables
from quire.store.postgresql.database import Database
from quire.store.urls import store_exists, store_for_url, store_path
from tests.postgresql_server import PostgresqlServer
from tests.samples import make_version_1 as sample
from tests.unit.store.maintained import findings, mend, problems
from tests.unit.store.tampering import PagedTampering

KINDS = ["lmdb", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A copy of a sample, and where it is."""
    if request.param == "lmdb":
        shutil.copytree(sample.LMDB, tmp_path / "store")
    elif request.param == "sqlite":
        shutil.copy(sample.SQLITE, tmp_path / "store")
    else:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        found = server.url_for(tmp_path)
        with server.connect() as connection:
            connection.execute(f"SET search_path TO {server.schema_of(tmp_path)}")
            connection.execute(sample.POSTGRESQL.read_bytes())
        return found
    return f"{request.param}://{tmp_path}/store"


def format_of(url: str) -> int:
    return migrate(url, dry_run=True).found


def set_format(url: str, number: int) -> None:
    if url.startswith("lmdb"):
        with lmdb.open(url[7:], max_dbs=16) as env, env.begin(write=True) as txn:
            txn.put(b"format", str(number).encode(), db=env.open_db(b"meta", txn=txn))
    else:
        with engine_of(url) as engine, engine.begin() as connection:
            connection.execute(text(f"UPDATE meta SET value = '{number}'"))


@contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    path = store_path(url)
    engine = create_engine(f"sqlite:///{path}") if path else engine_for(Database(url))
    yield engine
    engine.dispose()


def test_the_sample_has_format_1_and_is_refused(url: str) -> None:
    assert format_of(url) == 1
    store = store_for_url(url)
    with pytest.raises(StoreOutdated):
        store.open()
    store.close()


def test_everything_is_there_after_the_migration(url: str) -> None:
    report = migrate(url)
    assert (report.found, report.current, len(report.steps)) == (1, newest_format(url), newest_format(url) - 1)
    assert "checksum" in report.steps[0]
    with open_for_reading(url) as opened:
        store = opened.store
        assert list(verify(store, opened.maintenance)) == []
        assert [tuple(found) for found in store.destinations()] == [
            (number, kind, name, settings, tuple(lanes)) for number, kind, name, settings, lanes in sample.DESTINATIONS
        ]
        for lane in sample.REMOVED:
            page = store.page(lane, 0, 10**9, 1000)
            found = [sample.Record(lane, m.sequence, m.expiration, m.priority, m.content) for m in page.messages]
            assert found == sample.records(lane)
            links = store.links(lane, 0, 1000)
            assert {link.sequence: (link.previous, link.next) for link in links} == sample.links(lane)
        for lane in sample.NEXT_SEQUENCES:
            assert store.lane_state(lane) == LaneState(*sample.state(lane))
        assert {(1, at): tuple(state) for at, state in store.deliveries(1, 0, 100)} == sample.DELIVERIES
        assert store.expired(2**62, 100) == [
            (r.expiration, r.lane, r.sequence)
            for r in sorted(sample.records(1), key=lambda r: r.expiration)
            if r.expiration
        ]
        assert dict(walk_producers(opened.store)) == sample.PRODUCERS
        assert dict(opened.store.marks("")) == sample.TRANSACTIONS


def test_a_migrated_store_goes_on(url: str) -> None:
    migrate(url)
    store = store_for_url(url)
    store.open()
    try:
        batch = WriteBatch()
        batch.lane(1).appends.append(Message(31, b"message-id:new\n\n"))
        batch.lane(1).removals += [3, 11, 15, 29]
        batch.lane(1).deliveries[31] = Delivery(1)
        store.apply(batch)
    finally:
        store.close()
    with open_for_reading(url) as opened:
        assert list(verify(opened.store, opened.maintenance)) == []


def test_pages_are_migrated_a_number_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS[2], "_PAGES_AT_ONCE", 2)
    shutil.copytree(sample.LMDB, tmp_path / "store")
    migrate(f"lmdb://{tmp_path}/store")
    with open_for_reading(f"lmdb://{tmp_path}/store") as opened:
        assert list(verify(opened.store, opened.maintenance)) == []
        assert opened.store.lane_state(1).count == len(sample.records(1))


@pytest.mark.slow
def test_rows_are_migrated_a_number_at_a_time(tmp_path: Path) -> None:
    shutil.copy(sample.SQLITE, tmp_path / "store")
    contents = [b"message-id:%d\n\n" % at + b"x" * (3_000_000 if at in (5, 6, 1500) else 1) for at in range(1, 2501)]
    sizes = [len(content) for content in contents]
    with closing(sqlite3.connect(tmp_path / "store")) as connection, connection:
        state = "(head, tail, count, bytes, next_sequence) = (1, 2500, 2500, ?, 2501)"
        connection.execute(f"UPDATE lanes SET {state} WHERE lane = 3", [sum(sizes)])
        rows = [(at, size, content) for at, (size, content) in enumerate(zip(sizes, contents, strict=True), 1)]
        connection.executemany("INSERT INTO records VALUES (3, ?, ?, 0, 4, ?)", rows)
        neighbours = [(at, at - 1, (at + 1) % 2501, size) for at, size, _ in rows]
        connection.executemany("INSERT INTO links VALUES (3, ?, ?, ?, ?)", neighbours)
    migrate(f"sqlite://{tmp_path}/store")
    with open_for_reading(f"sqlite://{tmp_path}/store") as opened:
        assert list(verify(opened.store, opened.maintenance)) == []
        assert opened.store.lane_state(3).count == 2500


def test_damage_is_carried_over_for_repair_to_see(tmp_path: Path) -> None:
    shutil.copytree(sample.LMDB, tmp_path / "store")
    url = f"lmdb://{tmp_path}/store"
    with PagedTampering(url).editing() as (txn, dbs):
        key = sample.KEY.pack(1, 1)
        page = bytearray(txn.get(key, db=dbs.links) or b"")
        sample.ENTRY.pack_into(page, 0, 3, 0, 4, 0, 10**6, 15, 3)  # it stands nowhere
        txn.put(key, bytes(page), db=dbs.links)
        txn.delete(sample.KEY.pack(1, 9), db=dbs.links)
    migrate(url)
    found = problems(url)
    assert {(Problem.DAMAGED_RECORD, 3), (Problem.MISSING_LINK, 9)} <= found
    mend(url)
    with open_for_reading(url) as opened:
        kept = [link.sequence for link in opened.store.links(1, 0, 100)]
    assert kept == sorted({record.sequence for record in sample.records(1)} | {12, 13, 14})


@pytest.mark.slow
@pytest.mark.parametrize("url", KINDS[:2], indirect=True)
def test_a_killed_migration_leaves_the_store_as_it_was(url: str) -> None:
    program = f"""
import os, signal
from quire.migrations import migrate
from quire.migrations.lmdb import lmdb_migration
from quire.migrations.sql.sql_migration import SqlMigration

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

run = SqlMigration._run
SqlMigration._run = lambda *arguments: (run(*arguments), kill())
lmdb_migration.replace_data_file = kill
migrate({url!r}, backup=False)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert format_of(url) == 1
    assert migrate(url, backup=False).found == 1
    assert findings(url) == []


def test_a_second_migration_has_nothing_to_do(url: str) -> None:
    migrate(url)
    assert migrate(url) == MigrationReport(newest_format(url), newest_format(url), ())
    assert prepare(url) is None


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(url: str, tmp_path: Path) -> None:
    report = migrate(url, dry_run=True)
    assert len(report.steps) == newest_format(url) - 1
    assert report.backup == ""
    assert format_of(url) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "store-wal", "store-shm"}


def test_the_backup_is_the_store_as_it_was(url: str) -> None:
    report = migrate(url, clock=ManualClock(1_700_000_000_000))
    if url.startswith("postgresql"):
        own_schema = report.backup.partition("_")[0]
        assert report.backup == f"{own_schema}_backup_format1_20231114t221320z"
        backup = url.replace(own_schema, report.backup)
    else:
        assert report.backup.endswith("/store.backup-format1-20231114T221320Z")
        backup = url.partition(":")[0] + "://" + report.backup
    store = store_for_url(backup)
    with pytest.raises(StoreOutdated):
        store.open()
    store.close()
    with open_for_reading(url) as opened:
        expected = list(export(opened.store))
    # It is whole: it can be migrated as the store was.
    migrate(backup, backup=False)
    with open_for_reading(backup) as opened:
        assert list(export(opened.store)) == expected


def test_no_backup_is_made_if_none_is_wanted(url: str, tmp_path: Path) -> None:
    assert migrate(url, backup=False).backup == ""
    assert not [path for path in tmp_path.iterdir() if "backup" in path.name]


def test_a_start_migrates_and_says_so(url: str) -> None:
    report = prepare(url)
    assert report is not None
    assert report.found == 1
    assert report.backup
    beginning = f"migrated from format 1 to {newest_format(url)}: Every record gets a CRC-32 checksum"
    assert report.sentence("migrated").startswith(beginning)
    assert report.sentence("migrated").endswith(f"; backup: {report.backup}")
    store = store_for_url(url)
    store.open()
    store.close()


@pytest.mark.parametrize("scheme", ["lmdb", "sqlite"])
def test_a_start_without_a_store_has_nothing_to_do(scheme: str, tmp_path: Path) -> None:
    assert prepare("memory:") is None
    assert prepare(f"{scheme}://{tmp_path}/store") is None
    with pytest.raises(StoreUnreachable):
        migrate(f"{scheme}://{tmp_path}/store")
    assert not store_exists(f"{scheme}://{tmp_path}/store")


def test_a_newer_store_is_refused_and_left_alone(url: str) -> None:
    newer = newest_format(url) + 1
    set_format(url, newer)
    for attempt in (migrate, prepare):
        with pytest.raises(StoreTooNew) as raised:
            attempt(url)
        assert raised.value.data["found"] == newer


def test_a_store_in_use_is_not_migrated(url: str) -> None:
    other = store_for_url(url)
    assert other.try_lock("an old broker")
    with pytest.raises(StoreLocked, match="an old broker"):
        migrate(url)
    assert format_of(url) == 1
    # The one who has the lock may.
    assert prepare(url) is not None
    other.close()


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_a_migration_by_another_broker_is_noticed(url: str) -> None:
    place = migration_of(url)
    migrate(url, backup=False)
    with pytest.raises(StoreLocked, match="start again"):
        place.upgrade(1, "")


def test_an_interrupted_migration_leaves_the_store_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        # The last thing a migration does: everything else is done by then.
        patched.setattr("quire.migrations.lmdb.lmdb_migration.replace_data_file", interrupted)
        patched.setattr("quire.migrations.sql.sql_migration.command.upgrade", _then(interrupted))
        with pytest.raises(KeyboardInterrupt):
            migrate(url, clock=ManualClock(0))
    assert format_of(url) == 1
    report = migrate(url)
    assert report.found == 1
    with open_for_reading(url) as opened:
        assert list(verify(opened.store, opened.maintenance)) == []


def _then(interrupted: Callable[[], None]) -> Callable[..., None]:
    upgrade = command.upgrade

    def both(config: Config, revision: str) -> None:
        upgrade(config, revision)
        interrupted()

    return both


def test_a_failed_step_is_told_as_the_stores_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise lmdb.DiskError("no space left")

    shutil.copytree(sample.LMDB, tmp_path / "store")
    monkeypatch.setattr(STEPS[2], "upgrade", full)
    with pytest.raises(StoreError, match="is unchanged: no space left"):
        migrate(f"lmdb://{tmp_path}/store")
    assert format_of(f"lmdb://{tmp_path}/store") == 1


def test_the_lmdb_sample_has_the_databases_of_a_new_store() -> None:
    with lmdb.open(str(sample.LMDB), readonly=True, lock=False, max_dbs=16) as env, env.begin() as txn:
        assert {bytes(name).decode() for name, _ in txn.cursor()} == {"meta", *Tables._fields}
