"""The disk under a store: its room, and the reserve that is cut when it is full and made whole when there is space."""

import os
from pathlib import Path

import pytest

from quire.errors import StoreError
from quire.store.disk import MAX_RESERVE, Disk, free_bytes
from quire.store.memory import MemoryStore

LIMIT = 1 << 20
RESERVE = LIMIT // 4
FOR_START = RESERVE // 4


class FileStore(MemoryStore):
    """A store with a file beside it, and some space left free inside.

    Attributes:
        inside: that space; None if it cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.reserve_file = directory / "reserve"
        self.inside: int | None = 0

    def free(self) -> int:
        if self.inside is None:
            raise StoreError("the store is closed")
        return self.inside


class Rig:
    """A disk of which a test says what is free.

    Attributes:
        free: what is free beside the reserve.
    """

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self.store = FileStore(directory)
        self.free = 10 * LIMIT
        self.disk = Disk(self.store, limit, lambda looked_at: self.free if looked_at == directory else 0)
        self.file = directory / "reserve"

    def look(self) -> None:
        self.disk.look()
        self.disk.refill()

    @property
    def allocated(self) -> int:
        return self.file.stat().st_blocks * 512


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_reserve_is_a_quarter_of_the_limit_and_really_allocated(rig: Rig) -> None:
    rig.look()
    assert (rig.disk.reserved, rig.file.stat().st_size) == (RESERVE, RESERVE)
    assert rig.allocated >= RESERVE


def test_a_large_limit_keeps_no_larger_reserve(tmp_path: Path) -> None:
    rig = Rig(tmp_path, limit=100 * MAX_RESERVE)
    assert rig.disk._size == MAX_RESERVE


def test_room_is_what_is_free_on_the_disk_in_the_reserve_and_in_the_store(rig: Rig) -> None:
    rig.look()
    rig.free, rig.store.inside = 1000, 200
    rig.disk.look()
    assert rig.disk.room == 1000 + RESERVE + 200


def test_a_disk_is_low_below_its_limit(rig: Rig) -> None:
    rig.look()
    rig.free = LIMIT - RESERVE
    rig.disk.look()
    assert not rig.disk.is_low
    rig.free -= 1
    rig.disk.look()
    assert rig.disk.is_low


def test_a_drained_store_on_a_full_disk_has_room(rig: Rig) -> None:
    rig.free, rig.store.inside = 0, LIMIT
    rig.disk.look()
    assert not rig.disk.is_low


def test_a_store_that_cannot_be_read_has_no_room_inside(rig: Rig) -> None:
    rig.free, rig.store.inside = 1000, None
    rig.disk.look()
    assert rig.disk.room == 1000


def test_a_full_disk_gets_the_reserve_back_but_for_what_a_start_needs(rig: Rig) -> None:
    rig.look()
    assert rig.disk.release() == RESERVE - FOR_START
    assert (rig.disk.reserved, rig.file.stat().st_size) == (FOR_START, FOR_START)
    assert rig.allocated < RESERVE


def test_if_that_is_not_enough_the_rest_is_given_back_too(rig: Rig) -> None:
    rig.look()
    rig.disk.release()
    assert rig.disk.release() == FOR_START
    assert rig.disk.release() == 0
    assert rig.disk.reserved == 0


def test_the_reserve_is_whole_again_only_when_there_is_plenty(rig: Rig) -> None:
    rig.look()
    rig.disk.release()
    rig.free = LIMIT - 1
    rig.look()
    assert rig.disk.reserved == FOR_START
    rig.free = LIMIT
    rig.look()
    assert rig.disk.reserved == RESERVE


def test_of_a_little_space_half_is_kept_for_the_next_start(rig: Rig) -> None:
    rig.free = FOR_START // 2
    rig.look()
    assert rig.disk.reserved == FOR_START // 4
    rig.look()
    assert rig.disk.reserved < FOR_START // 2


def test_a_start_with_little_space_gets_the_whole_reserve(rig: Rig) -> None:
    rig.look()
    rig.free = RESERVE - 1
    again = Rig(rig.file.parent)
    again.free = RESERVE - 1
    assert again.disk.prepare() == RESERVE
    assert again.file.stat().st_size == 0


def test_a_start_with_enough_space_leaves_the_reserve_alone(rig: Rig) -> None:
    rig.look()
    again = Rig(rig.file.parent)
    again.free = RESERVE
    assert again.disk.prepare() == 0
    assert again.disk.reserved == RESERVE


def test_a_reserve_that_cannot_be_made_stays_as_it_was(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.look()
    rig.disk.release()

    def full(file: int, offset: int, size: int) -> None:
        os.ftruncate(file, size - 1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        rig.look()
    assert (rig.disk.reserved, rig.file.stat().st_size) == (FOR_START, FOR_START)


def test_a_system_that_cannot_allocate_writes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.look()
    rig.disk.release()
    monkeypatch.delattr("os.posix_fallocate")
    rig.look()
    assert (rig.disk.reserved, rig.file.stat().st_size) == (RESERVE, RESERVE)
    assert rig.allocated >= RESERVE


def test_what_is_free_is_what_the_system_says(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "missing")
