"""What maintenance needs of a back end beyond the SPI."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from quire.store.base import StoreReader
from quire.store.maintenance.findings import Finding, Notice, RepairReport


class StoreMaintenance(ABC):
    """Maintenance of an open store of one kind. What writes needs the store's lock."""

    errors: ClassVar[tuple[type[Exception], ...]]
    """What the back end's driver raises, for ``open_store`` to raise it as a ``StoreError``."""

    @abstractmethod
    def lanes(self) -> list[int]:
        """Every lane that has a state or records, with a destination or without."""

    @abstractmethod
    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong with a lane in a snapshot and cannot be seen through the SPI."""

    def inspect_indexes(self, reader: StoreReader) -> Iterator[Finding]:
        """What is wrong with indexes outside the lanes; a SQL database keeps its indexes itself."""
        return iter(())

    @abstractmethod
    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, counts and indexes from the records, in one transaction (``repair.repair``)."""

    @abstractmethod
    def compact(self) -> None:
        """Rewrite the store without free space. An LMDB store is closed afterwards."""

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Write a copy of the newest commit to a path that does not exist yet; a broker may be running."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The files the store consists of."""

    def disk_bytes(self) -> int:
        """What the store takes on disk, with the space that removed messages left."""
        return sum(file.stat().st_size for file in self.files())

    def surroundings(self) -> Iterator[Notice]:
        """What to know about the server that keeps the store; embedded stores have none."""
        return iter(())
