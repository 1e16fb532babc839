"""What a store keeps: delivery states, states of lanes, links, expirations, destinations."""

from enum import StrEnum
from typing import NamedTuple

from quire.message import Message

MAX_MARK_KEY = 448
"""The longest key of a mark, in bytes of UTF-8. LMDB allows 511, an index of PostgreSQL 2704."""


class Sync(StrEnum):
    """When a commit is on disk: before it is confirmed, at the latest one second after, or when the system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Delivery(NamedTuple):
    """The stored delivery state of a returned record."""

    deliveries: int  # how often it was given to a consumer
    failures: int = 0  # how many of those count against the maximum of redeliveries
    not_before: int = 0  # do not deliver it before this time of ``WallClock.steady_ms``; 0 for at once
    cause: str = ""  # why it came back last


def add_delivery(message: Message, delivery: Delivery) -> None:
    """Set what a delivery state says on the message of its record."""
    message.deliveries, message.failures = delivery.deliveries, delivery.failures
    message.redelivered, message.not_before = delivery.deliveries > 0, delivery.not_before


class LaneState(NamedTuple):
    """What a store knows of a lane without reading its records; ``head`` and ``tail`` are 0 in an empty lane."""

    head: int = 0
    tail: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used here
    bytes: int = 0  # the sum of the sizes of its records
    next_sequence: int = 1  # above every sequence ever used
    dispatch_mark: int = 0  # records up to this sequence may have been delivered


class Link(NamedTuple):
    """A record's place in its lane's list, read without its body."""

    sequence: int  # the record's sequence
    previous: int  # its predecessor's sequence; 0 at the head
    next: int  # its successor's sequence; 0 at the tail
    size: int  # the content's size in bytes
    checksum: int  # CRC-32 of the content (``zlib.crc32``)


class Expiration(NamedTuple):
    """An entry of the index of expirations. Entries sort by time, then lane, then sequence."""

    time: int  # when the record expires, in milliseconds since the epoch
    lane: int  # the record's lane
    sequence: int  # the record's sequence


FIRST_EXPIRATION = Expiration(0, 0, 0)
"""Before all entries of the index of expirations."""


Content = tuple[int, bytes, int, int, int]
"""A record for reading in bulk: sequence, content, expiration, priority, deliveries. A tuple costs the least."""


class Page(NamedTuple):
    """The result of one read: messages in the order of the lane, with their delivery states."""

    messages: list[Message]
    end: bool  # whether the lane has nothing after them


IDENTITY = "identity"
"""The setting of a stream that distinguishes it from any other stream of the same name, earlier or in another store."""


class StoredDestination(NamedTuple):
    """A destination as the store lists it at start."""

    id: int  # the store's number for it, from 1; never used again
    kind: str  # ``queue``, ``topic`` or ``stream``
    name: str  # its name
    settings: dict[str, object]  # its own settings, by name (``paused`` say); JSON values
    lanes: tuple[int, ...]  # the lane ids it has, in their order
