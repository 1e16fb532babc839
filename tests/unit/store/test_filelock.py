"""The file lock: exclusive, named, and gone with its process."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.store.disk import FileLock

HOLDER = """
import sys
from quire.store.disk import FileLock
lock = FileLock(sys.argv[1])
print(lock.acquire("holder"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_one_holder_at_a_time(path: Path) -> None:
    first, second = FileLock(path), FileLock(path)
    assert first.acquire("one")
    assert not second.acquire("two")
    assert (first.is_ours, second.is_ours) == (True, False)
    first.release()
    assert not first.is_ours
    assert second.acquire("two")


def test_holder_may_take_it_again(path: Path) -> None:
    lock = FileLock(path)
    assert lock.acquire("one")
    assert lock.acquire("one")


def test_owner_is_told_to_others(path: Path) -> None:
    first, second = FileLock(path), FileLock(path)
    assert second.owner() == ""
    first.acquire("host-ä 77")
    assert (first.owner(), second.owner()) == ("host-ä 77", "host-ä 77")
    second.release()
    assert second.owner() == "host-ä 77"
    first.release()
    assert second.owner() == ""


def test_asking_for_the_owner_makes_no_file(path: Path) -> None:
    assert FileLock(path).owner() == ""
    assert not path.exists()


def test_name_left_behind_owns_nothing(path: Path) -> None:
    path.write_text("a process that died, with a long name")
    assert FileLock(path).owner() == ""
    lock = FileLock(path)
    assert lock.acquire("new")
    assert lock.owner() == "new"


def test_lock_on_a_replaced_file_is_lost(path: Path) -> None:
    first, second = FileLock(path), FileLock(path)
    first.acquire("one")
    path.unlink()
    assert not first.is_ours
    assert second.acquire("two")
    assert (first.is_ours, first.acquire("one"), second.is_ours) == (False, False, True)


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing" / "lock").acquire("one")


@pytest.mark.slow
def test_lock_ends_with_its_process(path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        lock = FileLock(path)
        assert not lock.acquire("next")
        assert lock.owner() == "holder"
        holder.kill()
        holder.wait()
        assert lock.owner() == ""
        assert lock.acquire("next")
    lock.release()


def test_each_owner_has_a_later_epoch(path: Path) -> None:
    epochs = []
    for owner in ("one", "two", "a" * 2000):
        lock = FileLock(path)
        assert lock.acquire(owner)
        epochs.append(lock.epoch)
        lock.release()
    assert epochs == [1, 2, 3]


def test_the_lock_of_an_older_version_has_no_epoch_yet(path: Path) -> None:
    path.write_bytes(b"host 1".ljust(1000, b"\n"))
    lock = FileLock(path)
    assert lock.acquire("one")
    assert lock.epoch == 1
