"""The file beside a store for the records that repair removes, one JSON object a line."""

import base64
import json
import os
from pathlib import Path
from typing import TextIO

from quire.clock import SystemClock
from quire.store.maintenance.data_files import stamp


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
        """Put the file on disk, before the records are removed from the store."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def damaged_file(store: Path | None) -> Path:
    """The file for the damaged records of a store; for a database server's it is in the working directory."""
    beside = store or Path("quire").absolute()
    return beside.with_name(f"{beside.name}.damaged-{stamp(SystemClock())}.ndjson")
