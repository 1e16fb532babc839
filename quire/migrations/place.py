"""What the runner needs of a store's place: which format is there, and how to get it to the current one."""

from abc import ABC, abstractmethod


class Place(ABC):
    """A store that is not open, of any format."""

    @abstractmethod
    def format(self) -> int:
        """The format that is there.

        Raises:
            StoreUnreachable: it cannot be read.
        """

    @abstractmethod
    def steps(self, found: int) -> tuple[str, ...]:
        """What each step from a format to the current one does, in their order."""

    @abstractmethod
    def upgrade(self, found: int, backup: str) -> str:
        """Take every step, all or none: after a crash the store is as it was, or done.

        Args:
            found: the format that is there.
            backup: what to append to the store's name for a backup; empty for none.

        Returns:
            Where the backup is; empty if there is none.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what was opened."""
