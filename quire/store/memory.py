"""The memory store: for tests and for brokers that keep nothing. It behaves like the others until the process ends."""

import heapq
import threading
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Generic, NamedTuple, TypeVar

from quire.errors import StoreError
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneBatch,
    LaneState,
    Link,
    Page,
    Store,
    StoredDestination,
    StoreReader,
    WriteBatch,
    add_delivery,
    mark_key,
)

_Name = TypeVar("_Name")
_Value = TypeVar("_Value")
_Key = TypeVar("_Key", int, tuple[int, int, int])


class _SortedKeys(Generic[_Key]):
    """Keys in order. Removed ones leave the list later, when they are more than half of it."""

    def __init__(self, keys: Iterator[_Key] | None = None) -> None:
        self._order: list[_Key] = list(keys or ())
        self._present: set[_Key] = set(self._order)

    def add(self, key: _Key) -> None:
        index = bisect_left(self._order, key)
        if self._order[index : index + 1] != [key]:
            self._order.insert(index, key)
        self._present.add(key)

    def discard(self, key: _Key) -> None:
        self._present.discard(key)
        if len(self._order) > 2 * len(self._present) + 64:
            self._order = [key for key in self._order if key in self._present]

    def iterate(self, start: _Key) -> Iterator[_Key]:
        """The keys from ``start`` on."""
        for index in range(bisect_left(self._order, start), len(self._order)):
            if (key := self._order[index]) in self._present:
                yield key

    def copy(self) -> "_SortedKeys[_Key]":
        return _SortedKeys(key for key in self._order if key in self._present)


class _Record(NamedTuple):
    content: bytes
    expiration: int
    priority: int
    checksum: int


class _Lane:
    """One lane: bodies, the links between them kept apart, and the lane's state."""

    def __init__(self) -> None:
        self.state = LaneState()
        self.records: dict[int, _Record] = {}
        self.links: dict[int, tuple[int, int]] = {}
        self.sequences: _SortedKeys[int] = _SortedKeys()
        self.deliveries: dict[int, Delivery] = {}

    def copy(self) -> "_Lane":
        lane = _Lane()
        lane.state = self.state
        lane.records = self.records.copy()
        lane.links = self.links.copy()
        lane.sequences = self.sequences.copy()
        lane.deliveries = self.deliveries.copy()
        return lane

    def walk(self, start: int) -> Iterator[int]:
        """Sequences from the first one at or after ``start``, along ``next``."""
        sequence = self.state.head
        if start > sequence:
            sequence = start if start in self.links else next(self.sequences.iterate(start), 0)
        while sequence:
            yield sequence
            sequence = self.links[sequence][1]

    def append(self, message: Message, checksum: int) -> None:
        sequence, tail = message.sequence, self.state.tail
        self.records[sequence] = _Record(message.content, message.expiration, message.priority, checksum)
        self.links[sequence] = (tail, 0)
        self.sequences.add(sequence)
        if tail:
            self.links[tail] = (self.links[tail][0], sequence)
        self.state = self.state._replace(
            head=self.state.head or sequence, tail=sequence, count=self.state.count + 1,
            bytes=self.state.bytes + message.size, next_sequence=sequence + 1,
        )  # fmt: skip

    def remove(self, sequence: int) -> _Record:
        """Remove a record and link its neighbours."""
        record = self.records.pop(sequence)
        previous, following = self.links.pop(sequence)
        self.sequences.discard(sequence)
        self.deliveries.pop(sequence, None)
        if previous:
            self.links[previous] = (self.links[previous][0], following)
        if following:
            self.links[following] = (previous, self.links[following][1])
        self.state = self.state._replace(
            head=self.state.head if previous else following, tail=self.state.tail if following else previous,
            count=self.state.count - 1, bytes=self.state.bytes - len(record.content),
        )  # fmt: skip
        return record

    def message(self, sequence: int) -> Message:
        record = self.records[sequence]
        message = Message(sequence, record.content, record.expiration, record.priority)
        if delivery := self.deliveries.get(sequence):
            add_delivery(message, delivery)
        return message


class _Content:
    """Everything a memory store holds, guarded by a lock: reads come from another thread than commits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lanes: dict[int, _Lane] = {}
        self.destinations: dict[int, StoredDestination] = {}
        self.expirations: _SortedKeys[tuple[int, int, int]] = _SortedKeys()
        self.producers: dict[str, int] = {}
        self.marks: dict[str, bytes] = {}

    def copy(self) -> "_Content":
        content = _Content()
        with self.lock:
            content.lanes = {number: lane.copy() for number, lane in self.lanes.items()}
            content.destinations = self.destinations.copy()
            content.expirations = self.expirations.copy()
            content.producers = self.producers.copy()
            content.marks = self.marks.copy()
        return content


class MemoryReader(StoreReader):
    """Reads the content of a memory store, or of a copy of one."""

    def __init__(self, content: _Content) -> None:
        self._content = content

    @contextmanager
    def _reading(self) -> Iterator[_Content]:
        with self._content.lock:
            yield self._content

    def destinations(self) -> list[StoredDestination]:
        with self._reading() as content:
            return [content.destinations[number] for number in sorted(content.destinations)]

    def lane_state(self, lane: int) -> LaneState:
        with self._reading() as content:
            return content.lanes[lane].state if lane in content.lanes else LaneState()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        messages: list[Message] = []
        with self._reading() as content:
            found = content.lanes.get(lane) or _Lane()
            for sequence in found.walk(start):
                byte_budget -= len(found.records[sequence].content) + MESSAGE_OVERHEAD
                if messages and (byte_budget < 0 or len(messages) >= limit):
                    return Page(messages, end=False)
                messages.append(found.message(sequence))
        return Page(messages, end=True)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        with self._reading() as content:
            found = content.lanes.get(lane) or _Lane()
            return [found.message(sequence) for sequence in sequences if sequence in found.records]

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        with self._reading() as content:
            found = content.lanes.get(lane) or _Lane()
            return [
                Link(sequence, *found.links[sequence], len(record.content), record.checksum)
                for sequence in islice(found.walk(start), limit)
                for record in (found.records[sequence],)
            ]

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        with self._reading() as content:
            found = content.lanes.get(lane) or _Lane()
            sequences = sorted(sequence for sequence in found.deliveries if sequence >= start)
            return [(sequence, found.deliveries[sequence]) for sequence in sequences[:limit]]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        time, lane, sequence = after
        with self._reading() as content:
            following = content.expirations.iterate((time, lane, sequence + 1))
            return [Expiration._make(key) for key in takewhile(lambda key: key[0] <= now_ms, islice(following, limit))]

    def producer(self, producer_id: str) -> int:
        with self._reading() as content:
            return content.producers.get(producer_id, 0)

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        with self._reading() as content:
            return heapq.nsmallest(limit, [entry for entry in content.producers.items() if entry[0] >= start])

    def mark(self, key: str) -> bytes | None:
        mark_key(key)
        with self._reading() as content:
            return content.marks.get(key)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        with self._reading() as content:
            # Texts are compared by code point, which gives the order of their bytes of UTF-8.
            keys = sorted(key for key in content.marks if key.startswith(prefix) and key >= start)
            return [(key, content.marks[key]) for key in keys[:limit]]


class MemoryStore(MemoryReader, Store):
    """A store in memory. Closing and opening it again shows the same content, as with a store on disk."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__(_Content())
        self._is_open = False
        self._owner = ""

    @contextmanager
    def _reading(self) -> Iterator[_Content]:
        with self._content.lock:
            yield self._opened()

    def _opened(self) -> _Content:
        if not self._is_open:
            raise StoreError("the memory store is closed: open it first", url=self.url)
        return self._content

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        self._owner = ""

    def apply(self, batch: WriteBatch) -> None:
        content = self._opened()
        # What can fail comes first: from the lock on, nothing does.
        for key in batch.marks:
            mark_key(key)
        checksums = {
            lane: [zlib.crc32(message.content) for message in part.appends] for lane, part in batch.lanes.items()
        }
        with content.lock:
            for lane, part in batch.lanes.items():
                if part:
                    _change_lane(content, lane, part, checksums[lane])
            _replace_destinations(content, batch.destinations)
            _update(content.producers, batch.producers)
            _update(content.marks, batch.marks)

    def sync(self) -> None:
        """Nothing is ever on disk."""

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A copy of the indexes; the bodies are shared."""
        yield MemoryReader(self._opened().copy())

    def size(self) -> int:
        with self._reading() as content:
            return sum(lane.state.bytes for lane in content.lanes.values())

    def try_lock(self, owner: str) -> bool:
        self._owner = owner
        return True

    def unlock(self) -> None:
        self._owner = ""

    def lock_owner(self) -> str:
        return self._owner

    def check_lock(self) -> bool:
        return bool(self._owner)


def _update(found: dict[_Name, _Value], changes: Mapping[_Name, _Value | None]) -> None:
    for key, value in changes.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value


def _change_lane(content: _Content, number: int, part: LaneBatch, checksums: list[int]) -> None:
    lane = content.lanes.setdefault(number, _Lane())
    for message, checksum in zip(part.appends, checksums, strict=True):
        lane.append(message, checksum)
        if message.expiration:
            content.expirations.add((message.expiration, number, message.sequence))
    _update(lane.deliveries, {at: state for at, state in part.deliveries.items() if at in lane.records})
    for sequence in part.removals:
        if sequence in lane.records:
            record = lane.remove(sequence)
            content.expirations.discard((record.expiration, number, sequence))
    if part.dispatch_mark is not None:
        lane.state = lane.state._replace(dispatch_mark=part.dispatch_mark)
    part.state = lane.state


def _replace_destinations(content: _Content, changes: dict[int, StoredDestination | None]) -> None:
    for number, destination in changes.items():
        if destination is not None:
            content.destinations[number] = destination
        elif removed := content.destinations.pop(number, None):
            for lane in removed.lanes:
                records = content.lanes.pop(lane, _Lane()).records
                for sequence, record in records.items():
                    content.expirations.discard((record.expiration, lane, sequence))
