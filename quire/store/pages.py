"""The record format of LMDB and PostgreSQL: records of one lane and one commit together in pages.

A page is two values under one key, (lane, first sequence): the *body page* holds the records one after the other and is
never rewritten; the *links page* holds an entry of fixed width per record that is still there: its links, its size, and
where in the body page it stands. Removing records rewrites a links page of a few kilobytes; the last removal deletes
both values.

LMDB's links lead from page to page. On PostgreSQL a page's last record has no ``next``: rows are in order anyway, and
so no row is written again only because its neighbour came or went.

Every record in a body page begins with a header of its own, so that the links can be rebuilt from the records.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from quire.errors import StoreCorrupt
from quire.message import Message

PAGE_BYTES = 65536
"""A page takes records until their contents are larger than this; a larger record has a page of its own."""

ENTRY = Struct("<QQQqIIIBxxx")
"""An entry of a links page: sequence, previous, next, expiration, offset, size, checksum, priority."""

RECORD = Struct("<QqIIBxxx")  # the header of a record in a body page: sequence, expiration, size, checksum, priority
KEY = Struct(">IQ")  # a page's key: lane and first sequence, big-endian so that keys sort as numbers do
_U64 = Struct("<Q")
_WIDTH = ENTRY.size


class Entry(NamedTuple):
    """An entry of a links page, read."""

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
        """The index of a sequence, or -1."""
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
        """Relink the entry at an index to a new predecessor."""
        _U64.pack_into(self.data, index * _WIDTH + 8, previous)
        self.dirty = True

    def set_next(self, index: int, following: int) -> None:
        """Relink the entry at an index to a new successor."""
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
    """The entry of a sequence in a links page, if it is there."""
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
    """The entries of a links page from a sequence on."""
    return ENTRY.iter_unpack(data[find_from(data, sequence) * _WIDTH :])


def read_message(lane: int, entry: tuple[int, ...], body: bytes | memoryview) -> Message:
    """The message of an entry."""
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
