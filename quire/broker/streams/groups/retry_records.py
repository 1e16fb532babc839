"""The records of a group's retry lane. Each is a link: it names a message of the stream and has no body of its own.

A link's content has the form of every message's content, so that every walk of a store can read it: the message id of
its origin, the time of the attempt that failed as its ``timestamp``, and the origin's lane, offset and size.
"""

import re
from typing import NamedTuple

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import (
    Delivery,
    LaneReader,
    LaneState,
    Link,
    Page,
    Store,
    StoreReader,
)

LINKS_AT_ONCE = 100
"""How many links one read looks at: their bodies may be large, and then only some of them are taken."""

LINKS_BYTES = 1 << 20
"""How many bytes of links one read takes at the most."""

_LINK = re.compile(
    rb"message-id:[^\n]*\ntimestamp:\d+\norigin-lane:(\d{1,19})\norigin-offset:(\d{1,19})\norigin-size:(\d{1,19})\n\n"
)


class RetryMessage(Message):
    """A message that waits in a retry lane: its own place and delivery state, with the content of its origin.

    Attributes:
        origin_lane: the lane of the partition that it is of.
        origin_sequence: its offset there.
    """

    __slots__ = ("origin_lane", "origin_sequence")

    def __init__(
        self, sequence: int, content: bytes, origin_lane: int, origin_sequence: int, expiration: int = 0,
        priority: int = 4,
    ) -> None:  # fmt: skip
        super().__init__(sequence, content, expiration, priority)
        self.origin_lane = origin_lane
        self.origin_sequence = origin_sequence

    def set_state(self, deliveries: int, failures: int, not_before: int) -> None:
        """Take over what is known of its deliveries."""
        self.deliveries, self.failures, self.not_before = deliveries, failures, not_before
        self.redelivered = deliveries > 0


def link_record(message: RetryMessage, attempted_ms: int) -> Message:
    """The record that stands for a message in the retry lane.

    Args:
        attempted_ms: when its delivery failed, in milliseconds since the epoch.
    """
    content = b"%s\ntimestamp:%d\norigin-lane:%d\norigin-offset:%d\norigin-size:%d\n\n" % (
        message.content[: message.content.index(b"\n")],
        attempted_ms,
        message.origin_lane,
        message.origin_sequence,
        message.size,
    )
    return Message(message.sequence, content, message.expiration, message.priority)


class Origin(NamedTuple):
    """What a link names.

    Attributes:
        lane: the lane of a partition.
        sequence: the offset in it.
        size: the size of the content there, in bytes.
    """

    lane: int
    sequence: int
    size: int


def origin_of(lane: int, record: Message) -> Origin:
    """What a record of a retry lane names."""
    found = _LINK.fullmatch(record.content)
    if found is None:
        text = f"record {record.sequence} of lane {lane} is no link to a message of a stream"
        raise StoreCorrupt(text, lane=lane, sequence=record.sequence)
    return Origin(*[int(number) for number in found.groups()])


class LinkReader(LaneReader):
    """Reads a retry lane as if the bodies were in it. What it says of sizes is about the bodies."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read messages in order, as ``StoreReader.page``. It may end before the budget does."""
        with self._store.snapshot() as reader:
            found = reader.page(lane, start, LINKS_BYTES, min(limit, LINKS_AT_ONCE))
            links = [(link, origin_of(lane, link)) for link in found.messages]
            taken = _that_fit(links, byte_budget)
            return Page(_resolved(reader, lane, taken), found.end and len(taken) == len(links))

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read messages by sequence; those that are not there are left out."""
        with self._store.snapshot() as reader:
            links = [(link, origin_of(lane, link)) for link in reader.load(lane, sequences)]
            return _resolved(reader, lane, links)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links with the sizes of the bodies. One that is damaged has its own: who loads it is told."""
        with self._store.snapshot() as reader:
            found = reader.links(lane, start, limit)
            sizes = _sizes(reader, lane, [link.sequence for link in found])
        return [link._replace(size=sizes.get(link.sequence, link.size)) for link in found]

    def lane_state(self, lane: int) -> LaneState:
        """The lane's state. Its bytes are those of the links."""
        return self._store.lane_state(lane)

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        """Delivery states from a sequence on."""
        return self._store.deliveries(lane, start, limit)


_Named = list[tuple[Message, Origin]]


def _that_fit(links: _Named, byte_budget: int) -> _Named:
    """The first of some links whose bodies fit into a budget; the very first one in any case."""
    for index, (_, origin) in enumerate(links):
        byte_budget -= origin.size + MESSAGE_OVERHEAD
        if index and byte_budget < 0:
            return links[:index]
    return links


def _resolved(reader: StoreReader, lane: int, links: _Named) -> list[Message]:
    """The messages that links stand for.

    Raises:
        StoreCorrupt: a body is damaged or gone; ``data`` has the place of the first link of which that is so.
    """
    try:
        bodies = _bodies(reader, [origin for _, origin in links])
    except StoreCorrupt:  # a link after the other, to tell which one it is
        bodies = {}
        for link, origin in links:
            try:
                bodies |= _bodies(reader, [origin])
            except StoreCorrupt as damage:
                raise _unreadable(lane, link, origin, str(damage)) from damage
    messages: list[Message] = []
    for link, origin in links:
        body = bodies.get(origin[:2])
        if body is None:
            raise _unreadable(lane, link, origin, "it is gone")
        message = RetryMessage(
            link.sequence, body.content, origin.lane, origin.sequence, link.expiration, link.priority
        )
        message.set_state(link.deliveries, link.failures, link.not_before)
        messages.append(message)
    return messages


def _bodies(reader: StoreReader, origins: list[Origin]) -> dict[tuple[int, ...], Message]:
    wanted: dict[int, list[int]] = {}
    for origin in origins:
        wanted.setdefault(origin.lane, []).append(origin.sequence)
    return {
        (lane, message.sequence): message
        for lane, sequences in wanted.items()
        for message in reader.load(lane, sequences)
    }


def _unreadable(lane: int, link: Message, origin: Origin, why: str) -> StoreCorrupt:
    text = f"retry {link.sequence} of lane {lane} needs message {origin.sequence} of lane {origin.lane}: {why}"
    return StoreCorrupt(
        text, lane=lane, sequence=link.sequence, origin_lane=origin.lane, origin_sequence=origin.sequence
    )


def _sizes(reader: StoreReader, lane: int, sequences: list[int]) -> dict[int, int]:
    """The sizes of bodies, by the sequences of their links; damaged links are left out."""
    while True:
        try:
            return {record.sequence: origin_of(lane, record).size for record in reader.load(lane, sequences)}
        except StoreCorrupt as damage:
            sequences = [sequence for sequence in sequences if sequence != damage.data["sequence"]]
