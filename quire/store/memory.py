"""The memory store: for tests and for brokers that keep nothing. It behaves like the others until the process ends."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from quire.errors import StoreError
from quire.store.base import StoreReader, WriteBatch
from quire.store.pages import STATE, PagedReader, PagedStore, Tables

_R = TypeVar("_R")


class MemoryTable:
    """Values by key, with the keys in order. Removed keys leave the list later, when they are more than half of it."""

    __slots__ = ("_order", "values")

    def __init__(self, values: Mapping[bytes, bytes] = {}) -> None:
        self.values = dict(values)
        self._order = sorted(values)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            place = bisect_left(self._order, key)
            if self._order[place : place + 1] != [key]:
                self._order.insert(place, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        del self.values[key]
        if len(self._order) > 2 * len(self.values) + 64:
            self._order = [key for key in self._order if key in self.values]

    def scan(self, key: bytes, lowest: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries from a key on, or from the last one on that is between ``lowest`` and the key."""
        order, values = self._order, self.values
        place = start = bisect_left(order, key) if lowest is None else bisect_right(order, key)
        while lowest is not None and place and order[place - 1] >= lowest:
            place -= 1
            if order[place] in values:
                start = place
                break
        for index in range(start, len(order)):
            if (found := order[index]) in values:
                yield found, values[found]


class MemoryTransaction:
    """A transaction as ``PagedStore`` uses it; it can be taken back."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[tuple[MemoryTable, bytes, bytes | None]] = []

    def get(self, key: bytes, *, db: MemoryTable) -> bytes | None:
        return db.values.get(key)

    def put(self, key: bytes, value: bytes | bytearray, *, db: MemoryTable) -> None:
        self._before.append((db, key, db.values.get(key)))
        db.put(key, bytes(value))

    def delete(self, key: bytes, *, db: MemoryTable) -> None:
        if key in db.values:
            self._before.append((db, key, db.values[key]))
            db.delete(key)

    def find(self, lowest: bytes, key: bytes, *, db: MemoryTable) -> tuple[bytes, bytes] | None:
        return next(db.scan(key, lowest), None)

    def scan(self, key: bytes, *, db: MemoryTable, lowest: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return db.scan(key, lowest)

    def roll_back(self) -> None:
        for table, key, value in reversed(self._before):
            if value is None:
                table.delete(key)
            else:
                table.put(key, value)


class MemoryStore(PagedStore):
    """A store in memory. Closing and opening it again shows the same content, as with a store on disk."""

    url = "memory:"

    def __init__(self) -> None:
        self.tables = empty_tables()
        self._guard = threading.Lock()  # reads come from another thread than commits
        self._is_open = False
        self._owner = ""

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        self._owner = ""

    def apply(self, batch: WriteBatch) -> None:
        with self.writing() as txn:
            self._write(txn, batch)

    @contextmanager
    def writing(self) -> Iterator[MemoryTransaction]:
        self._check_open()
        txn = MemoryTransaction()
        with self._guard:
            try:
                yield txn
            except BaseException:
                txn.roll_back()
                raise

    def sync(self) -> None:
        """Nothing is ever on disk."""

    def _read_newest(self, call: Callable[[StoreReader], _R]) -> _R:
        self._check_open()
        with self._guard:
            return call(PagedReader(MemoryTransaction(), self.tables))

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A copy of the tables; the values are shared."""
        self._check_open()
        with self._guard:
            tables = Tables(*[MemoryTable(table.values) for table in self.tables])
        yield PagedReader(MemoryTransaction(), tables)

    def size(self) -> int:
        self._check_open()
        with self._guard:
            return sum([STATE.unpack(state)[3] for state in self.tables.lanes.values.values()])

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the memory store is closed: open it first", url=self.url)

    def try_lock(self, owner: str) -> bool:
        self._owner = owner
        return True

    def unlock(self) -> None:
        self._owner = ""

    def lock_owner(self) -> str:
        return self._owner

    def check_lock(self) -> bool:
        return bool(self._owner)


def empty_tables() -> Tables:
    return Tables(*[MemoryTable() for _ in Tables._fields])
