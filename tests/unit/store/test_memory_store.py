"""What the memory store does beyond the conformance suite: sharing contents, and not growing with what is gone."""

import pytest

from quire.store.base import StoredDestination, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.store_model import make_message
from quire.testing.store_suite import PLENTY, append, remove, sequences


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.open()
    return store


def test_messages_are_fresh_and_contents_shared(store: MemoryStore) -> None:
    sent = make_message(1)
    append(store, 1, sent)
    first, second = store.page(1, 1, PLENTY, 1).messages[0], store.load(1, [1])[0]
    assert len({id(sent), id(first), id(second)}) == 3
    assert sent.content is first.content is second.content


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
