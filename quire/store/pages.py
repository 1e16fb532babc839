"""Records in pages under ordered keys: the record format of LMDB, SQLite and PostgreSQL, and a store over it.

**A page** has the records of one lane and one commit together. It is two values under one key, (lane, first sequence):
the *body page* holds the records one after the other and is never rewritten; the *links page* holds an entry of fixed
width per record that is still there: its links, its size, and where in the body page it stands. Removing records
rewrites a links page of a few kilobytes; the last removal deletes both values. Every record in a body page begins with
a header of its own, so that the links can be rebuilt from the records.

Links lead from page to page. On PostgreSQL a page's last record has no ``next``: rows are in order anyway, and so no
row is written again only because its neighbour came or went.

**A paged store** (``PagedStore``) reads and writes LMDB, SQLite and memory in the same way. A back end gives
transactions over eight tables of keys and values, in which keys sort as their bytes do, and what is particular to it:
how it opens, commits, syncs and fails. All that is known of lanes, links and pages stands here.

| Table | Key | Value |
|---|---|---|
| destinations | id | kind, name, settings, lanes, as JSON |
| lanes | lane | the lane's state |
| links, bodies | lane, first sequence of the page | a page's two values |
| deliveries | lane, sequence | delivery state |
| expirations | time, lane, sequence | nothing |
| producers, marks | text | highest send sequence; the mark's value |
"""

import hashlib
import json
import re
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice, takewhile
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeAlias
from zlib import crc32

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import (
    FIRST_EXPIRATION,
    MAX_MARK_KEY,
    Content,
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
    reader_tells_of_damage,
    tells_of_damage,
)

PAGE_BYTES = 65536
"""A page takes records until their contents are larger than this; a larger record has a page of its own."""

ENTRY = Struct("<QQQqIIIBxxx")
"""An entry of a links page: sequence, previous, next, expiration, offset, size, checksum, priority."""

RECORD = Struct("<QqIIBxxx")  # the header of a record in a body page: sequence, expiration, size, checksum, priority
KEY = Struct(">IQ")  # a page's key: lane and first sequence, big-endian so that keys sort as numbers do
_U64 = Struct("<Q")
_WIDTH = ENTRY.size


class Entry(NamedTuple):
    sequence: int
    previous: int
    next: int
    expiration: int
    offset: int
    size: int
    checksum: int
    priority: int


class LinksPage:
    """A links page in a write transaction; ``first``, the sequence in its key, stays when that record is removed."""

    __slots__ = ("data", "dirty", "first")

    def __init__(self, first: int, data: bytearray) -> None:
        self.first = first
        self.data = data
        self.dirty = False

    @property
    def count(self) -> int:
        return len(self.data) // _WIDTH

    def sequence(self, index: int) -> int:
        sequence: int = _U64.unpack_from(self.data, index * _WIDTH)[0]
        return sequence

    def find(self, sequence: int) -> int:
        return find(self.data, sequence)

    def measure(self, start: int, end: int) -> tuple[int, list[tuple[int, int]]]:
        """The sum of the sizes of entries, and (expiration, sequence) of those that expire."""
        rows = list(ENTRY.iter_unpack(self.data[start * _WIDTH : end * _WIDTH]))  # plain tuples: this is a hot path
        return sum([row[5] for row in rows]), [(row[3], row[0]) for row in rows if row[3]]

    def links(self, start: int, end: int) -> tuple[int, int]:
        """The previous link of the entry at ``start`` and the next link of the one before ``end``."""
        previous = _U64.unpack_from(self.data, start * _WIDTH + 8)[0]
        return previous, _U64.unpack_from(self.data, (end - 1) * _WIDTH + 16)[0]

    def set_previous(self, index: int, previous: int) -> None:
        _U64.pack_into(self.data, index * _WIDTH + 8, previous)
        self.dirty = True

    def set_next(self, index: int, following: int) -> None:
        _U64.pack_into(self.data, index * _WIDTH + 16, following)
        self.dirty = True

    def remove(self, start: int, end: int) -> None:
        del self.data[start * _WIDTH : end * _WIDTH]
        self.dirty = True


def find(data: bytes | bytearray | memoryview, sequence: int) -> int:
    """The index of a sequence in a links page, or -1."""
    index = find_from(data, sequence)
    is_there = index * _WIDTH < len(data) and _U64.unpack_from(data, index * _WIDTH)[0] == sequence
    return index if is_there else -1


def find_from(data: bytes | bytearray | memoryview, sequence: int) -> int:
    """The index of the first entry of a links page at or after a sequence; the entries' count if there is none."""
    count = len(data) // _WIDTH
    first = _U64.unpack_from(data, 0)[0] if count else 0
    guess = sequence - first  # pages are dense until something is removed from their middle
    if 0 <= guess < count and _U64.unpack_from(data, guess * _WIDTH)[0] == sequence:
        return int(guess)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _U64.unpack_from(data, middle * _WIDTH)[0] < sequence:
            low = middle + 1
        else:
            high = middle
    return low


def common_run(page: LinksPage, start: int, sequences: list[int], position: int) -> int:
    """How many entries from ``start`` on are also the next ones of the sorted sequences."""
    run = min(page.count - start, len(sequences) - position)
    if page.sequence(start + run - 1) == sequences[position + run - 1] == sequences[position] + run - 1:
        return run  # both are dense between the same ends
    same = 1
    while same < run and page.sequence(start + same) == sequences[position + same]:
        same += 1
    return same


def entry_of(data: bytes | memoryview, sequence: int) -> tuple[int, ...] | None:
    position = find_from(data, sequence) * _WIDTH
    if position >= len(data):
        return None
    entry: tuple[int, ...] = ENTRY.unpack_from(data, position)
    return entry if entry[0] == sequence else None


def pack(
    messages: list[Message], previous: int, page_bytes: int = PAGE_BYTES, *, joined: bool = True
) -> Iterator[tuple[LinksPage, bytes, int]]:
    """Write the records of one commit as pages: the links page, the body page, the sum of the records' sizes.

    ``joined`` says whether the last record of a page has a link to the first one of the next page.
    """
    start, total = 0, len(messages)
    while start < total:
        end, size = start, 0
        while end < total and (end == start or size + messages[end].size <= page_bytes):
            size += messages[end].size
            end += 1
        links = bytearray((end - start) * _WIDTH)
        body: list[bytes] = []
        offset = position = 0
        linked = total if joined else end
        for index in range(start, end):
            message = messages[index]
            content, sequence = message.content, message.sequence
            following = messages[index + 1].sequence if index + 1 < linked else 0
            checksum = zlib.crc32(content)
            ENTRY.pack_into(
                links, position, sequence, previous, following, message.expiration,
                offset + RECORD.size, message.size, checksum, message.priority,
            )  # fmt: skip
            body.append(RECORD.pack(sequence, message.expiration, message.size, checksum, message.priority))
            body.append(content)
            offset += RECORD.size + message.size
            position += _WIDTH
            previous = sequence
        yield LinksPage(messages[start].sequence, links), b"".join(body), size
        start = end


def entries_from(data: bytes | memoryview, sequence: int) -> Iterator[tuple[int, ...]]:
    return ENTRY.iter_unpack(data[find_from(data, sequence) * _WIDTH :])


def read_message(lane: int, entry: tuple[int, ...], body: bytes | memoryview) -> Message:
    sequence, _, _, expiration, offset, size, checksum, priority = entry
    content = bytes(body[offset : offset + size])
    if zlib.crc32(content) != checksum or len(content) != size:
        raise damaged(lane, sequence)
    return Message(sequence, content, expiration, priority)


def damaged(lane: int, sequence: int) -> StoreCorrupt:
    return StoreCorrupt(f"record {sequence} of lane {lane} is damaged", lane=lane, sequence=sequence)


def records(body: bytes | memoryview) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Sequence, expiration, size, checksum, priority and offset of each record of a body page, removed ones too."""
    offset = 0
    while offset + RECORD.size <= len(body):
        sequence, expiration, size, checksum, priority = RECORD.unpack_from(body, offset)
        offset += RECORD.size
        yield sequence, expiration, size, checksum, priority, offset
        offset += size


LANE = Struct(">I")  # the key of a lane's state, and of a destination
STATE = Struct("<QQQQQQ")  # a lane's state: the fields of ``LaneState`` in their order
EXPIRATION = Struct(">QIQ")  # a key of the expirations: time, lane, sequence
_DELIVERY = Struct("<IIq")

_STEP = 100  # how many entries of a lane that goes are read before they are removed
_DIGEST_KEY = re.compile(rb".{440}#[0-9a-f]{64}", re.DOTALL)
"""What ``text_key`` makes of a long text: a page of producers may end there, and the next one begins with it."""

Bytes: TypeAlias = bytes | memoryview  # what a back end gives; it is valid as long as its transaction
Table: TypeAlias = Any  # what a back end calls one of its tables


class Tables(NamedTuple):
    destinations: Table
    lanes: Table
    links: Table
    bodies: Table
    deliveries: Table
    expirations: Table
    producers: Table
    marks: Table


class Transaction(Protocol):
    """A transaction of a back end, which sees one state and its own writes. ``db`` is one of the store's ``Tables``."""

    def get(self, key: bytes, *, db: Table) -> Bytes | None:
        """The value of a key."""

    def put(self, key: bytes, value: bytes | bytearray, *, db: Table) -> object:
        """Set the value of a key."""

    def delete(self, key: bytes, *, db: Table) -> object:
        """Remove a key, if it is there."""

    def find(self, lowest: bytes, key: bytes, *, db: Table) -> tuple[Bytes, Bytes] | None:
        """The last entry from ``lowest`` up to ``key``; without one, the first after it."""

    def scan(self, key: bytes, *, db: Table, lowest: bytes | None = None) -> Iterator[tuple[Bytes, Bytes]]:
        """The entries from a key on, or from what ``find`` finds on, in order. Nothing may be written meanwhile."""


class PagedStore(Store):
    """A store over a back end's transactions. Its snapshots are of ``PagedReader``."""

    tables: Tables

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction that writes, committed at its end; for maintenance, which has the lock."""

    @tells_of_damage
    def _write(self, txn: Transaction, batch: WriteBatch) -> None:
        tables = self.tables
        for number, destination in batch.destinations.items():
            key = LANE.pack(number)
            if destination is not None:
                txn.put(key, write_destination(destination), db=tables.destinations)
            elif data := txn.get(key, db=tables.destinations):
                for lane in read_destination(number, bytes(data)).lanes:
                    _drop_lane(txn, tables, lane)
                txn.delete(key, db=tables.destinations)
        has_deliveries = next(txn.scan(b"", db=tables.deliveries), None) is not None
        for lane, part in batch.lanes.items():
            if part:
                LaneEdit(txn, tables, lane, has_deliveries=has_deliveries).apply(part)
        for producer_id, sequence in batch.producers.items():
            packed = None if sequence is None else sequence.to_bytes(8, "big")
            _set(txn, tables.producers, text_key(producer_id), packed)
        for mark, value in batch.marks.items():
            _set(txn, tables.marks, mark_key(mark), value)


class LaneEdit:
    """One lane's part of a write transaction. Pages are read once and written once, by ``_finish``."""

    __slots__ = (
        "_bytes", "_count", "_has_deliveries", "_head", "_lane", "_mark", "_next_sequence", "_page", "_pages",
        "_tables", "_tail", "_txn",
    )  # fmt: skip

    def __init__(self, txn: Transaction, tables: Tables, lane: int, *, has_deliveries: bool) -> None:
        self._txn = txn
        self._tables = tables
        self._lane = lane
        self._has_deliveries = has_deliveries
        self._pages: dict[int, LinksPage] = {}
        self._page: LinksPage | None = None  # the last one in which a record was
        state = read_state(txn, tables, lane)
        self._head, self._tail, self._count, self._bytes, self._next_sequence, self._mark = state

    def apply(self, part: LaneBatch) -> None:
        if part.appends:
            self._append(part.appends)
        if part.removals:
            self._remove(sorted(set(part.removals)))
        for sequence, delivery in part.deliveries.items():
            self._set_delivery(sequence, delivery)
        if part.dispatch_mark is not None:
            self._mark = part.dispatch_mark
        part.state = self._finish()

    def _finish(self) -> LaneState:
        """Write the changed pages and the lane's state, which is returned."""
        for page in self._pages.values():
            key = KEY.pack(self._lane, page.first)
            if not page.data:
                self._txn.delete(key, db=self._tables.links)
                self._txn.delete(key, db=self._tables.bodies)
            elif page.dirty:
                self._txn.put(key, page.data, db=self._tables.links)
        state = LaneState(self._head, self._tail, self._count, self._bytes, self._next_sequence, self._mark)
        self._txn.put(LANE.pack(self._lane), STATE.pack(*state), db=self._tables.lanes)
        return state

    def _append(self, messages: list[Message]) -> None:
        if self._tail:
            page, index = self._place_of(self._tail)
            page.set_next(index, messages[0].sequence)
        else:
            self._head = messages[0].sequence
        for page, body, size in pack(messages, self._tail):
            key = KEY.pack(self._lane, page.first)
            self._txn.put(key, page.data, db=self._tables.links)
            self._txn.put(key, body, db=self._tables.bodies)
            self._pages[page.first] = page
            self._bytes += size
        for message in [message for message in messages if message.expiration]:
            key = EXPIRATION.pack(message.expiration, self._lane, message.sequence)
            self._txn.put(key, b"", db=self._tables.expirations)
        self._tail = messages[-1].sequence
        self._count += len(messages)
        self._next_sequence = self._tail + 1

    def _remove(self, sequences: list[int]) -> None:
        if self._has_deliveries:
            self._forget_deliveries(sequences)
        position = 0
        while position < len(sequences):
            place = self._find(sequences[position])
            if place is None:  # removed before
                position += 1
                continue
            page, start = place
            run = common_run(page, start, sequences, position)
            self._unlink(page, start, start + run)
            position += run

    def _unlink(self, page: LinksPage, start: int, end: int) -> None:
        """Remove a run of neighbours from a page and link the records on both sides of it."""
        previous, following = page.links(start, end)
        size, expiring = page.measure(start, end)
        self._bytes -= size
        for expiration, sequence in expiring:
            self._txn.delete(EXPIRATION.pack(expiration, self._lane, sequence), db=self._tables.expirations)
        self._count -= end - start
        page.remove(start, end)
        if previous:
            page, index = self._place_of(previous)
            page.set_next(index, following)
        else:
            self._head = following
        if following:
            page, index = self._place_of(following)
            page.set_previous(index, previous)
        else:
            self._tail = previous

    def _find(self, sequence: int) -> tuple[LinksPage, int] | None:
        """The page of a record and its index in it, or None if it is not there."""
        page = self._pages.get(sequence) or self._page
        if page is not None and (index := page.find(sequence)) >= 0:
            self._page = page
            return page, index
        found = self._txn.find(KEY.pack(self._lane, 0), KEY.pack(self._lane, sequence), db=self._tables.links)
        if found is None:
            return None
        lane, first = KEY.unpack(found[0])
        if lane != self._lane:
            return None
        page = self._pages.get(first)
        if page is None:
            page = self._pages[first] = LinksPage(first, bytearray(found[1]))
        if (index := page.find(sequence)) < 0:
            return None
        self._page = page
        return page, index

    def _place_of(self, sequence: int) -> tuple[LinksPage, int]:
        """As ``_find`` for a record that a link names, which therefore must be there."""
        place = self._find(sequence)
        if place is None:
            text = f"record {sequence} of lane {self._lane} is missing, but a link refers to it"
            raise StoreCorrupt(text, lane=self._lane, sequence=sequence)
        return place

    def _set_delivery(self, sequence: int, delivery: Delivery | None) -> None:
        key = KEY.pack(self._lane, sequence)
        if delivery is None:
            self._txn.delete(key, db=self._tables.deliveries)
        elif self._find(sequence):
            self._txn.put(key, pack_delivery(delivery), db=self._tables.deliveries)

    def _forget_deliveries(self, sequences: list[int]) -> None:
        going = set(sequences)
        known = lane_entries(self._txn, self._tables.deliveries, self._lane, sequences[0])
        here = takewhile(lambda entry: entry[0] <= sequences[-1], known)
        for gone in [sequence for sequence, _ in here if sequence in going]:
            self._txn.delete(KEY.pack(self._lane, gone), db=self._tables.deliveries)


def lane_entries(txn: Transaction, table: Table, lane: int, start: int = 0) -> Iterator[tuple[int, Bytes]]:
    """The sequences in a lane's keys of a table, from one on, with their values."""
    for key, value in txn.scan(KEY.pack(lane, start), db=table):
        owner, sequence = KEY.unpack(key)
        if owner != lane:
            return
        yield sequence, value


def _drop_lane(txn: Transaction, tables: Tables, lane: int) -> None:
    while found := list(islice(lane_entries(txn, tables.links, lane), _STEP)):
        for first, data in found:
            page, key = LinksPage(first, bytearray(data)), KEY.pack(lane, first)
            for expiration, sequence in page.measure(0, page.count)[1]:
                txn.delete(EXPIRATION.pack(expiration, lane, sequence), db=tables.expirations)
            txn.delete(key, db=tables.bodies)
            txn.delete(key, db=tables.links)
    while found := list(islice(lane_entries(txn, tables.deliveries, lane), _STEP)):
        for sequence, _ in found:
            txn.delete(KEY.pack(lane, sequence), db=tables.deliveries)
    txn.delete(LANE.pack(lane), db=tables.lanes)


def _set(txn: Transaction, table: Table, key: bytes, value: bytes | None) -> None:
    if value is None:
        txn.delete(key, db=table)
    else:
        txn.put(key, value, db=table)


@reader_tells_of_damage
class PagedReader(StoreReader):
    def __init__(self, txn: Transaction, tables: Tables) -> None:
        self.txn = txn
        self.tables = tables

    def destinations(self) -> list[StoredDestination]:
        return [
            read_destination(LANE.unpack(key)[0], bytes(value))
            for key, value in self.txn.scan(b"", db=self.tables.destinations)
        ]

    def lane_state(self, lane: int) -> LaneState:
        return read_state(self.txn, self.tables, lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        messages: list[Message] = []
        for links, body in self._pages(lane, start):
            for entry in entries_from(links, start):
                byte_budget -= entry[5] + MESSAGE_OVERHEAD
                if messages and (byte_budget < 0 or len(messages) >= limit):
                    self._add_deliveries(lane, messages)
                    return Page(messages, end=False)
                messages.append(read_message(lane, entry, body()))
        self._add_deliveries(lane, messages)
        return Page(messages, end=True)

    def contents(self, lane: int, start: int, byte_budget: int, limit: int) -> list[Content]:
        found: list[Content] = []
        for links, body in self._pages(lane, start):
            entries = entries_from(links, start)
            page: memoryview | None = None
            for sequence, _, _, expiration, offset, size, checksum, priority in entries:
                byte_budget -= size + MESSAGE_OVERHEAD
                if found and (byte_budget < 0 or len(found) >= limit):
                    return self._with_deliveries(lane, found)
                if page is None:
                    page = body()
                content = page[offset : offset + size].tobytes()
                if crc32(content) != checksum or len(content) != size:
                    raise damaged(lane, sequence)
                found.append((sequence, content, expiration, priority, 0))
        return self._with_deliveries(lane, found)

    def _with_deliveries(self, lane: int, found: list[Content]) -> list[Content]:
        """The records with what their delivery states say; most lanes have none."""
        states = self.deliveries(lane, found[0][0], len(found)) if found else []
        if not states:
            return found
        known = {sequence: state.deliveries for sequence, state in states}
        return [(*content[:4], known.get(content[0], 0)) for content in found]

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        messages = []
        links, body = memoryview(b""), _Lazy(self.txn, self.tables.bodies, b"")
        for sequence in sequences:
            entry = entry_of(links, sequence)
            if entry is None:
                links, body = next(self._pages(lane, sequence), (links, body))
                entry = entry_of(links, sequence)
            if entry is not None:
                messages.append(read_message(lane, entry, body()))
        self._add_deliveries(lane, sorted(messages, key=lambda message: message.sequence))
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        found: list[Link] = []
        for links, _ in self._pages(lane, start):
            for entry in entries_from(links, start):
                if len(found) >= limit:
                    return found
                found.append(Link(entry[0], entry[1], entry[2], entry[5], entry[6]))
        return found

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        found = lane_entries(self.txn, self.tables.deliveries, lane, start)
        return [(sequence, unpack_delivery(value)) for sequence, value in islice(found, limit)]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        first = EXPIRATION.pack(after.time, after.lane, after.sequence + 1)
        keys = (EXPIRATION.unpack(key) for key, _ in self.txn.scan(first, db=self.tables.expirations))
        return [Expiration._make(key) for key in takewhile(lambda key: key[0] <= now_ms, islice(keys, limit))]

    def producer(self, producer_id: str) -> int:
        data = self.txn.get(text_key(producer_id), db=self.tables.producers)
        return int.from_bytes(data, "big") if data else 0

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        entries = islice(self.txn.scan(text_key(start), db=self.tables.producers), limit)
        # The key of an id that is too long may end it within a character.
        return [(bytes(key).decode(errors="surrogateescape"), int.from_bytes(value, "big")) for key, value in entries]

    def mark(self, key: str) -> bytes | None:
        data = self.txn.get(mark_key(key), db=self.tables.marks)
        return None if data is None else bytes(data)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        wanted = prefix.encode()
        # LMDB seeks no longer key; that there are only shorter ones makes the rest of it irrelevant.
        first = max(wanted, start.encode())[: MAX_MARK_KEY + 1]
        entries = ((bytes(key), value) for key, value in islice(self.txn.scan(first, db=self.tables.marks), limit))
        found = takewhile(lambda entry: entry[0].startswith(wanted), entries)
        return [(key.decode(), bytes(value)) for key, value in found]

    def _pages(self, lane: int, start: int) -> Iterator[tuple[memoryview, "_Lazy"]]:
        """The lane's links pages from the one that may hold ``start`` on, each with how to get its body page."""
        found = self.txn.scan(KEY.pack(lane, start), db=self.tables.links, lowest=KEY.pack(lane, 0))
        for key, links in found:
            if KEY.unpack(key)[0] != lane:
                return
            yield memoryview(links), _Lazy(self.txn, self.tables.bodies, bytes(key))

    def _add_deliveries(self, lane: int, messages: list[Message]) -> None:
        """Give messages, in ascending sequence, what their delivery states say."""
        if not messages:
            return
        by_sequence: dict[int, Message] = {}
        for sequence, value in lane_entries(self.txn, self.tables.deliveries, lane, messages[0].sequence):
            if sequence > messages[-1].sequence:
                return
            by_sequence = by_sequence or {message.sequence: message for message in messages}
            if message := by_sequence.get(sequence):
                add_delivery(message, unpack_delivery(value))


class _Lazy:
    """A body page that is read when the first record is taken from it."""

    __slots__ = ("_body", "_db", "_key", "_txn")

    def __init__(self, txn: Transaction, db: Table, key: bytes) -> None:
        self._txn, self._db, self._key = txn, db, key
        self._body: memoryview | None = None

    def __call__(self) -> memoryview:
        if self._body is None:
            self._body = memoryview(self._txn.get(self._key, db=self._db) or b"")
        return self._body


def write_destination(destination: StoredDestination) -> bytes:
    return json.dumps(destination[1:], separators=(",", ":")).encode()


def read_destination(number: int, data: bytes) -> StoredDestination:
    kind, name, settings, lanes = json.loads(data)
    return StoredDestination(number, kind, name, settings, tuple(lanes))


def text_key(text: str) -> bytes:
    """A key of any length: LMDB takes at most 511 bytes, so of a longer one its SHA-256; such a key is its own key."""
    key = text.encode(errors="surrogateescape")
    if len(key) <= 448 or _DIGEST_KEY.fullmatch(key):
        return key
    return key[:440] + b"#" + hashlib.sha256(key).hexdigest().encode()


def pack_delivery(delivery: Delivery) -> bytes:
    return _DELIVERY.pack(delivery.deliveries, delivery.failures, delivery.not_before) + delivery.cause.encode()


def unpack_delivery(data: bytes | memoryview) -> Delivery:
    deliveries, failures, not_before = _DELIVERY.unpack_from(data)
    return Delivery(deliveries, failures, not_before, bytes(data[_DELIVERY.size :]).decode())


def read_state(txn: Transaction, tables: Tables, lane: int) -> LaneState:
    """A lane's state; that of a new lane if it has none."""
    data = txn.get(LANE.pack(lane), db=tables.lanes)
    return LaneState(*STATE.unpack(data)) if data else LaneState()
