"""What the tests of the conformance suite share: how a store is made, and short ways to write to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Delivery, Page, Store, WriteBatch
from quire.testing.store_model import make_message

PLENTY = 1 << 40
"""A budget that everything fits into."""


def append(store: Store, lane: int, *messages: Message) -> None:
    """Append messages in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).appends = list(messages)
    store.apply(batch)


def remove(store: Store, lane: int, *sequences: int) -> None:
    """Remove records in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).removals = list(sequences)
    store.apply(batch)


def fill(store: Store, lane: int, count: int, size: int = 40) -> None:
    """Append records 1 to ``count``."""
    append(store, lane, *[make_message(sequence, size) for sequence in range(1, count + 1)])


def set_states(store: Store, lane: int, states: dict[int, Delivery | None]) -> None:
    """Set delivery states in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).deliveries = states
    store.apply(batch)


def sequences(page: Page) -> list[int]:
    """The sequences a page has."""
    return [message.sequence for message in page.messages]


def charge(*sizes: int) -> int:
    """The budget that records of these sizes take."""
    return sum(sizes) + MESSAGE_OVERHEAD * len(sizes)


class StoreCase:
    """Makes stores for tests and closes them. Override ``make``; ``again`` and ``damage`` if needed."""

    _place: Path
    _stores: list[Store]

    def make(self, place: Path) -> Store:
        """Make a store, not opened, at a path where nothing is yet; the same path again means the same data."""
        raise NotImplementedError("override make")

    def again(self, store: Store) -> Store:
        """Close a store and give an open one on the same data, as after a restart."""
        store.close()
        return self._open(self._place)

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        """Change a byte of a record's content behind the store's back."""
        pytest.skip("this store gives no way to damage a record: override damage")

    def break_down(self, store: Store) -> None:
        """Break what an open store stands on: its file, its environment, its tables."""
        pytest.skip("this store stands on nothing that could break: override break_down")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An open, empty store, closed after the test."""
        self._stores = []
        self._place = tmp_path / "store"
        yield self._open(self._place)
        for store in self._stores:
            store.close()

    def _open(self, place: Path) -> Store:
        store = self.make(place)
        store.open()
        self._stores.append(store)
        return store
