"""What maintenance needs of a back end beyond the SPI, and how the stores of a stopped broker are opened for it."""

import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from quire.errors import InvalidArgument, StoreError, StoreLocked, StoreUnreachable
from quire.store.base import Store, StoreReader
from quire.store.maintenance.findings import Finding, RepairReport
from quire.store.urls import shown, store_for_url

_RENEWAL_SECONDS = 2.0


class StoreMaintenance(ABC):
    """What one back end does for maintenance. Every method works on an open store; those that write need its lock.

    Attributes:
        errors: what the back end's driver raises; who opens the store raises it as a ``StoreError``.
    """

    errors: ClassVar[tuple[type[Exception], ...]]

    @abstractmethod
    def lanes(self) -> list[int]:
        """Every lane that has a state or records, whether a destination owns it or not."""

    @abstractmethod
    def inspect(self, reader: StoreReader, lane: int) -> Iterator[Finding]:
        """What is wrong with a lane that cannot be seen through the SPI.

        Args:
            reader: the snapshot in which the lane is looked at.
            lane: which lane.
        """

    @abstractmethod
    def inspect_indexes(self, reader: StoreReader) -> Iterator[Finding]:
        """What is wrong with indexes that stand apart from the lanes."""

    @abstractmethod
    def repair(self, damaged_file: Path) -> RepairReport:
        """Rebuild links, counts and indexes from the records, in one transaction.

        Args:
            damaged_file: where records are written that cannot be kept; made only if there are any.
        """

    @abstractmethod
    def producers(self) -> Iterator[tuple[str, int]]:
        """All producers with their highest send sequence, by producer id."""

    @abstractmethod
    def compact(self) -> None:
        """Rewrite the store without free space. The store is closed afterwards."""

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Write a copy of the newest commit, beside a running broker too.

        Args:
            target: where to; it must not be there.

        Raises:
            InvalidArgument: the target is there already.
        """

    @abstractmethod
    def files(self) -> list[Path]:
        """The files the store consists of."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was opened beside the store."""


class Opened(NamedTuple):
    """An open store with its maintenance."""

    store: Store
    maintenance: StoreMaintenance


@contextmanager
def reading(url: str) -> Iterator[Opened]:
    """Open a store that is there, for reading; a broker may run on it.

    Args:
        url: as for ``store_for_url``.

    Raises:
        StoreUnreachable: there is no store.
        StoreOutdated: it must be migrated first.
        StoreTooNew: it was written by a newer version.
    """
    if not exists(url):
        raise StoreUnreachable(f"there is no store at {shown(url)}", url=shown(url))
    with _opened(_for_reading(url)) as opened:
        yield opened


@contextmanager
def writing(url: str, *, create: bool = False) -> Iterator[Opened]:
    """Take a store's lock and open it.

    Args:
        url: as for ``store_for_url``.
        create: make the store if it is not there.

    Raises:
        StoreLocked: a broker runs on it.
        StoreUnreachable: there is no store.
        StoreOutdated: it must be migrated first.
        StoreTooNew: it was written by a newer version.
    """
    if not create and not exists(url):
        raise StoreUnreachable(f"there is no store at {shown(url)}", url=shown(url))
    store = store_for_url(url)
    with locked(store), _opened(store) as opened:
        yield opened


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Hold a store's lock, renewing it as long as the work takes; the store need not be open.

    Raises:
        StoreLocked: a broker has it.
    """
    if not store.try_lock(f"maintenance, {socket.gethostname()}, process {os.getpid()}"):
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


def _renew(store: Store, done: threading.Event) -> None:
    while not done.wait(_RENEWAL_SECONDS) and store.check_lock():
        pass


@contextmanager
def _opened(store: Store) -> Iterator[Opened]:
    store.open()
    try:
        maintenance = maintenance_of(store)
        try:
            yield Opened(store, maintenance)
        except maintenance.errors as error:
            raise StoreError(f"the store {shown(store.url)} failed: {error}", url=shown(store.url)) from error
        finally:
            maintenance.close()
    finally:
        store.close()


def exists(url: str) -> bool:
    """Whether there is something at a store's place."""
    path = store_path(url)
    if path is None:
        from quire.store.maintenance.postgresql import has_store

        return has_store(url)
    return (path / "data.mdb" if url.startswith("lmdb:") else path).exists()


def store_path(url: str) -> Path | None:
    """The directory or file of an embedded store; None for a server's.

    Raises:
        InvalidArgument: it is no URL of a store that is kept.
    """
    scheme = url.partition(":")[0]
    if scheme not in ("lmdb", "sqlite") and not scheme.startswith("postgres"):
        place = shown(url)
        raise InvalidArgument(f"{place!r} is no store for maintenance: it is not kept anywhere", url=place)
    store_for_url(url)  # says what is wrong with the URL
    return Path("/" + unquote(urlsplit(url).path).lstrip("/")) if scheme in ("lmdb", "sqlite") else None


def _for_reading(url: str) -> Store:
    path = store_path(url)
    if path is not None and url.startswith("lmdb:"):
        from quire.store.lmdb import LmdbStore

        return LmdbStore(path, readonly=True)
    return store_for_url(url)


def maintenance_of(store: Store) -> StoreMaintenance:
    """The maintenance of a store, by its kind. Only the back end that is asked for is imported.

    Raises:
        InvalidArgument: the store has none.
    """
    scheme = store.url.partition(":")[0]
    if scheme == "lmdb":
        from quire.store.lmdb import LmdbStore
        from quire.store.maintenance.lmdb import LmdbUpkeep

        assert isinstance(store, LmdbStore)
        return LmdbUpkeep(store)
    if scheme == "sqlite":
        from quire.store.maintenance.sqlite import SqliteUpkeep

        path = store_path(store.url)
        assert path is not None
        return SqliteUpkeep(path)
    if scheme.startswith("postgres"):
        from quire.store.maintenance.postgresql import PostgresqlUpkeep

        return PostgresqlUpkeep(store.url)
    raise InvalidArgument(f"there is no maintenance for {store.url}", url=store.url)
