"""The faulty store fails where it was told to, and nowhere else."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quire.errors import InvalidArgument, StoreCorrupt, StoreError, StoreFull, UnknownMessage
from quire.store.base import Store
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.store.sqlite import SqliteStore
from quire.testing.faults import FaultyStore, Point, io_error, no_space, tear
from quire.testing.store_model import make_message
from quire.testing.store_suite import append


@pytest.fixture(params=["lmdb", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = LmdbStore(tmp_path / "store") if request.param == "lmdb" else SqliteStore(tmp_path / "s.db")
    store.open()
    yield store
    store.close()


def send(store: Store, *sequences: int) -> None:
    append(store, 1, *[make_message(sequence) for sequence in sequences])


@pytest.mark.parametrize("point", [Point.BEFORE, Point.INSIDE])
def test_planned_commits_fail_whole_and_the_others_do_not(store: Store, point: Point) -> None:
    faulty = FaultyStore(store)
    send(faulty, 1)
    faulty.at(point, 2, no_space, times=2)
    send(faulty, 2)
    for _ in range(2):
        with pytest.raises(StoreFull):
            send(faulty, 3)
        assert faulty.lane_state(1).tail == 2
    send(faulty, 3)
    assert faulty.lane_state(1).count == 3
    assert faulty.commits == 5


def test_inside_is_after_the_writes_and_before_the_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    store.open()
    faulty = FaultyStore(store)
    seen = []

    def look() -> None:
        locked = pytest.raises(sqlite3.OperationalError, match="locked")  # our transaction is writing
        with closing(sqlite3.connect(f"{tmp_path}/s.db", timeout=0)) as other, locked:
            other.execute("BEGIN IMMEDIATE")
        seen.append(store.lane_state(1).count)

    faulty.at(Point.INSIDE, 1, look)
    faulty.at(Point.AFTER, 1, lambda: seen.append(store.lane_state(1).count))
    send(faulty, 1)
    assert seen == [0, 1]
    store.close()


def test_mended_store_fails_no_more(store: Store) -> None:
    faulty = FaultyStore(store)
    faulty.at(Point.BEFORE, 1, io_error)
    faulty.mend()
    send(faulty, 1)
    assert faulty.lane_state(1).count == 1


def test_planned_reads_fail_and_the_others_do_not(store: Store) -> None:
    faulty = FaultyStore(store)
    send(faulty, 1)
    faulty.at_read(2, times=2)
    assert faulty.lane_state(1).count == 1
    with pytest.raises(StoreError):
        faulty.page(1, 0, 1000, 1)
    with faulty.snapshot() as reader:
        with pytest.raises(StoreError):
            reader.mark("x")
        assert reader.links(1, 0, 1)[0].sequence == 1
    assert faulty.reads == 4


def test_store_that_is_not_ours_has_no_inside() -> None:
    with pytest.raises(InvalidArgument):
        FaultyStore(FaultyStore(MemoryStore())).at(Point.INSIDE, 1, io_error)


def test_torn_record_cannot_be_read_and_the_others_can(store: Store) -> None:
    send(store, 1, 2, 3)
    tear(store, 1, 2)
    with pytest.raises(StoreCorrupt) as raised:
        store.load(1, [2])
    assert raised.value.data == {"lane": 1, "sequence": 2}
    assert [message.sequence for message in store.load(1, [1, 3])] == [1, 3]


def test_record_that_is_not_there_cannot_be_torn(store: Store) -> None:
    with pytest.raises(UnknownMessage):
        tear(store, 1, 1)


def test_store_that_is_not_ours_has_nothing_to_tear() -> None:
    store = FaultyStore(MemoryStore())
    store.open()
    send(store, 1)
    with pytest.raises(InvalidArgument):
        tear(store, 1, 1)


def test_everything_else_is_the_store_underneath(store: Store) -> None:
    faulty = FaultyStore(store)
    assert faulty.url == store.url
    assert faulty.try_lock("me")
    assert (store.lock_owner(), faulty.lock_owner(), faulty.check_lock()) == ("me", "me", True)
    faulty.unlock()
    assert not faulty.check_lock()
    send(faulty, 1)
    faulty.sync()
    assert faulty.size() == store.size() > 0
    faulty.close()
    with pytest.raises(StoreError):
        store.lane_state(1)
    faulty.open()
    assert faulty.lane_state(1).count == 1
