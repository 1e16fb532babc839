"""What the runner needs of each kind of store: its format, and the steps to the current one."""

from abc import ABC, abstractmethod


class StoreMigration(ABC):
    """The migration of one store, of any format and not open."""

    @abstractmethod
    def format(self) -> int:
        """The format the store has."""

    @abstractmethod
    def steps(self, found: int) -> tuple[str, ...]:
        """What each step from a format to the current one does, in their order."""

    @abstractmethod
    def upgrade(self, found: int, backup: str) -> str:
        """Take every step from a format, all or none; ``backup`` is the suffix of a backup, whose place is returned."""

    def close(self) -> None:
        return
