"""Where in a stream a consumer is to start.

An offset is a record's sequence in its partition's lane, from 1. Offsets ascend and are never used again; some have no
record: retention removed it, or its commit failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from quire.errors import InvalidArgument
from quire.store.base import Store, StoreReader
from quire.store.positions import extent, offset_at
from quire.units import MAX_DIGITS, parse_duration, parse_time


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
    try:
        return parse_time(text)
    except ValueError as error:
        raise InvalidArgument(str(error), argument="start") from error


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
