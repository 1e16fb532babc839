"""Places in a lane: its first and last sequences, and the sequence of a time. A stream's offsets are sequences."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from quire.errors import StoreCorrupt
from quire.message import Message, timestamp_of
from quire.store.base import LaneState, Page, StoreReader

NEIGHBOURS = 16  # how many records one step of a search looks at, so that a few that are out of order do not mislead it
NEIGHBOURS_BYTES = 64 * 1024  # how many bytes of records it reads for that, if one record is not larger
Key = TypeVar("Key", int, tuple[int, int])


class Extent(NamedTuple):
    """What can be read of a partition: from the offset ``earliest`` to before ``end``, above every offset ever used."""

    earliest: int
    end: int
    records: int
    bytes: int

    @classmethod
    def of(cls, state: LaneState) -> "Extent":
        return cls(state.head or state.next_sequence, state.next_sequence, state.count, state.bytes)


def extent(reader: StoreReader, lane: int) -> Extent:
    return Extent.of(reader.lane_state(lane))


def set_back_key(lane: int) -> str:
    """The key of the mark that has the offsets of a partition at which timestamps begin anew."""
    return f"stream/{lane}/set-back"


def set_back(reader: StoreReader, lane: int) -> list[int]:
    """The offsets at which timestamps begin anew, ascending: the clock had been ahead before (``Partition.send``)."""
    value = reader.mark(set_back_key(lane))
    return [] if value is None else msgspec.msgpack.decode(value, type=list[int])


def offset_at(reader: StoreReader, lane: int, time_ms: int, first: int = 0, latest_ms: int | None = None) -> int:
    """The offset of the first record that the broker took at a time or later, by ``search``; the end if there is none.

    Timestamps ascend along a partition of a stream, but where the clock had been ahead before (``set_back``). A record
    with a time after the latest possible one is as old as the next record without.

    Args:
        first: the first offset to look at.
        latest_ms: the latest possible time; that of the last record if None.

    Records of older versions have two exceptions.
    A message of a transaction has the time of its SEND, so it may be older than the record before it; a few such
    records do not mislead the search, but hundreds in a row may. And the broker's clock may have been set back: then a
    time comes twice, and either place may be found.
    """
    begins = [offset for offset in set_back(reader, lane) if offset > first]
    end = extent(reader, lane).end
    if latest_ms is None and begins:
        latest_ms = time_from(reader, lane, reader.lane_state(lane).tail)
    ahead: int | None = None  # the first record with an impossible time that no older one follows
    for until in (*begins, end):
        place = search(reader, lane, timestamp_of, time_ms, first, until)
        if ahead is not None and _has_records(reader, lane, first, place):
            ahead = None
        if place < until:
            if latest_ms is None or (time_from(reader, lane, place) or 0) <= latest_ms:
                return place if ahead is None else ahead
            ahead = place if ahead is None else ahead
        first = until
    return end if ahead is None else ahead


def _has_records(reader: StoreReader, lane: int, first: int, until: int) -> bool:
    found = reader.links(lane, first, 1)
    return bool(found) and found[0].sequence < until


def search(
    reader: StoreReader, lane: int, key: Callable[[Message], Key], wanted: Key, begin: int = 0, until: int | None = None
) -> int:
    """The offset of the first record from ``begin`` on with a key not below the wanted one; the end if there is none.

    The end is that of the lane, or ``until`` if that is before it.

    It takes O(log n) reads. Keys should ascend along the lane. Where they do not, the record found is still not below
    the wanted key, and the one just before it is. A damaged record counts with the key of the next sound one, so a
    read from there meets it.
    """
    low, end, *_ = extent(reader, lane)
    low, end = max(low, begin), end if until is None else min(end, until)
    high = found = end
    while low < high:
        middle = (low + high) // 2
        first, messages = _look(reader, lane, middle, end)
        beyond = [message.sequence for message in messages if key(message) >= wanted]
        if messages and not beyond:
            low = messages[-1].sequence + 1
        else:
            high = middle
            is_later = beyond and beyond[0] > messages[0].sequence
            found = beyond[0] if is_later else first or end
    return found


def time_from(reader: StoreReader, lane: int, offset: int) -> int | None:
    """The timestamp of the first sound record from an offset on; None if there is none."""
    messages = _look(reader, lane, offset, extent(reader, lane).end)[1]
    return timestamp_of(messages[0]) if messages else None


def _look(reader: StoreReader, lane: int, start: int, end: int) -> tuple[int, list[Message]]:
    """The first offset with a record, 0 if there is none before the end, and sound records from it on or behind it."""
    first = 0
    while start < end:
        try:
            messages = sound_page(reader, lane, start, end, NEIGHBOURS_BYTES, NEIGHBOURS).messages
        except StoreCorrupt as damage:
            start = damage.data["sequence"] + 1
            first = first or damage.data["sequence"]
        else:
            return first or (messages[0].sequence if messages else 0), messages
    return first, []


def sound_page(reader: StoreReader, lane: int, first: int, until: int, byte_budget: int, limit: int) -> Page:
    """Read as ``StoreReader.page``, but end before a damaged record; if it is the first, raise ``StoreCorrupt``."""
    limit = min(limit, until - first)
    try:
        page = reader.page(lane, first, byte_budget, limit)
    except StoreCorrupt as damage:
        damaged = damage.data["sequence"]
        sound = [link for link in reader.links(lane, first, limit) if link.sequence < damaged]
        if not sound:
            if damaged < until:
                raise
            return Page([], end=True)
        page = reader.page(lane, first, byte_budget, len(sound))._replace(end=False)
    messages = [message for message in page.messages if message.sequence < until]
    return Page(messages, page.end or len(messages) < len(page.messages))
