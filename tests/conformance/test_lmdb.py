"""The LMDB store passes the conformance suite."""

from pathlib import Path

from quire.store.base import Store
from quire.store.lmdb import LmdbStore
from quire.testing.store_suite import SharedStoreSuite


class TestLmdbStore(SharedStoreSuite):
    def make(self, place: Path) -> Store:
        return LmdbStore(place)

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        """Change the content where the file has it: LMDB keeps no checksum of its pages."""
        content = store.load(lane, [sequence])[0].content
        with (self._place / "data.mdb").open("r+b") as file:
            data = file.read()
            assert data.count(content) == 1
            file.seek(data.index(content))
            file.write(b"X")

    def break_down(self, store: Store) -> None:
        """Close the environment, as a write does that LMDB cannot take back."""
        assert isinstance(store, LmdbStore)
        store.environment.close()
