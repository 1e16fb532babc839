"""Brings a store to the current format."""

from contextlib import closing
from typing import NamedTuple

from quire.clock import Clock, SystemClock
from quire.errors import StoreTooNew, StoreUnreachable
from quire.migrations.place import Place
from quire.store.base import FORMAT_VERSION
from quire.store.maintenance.files import stamp
from quire.store.maintenance.store_maintenance import exists, locked, store_path
from quire.store.urls import shown, store_for_url


class MigrationReport(NamedTuple):
    """What a migration did, or would do.

    Attributes:
        found: the format that was there.
        current: the format it has now.
        steps: what each step does, in their order; none if there was nothing to do.
        backup: where the store as it was is kept: a directory, a file, or a schema of the database; empty for none.
    """

    found: int
    current: int
    steps: tuple[str, ...]
    backup: str = ""

    def sentence(self, verb: str) -> str:
        """What was done, for people.

        Args:
            verb: "migrated" or "would migrate".
        """
        kept = f"; backup: {self.backup}" if self.backup else ""
        return f"{verb} from format {self.found} to {self.current}: {' '.join(self.steps)}{kept}"


def prepare(url: str) -> MigrationReport | None:
    """Make a store ready to be opened: migrate it, with a backup, if it has an older format.

    The caller has the store's lock, and has not opened the store yet.

    Args:
        url: as for ``store_for_url``.

    Returns:
        What was done; None if there was nothing to do, or there is no store yet.

    Raises:
        StoreTooNew: the store was written by a newer version.
        StoreError: it could not be migrated; it is as it was.
    """
    if url == "memory:" or not exists(url):
        return None
    with closing(_place(url)) as place:
        report = _take(place, _plan(place, url), backup=True, clock=SystemClock())
    return report if report.steps else None


def migrate(url: str, *, dry_run: bool = False, backup: bool = True, clock: Clock | None = None) -> MigrationReport:
    """Take a store's lock and bring it to the current format.

    Args:
        url: as for ``store_for_url``; the store must not be open in this process.
        dry_run: only say what would be done.
        backup: keep the store as it was, beside it.
        clock: names the backup.

    Returns:
        What was done.

    Raises:
        StoreUnreachable: there is no store.
        StoreTooNew: it was written by a newer version.
        StoreLocked: a broker runs on it.
        StoreError: it could not be migrated; it is as it was.
    """
    if not exists(url):
        raise StoreUnreachable(f"there is no store at {shown(url)}", url=shown(url))
    with closing(_place(url)) as place:
        report = _plan(place, url)
        if dry_run or not report.steps:
            return report
        with closing(store_for_url(url)) as store, locked(store):
            # Somebody else may have migrated it before the lock was ours.
            return _take(place, _plan(place, url), backup=backup, clock=clock or SystemClock())


def _take(place: Place, report: MigrationReport, *, backup: bool, clock: Clock) -> MigrationReport:
    """Take the steps of a plan."""
    if not report.steps:
        return report
    suffix = f".backup-format{report.found}-{stamp(clock)}" if backup else ""
    return report._replace(backup=place.upgrade(report.found, suffix))


def _plan(place: Place, url: str) -> MigrationReport:
    found = place.format()
    if found > FORMAT_VERSION:
        raise StoreTooNew(
            f"the store has format {found}, this version of Quire reads {FORMAT_VERSION}",
            found=found, expected=FORMAT_VERSION, url=shown(url),
        )  # fmt: skip
    return MigrationReport(found, FORMAT_VERSION, place.steps(found))


def _place(url: str) -> Place:
    path = store_path(url)
    if path is not None and url.startswith("lmdb:"):
        from quire.migrations.lmdb.place import LmdbPlace

        return LmdbPlace(path)
    from quire.migrations.sql.place import SqlPlace

    return SqlPlace(url, path)
