"""The daily backups of a store: in one directory, the newest ones are kept.

``python -m quire.store.maintenance.kept_backups URL DIRECTORY KEEP`` makes one beside a running broker, in a process of
its own: a copy of a large store takes minutes of a processor and of a disk.
"""

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from quire.clock import Clock, SystemClock
from quire.errors import QuireError, StoreError
from quire.store.maintenance.data_files import remove, stamp
from quire.store.maintenance.open_store import open_for_reading

_NAME = re.compile(r"quire-(\d{8}T\d{6}Z)")


class KeptBackups:
    """The backups in a directory.

    Args:
        directory: where they are; it need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def all(self) -> list[Path]:
        """The backups that are complete, the oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name))

    def newest_ms(self) -> int | None:
        """When the newest was begun, in milliseconds since the epoch; None if there is none."""
        found = self.all()
        if not found:
            return None
        began = datetime.strptime(found[-1].name, "quire-%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return int(began.timestamp() * 1000)

    def add(self, url: str, keep: int, clock: Clock) -> Path:
        """Back a store up, and then remove the oldest backups but for the newest ``keep``.

        Raises:
            StoreError: the store cannot be read, or the directory cannot be written.
        """
        target = self._directory / f"quire-{stamp(clock)}"
        try:
            for part in self._directory.glob("quire-*.part"):  # of a backup that was interrupted
                remove(part)
            with open_for_reading(url) as (_, maintenance):
                maintenance.backup(target)
            for old in self.all()[:-keep]:
                remove(old)
        except OSError as error:
            raise StoreError(f"{error.strerror}: {error.filename}", path=str(error.filename)) from error
        return target


def main(arguments: Sequence[str]) -> int:
    """Make a backup; print its path or the error as a line of JSON."""
    url, directory, keep = arguments
    try:
        target = KeptBackups(Path(directory)).add(url, int(keep), SystemClock())
    except QuireError as error:
        print(json.dumps({"error": f"{error} ({error.code})"}))
        return 1
    size = sum(file.stat().st_size for file in (target.iterdir() if target.is_dir() else [target]))
    print(json.dumps({"target": str(target), "bytes": size}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
