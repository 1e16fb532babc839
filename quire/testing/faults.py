"""Faults for tests: a store that fails, or ends its process, at a chosen point of a chosen commit; and torn records.

It is a store on top of another one (``StoreOnTop``), which hears of each read before it is made: to count reads, too.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar, cast

from quire.errors import InvalidArgument, StoreError, StoreFull, UnknownMessage
from quire.store.base import (
    Store,
    StoreReader,
    WriteBatch,
)
from quire.store.pages import KEY, PagedStore, Transaction, entry_of
from quire.store.postgresql.commit import Change
from quire.store.postgresql.store import PostgresqlStore

M = TypeVar("M", bound=Callable[..., object])


def _announced(method: M) -> M:
    """A read of the reader underneath, announced first."""

    def read(self: "AnnouncedReads", *args: Any, **options: Any) -> Any:
        self._announce()
        return getattr(self._reader, method.__name__)(*args, **options)

    return cast("M", read)


def _passed_on(method: M) -> M:
    """A call of the store underneath."""

    def call(self: "StoreOnTop", *args: Any, **options: Any) -> Any:
        return getattr(self._store, method.__name__)(*args, **options)

    return cast("M", call)


class AnnouncedReads(StoreReader):
    """The reads of another reader; ``announce`` is called before each, and an error of it is the read's."""

    def __init__(self, reader: StoreReader, announce: Callable[[], None]) -> None:
        self._reader = reader
        self._announce = announce

    destinations = _announced(StoreReader.destinations)
    lane_state = _announced(StoreReader.lane_state)
    page = _announced(StoreReader.page)
    load = _announced(StoreReader.load)
    links = _announced(StoreReader.links)
    deliveries = _announced(StoreReader.deliveries)
    expired = _announced(StoreReader.expired)
    producer = _announced(StoreReader.producer)
    producers = _announced(StoreReader.producers)
    mark = _announced(StoreReader.mark)
    marks = _announced(StoreReader.marks)


class StoreOnTop(AnnouncedReads, Store):
    """A store on top of another one; ``announce`` is called before each read, and an error of it is the read's."""

    def __init__(self, store: Store, announce: Callable[[], None]) -> None:
        super().__init__(store, announce)
        self.url = store.url
        self.reserve_file = store.reserve_file
        self._store = store

    open = _passed_on(Store.open)
    close = _passed_on(Store.close)
    sync = _passed_on(Store.sync)
    size = _passed_on(Store.size)
    free = _passed_on(Store.free)
    try_lock = _passed_on(Store.try_lock)
    unlock = _passed_on(Store.unlock)
    lock_owner = _passed_on(Store.lock_owner)
    check_lock = _passed_on(Store.check_lock)
    lock_until = _passed_on(Store.lock_until)

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch."""
        self._store.apply(batch)

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A snapshot of the store underneath, whose reads are announced too."""
        with self._store.snapshot() as reader:
            yield AnnouncedReads(reader, self._announce)

    @property
    def lease_seconds(self) -> float:
        """How long the lock outlives a process that was killed."""
        return self._store.lease_seconds


Fault = Callable[[], None]
"""What is done at a point: it raises a ``StoreError``, or does not return."""


class Point(StrEnum):
    """Where in a commit: before anything of it; with all writes made and not committed; committed and not announced."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


def die() -> None:
    """End this process at once, as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def no_space() -> None:
    """Fail as a full disk does."""
    raise StoreFull("no space for a commit (a test's fault)")


def io_error() -> None:
    """Fail as a broken disk does."""
    raise StoreError("a commit failed: Input/output error (a test's fault)")


def read_error() -> None:
    """Fail as a read over a lost connection does."""
    raise StoreError("a read failed: Input/output error (a test's fault)")


class FaultyStore(StoreOnTop):
    """A store on top of another one, with faults. Without one it does what the other does.

    A fault that raises belongs before or inside a commit: a store that has committed may not say that it failed.

    Args:
        store: the other one.

    Attributes:
        commits: how many batches it was given.
        reads: how many reads were asked of it, those of its snapshots included.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, self._reach_read)
        self.commits = self.reads = 0
        self._faults: defaultdict[tuple[Point, int], Fault] = defaultdict(lambda: lambda: None)
        self._read_faults: dict[int, Fault] = {}
        self._hooked = False

    def at(self, point: Point, nth: int, fault: Fault, times: int = 1) -> None:
        """Plan a fault at a point of the nth commit from now, for some commits one after the other."""
        if point is Point.INSIDE and not self._hooked:
            _hook_commit(self._store, lambda: self._reach(Point.INSIDE))
            self._hooked = True
        for number in range(self.commits + nth, self.commits + nth + times):
            self._faults[point, number] = fault

    def at_read(self, nth: int, fault: Fault = read_error, times: int = 1) -> None:
        """Plan a fault of the nth read from now, of any kind, for some reads one after the other."""
        for number in range(self.reads + nth, self.reads + nth + times):
            self._read_faults[number] = fault

    def mend(self) -> None:
        """Forget all planned faults."""
        self._faults.clear()
        self._read_faults.clear()

    def apply(self, batch: WriteBatch) -> None:
        """Commit a batch, unless a fault is planned."""
        self.commits += 1
        self._reach(Point.BEFORE)
        self._store.apply(batch)
        self._reach(Point.AFTER)

    def _reach(self, point: Point) -> None:
        self._faults[point, self.commits]()

    def _reach_read(self) -> None:
        self.reads += 1
        if self._read_faults and (fault := self._read_faults.pop(self.reads, None)):
            fault()


def _hook_commit(store: Store, call: Callable[[], None]) -> None:
    """Have a call made whenever a store has made a batch's writes and is about to commit them."""
    if isinstance(store, PagedStore):
        write = store._write

        def write_and_call(transaction: Transaction, batch: WriteBatch) -> None:
            write(transaction, batch)
            call()

        # Only tests need this, so no store offers it: an instance's own method goes first.
        vars(store)["_write"] = write_and_call
    elif isinstance(store, PostgresqlStore):
        commit = store._committer.commit

        def call_and_commit(change: Change) -> None:
            call()  # all writes are one statement: this is just before it
            commit(change)

        vars(store._committer)["commit"] = call_and_commit
    else:
        raise InvalidArgument(f"the store {store.url} has no transaction to be inside of", url=store.url)


def _tear_row(store: PostgresqlStore, lane: int, sequence: int) -> None:
    """Change the first byte of a record's content in its page."""
    with store.database.transaction() as connection:
        row = connection.execute(
            "SELECT first, entries, body FROM pages WHERE lane = %s AND first <= %s AND last >= %s",
            [lane, sequence, sequence],
        ).fetchone()
        assert row is not None
        first, entries, body = row
        change = "UPDATE pages SET body = %s WHERE lane = %s AND first = %s"
        connection.execute(change, [_torn(entries, body, sequence), lane, first])


def _tear_page(store: PagedStore, lane: int, sequence: int) -> None:
    """As ``_tear_row``."""
    with store.writing() as txn:
        found = txn.find(KEY.pack(lane, 0), KEY.pack(lane, sequence), db=store.tables.links)
        assert found is not None
        key = bytes(found[0])
        body = _torn(found[1], txn.get(key, db=store.tables.bodies) or b"", sequence)
        txn.put(key, body, db=store.tables.bodies)


def _torn(entries: bytes | memoryview, body: bytes | memoryview, sequence: int) -> bytes:
    entry = entry_of(entries, sequence)
    assert entry is not None
    torn = bytearray(body)
    torn[entry[4]] ^= 0xFF
    return bytes(torn)


def tear(store: Store, lane: int, sequence: int) -> None:
    """Change a byte of a record's content in an open store, as a failing disk would."""
    if not store.load(lane, [sequence]):
        raise UnknownMessage(f"there is no record {sequence} in lane {lane}", lane=lane, sequence=sequence)
    if isinstance(store, PagedStore):
        _tear_page(store, lane, sequence)
    elif isinstance(store, PostgresqlStore):
        _tear_row(store, lane, sequence)
    else:
        raise InvalidArgument(f"the store {store.url} keeps nothing that could be torn", url=store.url)
