"""LMDB's errors, and values that make no sense, are typed errors; a store that lost its environment comes back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from quire.errors import StoreCorrupt, StoreError, StoreFull
from quire.store.base import Delivery, StoredDestination, StoreReader, WriteBatch
from quire.store.lmdb import LmdbStore, LmdbTransaction
from quire.store.pages import KEY, LANE
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, fill, remove

Read = Callable[[StoreReader], object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(tmp_path / "store")
    store.open()
    batch = WriteBatch(destinations={1: StoredDestination(1, "queue", "q", {}, (1,))})
    batch.lane(1).appends = [make_message(sequence) for sequence in range(1, 4)]
    batch.lane(1).deliveries = {2: Delivery(1)}
    store.apply(batch)
    yield store
    store.close()


def overwrite(store: LmdbStore, database: str, key: bytes, value: bytes) -> None:
    with store.environment.begin(write=True) as txn:
        assert txn.replace(key, value, db=getattr(store.tables, database)) is not None


@pytest.mark.parametrize(
    ("database", "key", "read"),
    [
        ("destinations", LANE.pack(1), lambda store: store.destinations()),
        ("lanes", LANE.pack(1), lambda store: store.lane_state(1)),
        ("links", KEY.pack(1, 1), lambda store: store.page(1, 0, PLENTY, 9)),
        ("links", KEY.pack(1, 1), lambda store: store.links(1, 0, 9)),
        ("links", KEY.pack(1, 1), lambda store: store.load(1, [1])),
        ("deliveries", KEY.pack(1, 2), lambda store: store.deliveries(1, 0, 9)),
        ("deliveries", KEY.pack(1, 2), lambda store: store.page(1, 0, PLENTY, 9)),
    ],
)
def test_a_value_that_makes_no_sense_is_damage(store: LmdbStore, database: str, key: bytes, read: Read) -> None:
    overwrite(store, database, key, b"\xffnonsense")
    with pytest.raises(StoreCorrupt):
        read(store)


def test_a_commit_that_meets_one_changes_nothing(store: LmdbStore) -> None:
    overwrite(store, "lanes", LANE.pack(1), b"\xffnonsense")
    with pytest.raises(StoreCorrupt):
        remove(store, 1, 2)
    fill(store, 2, 1)
    assert store.lane_state(2).count == 1


def test_a_link_that_leads_nowhere_is_damage(store: LmdbStore) -> None:
    append(store, 1, make_message(4))
    with store.environment.begin(write=True) as txn:
        assert txn.delete(KEY.pack(1, 1), db=store.tables.links)
    with pytest.raises(StoreCorrupt) as caught:
        remove(store, 1, 4)
    assert caught.value.data == {"lane": 1, "sequence": 3}


def test_a_store_whose_environment_could_not_be_opened_again_is_opened_at_the_next_commit(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.environment.close()

    def refuse(*args: Any, **options: Any) -> None:
        raise lmdb.Error("/store: Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(lmdb, "open", refuse)
        for _ in range(2):
            with pytest.raises(StoreError, match="Too many open files"):
                remove(store, 1, 1)
        with pytest.raises(StoreError):
            store.lane_state(1)
    remove(store, 1, 1)
    assert store.lane_state(1).count == 2


def test_a_full_table_of_readers_is_a_typed_error(store: LmdbStore) -> None:
    readers = [store.environment.begin(buffers=True) for _ in range(126)]
    with pytest.raises(StoreError, match="MDB_READERS_FULL"):
        store.lane_state(1)
    readers.pop().abort()
    assert store.lane_state(1).count == 3
    for reader in readers:
        reader.abort()


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded"])
def test_a_disk_without_space_is_told_from_other_failures(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    failures = [lmdb.Error(f"mdb_txn_commit: {text}"), lmdb.Error("mdb_txn_commit: Permission denied")]

    def fail(txn: LmdbTransaction, batch: WriteBatch) -> None:
        raise failures.pop(0)

    monkeypatch.setattr(store, "_write", fail)
    with pytest.raises(StoreFull):
        remove(store, 1, 1)
    with pytest.raises(StoreError) as caught:
        remove(store, 1, 1)
    assert caught.value.code == "store-failed"


def test_what_removed_records_left_is_free_until_new_ones_take_it(store: LmdbStore) -> None:
    append(store, 1, *[make_message(sequence, 10_000) for sequence in range(4, 104)])
    before = store.free()
    remove(store, 1, *range(4, 104))
    assert store.free() - before > 900_000
    append(store, 1, *[make_message(sequence, 10_000) for sequence in range(104, 204)])
    append(store, 1, *[make_message(sequence, 10_000) for sequence in range(204, 254)])
    assert store.free() < 900_000


def test_the_table_of_readers_has_its_space_before_lmdb_maps_it(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "new")
    store.open()
    table = (tmp_path / "new" / "lock.mdb").stat()
    assert table.st_blocks * 512 >= table.st_size == 8192
    store.close()
