"""Finding messages of a stream: by message id, by application key, by time, by offset.

A search is a sequence of steps. Each reads a bounded number of records and yields what it found, perhaps nothing, so
that its caller can let others have their turn in between. It sees what is committed when it comes there.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.errors import InvalidArgument, StoreCorrupt
from quire.message import Message, escape
from quire.store.positions import extent, offset_at, search, sound_page

if TYPE_CHECKING:
    from quire.broker.streams.partition import Partition
    from quire.broker.streams.stream import Stream

STEP = 1000
"""How many records one step reads at the most."""

STEP_BYTES = 1 << 20
"""How many bytes of records it reads, if one record is not larger."""

NEIGHBOURHOOD = 1000
"""How far from its place, in offsets, a message is looked for whose id is out of order."""

KEY = b"key"
"""The header with the application's key."""

_ID = re.compile(r"ID:[0-9a-f]{8}-(\d{1,15})-(\d{1,15})", re.ASCII)


class Found(NamedTuple):
    """A message that was found.

    Attributes:
        partition: the number of its partition.
        message: as it is stored; its ``sequence`` is its offset.
    """

    partition: int
    message: Message


class Lookup:
    """Looks for messages of a stream.

    Attributes:
        damaged: partition and offset of the damaged records that searches came to and passed over.
    """

    def __init__(self, stream: "Stream") -> None:
        self.damaged: list[tuple[int, int]] = []
        self._stream = stream
        self._store = stream.core.store

    def at(self, partition: int, offset: int) -> Found | None:
        """The message at an offset; None if there is none, or not any more."""
        count = len(self._stream.partitions)
        if not 0 <= partition < count:
            raise InvalidArgument(f"partition is {partition}: partitions are 0 to {count - 1}", argument="partition")
        messages = self._store.load(self._stream.partitions[partition].lane, [offset])
        return Found(partition, messages[0]) if messages else None

    def by_id(self, message_id: str) -> Iterator[list[Found]]:
        """Look for the message with an id; the search ends with it.

        The broker numbers messages as they are sent, so ids ascend along a partition, and a few reads find one. What
        was sent in a transaction stands where that was committed, behind messages with higher numbers. Such a message
        is found if it stands among the ``NEIGHBOURHOOD`` offsets before or behind the place of its id; after a longer
        transaction it is not, nor is one that was moved here, from a dead letter queue say. ``by_time`` shows these.

        Raises:
            InvalidArgument: this broker gives no such ids, so their order is not known.
        """
        wanted = _order(message_id)
        if wanted is None:
            text = f"{message_id[:60]!r} is no message id of this broker: look for the message by its time or key"
            raise InvalidArgument(text, argument="id")
        return self._by_id(message_id, wanted)

    def _by_id(self, message_id: str, wanted: tuple[int, int]) -> Iterator[list[Found]]:
        places = []
        for partition in self._stream.partitions:
            place = search(self._store, partition.lane, lambda message: _order(message.id) or (0, 0), wanted)
            places.append((partition, place))
            try:
                found = [m for m in self._store.load(partition.lane, [place]) if m.id == message_id]
            except StoreCorrupt:  # the search of the neighbourhood tells
                found = []
            yield [Found(partition.index, message) for message in found]
            if found:
                return
        for partition, place in places:
            first, until = max(place - NEIGHBOURHOOD, 1), place + NEIGHBOURHOOD
            for step in self._scan(partition, first, until, lambda message: message.id == message_id):
                yield step
                if step:
                    return

    def by_key(self, key: str, since_ms: int, until_ms: int) -> Iterator[list[Found]]:
        """Look for all messages with a key in a time range, partition by partition. Every record of it is read.

        The key is the header ``key``, or the one that determines the partition: the sink of Spark writes that one.

        Args:
            since_ms: when the range begins, in milliseconds since the epoch.
            until_ms: where it ends: the first time that is not in it.
        """
        headers = (KEY, escape(self._stream.policy.partition_key_header.encode()))
        return self._in_time(since_ms, until_ms, lambda message: key in map(message.header, headers))

    def by_time(self, since_ms: int, until_ms: int) -> Iterator[list[Found]]:
        """All messages of a time range, partition by partition: those that stand between the places of its two ends.

        Args:
            since_ms: when the range begins, in milliseconds since the epoch.
            until_ms: where it ends: the first time that is not in it.
        """
        return self._in_time(since_ms, until_ms, lambda message: True)

    def _in_time(self, since_ms: int, until_ms: int, wanted: Callable[[Message], bool]) -> Iterator[list[Found]]:
        for partition in self._stream.partitions:
            first = offset_at(self._store, partition.lane, since_ms)
            until = offset_at(self._store, partition.lane, until_ms)
            yield []
            yield from self._scan(partition, first, until, wanted)

    def _scan(
        self, partition: "Partition", first: int, until: int, wanted: Callable[[Message], bool]
    ) -> Iterator[list[Found]]:
        """Read records from one offset to before another, a step after the other."""
        until = min(until, extent(self._store, partition.lane).end)
        while first < until:
            try:
                page = sound_page(self._store, partition.lane, first, until, STEP_BYTES, STEP)
            except StoreCorrupt as damage:
                first = damage.data["sequence"] + 1
                if (place := (partition.index, first - 1)) not in self.damaged:
                    self.damaged.append(place)
                continue
            first = until if page.end else page.messages[-1].sequence + 1
            yield [Found(partition.index, message) for message in page.messages if wanted(message)]


def _order(message_id: str) -> tuple[int, int] | None:
    """What ids ascend by: when the broker that gave it had started, and its number; None if it is another's id."""
    found = _ID.fullmatch(message_id)
    return (int(found[1]), int(found[2])) if found else None
