"""The memory store passes the conformance suite."""

from pathlib import Path

from quire.store.base import Store
from quire.store.memory import MemoryStore
from quire.testing.store_suite import StoreSuite


class TestMemoryStore(StoreSuite):
    def make(self, place: Path) -> Store:
        return MemoryStore()

    def again(self, store: Store) -> Store:
        store.close()
        store.open()
        return store
