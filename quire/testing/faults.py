"""Faults for tests: a store that fails, or ends its process, at a chosen point of a chosen commit; and torn records."""

import mmap
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import lmdb
from sqlalchemy import Connection, event, update

from quire.errors import InvalidArgument, StoreError, StoreFull, UnknownMessage
from quire.message import Message
from quire.store.base import Delivery, LaneState, Link, Page, Store, StoredDestination, StoreReader, WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.sql.store import SqlStore
from quire.store.sql.tables import records

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


class FaultyStore(Store):
    """A store on top of another one, with faults. Without one it does what the other does.

    A fault that raises belongs before or inside a commit: a store that has committed may not say that it failed.

    Args:
        store: the other one.

    Attributes:
        commits: how many batches it was given.
        reads: how many reads were asked of it, those of its snapshots included.
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.commits = self.reads = 0
        self._store = store
        self._faults: defaultdict[tuple[Point, int], Fault] = defaultdict(lambda: lambda: None)
        self._read_faults: dict[int, Fault] = {}
        self._hooked = False

    def at(self, point: Point, nth: int, fault: Fault, times: int = 1) -> None:
        """Plan a fault.

        Args:
            point: where in the commit.
            nth: in which one; the next is 1.
            fault: what is done there.
            times: in how many commits one after the other.

        Raises:
            InvalidArgument: the store has no transaction that one could be inside of.
        """
        if point is Point.INSIDE and not self._hooked:
            _hook_commit(self._store, lambda: self._reach(Point.INSIDE))
            self._hooked = True
        for number in range(self.commits + nth, self.commits + nth + times):
            self._faults[point, number] = fault

    def at_read(self, nth: int, fault: Fault = read_error, times: int = 1) -> None:
        """Plan a fault of a read, of whatever kind the read is.

        Args:
            nth: of which one; the next is 1.
            fault: what is done before it.
            times: in how many reads one after the other.
        """
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

    def open(self) -> None:
        """Open the store underneath."""
        self._store.open()

    def close(self) -> None:
        """Close the store underneath."""
        self._store.close()

    def sync(self) -> None:
        """Sync the store underneath."""
        self._store.sync()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A snapshot of the store underneath, whose reads have the planned faults."""
        with self._store.snapshot() as reader:
            yield _FaultyReader(reader, self._reach_read)

    def _reach_read(self) -> None:
        self.reads += 1
        if self._read_faults and (fault := self._read_faults.pop(self.reads, None)):
            fault()

    def size(self) -> int:
        """Bytes in use underneath."""
        return self._store.size()

    def try_lock(self, owner: str) -> bool:
        """Lock the store underneath."""
        return self._store.try_lock(owner)

    def unlock(self) -> None:
        """Unlock the store underneath."""
        self._store.unlock()

    def lock_owner(self) -> str:
        """Who has the lock of the store underneath."""
        return self._store.lock_owner()

    def check_lock(self) -> bool:
        """Whether the lock of the store underneath is still ours."""
        return self._store.check_lock()


class _FaultyReader(StoreReader):
    """A snapshot's reads, each announced before it is made.

    Args:
        reader: makes the reads.
        announce: told of each of them; what it raises is what the read raises.
    """

    def __init__(self, reader: StoreReader, announce: Callable[[], None]) -> None:
        self._reader = reader
        self._announce = announce

    def destinations(self) -> list[StoredDestination]:
        self._announce()
        return self._reader.destinations()

    def lane_state(self, lane: int) -> LaneState:
        self._announce()
        return self._reader.lane_state(lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        self._announce()
        return self._reader.page(lane, start, byte_budget, limit)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        self._announce()
        return self._reader.load(lane, sequences)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        self._announce()
        return self._reader.links(lane, start, limit)

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        self._announce()
        return self._reader.deliveries(lane, start, limit)

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        self._announce()
        return self._reader.expired(now_ms, limit)

    def producer(self, producer_id: str) -> int:
        self._announce()
        return self._reader.producer(producer_id)

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        self._announce()
        return self._reader.producers(start, limit)

    def mark(self, key: str) -> bytes | None:
        self._announce()
        return self._reader.mark(key)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        self._announce()
        return self._reader.marks(prefix, start, limit)


def _hook_commit(store: Store, call: Callable[[], None]) -> None:
    """Have a call made whenever a store has made a batch's writes and is about to commit them."""
    if isinstance(store, LmdbStore):
        write = store._write

        def write_and_call(transaction: lmdb.Transaction, batch: WriteBatch) -> None:
            write(transaction, batch)
            call()

        # No store offers this to anybody but a test, so the test takes it: an instance's own method goes first.
        vars(store)["_write"] = write_and_call
    elif isinstance(store, SqlStore):

        def committing(_connection: Connection) -> None:
            call()

        event.listen(store._backend.writer, "commit", committing)
    else:
        raise InvalidArgument(f"the store {store.url} has no transaction to be inside of", url=store.url)


def tear(store: Store, lane: int, sequence: int) -> None:
    """Change a byte of a record's content behind the store's back, as a failing disk would. A broker may run on it.

    Args:
        store: open; LMDB or SQL.
        lane: the record's lane.
        sequence: the record.

    Raises:
        UnknownMessage: there is no such record.
        InvalidArgument: the store keeps nothing that could be torn.
    """
    found = store.load(lane, [sequence])
    if not found:
        raise UnknownMessage(f"there is no record {sequence} in lane {lane}", lane=lane, sequence=sequence)
    content = found[0].content
    torn = bytes([content[0] ^ 0xFF]) + content[1:]
    if isinstance(store, LmdbStore):
        with (store.path / "data.mdb").open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            place = data.find(content)
            while place >= 0:  # a page that was freed may hold an older copy
                data[place : place + len(torn)] = torn
                place = data.find(content, place + 1)
    elif isinstance(store, SqlStore):
        here = (records.c.lane == lane) & (records.c.sequence == sequence)
        with store._backend.writer.begin() as connection:
            connection.execute(update(records).where(here).values(content=torn))
    else:
        raise InvalidArgument(f"the store {store.url} keeps nothing that could be torn", url=store.url)
