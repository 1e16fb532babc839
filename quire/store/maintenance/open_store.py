"""Opens a store for maintenance, with the lock or beside a running broker."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from quire.errors import InvalidArgument, StoreError, StoreLocked, StoreUnreachable
from quire.store.base import Store
from quire.store.maintenance.store_maintenance import StoreMaintenance
from quire.store.urls import shown, store_exists, store_for_url

_RENEWAL_SECONDS = 1.0


class OpenStore(NamedTuple):
    """An open store with its maintenance."""

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
        from quire.store.maintenance.postgresql_maintenance import PostgresqlMaintenance

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
