"""What the SQL store does on SQLite beyond the conformance suite: files, formats, errors, durability, cost."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from quire.errors import StoreCorrupt, StoreError, StoreFull, StoreOutdated, StoreTooNew, StoreUnreachable
from quire.store.base import FORMAT_VERSION, Expiration, LaneState, Sync, WriteBatch
from quire.store.sql.sqlite import Sqlite
from quire.store.sql.store import SqlStore
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, fill, remove, sequences


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new directory" / "quire.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = SqlStore(f"sqlite://{path}".replace(" ", "%20"))
    store.open()
    yield store
    store.close()


def execute(path: Path, statement: str) -> list[Any]:
    """Run a statement behind the store's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_open_makes_directory_and_tables(store: SqlStore, path: Path) -> None:
    assert execute(path, "SELECT value FROM meta WHERE key = 'format'") == [(str(FORMAT_VERSION),)]
    assert execute(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize(("version", "error"), [(FORMAT_VERSION + 1, StoreTooNew), (1, StoreOutdated)])
def test_other_format_is_refused(store: SqlStore, path: Path, version: int, error: type[StoreError]) -> None:
    store.close()
    execute(path, f"UPDATE meta SET value = '{version}'")
    with pytest.raises(error) as caught:
        store.open()
    assert caught.value.data["found"] == version
    with pytest.raises(StoreError, match="closed"):
        store.lane_state(1)


def test_what_is_no_database_cannot_be_opened(tmp_path: Path) -> None:
    place = tmp_path / "text"
    place.write_text("this is no database, and long enough to be looked at " * 20)
    for path in (place, place / "below a file", tmp_path):
        with pytest.raises(StoreUnreachable, match=str(path)):
            SqlStore(f"sqlite://{path}").open()


def test_full_disk(tmp_path: Path) -> None:
    """SQLite itself refuses to grow the file, as it does when the disk is full."""

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 60")

    event.listen(Engine, "connect", limit)
    store = SqlStore(f"sqlite://{tmp_path}/quire.db")
    try:
        store.open()
        fill(store, 1, 3)
        with pytest.raises(StoreFull) as caught:
            append(store, 1, *[make_message(sequence, 1000) for sequence in range(4, 504)])
        assert "message-id" not in str(caught.value)
        assert store.lane_state(1) == LaneState(1, 3, 3, 120, 4)
        remove(store, 1, 1)
        append(store, 1, make_message(4))
        assert sequences(store.page(1, 1, PLENTY, 9)) == [2, 3, 4]
    finally:
        event.remove(Engine, "connect", limit)
        store.close()


def test_error_does_not_show_messages(store: SqlStore) -> None:
    fill(store, 1, 3)
    with pytest.raises(StoreError) as caught:
        append(store, 1, make_message(3))
    assert caught.value.code == "store-failed"
    assert "message-id" not in str(caught.value)


def test_linked_record_that_is_gone_is_told(store: SqlStore, path: Path) -> None:
    fill(store, 1, 5)
    execute(path, "DELETE FROM records WHERE sequence = 3")
    with pytest.raises(StoreCorrupt) as caught:
        store.page(1, 1, PLENTY, 9)
    assert caught.value.data == {"lane": 1, "sequence": 3}


def test_damaged_file_is_told(store: SqlStore, path: Path) -> None:
    fill(store, 1, 2000)
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorrupt):
        store.open()


@pytest.mark.parametrize(("sync", "synchronous"), [(Sync.ALWAYS, 2), (Sync.INTERVAL, 1), (Sync.NEVER, 1)])
def test_sync_setting(tmp_path: Path, sync: Sync, synchronous: int) -> None:
    backend = Sqlite(f"{tmp_path}/quire.db", sync)
    with backend.writer.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
    backend.writer.dispose()


@pytest.mark.parametrize("sync", list(Sync))
def test_sync_at_any_time(tmp_path: Path, sync: Sync) -> None:
    store = SqlStore(f"sqlite://{tmp_path}/quire.db", sync)
    store.open()
    store.sync()
    fill(store, 1, 3)
    store.sync()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.sync()


def test_lock_before_open(path: Path) -> None:
    """A standby waits for the lock before it opens the store."""
    first, second = (SqlStore(f"sqlite://{path}".replace(" ", "%20")) for _ in range(2))
    assert first.try_lock("one")
    assert not second.try_lock("two")
    first.open()
    first.close()
    assert second.try_lock("two")
    second.close()


def test_another_store_reads_and_writes_nothing_on_opening(store: SqlStore, path: Path) -> None:
    """A tool may open the store of a running broker, even while a commit is under way."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        fill(store, 1, 2)
        connection.execute("BEGIN IMMEDIATE")
        other = SqlStore(store.url)
        other.open()
        assert sequences(other.page(1, 1, PLENTY, 9)) == [1, 2]
        other.close()
        connection.execute("ROLLBACK")


def test_open_snapshot_does_not_hold_up_commits(store: SqlStore) -> None:
    fill(store, 1, 2)
    with store.snapshot() as one, store.snapshot() as two:
        for sequence in range(3, 20):
            append(store, 1, make_message(sequence))
        assert one.lane_state(1) == two.lane_state(1) == LaneState(1, 2, 2, 80, 3)


def test_other_process_cannot_come_between(store: SqlStore, path: Path) -> None:
    """A commit is the only writer from its first read on, or SQLite would refuse its first write."""
    refusals = []

    def interfere(*call: Any) -> None:
        if call[2].startswith("INSERT INTO records"):
            with closing(sqlite3.connect(path, timeout=0)) as other:
                try:
                    other.execute("INSERT INTO producers VALUES ('other', 1)")
                except sqlite3.OperationalError as refusal:
                    refusals.append(str(refusal))

    event.listen(Engine, "before_cursor_execute", interfere)
    fill(store, 1, 1)
    event.remove(Engine, "before_cursor_execute", interfere)
    assert refusals == ["database is locked"]
    assert store.lane_state(1).count == 1


def updates_of_links(store: SqlStore, batch: WriteBatch) -> int:
    """How many links of other records a batch changes."""
    changed = 0

    def count(*call: Any) -> None:
        nonlocal changed
        _, _, statement, parameters, _, executemany = call
        if statement.startswith("UPDATE links"):
            changed += len(parameters) if executemany else 1

    event.listen(Engine, "before_cursor_execute", count)
    store.apply(batch)
    event.remove(Engine, "before_cursor_execute", count)
    return changed


@pytest.mark.parametrize("run", [1, 2, 500])
def test_run_of_neighbours_costs_two_link_updates(store: SqlStore, run: int) -> None:
    fill(store, 1, 1000)
    remove(store, 1, 300)
    removal, appending = WriteBatch(), WriteBatch()
    removal.lane(1).removals = list(range(299, 299 + run + 1))
    appending.lane(1).appends = [make_message(sequence) for sequence in range(1001, 1001 + run)]
    assert updates_of_links(store, removal) == 2
    assert updates_of_links(store, appending) == 1


def test_the_index_of_expirations_is_read_on_from_an_entry_not_from_its_head(store: SqlStore, path: Path) -> None:
    append(store, 1, *[make_message(sequence, expiration=sequence) for sequence in range(1, 2001)])
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, text: str, values: Any, *_: Any) -> None:
        statements.append((text, values))

    event.listen(store.backend.reader, "before_cursor_execute", note)
    assert store.expired(5000, 5, Expiration(1990, 1, 1990)) == [(at, 1, at) for at in range(1991, 1996)]
    ((text, values),) = [(text, values) for text, values in statements if "expiration" in text]
    work = 0

    def count() -> int:
        nonlocal work
        work += 1
        return 0

    with closing(sqlite3.connect(path)) as connection:
        connection.set_progress_handler(count, 10)
        connection.execute(text, values).fetchall()
    assert work < 50
