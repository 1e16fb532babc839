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
    """The stored delivery state of a record that came back.

    Attributes:
        deliveries: how often it was given to a consumer.
        failures: how many of those count against the maximum of redeliveries.
        not_before: do not deliver it before this time, in milliseconds since the epoch; 0 for at once.
        cause: why it came back last.
    """

    deliveries: int
    failures: int = 0
    not_before: int = 0
    cause: str = ""


def add_delivery(message: Message, delivery: Delivery) -> None:
    """Set what a delivery state says on the message of its record."""
    message.deliveries, message.failures = delivery.deliveries, delivery.failures
    message.redelivered, message.not_before = delivery.deliveries > 0, delivery.not_before


class LaneState(NamedTuple):
    """What a store knows of a lane without reading its records.

    Attributes:
        head: the first record's sequence; 0 in an empty lane.
        tail: the last record's sequence; 0 in an empty lane.
        count: how many records there are.
        bytes: the sum of their sizes.
        next_sequence: every sequence ever used is below this one.
        dispatch_mark: records up to this sequence may have been delivered.
    """

    head: int = 0
    tail: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used here
    bytes: int = 0
    next_sequence: int = 1
    dispatch_mark: int = 0


class Link(NamedTuple):
    """A record's place in its lane's list, read without its body.

    Attributes:
        sequence: the record's sequence.
        previous: its predecessor's sequence; 0 at the head.
        next: its successor's sequence; 0 at the tail.
        size: the content's size in bytes.
        checksum: CRC-32 of the content (``zlib.crc32``).
    """

    sequence: int
    previous: int
    next: int
    size: int
    checksum: int


class Expiration(NamedTuple):
    """An entry of the index of expirations. Entries sort by time, then lane, then sequence.

    Attributes:
        time: when the record expires, in milliseconds since the epoch.
        lane: the record's lane.
        sequence: the record's sequence.
    """

    time: int
    lane: int
    sequence: int


FIRST_EXPIRATION = Expiration(0, 0, 0)
"""Before all entries of the index of expirations."""


class Page(NamedTuple):
    """The result of one read.

    Attributes:
        messages: in the order of the lane, with ``deliveries``, ``failures``, ``redelivered`` and ``not_before`` from
            their delivery states.
        end: whether the lane had nothing after them.
    """

    messages: list[Message]
    end: bool


IDENTITY = "identity"
"""The setting of a stream that distinguishes it from any other stream of the same name, earlier or in another store."""


class StoredDestination(NamedTuple):
    """A destination as the store lists it at start.

    Attributes:
        id: the store's number for it, from 1; never used again.
        kind: ``queue``, ``topic`` or ``stream``.
        name: its name.
        settings: its own settings, by name (``paused`` say); JSON values.
        lanes: the lane ids it has, in their order.
    """

    id: int
    kind: str
    name: str
    settings: dict[str, object]
    lanes: tuple[int, ...]
