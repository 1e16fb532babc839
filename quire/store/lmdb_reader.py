"""Reading the LMDB store, within one transaction."""

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import islice, takewhile
from zlib import crc32

import lmdb

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store import pages
from quire.store.base import (
    FIRST_EXPIRATION,
    MAX_MARK_KEY,
    Content,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    StoredDestination,
    StoreReader,
)
from quire.store.damage import reader_tells_of_damage
from quire.store.lmdb_lane import EXPIRATION, LANE, Databases, read_state, seek, unpack_delivery
from quire.store.marks import mark_key
from quire.store.pages import KEY, entry_of
from quire.store.records import add_delivery

_Bytes = bytes | memoryview

_DIGEST_KEY = re.compile(rb".{440}#[0-9a-f]{64}", re.DOTALL)
"""What ``text_key`` makes of a long text: a page of producers may end there, and the next one begins with it."""


@reader_tells_of_damage
class LmdbReader(StoreReader):
    """Reads within one LMDB transaction, made with ``buffers=True``."""

    def __init__(self, txn: lmdb.Transaction, dbs: Databases) -> None:
        self.txn = txn
        self.dbs = dbs

    def destinations(self) -> list[StoredDestination]:
        return [
            read_destination(LANE.unpack(key)[0], bytes(value)) for key, value in self.txn.cursor(self.dbs.destinations)
        ]

    def lane_state(self, lane: int) -> LaneState:
        return read_state(self.txn, self.dbs, lane)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        messages: list[Message] = []
        for links, body in self._pages(lane, start):
            for entry in pages.ENTRY.iter_unpack(links[pages.find_from(links, start) * pages.ENTRY.size :]):
                byte_budget -= entry[5] + MESSAGE_OVERHEAD
                if messages and (byte_budget < 0 or len(messages) >= limit):
                    self._add_deliveries(lane, messages)
                    return Page(messages, end=False)
                messages.append(_read_message(lane, entry, body()))
        self._add_deliveries(lane, messages)
        return Page(messages, end=True)

    def contents(self, lane: int, start: int, byte_budget: int, limit: int) -> list[Content]:
        found: list[Content] = []
        for links, body in self._pages(lane, start):
            entries = pages.ENTRY.iter_unpack(links[pages.find_from(links, start) * pages.ENTRY.size :])
            page: memoryview | None = None
            for sequence, _, _, expiration, offset, size, checksum, priority in entries:
                byte_budget -= size + MESSAGE_OVERHEAD
                if found and (byte_budget < 0 or len(found) >= limit):
                    return self._with_deliveries(lane, found)
                if page is None:
                    page = body()
                content = page[offset : offset + size].tobytes()
                if crc32(content) != checksum or len(content) != size:
                    raise _damaged(lane, sequence)
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
        links, body = memoryview(b""), _Lazy(self.txn, self.dbs.bodies, b"")
        for sequence in sequences:
            entry = entry_of(links, sequence)
            if entry is None:
                links, body = next(self._pages(lane, sequence), (links, body))
                entry = entry_of(links, sequence)
            if entry is not None:
                messages.append(_read_message(lane, entry, body()))
        self._add_deliveries(lane, sorted(messages, key=lambda message: message.sequence))
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        found: list[Link] = []
        for links, _ in self._pages(lane, start):
            for entry in pages.ENTRY.iter_unpack(links[pages.find_from(links, start) * pages.ENTRY.size :]):
                if len(found) >= limit:
                    return found
                found.append(Link(entry[0], entry[1], entry[2], entry[5], entry[6]))
        return found

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        found: list[tuple[int, Delivery]] = []
        for key, value in islice(self._entries(self.dbs.deliveries, KEY.pack(lane, start)), limit):
            owner, sequence = KEY.unpack(key)
            if owner != lane:
                break
            found.append((sequence, unpack_delivery(value)))
        return found

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        found: list[Expiration] = []
        cursor = self.txn.cursor(self.dbs.expirations)
        if cursor.set_range(EXPIRATION.pack(after.time, after.lane, after.sequence + 1)):
            for key in islice(cursor.iternext(values=False), limit):
                entry = Expiration._make(EXPIRATION.unpack(key))
                if entry.time > now_ms:
                    break
                found.append(entry)
        return found

    def producer(self, producer_id: str) -> int:
        data = self.txn.get(text_key(producer_id), db=self.dbs.producers)
        return int.from_bytes(data, "big") if data else 0

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        first = start.encode()
        entries = self._entries(self.dbs.producers, first if _DIGEST_KEY.fullmatch(first) else text_key(start))
        return [(bytes(key).decode(), int.from_bytes(value, "big")) for key, value in islice(entries, limit)]

    def mark(self, key: str) -> bytes | None:
        data = self.txn.get(mark_key(key), db=self.dbs.marks)
        return None if data is None else bytes(data)

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        wanted = prefix.encode()
        # LMDB seeks no longer key; that there are only shorter ones makes the rest of it irrelevant.
        first = max(wanted, start.encode())[: MAX_MARK_KEY + 1]
        entries = islice(self._entries(self.dbs.marks, first), limit)
        found = takewhile(lambda entry: entry[0].startswith(wanted), ((bytes(key), value) for key, value in entries))
        return [(key.decode(), bytes(value)) for key, value in found]

    def _entries(self, db: "lmdb._Database", first: bytes) -> Iterator[tuple[_Bytes, _Bytes]]:
        """The keys of a database from one on, with their values."""
        cursor = self.txn.cursor(db)
        more = cursor.set_range(first) if first else cursor.first()
        return cursor.iternext() if more else iter(())

    def _pages(self, lane: int, start: int) -> Iterator[tuple[memoryview, "_Lazy"]]:
        """The lane's links pages from the one that may hold ``start`` on, each with how to get its body page."""
        cursor = self.txn.cursor(self.dbs.links)
        more = seek(cursor, lane, start)
        while more:
            key = bytes(cursor.key())
            if KEY.unpack(key)[0] != lane:
                return
            yield memoryview(cursor.value()), _Lazy(self.txn, self.dbs.bodies, key)
            more = cursor.next()

    def _add_deliveries(self, lane: int, messages: list[Message]) -> None:
        """Give messages, in ascending sequence, what their delivery states say."""
        if not messages:
            return
        cursor = self.txn.cursor(self.dbs.deliveries)
        more = cursor.set_range(KEY.pack(lane, messages[0].sequence))
        if not more or KEY.unpack(cursor.key()) > (lane, messages[-1].sequence):
            return
        by_sequence = {message.sequence: message for message in messages}
        for key, value in cursor:
            owner, sequence = KEY.unpack(key)
            if (owner, sequence) > (lane, messages[-1].sequence):
                return
            if message := by_sequence.get(sequence):
                add_delivery(message, unpack_delivery(value))


class _Lazy:
    """A body page that is read when the first record is taken from it."""

    __slots__ = ("_body", "_db", "_key", "_txn")

    def __init__(self, txn: lmdb.Transaction, db: "lmdb._Database", key: bytes) -> None:
        self._txn, self._db, self._key = txn, db, key
        self._body: memoryview | None = None

    def __call__(self) -> memoryview:
        if self._body is None:
            self._body = memoryview(self._txn.get(self._key, default=b"", db=self._db))
        return self._body


def _read_message(lane: int, entry: tuple[int, ...], body: memoryview) -> Message:
    sequence, _, _, expiration, offset, size, checksum, priority = entry
    content = bytes(body[offset : offset + size])
    if crc32(content) != checksum or len(content) != size:
        raise _damaged(lane, sequence)
    return Message(sequence, content, expiration, priority)


def _damaged(lane: int, sequence: int) -> StoreCorrupt:
    return StoreCorrupt(f"record {sequence} of lane {lane} is damaged", lane=lane, sequence=sequence)


def write_destination(destination: StoredDestination) -> bytes:
    """A destination as the store keeps it; its id is the key."""
    return json.dumps(destination[1:], separators=(",", ":")).encode()


def read_destination(number: int, data: bytes) -> StoredDestination:
    kind, name, settings, lanes = json.loads(data)
    return StoredDestination(number, kind, name, settings, tuple(lanes))


def text_key(text: str) -> bytes:
    """A key of any length as LMDB takes it: at most 511 bytes, of a longer one its SHA-256."""
    key = text.encode()
    return key if len(key) <= 448 else key[:440] + b"#" + hashlib.sha256(key).hexdigest().encode()
