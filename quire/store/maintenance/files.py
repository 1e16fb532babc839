"""The files of an LMDB store: putting a finished data file in the place of the one that is there."""

import os
from pathlib import Path

DATA = "data.mdb"
_READER_TABLE = "lock.mdb"


def place(source: Path, directory: Path) -> None:
    """Make a data file that of a store, at once: after a crash there is the old one or the new one.

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
