"""The disk of a store. On a full one removals fail too, so a file keeps a reserve, the last part for the next start."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.errors import DirectoryUnusable, StoreError, StoreFull, StoreUnreachable
from quire.store.base import Store

MAX_RESERVE = 64 << 20
"""How large a reserve is at the most, in bytes."""

_RESERVE_SHARE = 4  # of the limit
_START_SHARE = 4  # of the reserve

PRIVATE = 0o077
"""The file mode creation mask (umask) of who writes stores: others may do nothing with what it makes."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The system's errors that mean that a disk, or a share of it, is full."""

_UNUSABLE = {
    errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""The system's errors about a place in which nothing can be made or written."""

Probe = Callable[[Path], int]
"""Says how many bytes are free on the file system of a directory."""


def free_bytes(directory: Path) -> int:
    """How many bytes this process can still write on a directory's file system."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def file_failure(error: OSError, path: Path | None = None) -> StoreError:
    """The error for a file that the system refused; ``path`` is what was asked for where the error names no file."""
    kind = StoreFull if error.errno in NO_SPACE else DirectoryUnusable if error.errno in _UNUSABLE else StoreUnreachable
    name = str(error.filename or path)
    return kind(f"cannot use {name}: {error.strerror}", path=name)


@contextmanager
def private_files() -> Iterator[None]:
    """What the process makes meanwhile is for its user alone."""
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
        """Whether the last look found less room than the limit."""
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
