"""A lock on a file: it makes one process the store's only broker, and ends with that process in any case."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.store.disk import file_failure

_OWNER_BYTES = 1000
_EPOCH_BYTES = 20


class FileLock:
    """A lock on a file with its owner's name; never deleted (others wait for it) nor truncated (a full disk).

    Attributes:
        epoch: counts the owners: each one has a later epoch than all before; 0 before it is ours.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: int | None = None
        self.epoch = 0

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
        """Raise the system's errors about the file as ours."""
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
    """The part of a store's lock that is the same for all stores with a file lock."""

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
        """Counts the owners of the lock."""
        return self._lock.epoch

    def check_lock(self) -> bool:
        """A file lock lasts as long as the process."""
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
