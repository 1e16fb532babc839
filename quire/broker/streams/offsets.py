"""Places in a stream: where a partition begins and ends, where a time is in it, and where a consumer is to start.

An offset is a record's sequence in its partition's lane, from 1. Offsets ascend and are never used again; some have no
record: retention removed it, or its commit failed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar

from quire.errors import InvalidArgument, StoreCorrupt
from quire.message import Message
from quire.store.base import Page, Store, StoreReader
from quire.units import parse_duration

NEIGHBOURS = 16
"""How many records one step of a search looks at, so that a few that are out of order do not mislead it."""

NEIGHBOURS_BYTES = 64 * 1024
"""How many bytes of records it reads for that, if one record is not larger."""

MAX_DIGITS = 15
"""How many digits a number in a start position may have: enough for all times and offsets."""

Key = TypeVar("Key", int, tuple[int, int])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Extent(NamedTuple):
    """What of a partition can be read.

    Attributes:
        earliest: the offset of the first record; ``end`` if there is none.
        end: above every offset that was ever used; what is sent from now on comes at or behind it.
        records: how many records there are.
        bytes: the sum of their sizes.
    """

    earliest: int
    end: int
    records: int
    bytes: int


def extent(reader: StoreReader, lane: int) -> Extent:
    """What of a lane can be read, in O(1)."""
    state = reader.lane_state(lane)
    return Extent(state.head or state.next_sequence, state.next_sequence, state.count, state.bytes)


def extents(store: Store, lanes: Iterable[int]) -> list[Extent]:
    """The same of several lanes, all at one moment.

    A transaction is in one commit, so no moment has a part of it only.
    """
    with store.snapshot() as reader:
        return [extent(reader, lane) for lane in lanes]


def timestamp_of(message: Message) -> int:
    """When the broker took a message, in milliseconds since the epoch: the second header line of its content."""
    content = message.content
    start = content.index(b"\n") + len(b"\ntimestamp:")
    return int(content[start : content.index(b"\n", start)])


def offset_at(reader: StoreReader, lane: int, time_ms: int) -> int:
    """The offset of the first record that the broker took at a time or later, in O(log n) reads (``search``).

    Timestamps ascend along a lane, with two exceptions. A message of a transaction has the time of its SEND, so it may
    be older than what stands before it; a few such records do not mislead the search, but hundreds in a row may. And
    the broker's clock may be set back: then a time may come twice, and either place may be found.

    Args:
        reader: a snapshot, or the store.
        lane: which lane.
        time_ms: milliseconds since the epoch.

    Returns:
        The offset; the lane's end if all its records are older.
    """
    return search(reader, lane, timestamp_of, time_ms)


def search(reader: StoreReader, lane: int, key: Callable[[Message], Key], wanted: Key) -> int:
    """The first record of a lane with a key that is not below a wanted one, in O(log n) reads.

    Keys should ascend along the lane. Where they do not, it still holds that the record found is not below the wanted
    key, and what stands just before it is. A damaged record is taken to have the key of the next sound one, so whoever
    begins there meets it and is told.

    Args:
        reader: a snapshot, or the store.
        lane: which lane.
        key: of a record.
        wanted: the key to look for.

    Returns:
        Its offset; the lane's end if all keys are below the wanted one.
    """
    low, end, *_ = extent(reader, lane)
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
    """The first record from an offset on, 0 if there is none before the end, and the sound ones that stand together.

    They begin with the first record, or behind it if it is damaged.
    """
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
    """Read records from one offset to before another (``StoreReader.page``); a damaged one ends the read before it.

    Raises:
        StoreCorrupt: the first one is damaged; ``data`` has its ``sequence``.
    """
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


class StartKind(StrEnum):
    """What a start position goes by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"
    AGO = "ago"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer starts that was not here before.

    Attributes:
        kind: what it goes by. ``latest`` is behind the last record, ``last`` before it.
        value: with ``timestamp`` milliseconds since the epoch, with ``offset`` the offset, with ``ago`` so many
            milliseconds before now.
    """

    kind: StartKind
    value: int = 0

    @classmethod
    def parse(cls, text: str) -> "Start":
        """Read a start position.

        Args:
            text: ``earliest``, ``latest``, ``offset=2101``, ``timestamp=`` with milliseconds since the epoch or with
                ISO 8601 (without a zone it is UTC), ``ago=30m``.

        Raises:
            InvalidArgument: it is none.
        """
        name, equals, value = text.partition("=")
        if text in (StartKind.EARLIEST, StartKind.LATEST):
            return cls(StartKind(text))
        if name == StartKind.OFFSET and _is_number(value):
            return cls(StartKind.OFFSET, int(value))
        if name == StartKind.TIMESTAMP and equals:
            return cls(StartKind.TIMESTAMP, _milliseconds(value))
        if name == StartKind.AGO and equals:
            return cls(StartKind.AGO, _duration(value))
        forms = "earliest, latest, offset=N, timestamp=MILLISECONDS, timestamp=2026-01-31T12:00:00Z or ago=30m"
        raise InvalidArgument(f"no start position: {text[:60]!r}; write {forms}", argument="start")

    @classmethod
    def parse_stream_offset(cls, text: str) -> "Start":
        """Read a start position as RabbitMQ's clients write it in the header ``x-stream-offset``.

        Args:
            text: ``first``, ``last``, ``next``, ``offset=2101``, ``timestamp=`` with seconds since the epoch.
                RabbitMQ's ``last`` is the last run of messages that it stored together; here it is the last message.

        Raises:
            InvalidArgument: it is none.
        """
        name, _, value = text.partition("=")
        words = {"first": StartKind.EARLIEST, "last": StartKind.LAST, "next": StartKind.LATEST}
        if text in words:
            return cls(words[text])
        if name == StartKind.OFFSET and _is_number(value):
            return cls(StartKind.OFFSET, int(value))
        if name == StartKind.TIMESTAMP and _is_number(value):
            return cls(StartKind.TIMESTAMP, int(value) * 1000)
        forms = "first, last, next, offset=N or timestamp=SECONDS"
        raise InvalidArgument(f"no x-stream-offset: {text[:60]!r}; write {forms}", argument="x-stream-offset")

    def __str__(self) -> str:
        """As ``parse`` reads it; ``last`` is for people."""
        match self.kind:
            case StartKind.OFFSET | StartKind.TIMESTAMP:
                return f"{self.kind}={self.value}"
            case StartKind.AGO:
                return f"{self.kind}={self.value}ms"
            case _:
                return str(self.kind)

    def offset(self, reader: StoreReader, lane: int, now_ms: int) -> int:
        """The first offset that is to be read of a lane.

        An offset before the first record or behind the end is moved there: one number is meant for all partitions.

        Args:
            reader: a snapshot.
            lane: which lane.
            now_ms: the time, in milliseconds since the epoch.
        """
        state = reader.lane_state(lane)
        earliest, end, *_ = extent(reader, lane)
        match self.kind:
            case StartKind.EARLIEST:
                return earliest
            case StartKind.LATEST:
                return end
            case StartKind.LAST:
                return state.tail or end
            case StartKind.OFFSET:
                return min(max(self.value, earliest), end)
            case StartKind.TIMESTAMP:
                return offset_at(reader, lane, self.value)
            case StartKind.AGO:
                return offset_at(reader, lane, now_ms - self.value)

    def offsets(self, store: Store, lanes: Iterable[int], now_ms: int) -> list[int]:
        """The first offset that is to be read of each of several lanes, all decided at one moment."""
        with store.snapshot() as reader:
            return [self.offset(reader, lane, now_ms) for lane in lanes]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _milliseconds(text: str) -> int:
    """A time, in milliseconds since the epoch.

    Raises:
        InvalidArgument: it is none.
    """
    if _is_number(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        wrong = f"{text[:60]!r} is no time: write milliseconds since the epoch, or ISO 8601 as 2026-01-31T12:00:00Z"
        raise InvalidArgument(wrong, argument="start") from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _duration(text: str) -> int:
    """A duration, in milliseconds.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        milliseconds = parse_duration(text) * 1000
    except ValueError as error:
        raise InvalidArgument(str(error), argument="start") from error
    if milliseconds >= 10**MAX_DIGITS:
        raise InvalidArgument(f"{text[:60]!r} is too long a duration", argument="start")
    return round(milliseconds)
