"""The thread that commits: when it puts commits on disk that the store does not put there by itself."""

from queue import SimpleQueue

import pytest

from quire.clock import ManualClock
from quire.errors import QuireError, StoreError
from quire.store.base import Sync, WriteBatch
from quire.store.memory import MemoryStore
from quire.store.writer import SYNC_INTERVAL, GroupCommitWriter


class CountedSyncs(MemoryStore):
    """Counts how often it was told to put everything on disk; it may fail at that."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.error: QuireError | None = None

    def sync(self) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error


class Rig:
    def __init__(self, sync: Sync) -> None:
        self.store, self.clock = CountedSyncs(), ManualClock()
        self.store.open()
        self._ended: SimpleQueue[QuireError | None] = SimpleQueue()
        self.writer = GroupCommitWriter(self.store, sync, self.clock, lambda _, error: self._ended.put(error))
        self.writer.start()

    def next_end(self) -> QuireError | None:
        """The error of the next commit, or of what puts commits on disk."""
        return self._ended.get(timeout=60)

    def commit(self) -> QuireError | None:
        self.writer.submit(WriteBatch())
        return self.next_end()


@pytest.mark.parametrize(("sync", "syncs"), [(Sync.ALWAYS, 0), (Sync.INTERVAL, 1), (Sync.NEVER, 0)])
def test_commits_are_on_disk_within_a_second_if_the_setting_says_so_and_at_the_end(sync: Sync, syncs: int) -> None:
    """A store puts each commit there by itself if that is the setting."""
    rig = Rig(sync)
    for _ in range(3):
        assert rig.commit() is None
    assert rig.store.syncs == 0
    rig.clock.advance(SYNC_INTERVAL)
    for _ in range(2):  # the thread looks at the time before it waits for the next one
        assert rig.commit() is None
    assert rig.store.syncs == syncs
    rig.writer.stop()
    assert rig.store.syncs == syncs + 1


def test_a_disk_that_takes_no_more_is_told_as_a_failed_commit() -> None:
    rig = Rig(Sync.INTERVAL)
    rig.store.error = StoreError("it is gone")
    assert rig.commit() is None
    rig.clock.advance(SYNC_INTERVAL)
    assert rig.commit() is None
    assert rig.next_end() is rig.store.error
    rig.store.error = None
    rig.writer.stop()
