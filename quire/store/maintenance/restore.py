"""Restore: make a store of a backup."""

import shutil
from contextlib import closing
from pathlib import Path

from quire.errors import InvalidArgument, StoreOutdated, StoreUnreachable
from quire.store.maintenance.data_files import DATA, flush, replace_data_file
from quire.store.maintenance.open_store import locked, open_for_reading
from quire.store.urls import store_exists, store_for_url, store_path


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
