"""What maintenance needs of a back end beyond the SPI, what it finds and does, its files, and how it opens a store.

A store is opened with its lock, or beside a running broker.
"""

import base64
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, TextIO

from quire.clock import Clock, SystemClock
from quire.errors import InvalidArgument
from quire.store.base import StoreReader


class Problem(StrEnum):
    """The kinds of damage."""

    BROKEN_NEXT = "broken-next"
    BROKEN_PREVIOUS = "broken-previous"
    WRONG_HEAD = "wrong-head"
    WRONG_TAIL = "wrong-tail"
    WRONG_COUNT = "wrong-count"
    WRONG_BYTES = "wrong-bytes"
    WRONG_NEXT_SEQUENCE = "wrong-next-sequence"
    WRONG_LINK = "wrong-link"
    WRONG_PAGE = "wrong-page"
    DAMAGED_RECORD = "damaged-record"
    MISSING_RECORD = "missing-record"
    MISSING_LINK = "missing-link"
    STRAY_DELIVERY = "stray-delivery"
    WRONG_EXPIRATION = "wrong-expiration"
    STRAY_LANE = "stray-lane"
    WRONG_OWNER = "wrong-owner"
    UNREADABLE = "unreadable"


class Finding(NamedTuple):
    """One thing that is wrong: sequence 0 is the lane, lane 0 the store; a lane without a destination has none here."""

    problem: Problem
    lane: int
    sequence: int
    text: str
    destination: str = ""


class Notice(NamedTuple):
    """What an administrator of the server around a store should know."""

    state: str  # ok, note, warning or problem
    text: str  # what is there
    advice: str = ""  # what to do


class RepairReport(NamedTuple):
    """What a repair did, in numbers of records, links and lanes."""

    relinked: int = 0  # records whose link was wrong or lost
    restored: int = 0  # records of a page whose links were lost; some may have been consumed before
    damaged: int = 0  # records that could not be read and were removed
    lost: int = 0  # links that led to no record and were removed
    lanes: int = 0  # lanes whose state was wrong
    cleared: int = 0  # delivery states and expirations that belonged to no record, or were missing
    pages: int = 0  # pages whose number of records, or last record, was wrong
    owners: int = 0  # rows that do not belong into the table of the store's owner
    adopted: int = 0  # lanes without a destination that got one
    damaged_file: Path | None = None

    @property
    def changed(self) -> bool:
        return any(self)


class StoreMaintenance(ABC):
    """Maintenance of an open store of one kind. What writes needs the store's lock."""

    errors: ClassVar[tuple[type[Exception], ...]]
    """What the back end's driver raises, which is raised as a ``StoreError``."""

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
        return iter(())


DATA = "data.mdb"
_READER_TABLE = "lock.mdb"


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A path to write a new file or directory to; it gets its name when it is complete. It replaces nothing."""
    if target.exists():
        raise InvalidArgument(f"{target} already exists: give another target", path=str(target))
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    remove(part)
    yield part
    part.rename(target)
    flush(target.parent)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_data_file(source: Path, directory: Path) -> None:
    """Replace the data file of a locked LMDB store atomically; its table of readers goes with the old file."""
    flush(source)
    os.replace(source, directory / DATA)
    (directory / _READER_TABLE).unlink(missing_ok=True)
    flush(directory)


def flush(path: Path) -> None:
    """Put a file, or the names in a directory, on disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def stamp(clock: Clock) -> str:
    """The time as part of a file's name."""
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


class DamagedFile:
    """Writes damaged records to a new file, which is made with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self.count = 0

    @property
    def path(self) -> Path | None:
        """The file; None while nothing was written."""
        return self._path if self.count else None

    def write(self, lane: int, sequence: int, checksum: int, content: bytes) -> None:
        """Write the remaining bytes of a record, and the checksum that its content should have."""
        if self._file is None:
            self._file = self._path.open("x", encoding="ascii")
        left = {"lane": lane, "sequence": sequence, "checksum": checksum, "size": len(content)}
        json.dump(left | {"content": base64.b64encode(content).decode()}, self._file)
        self._file.write("\n")
        self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def damaged_file(store: Path | None) -> Path:
    beside = store or Path("quire").absolute()
    return beside.with_name(f"{beside.name}.damaged-{stamp(SystemClock())}.ndjson")
