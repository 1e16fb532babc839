"""Files of stores and beside them: their names, and putting a finished file in the place of another."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from quire.clock import Clock
from quire.errors import InvalidArgument

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
    """Remove a file or a directory, if it exists."""
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
