"""Opens a store for maintenance, with the lock or beside a running broker; repairs a locked one."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quire.errors import InvalidArgument, StoreError, StoreLocked, StoreUnreachable
from quire.store.base import Store, StoredDestination, WriteBatch
from quire.store.maintenance.base import RepairReport, StoreMaintenance
from quire.store.urls import shown, store_exists, store_for_url

_RENEWAL_SECONDS = 1.0


class OpenStore(NamedTuple):
    store: Store
    maintenance: StoreMaintenance


@contextmanager
def open_for_reading(url: str) -> Iterator[OpenStore]:
    """Open an existing store; a broker may be running on it."""
    _check_exists(url)
    with _opened(store_for_url(url, readonly=True)) as opened:
        yield opened


@contextmanager
def open_for_writing(url: str, *, create: bool = False) -> Iterator[OpenStore]:
    """Lock a store and open it; ``create`` makes one that does not exist."""
    if not create:
        _check_exists(url)
    store = store_for_url(url)
    with closing(store), locked(store), _opened(store) as opened:
        yield opened


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Take a store's lock and renew it until the work is done; the store need not be open."""
    if not store.try_lock(f"maintenance, process {os.getpid()} on host {socket.gethostname()}"):
        owner = store.lock_owner()
        raise StoreLocked(f"the store is in use by {owner or 'another process'}: stop the broker first", owner=owner)
    done = threading.Event()
    renewal = threading.Thread(target=_renew, args=(store, done), name="quire-lock", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()
        store.unlock()


def maintenance_of(store: Store) -> StoreMaintenance:
    """The maintenance of a store, by its kind. Only the back end in use is imported."""
    scheme = store.url.partition(":")[0]
    if scheme == "lmdb":
        from quire.store.maintenance.embedded import LmdbMaintenance

        return LmdbMaintenance(store)
    if scheme == "sqlite":
        from quire.store.maintenance.embedded import SqliteMaintenance

        return SqliteMaintenance(store)
    if scheme.startswith("postgres"):
        from quire.store.maintenance.postgresql import PostgresqlMaintenance

        return PostgresqlMaintenance(store)
    raise InvalidArgument(f"maintenance does not support {store.url}", url=store.url)


def _check_exists(url: str) -> None:
    if not store_exists(url):
        raise StoreUnreachable(f"there is no store at {shown(url)}", url=shown(url))


def _renew(store: Store, done: threading.Event) -> None:
    while not done.wait(_RENEWAL_SECONDS):
        with suppress(StoreError):  # the server is away; the next try may find it again
            if not store.check_lock():
                return


@contextmanager
def _opened(store: Store) -> Iterator[OpenStore]:
    store.open()
    try:
        maintenance = maintenance_of(store)
        try:
            yield OpenStore(store, maintenance)
        except maintenance.errors as error:
            raise StoreError(f"the store {shown(store.url)} failed: {error}", url=shown(store.url)) from error
    finally:
        store.close()


def repair(opened: OpenStore, damaged_file: Path) -> RepairReport:
    """Repair a locked store from its records; a lane without a destination becomes a queue ``Recovered.N``."""
    report = opened.maintenance.repair(damaged_file)
    return report._replace(adopted=_adopt(opened.store, opened.maintenance))


def _adopt(store: Store, maintenance: StoreMaintenance) -> int:
    """Make destinations for lanes without one; returns how many."""
    known = store.destinations()
    owned = {lane for destination in known for lane in destination.lanes}
    strays = [lane for lane in maintenance.lanes() if lane not in owned]
    batch = WriteBatch()
    last = max((destination.id for destination in known), default=0)
    for number, lane in enumerate(strays, last + 1):
        batch.destinations[number] = StoredDestination(number, "queue", f"Recovered.{lane}", {}, (lane,))
    store.apply(batch)
    return len(strays)
