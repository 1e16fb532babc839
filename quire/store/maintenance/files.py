"""Files beside stores: their names, and putting a finished file in the place of the one that is there."""

import os
from datetime import UTC, datetime
from pathlib import Path

from quire.clock import Clock

DATA = "data.mdb"
_READER_TABLE = "lock.mdb"


def place(source: Path, directory: Path) -> None:
    """Make a data file that of an LMDB store, at once: after a crash there is the old one or the new one.

    A process that has the old file open keeps it. The table of readers belongs to the old file, so it goes with it.

    Args:
        source: the new file, on the same file system.
        directory: the store's directory; the caller has the store's lock.
    """
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
