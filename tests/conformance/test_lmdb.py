"""The LMDB store passes the conformance suite."""

from pathlib import Path

import pytest

from quire.store.base import Store, Sync
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


@pytest.mark.parametrize("sync", list(Sync))
def test_a_commit_is_on_disk_when_it_ends_if_the_setting_says_so(tmp_path: Path, sync: Sync) -> None:
    """Only a power failure shows it otherwise: the operating system writes what a killed process has written."""
    for _ in range(2):  # made, and opened again
        store = LmdbStore(tmp_path, sync)
        store.open()
        flags = store.environment.flags()
        assert (flags["sync"], flags["metasync"]) == (sync is Sync.ALWAYS, sync is Sync.ALWAYS)
        store.close()
