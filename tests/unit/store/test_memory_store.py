"""What the memory store does beyond the conformance suite: failing whole, and not growing with what is gone."""

import pytest

from quire.errors import StoreError
from quire.store.base import StoredDestination, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, remove, sequences


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.open()
    return store


def test_a_batch_that_fails_leaves_nothing(store: MemoryStore) -> None:
    append(store, 1, make_message(1), make_message(2))
    batch = WriteBatch()
    batch.lane(1).appends = [make_message(3, expiration=5)]
    batch.lane(1).removals = [1]
    batch.lane(2).appends = [make_message(1)]
    batch.marks = {"kept": b"", "": b""}
    with pytest.raises(StoreError, match="a mark's key"):
        store.apply(batch)
    assert (sequences(store.page(1, 1, PLENTY, 9)), sequences(store.page(2, 1, PLENTY, 9))) == ([1, 2], [])
    assert (store.expired(9, 9), store.marks(""), store.lane_state(1).next_sequence) == ([], [], 3)


def test_reading_starts_anywhere_after_many_removals(store: MemoryStore) -> None:
    for start in range(1, 2001, 100):
        append(store, 1, *[make_message(sequence, expiration=sequence) for sequence in range(start, start + 100)])
        remove(store, 1, *[sequence for sequence in range(start, start + 100) if sequence % 50])
    for start in range(1, 2002, 7):
        expected = [sequence for sequence in range(50, 2001, 50) if sequence >= start][:3]
        assert sequences(store.page(1, start, PLENTY, 3)) == expected
    assert [entry.sequence for entry in store.expired(1000, 100)] == list(range(50, 1001, 50))


def test_lane_may_begin_anew_after_its_destination(store: MemoryStore) -> None:
    batch = WriteBatch()
    batch.destinations[1] = StoredDestination(1, "queue", "orders", {}, (1,))
    batch.lane(1).appends = [make_message(1, expiration=5)]
    for _ in range(2):
        store.apply(batch)
        assert store.expired(5, 10) == [(5, 1, 1)]
        store.apply(WriteBatch(destinations={1: None}))
        assert store.expired(5, 10) == []
