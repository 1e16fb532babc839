"""What differs between databases."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from quire.errors import StoreError


class Backend(ABC):
    """A database: the engine ``writer`` for commits, and ``reader``, whose transactions see one state each."""

    writer: Engine
    reader: Engine
    reserve_file: Path | None = None

    def prepare(self) -> None:
        """Make room for a new database."""
        return

    def guard_creation(self, connection: Connection) -> None:
        """Keep other processes from creating tables until the transaction ends."""
        return

    @abstractmethod
    def commit(self, write: Callable[[Connection], None]) -> None:
        """Commit what is written, in one transaction, if the lock is still ours; ``write`` may be called again."""

    def make_space(self) -> bool:
        """Whether a commit that found no space may be tried again."""
        return False

    @abstractmethod
    def sync(self) -> None:
        """Put everything committed on disk."""

    @abstractmethod
    def size(self, connection: Connection) -> int:
        """Bytes in use."""

    def free(self, connection: Connection) -> int:
        """Bytes that removed records left free in files on this machine."""
        return 0

    @abstractmethod
    def error(self, error: DBAPIError) -> type[StoreError]:
        """Our error for one of the driver's."""

    @abstractmethod
    def try_lock(self, owner: str) -> bool:
        """As ``Store.try_lock``."""

    @abstractmethod
    def unlock(self) -> None:
        """As ``Store.unlock``."""

    @abstractmethod
    def lock_owner(self) -> str:
        """As ``Store.lock_owner``."""

    @abstractmethod
    def check_lock(self) -> bool:
        """As ``Store.check_lock``."""

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()
