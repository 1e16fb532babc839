"""What the SQLite store does beyond the conformance suite: files, formats, errors, cost."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quire.errors import StoreCorrupt, StoreError, StoreFull, StoreOutdated, StoreTooNew, StoreUnreachable
from quire.message import MESSAGE_OVERHEAD
from quire.store.base import SQL_FORMAT, Delivery, Expiration, LaneState, WriteBatch
from quire.store.sqlite import SqliteStore
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, fill, remove, sequences


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new directory" / "quire.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    store.open()
    yield store
    store.close()


def execute(path: Path, statement: str) -> list[Any]:
    """Run a statement behind the store's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_open_makes_directory_and_tables(store: SqliteStore, path: Path) -> None:
    assert execute(path, "SELECT value FROM meta WHERE key = 'format'") == [(str(SQL_FORMAT),)]
    assert execute(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize(("version", "error"), [(SQL_FORMAT + 1, StoreTooNew), (1, StoreOutdated)])
def test_other_format_is_refused(store: SqliteStore, path: Path, version: int, error: type[StoreError]) -> None:
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
            SqliteStore(path).open()


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses to grow the file, as it does when the disk is full."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def limited(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 60")
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    store = SqliteStore(tmp_path / "quire.db")
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
        store.close()


def test_damaged_file_is_told(store: SqliteStore, path: Path) -> None:
    fill(store, 1, 2000)
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorrupt):
        store.open()


def test_lock_before_open(path: Path) -> None:
    """A standby waits for the lock before it opens the store."""
    first, second = (SqliteStore(path) for _ in range(2))
    assert first.try_lock("one")
    assert not second.try_lock("two")
    first.open()
    first.close()
    assert second.try_lock("two")
    second.close()


def test_another_store_reads_and_writes_nothing_on_opening(store: SqliteStore, path: Path) -> None:
    """A tool may open the store of a running broker, even while a commit is under way."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        fill(store, 1, 2)
        connection.execute("BEGIN IMMEDIATE")
        other = SqliteStore(path)
        other.open()
        assert sequences(other.page(1, 1, PLENTY, 9)) == [1, 2]
        other.close()
        connection.execute("ROLLBACK")


def test_open_snapshot_does_not_hold_up_commits(store: SqliteStore) -> None:
    fill(store, 1, 2)
    with store.snapshot() as one, store.snapshot() as two:
        for sequence in range(3, 20):
            append(store, 1, make_message(sequence))
        assert one.lane_state(1) == two.lane_state(1) == LaneState(1, 2, 2, 80, 3)


def test_other_process_cannot_come_between(store: SqliteStore, path: Path) -> None:
    """A commit is the only writer from its first read on, or SQLite would refuse its first write."""
    fill(store, 1, 1)
    with store.writing() as txn, closing(sqlite3.connect(path, timeout=0)) as other:
        assert txn.get(b"", db=store.tables.producers) is None
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            other.execute("INSERT INTO producers VALUES (x'00', x'00')")
    assert store.lane_state(1).count == 1


def test_a_read_that_ends_early_keeps_no_old_view(store: SqliteStore, path: Path) -> None:
    """A scan that an error leaves open would: its connection is used again, and checkpoints wait for it."""
    append(store, 1, *[make_message(sequence, 60_000) for sequence in (1, 2, 3)])
    left = []
    with store.snapshot() as reader:
        left.append(reader.txn.scan(b"", db=store.tables.links))  # type: ignore[attr-defined]
        next(left[0])
    append(store, 1, make_message(4))
    assert store.lane_state(1).count == 4
    with closing(sqlite3.connect(path)) as other:
        busy, logged, moved = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (busy, logged, moved) == (0, 0, 0)


def test_a_commit_that_fails_in_a_scan_does_not_keep_the_next_one_from_writing(store: SqliteStore, path: Path) -> None:
    append(store, 1, *[make_message(sequence) for sequence in (1, 2, 3)])
    batch = WriteBatch()
    batch.lane(1).deliveries = {sequence: Delivery(1) for sequence in (1, 2, 3)}
    store.apply(batch)
    scans = []

    def fail() -> None:
        with store.writing() as txn:
            scans.append(txn.scan(b"", db=store.tables.deliveries))  # as the frames of an error keep it
            next(scans[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with closing(SqliteStore(path)) as other:
        other.open()
        append(other, 1, make_message(4))
    append(store, 1, make_message(5))
    assert (len(scans), store.lane_state(1).count) == (1, 5)


def test_a_read_that_ends_after_closing_leaves_no_connection_open(store: SqliteStore, path: Path) -> None:
    fill(store, 1, 1)
    with store.snapshot() as reader:
        store.close()
        assert reader.lane_state(1).count == 1
    assert not Path(f"{path}-wal").exists()  # the last connection removes it


def statements_of(store: SqliteStore, call: Callable[[], object]) -> list[str]:
    """The statements of a call on the connection that writes, or on one that reads."""
    seen: list[str] = []
    connections = [store._writer, *store._readers]
    for connection in connections:
        assert connection is not None
        connection.set_trace_callback(seen.append)
    call()
    for connection in connections:
        assert connection is not None
        connection.set_trace_callback(None)
    return seen


@pytest.mark.parametrize("run", [1, 2, 500])
def test_a_run_of_neighbours_costs_its_pages_and_the_two_beside_it(store: SqliteStore, run: int) -> None:
    """An append writes a page of links and one of bodies, the page before it, and the lane's state."""
    for first in (1, 501, 1001):
        append(store, 1, *[make_message(sequence) for sequence in range(first, first + 500)])
    store.lane_state(1)

    def writes(call: Callable[[], None]) -> list[str]:
        found = [text.split("(")[0] for text in statements_of(store, call) if text.startswith(("REPLACE", "DELETE"))]
        return [text.split(" WHERE")[0].strip() for text in found]

    removed = writes(lambda: remove(store, 1, *range(501, 501 + run)))
    if run == 500:
        gone = ["DELETE FROM bodies", "DELETE FROM links"]
        assert sorted(removed) == [*gone, *["REPLACE INTO lanes VALUES"], *["REPLACE INTO links VALUES"] * 2]
    else:
        assert sorted(removed) == ["REPLACE INTO lanes VALUES", *["REPLACE INTO links VALUES"] * 2]
    appended = writes(lambda: append(store, 1, *[make_message(at) for at in range(1501, 1501 + run)]))
    assert sorted(appended) == [
        "REPLACE INTO bodies VALUES", "REPLACE INTO lanes VALUES", *["REPLACE INTO links VALUES"] * 2,
    ]  # fmt: skip


def test_an_index_is_read_on_from_an_entry_not_from_its_head(store: SqliteStore) -> None:
    append(store, 1, *[make_message(sequence, expiration=sequence) for sequence in range(1, 2001)])
    batch = WriteBatch()
    batch.lane(1).deliveries = {sequence: Delivery(1) for sequence in range(1, 2001)}
    store.apply(batch)
    work = 0

    def count() -> int:
        nonlocal work
        work += 1
        return 0

    store.lane_state(1)
    store._readers[0].set_progress_handler(count, 10)
    assert store.expired(5000, 5, Expiration(1990, 1, 1990)) == [(at, 1, at) for at in range(1991, 1996)]
    assert [at for at, _ in store.deliveries(1, 1990, 2)] == [1990, 1991]
    page = store.page(1, 1990, 3 * (MESSAGE_OVERHEAD + 40), 9)
    assert [message.deliveries for message in page.messages] == [1, 1, 1]
    assert work < 50


def test_a_page_is_found_among_many_without_a_scan(store: SqliteStore) -> None:
    for sequence in range(1, 301):
        append(store, 1, make_message(sequence))
    store.lane_state(1)
    work = 0

    def count() -> int:
        nonlocal work
        work += 1
        return 0

    store._readers[0].set_progress_handler(count, 1)
    assert [link.sequence for link in store.links(1, 150, 1)] == [150]
    assert work < 100
