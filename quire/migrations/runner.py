"""Migrates a store to the current format."""

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from quire.clock import Clock, SystemClock
from quire.errors import StoreUnreachable
from quire.store.base import check_format, newest_format
from quire.store.maintenance.base import stamp
from quire.store.maintenance.open_store import locked
from quire.store.urls import shown, store_exists, store_for_url, store_path

if TYPE_CHECKING:
    from quire.migrations.lmdb.lmdb_migration import LmdbMigration
    from quire.migrations.sql.sql_migration import SqlMigration


class MigrationReport(NamedTuple):
    found: int  # the format before
    current: int  # the format after
    steps: tuple[str, ...]  # what each step does
    backup: str = ""  # a directory, a file, or a schema of the database; empty for none

    def sentence(self, verb: str) -> str:
        """What was done, for people; the verb is "migrated" or "would migrate"."""
        kept = f"; backup: {self.backup}" if self.backup else ""
        return f"{verb} from format {self.found} to {self.current}: {' '.join(self.steps)}{kept}"


def prepare(url: str) -> MigrationReport | None:
    """Migrate an older store, with a backup, before it is opened; the caller has its lock. None: nothing to do."""
    if url == "memory:" or _format_at(url) in (None, newest_format(url)):
        return None
    migration = migration_of(url)
    report = _upgrade(migration, _plan(migration, url), backup=True, clock=SystemClock())
    return report if report.steps else None


def warm_up(url: str) -> None:
    """Import what ``prepare`` needs, which takes a second: a standby does so before it has to be fast."""
    if url != "memory:":
        migration_of(url)


def migrate(url: str, *, dry_run: bool = False, backup: bool = True, clock: Clock | None = None) -> MigrationReport:
    """Lock a store and migrate it to the current format; after an error it is unchanged. The clock names the backup."""
    if not store_exists(url):
        raise StoreUnreachable(f"there is no store at {shown(url)}", url=shown(url))
    migration = migration_of(url)
    report = _plan(migration, url)
    if dry_run or not report.steps:
        return report
    with closing(store_for_url(url)) as store, locked(store):
        # Another process may have migrated it before the lock was ours.
        return _upgrade(migration, _plan(migration, url), backup=backup, clock=clock or SystemClock())


def _format_at(url: str) -> int | None:
    """The format of a store; None if there is none. A server is asked once: clients may wait for this start."""
    path = store_path(url)
    if path is None:
        from quire.store.postgresql.database import Database, found_format

        return found_format(Database(url))
    if not store_exists(url):
        return None
    if url.startswith("sqlite:"):  # without what a migration imports
        from quire.store import sqlite

        return sqlite.found_format(path)
    return migration_of(url).format()


def _upgrade(
    migration: "LmdbMigration | SqlMigration", report: MigrationReport, *, backup: bool, clock: Clock
) -> MigrationReport:
    if not report.steps:
        return report
    suffix = f".backup-format{report.found}-{stamp(clock)}" if backup else ""
    return report._replace(backup=migration.upgrade(report.found, suffix))


def _plan(migration: "LmdbMigration | SqlMigration", url: str) -> MigrationReport:
    found, newest = migration.format(), newest_format(url)
    if found > newest:
        check_format(found, shown(url))
    return MigrationReport(found, newest, migration.steps(found) if found < newest else ())


def migration_of(url: str) -> "LmdbMigration | SqlMigration":
    """The migration of a store, by its kind. Only the back end in use is imported."""
    path = store_path(url)
    if path is not None and url.startswith("lmdb:"):
        from quire.migrations.lmdb.lmdb_migration import LmdbMigration

        return LmdbMigration(path)
    if path is not None:
        from quire.migrations.sql.sql_migration import SqliteMigration

        return SqliteMigration(path)
    from quire.migrations.sql.postgresql_migration import PostgresqlMigration

    return PostgresqlMigration(url)
