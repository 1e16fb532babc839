"""What is on disk when: ``store.sync`` as Linux sees it, by the pages of the files that are still to be written.

``cachestat`` tells how many pages of a file's cache are dirty, or on their way to the disk.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.clock import SystemClock
from quire.errors import StoreError
from quire.store.base import Store, Sync, WriteBatch
from quire.store.urls import store_for_url
from quire.store.writer import SYNC_INTERVAL, GroupCommitWriter
from quire.testing.store_model import make_message
from quire.testing.store_suite import append, fill, remove

_CACHESTAT = 451


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Found(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


def unwritten(file: Path) -> int:
    """How many pages of a file are not on disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        whole, found = _Range(0, 0), _Found()
        if libc.syscall(_CACHESTAT, descriptor, ctypes.byref(whole), ctypes.byref(found), 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(found.dirty + found.writeback)
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module", autouse=True)
def told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Only some systems and file systems tell what is on disk."""
    file = tmp_path_factory.mktemp("sync") / "file"
    file.write_bytes(b"x" * 100_000)
    try:
        if not unwritten(file):
            pytest.skip("the system wrote a file at once")
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            pytest.skip(f"the system does not tell what is on disk: {error}")
        raise
    with file.open("rb") as opened:
        os.fsync(opened)
    if unwritten(file):
        pytest.skip("the file system has no disk")


class Place:
    """A store and its files."""

    def __init__(self, kind: str, directory: Path, sync: Sync) -> None:
        self.store: Store = store_for_url(f"{kind}://{directory}/store", sync)
        self._names = ["store/data.mdb"] if kind == "lmdb" else ["store", "store-wal"]
        self._directory = directory

    def unwritten(self) -> int:
        """How many pages of its files are not on disk."""
        return sum([unwritten(self._directory / name) for name in self._names])


@pytest.fixture(params=["lmdb", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[Place]:
    place = Place(kind, tmp_path, request.param)
    place.store.open()
    place.store.sync()
    assert place.unwritten() == 0
    yield place
    place.store.close()


@pytest.mark.parametrize("place", [Sync.ALWAYS], indirect=True)
def test_always_has_each_commit_on_disk_before_it_returns(place: Place) -> None:
    for sequence in range(1, 20):
        append(place.store, 1, make_message(sequence, 1000))
        assert place.unwritten() == 0
    remove(place.store, 1, 1, 5, 6)
    assert place.unwritten() == 0
    place.store.apply(WriteBatch(marks={"m": b"x" * 100_000}, producers={"p": 1}))
    assert place.unwritten() == 0


@pytest.mark.parametrize("place", [Sync.INTERVAL, Sync.NEVER], indirect=True)
def test_the_weaker_settings_wait_for_sync(place: Place) -> None:
    append(place.store, 1, make_message(1, 1000))
    assert place.unwritten() > 0
    place.store.sync()
    assert place.unwritten() == 0
    place.store.sync()
    place.store.close()
    with pytest.raises(StoreError, match="closed"):
        place.store.sync()


@pytest.mark.slow
@pytest.mark.parametrize("place", [Sync.INTERVAL], indirect=True)
def test_interval_has_a_commit_on_disk_within_a_second_or_two(place: Place) -> None:
    """The writer does it: nobody else asks."""
    committed = threading.Event()
    writer = GroupCommitWriter(place.store, Sync.INTERVAL, SystemClock(), lambda batch, error: committed.set())
    writer.start()
    batch = WriteBatch()
    batch.lane(1).appends = [make_message(1, 1000)]
    writer.submit(batch)
    assert committed.wait(10)
    waiting = threading.Event()
    for _ in range(100):
        if not place.unwritten():
            break
        waiting.wait(SYNC_INTERVAL / 10)
    assert place.unwritten() == 0
    writer.stop()


@pytest.mark.parametrize("place", [Sync.NEVER], indirect=True)
def test_a_clean_stop_leaves_everything_on_disk(place: Place, kind: str) -> None:
    writer = GroupCommitWriter(place.store, Sync.NEVER, SystemClock(), lambda batch, error: None)
    writer.start()
    batch = WriteBatch()
    batch.lane(1).appends = [make_message(1, 1000)]
    writer.submit(batch)
    writer.stop()
    assert place.unwritten() == 0
    fill(place.store, 2, 1)
    assert place.unwritten() > 0
