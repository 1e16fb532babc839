"""The disk that a store writes to: how much room it has, and a part of it in reserve.

On a full disk nothing can be removed either: a removal writes before it frees anything. So a file is kept beside the
store that takes up space and is cut when the disk is full. The last part of it is kept for the next start, which writes
a little before it can serve anybody.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from quire.errors import StoreError
from quire.store.base import Store

MAX_RESERVE = 64 << 20
"""How large a reserve is at the most, in bytes."""

_RESERVE_SHARE = 4  # of the limit
_START_SHARE = 4  # of the reserve

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The system's errors that mean that a disk, or a share of it, is full."""

Probe = Callable[[Path], int]
"""Says how many bytes are free on the file system of a directory."""


def free_bytes(directory: Path) -> int:
    """How many bytes this process may still write on a directory's file system.

    Raises:
        OSError: there is no such directory.
    """
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def allocate(file: Path, size: int) -> None:
    """Make sure that a file has so much space on disk. It is made if it is not there; what is in it stays.

    Args:
        file: the file.
        size: how many bytes.

    Raises:
        OSError: there is no space; it names the file.
    """
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
    """The disk under one store.

    Room is what is free on the disk, the reserve, and what removed records left free in the store's files: a store's
    file does not shrink, so a drained store on a full disk has room too.

    Args:
        store: the store; ``prepare`` works before it is open.
        limit: with less room than this, in bytes, the disk is low; the reserve is a part of it.
        probe: measures what is free.

    Attributes:
        limit: the limit.
        room: what the last look found, in bytes.
        reserved: how large the reserve is, in bytes.
    """

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
        """Where it is."""
        return self._file.parent

    @property
    def is_low(self) -> bool:
        """Whether the last look found less room than the limit."""
        return self.room < self.limit

    def prepare(self) -> int:
        """Before the store is opened: give the whole reserve back if the start could find too little space.

        Returns:
            How many bytes were given back.

        Raises:
            OSError: the directory cannot be looked at, or the reserve not be cut.
        """
        self.reserved = self._held()
        return self._cut(0) if self._probe(self.directory) < self._size else 0

    def release(self) -> int:
        """The disk is full: give the reserve back, and only if that is not enough the part that the next start needs.

        Returns:
            How many bytes were given back; 0 if nothing was left.

        Raises:
            OSError: it cannot be cut.
        """
        return self._cut(self._start_size) or self._cut(0)

    def look(self) -> None:
        """Measure the room.

        Raises:
            OSError: the directory cannot be looked at.
        """
        self._free, self.reserved = self._probe(self.directory), self._held()
        self.room = self._free + self.reserved + self._free_in_store()

    def refill(self) -> None:
        """Make the reserve as large as the last look allows: whole, or half of a little space for the next start.

        Raises:
            OSError: it cannot be made.
        """
        wanted = min(self._start_size, (self._free + self.reserved) // 2)
        if self._free >= self.limit:
            wanted = self._size
        if wanted > self.reserved:
            self._grow(wanted)

    def _free_in_store(self) -> int:
        try:
            return self._store.free()
        except StoreError:  # it says so itself to whom it concerns; here it only means that nothing is known
            return 0

    def _held(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _cut(self, size: int) -> int:
        before = self._held()
        if before > size:
            os.truncate(self._file, size)
        self.reserved = min(before, size)
        return before - self.reserved

    def _grow(self, size: int) -> None:
        """Allocate the reserve; if another program was faster to take the space, it stays as it was."""
        try:
            allocate(self._file, size)
            self.reserved = size
        except OSError:
            os.truncate(self._file, self.reserved)
            raise
