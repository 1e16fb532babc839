"""Restore: a backup becomes a store again."""

import shutil
from pathlib import Path

from quire.errors import InvalidArgument, StoreOutdated, StoreUnreachable
from quire.store.maintenance.files import DATA, flush, place
from quire.store.maintenance.store_maintenance import exists, locked, reading, store_path
from quire.store.urls import store_for_url


def restore(url: str, source: Path, *, force: bool = False) -> None:
    """Make a store of a backup. The backup stays as it is.

    Args:
        url: where to.
        source: a directory (LMDB) or a file (SQLite) that ``backup``, or a migration, made.
        force: replace a store that is there.

    Raises:
        InvalidArgument: there is a store already, or it is of a kind that is copied by other means.
        StoreUnreachable: the source is no backup of this kind of store.
        StoreLocked: a broker runs on the store.
    """
    target = store_path(url)
    if target is None:
        raise InvalidArgument("a PostgreSQL store is restored with PostgreSQL's own tools: pg_restore", url=url)
    if exists(url) and not force:
        raise InvalidArgument(f"there is a store at {target} already: --force replaces it", path=str(target))
    scheme = url.partition(":")[0]
    _check(f"{scheme}://{source.absolute()}")
    store = store_for_url(url)
    try:
        with locked(store):
            if scheme == "lmdb":
                _restore_lmdb(source, target)
            else:
                _restore_sqlite(source, target)
    finally:
        store.close()


def _check(url: str) -> None:
    """Make sure that a store can be read, of this format or an older one.

    Raises:
        StoreUnreachable: it cannot.
        StoreTooNew: it was written by a newer version.
    """
    try:
        with reading(url):
            pass
    except StoreOutdated:
        return  # it is migrated when it is used
    except StoreUnreachable as error:
        raise StoreUnreachable(f"this is no backup: {error}", url=url) from error


def _restore_lmdb(source: Path, target: Path) -> None:
    work = target / "restoring"
    shutil.copyfile(source / DATA, work)
    place(work, target)


def _restore_sqlite(source: Path, target: Path) -> None:
    from quire.store.maintenance.sqlite import copy_database

    work = target.with_name(target.name + ".restoring")
    work.unlink(missing_ok=True)
    copy_database(source, work)
    for ending in ("-wal", "-shm"):  # the log of what is replaced
        Path(f"{target}{ending}").unlink(missing_ok=True)
    work.rename(target)
    flush(target.parent)
