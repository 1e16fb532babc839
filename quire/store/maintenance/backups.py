"""Backups of a store: the daily ones, of which the newest are kept in one directory, and restoring from one.

``python -m quire.store.maintenance.backups URL DIRECTORY KEEP`` makes one beside a running broker, in a process of its
own: a copy of a large store takes minutes of a processor and of a disk.
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from quire.clock import Clock, SystemClock
from quire.errors import InvalidArgument, QuireError, StoreError, StoreOutdated, StoreUnreachable
from quire.store.maintenance.base import DATA, flush, remove, replace_data_file, stamp
from quire.store.maintenance.open_store import locked, open_for_reading
from quire.store.urls import store_exists, store_for_url, store_path

_NAME = re.compile(r"quire-(\d{8}T\d{6}Z)")


class KeptBackups:
    """The backups in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory  # where they are; it need not exist yet

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
        """Back a store up, and then remove the oldest backups but for the newest ``keep``."""
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


def restore(url: str, source: Path, *, force: bool = False) -> None:
    """Restore a store from a copy that ``backup`` or a migration made; ``force`` replaces an existing store."""
    target = store_path(url)
    if target is None:
        raise InvalidArgument("a PostgreSQL store is restored with PostgreSQL's own tools: pg_restore", url=url)
    if store_exists(url) and not force:
        raise InvalidArgument(f"a store already exists at {target}: --force replaces it", path=str(target))
    scheme = url.partition(":")[0]
    _check_backup(f"{scheme}://{source.absolute()}")
    with closing(store_for_url(url)) as store, locked(store):
        if scheme == "lmdb":
            _restore_lmdb(source, target)
        else:
            _restore_sqlite(source, target)


def _check_backup(url: str) -> None:
    try:
        with open_for_reading(url):
            pass
    except StoreOutdated:
        return  # it is migrated when it is used
    except StoreUnreachable as error:
        raise StoreUnreachable(f"this is not a backup: {error}", url=url) from error


def _restore_lmdb(source: Path, target: Path) -> None:
    work = target / "restoring"
    shutil.copyfile(source / DATA, work)
    replace_data_file(work, target)


def _restore_sqlite(source: Path, target: Path) -> None:
    from quire.store.maintenance.embedded import copy_database

    work = target.with_name(target.name + ".restoring")
    work.unlink(missing_ok=True)
    copy_database(source, work)
    for ending in ("-wal", "-shm"):  # the log of the replaced store
        Path(f"{target}{ending}").unlink(missing_ok=True)
    work.rename(target)
    flush(target.parent)
