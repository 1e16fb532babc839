"""The disk of a store: its free space and reserve, what the system refuses, and the lock on a file.

On a full disk removals fail too, so a file keeps a reserve, the last part for the next start. The lock makes one
process the store's only broker, and ends with that process in any case.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.errors import DirectoryUnusable, StoreError, StoreFull, StoreUnreachable
from quire.store.base import Store

MAX_RESERVE = 64 << 20  # how large a reserve is at the most, in bytes
_RESERVE_SHARE = 4  # of the limit
_START_SHARE = 4  # of the reserve

PRIVATE = 0o077  # the file mode creation mask (umask) of who writes stores: others may do nothing with what it makes
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)  # the system's errors that mean that a disk, or a share of it, is full
_UNUSABLE = {
    errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""The system's errors about a place in which nothing can be made or written."""

Probe = Callable[[Path], int]  # says how many bytes are free on the file system of a directory


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def file_failure(error: OSError, path: Path | None = None) -> StoreError:
    """The error for a file that the system refused; ``path`` is what was asked for where the error names no file."""
    kind = StoreFull if error.errno in NO_SPACE else DirectoryUnusable if error.errno in _UNUSABLE else StoreUnreachable
    name = str(error.filename or path)
    return kind(f"cannot use {name}: {error.strerror}", path=name)


@contextmanager
def private_files() -> Iterator[None]:
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


def allocate(file: Path, size: int) -> None:
    """Make sure that a file, which may be new, has so many bytes on disk; what is in it stays."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:  # macOS
            have = os.fstat(descriptor).st_size
            os.pwrite(descriptor, bytes(max(size - have, 0)), have)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        os.close(descriptor)


class Disk:
    """The disk under a store. Its room: free space, the reserve, and free space inside the store's files."""

    def __init__(self, store: Store, limit: int, probe: Probe = free_bytes) -> None:
        assert store.reserve_file is not None
        self._store = store
        self._file = store.reserve_file
        self._probe = probe
        self._size = min(limit // _RESERVE_SHARE, MAX_RESERVE)
        self._start_size = self._size // _START_SHARE
        self._free = 0
        self.limit = limit
        self.room = 0
        self.reserved = 0

    @property
    def directory(self) -> Path:
        return self._file.parent

    @property
    def is_low(self) -> bool:
        return self.room < self.limit

    def prepare(self) -> int:
        """Before the store is opened: free the whole reserve if space for the start is short; returns the bytes."""
        self.reserved = self._reserve_size()
        return self._truncate(0) if self._probe(self.directory) < self._size else 0

    def release(self) -> int:
        """Free the reserve of a full disk, and with a second call the part for the next start; returns the bytes."""
        return self._truncate(self._start_size) or self._truncate(0)

    def look(self) -> None:
        self._free, self.reserved = self._probe(self.directory), self._reserve_size()
        self.room = self._free + self.reserved + self._free_in_store()

    def refill(self) -> None:
        """Make the reserve as large as the last look allows: whole, or half of a little space for the next start."""
        wanted = min(self._start_size, (self._free + self.reserved) // 2)
        if self._free >= self.limit:
            wanted = self._size
        if wanted > self.reserved:
            self._grow(wanted)

    def _free_in_store(self) -> int:
        try:
            return self._store.free()
        except StoreError:  # the broker's own reads report it; here it only means that the number is unknown
            return 0

    def _reserve_size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _truncate(self, size: int) -> int:
        before = self._reserve_size()
        if before > size:
            os.truncate(self._file, size)
        self.reserved = min(before, size)
        return before - self.reserved

    def _grow(self, size: int) -> None:
        """Allocate the reserve; if another program took the space first, it stays as it was."""
        try:
            allocate(self._file, size)
            self.reserved = size
        except OSError:
            os.truncate(self._file, self.reserved)
            raise


_OWNER_BYTES = 1000
_EPOCH_BYTES = 20


class FileLock:
    """A lock on a file with its owner's name; never deleted (others wait for it) nor truncated (a full disk)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: int | None = None
        self.epoch = 0  # counts the owners: each one has a later epoch than all before; 0 before it is ours

    @property
    def is_ours(self) -> bool:
        """Whether we have the lock, and the locked file is still the one that others find."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_failure(error, self.path) from error

    def acquire(self, owner: str) -> bool:
        """Take the lock if it is free, without waiting; returns whether it is ours. The owner is for ``owner``."""
        if self._file is not None:
            return self.is_ours
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                return False
            raise
        try:
            known = os.pread(file, _EPOCH_BYTES, _OWNER_BYTES)  # of older versions there is none
            epoch = int(known) + 1 if known.isdigit() else 1
            os.pwrite(file, _padded(owner) + b"%0*d" % (_EPOCH_BYTES, epoch), 0)
            os.fsync(file)  # or after a loss of power a later owner could have the same epoch
        except OSError as error:
            os.close(file)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._file, self.epoch = file, epoch
        return True

    def release(self) -> None:
        """Release the lock, if we have it."""
        if self._file is None:
            return
        file, self._file = self._file, None
        os.pwrite(file, _padded(""), 0)
        os.close(file)

    def owner(self) -> str:
        """The name of the lock's owner; empty if it is free."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        try:
            owner = os.read(file, _OWNER_BYTES).decode("utf-8", "replace").rstrip("\n")
            # A killed process leaves its name, but not its lock. Only then the lock is tried.
            return owner if owner and _is_locked(file) else ""
        finally:
            os.close(file)


class FileLocked:
    _lock: FileLock

    def try_lock(self, owner: str) -> bool:
        """Take the lock, in a directory that need not be there yet."""
        with self._lock.failures():
            self._lock.path.parent.mkdir(parents=True, exist_ok=True)
            return self._lock.acquire(owner)

    def unlock(self) -> None:
        with self._lock.failures():
            self._lock.release()

    def lock_owner(self) -> str:
        with self._lock.failures():
            return self._lock.owner()

    @property
    def lock_epoch(self) -> int:
        return self._lock.epoch

    def check_lock(self) -> bool:
        with self._lock.failures():
            return self._lock.is_ours


def _padded(owner: str) -> bytes:
    return owner.encode()[:_OWNER_BYTES].ljust(_OWNER_BYTES, b"\n")


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
