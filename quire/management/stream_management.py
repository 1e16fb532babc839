"""The operator's door to streams: look, create, delete, add partitions, read, find, pin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.broker.streams.offsets import Start, StartKind
from quire.broker.streams.pull.pull_members import PullMembers
from quire.broker.streams.range_reads import RangeRead, read_range
from quire.destination import DestinationKind
from quire.errors import DataLost, DestinationExists, DestinationInUse, InvalidArgument, UnknownDestination
from quire.management.management import Management
from quire.management.stream_info import (
    PartitionOffsets,
    StreamDetails,
    StreamInfoReader,
    StreamMessage,
    StreamPin,
    StreamStatus,
    described,
)
from quire.management.stream_search import StreamSearch, Wanted
from quire.store.positions import extent

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream

MAX_READ_BYTES = 16 << 20
"""How many bytes of messages one read of a range brings, if one message is not larger."""


@dataclass(frozen=True, slots=True)
class StreamRange:
    """What one read of a range brought.

    Attributes:
        messages: in order.
        first: the offset it began at.
        next: where to go on; ``until`` when the range is done.
        until: where the range ends: the offset behind its last one.
        earliest: the offset of the partition's first message at that moment.
        end: behind its last one.
        cut: whether the range begins before ``earliest``: what was there is gone.
        missing: how many of the offsets that were passed have no message.
    """

    messages: list[StreamMessage]
    first: int
    next: int
    until: int
    earliest: int
    end: int
    cut: bool
    missing: int


class StreamManagement:
    """Looks at a broker's streams and changes them. All names may raise ``UnknownDestination``.

    Args:
        management: the door to its queues.

    Attributes:
        pull: the members of consumer groups that pull.
        reader: tells the status of streams.
    """

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self.reader = StreamInfoReader(management.broker)
        self.pull = PullMembers(management.broker.destinations, management.broker.groups)

    # Look.

    def streams(self, after: str = "") -> Iterator[StreamStatus]:
        """All streams, by name; each is looked at when it is asked for.

        Args:
            after: only those behind this name.
        """
        destinations = self._broker.destinations
        for name in destinations.names(DestinationKind.STREAM, after):
            if stream := destinations.streams.get(name):
                yield self.reader.status(stream)

    def stream(self, name: str) -> StreamDetails:
        """One stream."""
        return self.reader.details(self._stream(name))

    def offsets(self, name: str, start: Start | None = None) -> list[PartitionOffsets]:
        """What of each partition can be read, all at one moment; as ``StreamInfoReader.offsets``."""
        return self.reader.offsets(self._stream(name), start)

    def _stream(self, name: str) -> "Stream":
        return self._broker.destinations.existing_stream(name)

    # Change.

    def create(self, name: str, partitions: int | None = None) -> StreamDetails:
        """Make a stream.

        Args:
            name: its name.
            partitions: how many it has; None for what the policy says.

        Raises:
            DestinationExists: it is there.
            InvalidDestination: it cannot be a name.
            InvalidArgument: a stream cannot have so many partitions.
        """
        if name in self._broker.destinations.streams:
            raise DestinationExists(f"there is a stream {name!r} already", name=name)
        return self.reader.details(self._broker.destinations.create_stream(name, partitions))

    def add_partitions(self, name: str, count: int) -> StreamDetails:
        """Give a stream more partitions. Keys may go to other partitions from then on.

        Args:
            name: its name.
            count: how many it is to have in all.

        Raises:
            InvalidArgument: it has more already, or cannot have so many.
        """
        stream = self._stream(name)
        self._broker.destinations.add_partitions(stream, count)
        return self.reader.details(stream)

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a stream, with its consumer groups and all messages.

        Args:
            name: its name.
            force: send the members of its groups and its readers away first.

        Yields:
            How many messages it had.

        Raises:
            DestinationInUse: its groups have members, or it has readers.
        """
        stream = self._stream(name)
        readers = [reader for reader in self._broker.groups.readers if reader.stream is stream]
        members = sum([len(group.coordinator.members) for group in stream.groups.values()])
        if (members or readers) and not force:
            text = f"the stream {name!r} has members of groups: {members}, readers: {len(readers)}"
            raise DestinationInUse(text, name=name, members=members, readers=len(readers))
        for group in [*stream.groups.values(), *readers]:
            self._dismiss(group, UnknownDestination(f"the stream {name!r} was deleted", name=name))
        records = stream.count
        self._broker.destinations.delete_stream(stream)
        yield records

    def _dismiss(self, group: "Group", error: UnknownDestination) -> None:
        """Disconnect all members of a group; nobody is awaited."""
        for member in list(group.members.values()):
            member.session.fail(error)
            group.leave(member, str(error))

    # Pins.

    def pin(
        self, name: str, pin: str, time_to_live: float, *, offsets: Mapping[int, int] | None = None,
        start: Start | None = None,
    ) -> StreamPin:  # fmt: skip
        """Keep messages, whatever the policy says, for a time; in place of what the pin kept before.

        Args:
            name: the stream's name.
            pin: whose pin it is.
            time_to_live: how long, in seconds.
            offsets: the first offset that stays, by partition.
            start: where that is in all partitions, instead; None for all that is there.

        Raises:
            InvalidArgument: an offset, the pin's name or the time is out of range, or both are given.
            LimitExceeded: the stream has too many pins.
        """
        stream = self._stream(name)
        if offsets is not None and start is not None:
            raise InvalidArgument("say offsets or start, not both", argument="start")
        if offsets is None:
            found = self.reader.offsets(stream, start or Start(StartKind.EARLIEST))
            offsets = {row.partition: row.earliest if row.offset is None else row.offset for row in found}
        made = stream.pins.set(pin, offsets, round(time_to_live * 1000))
        return StreamPin(pin, made.offsets, made.until)

    def pins(self, name: str) -> list[StreamPin]:
        """The pins of a stream that have not ended, by name."""
        return self.reader.pins(self._stream(name))

    def release(self, name: str, pin: str) -> None:
        """Take a pin away.

        Raises:
            InvalidArgument: there is no such pin.
        """
        if not self._stream(name).pins.release(pin):
            raise InvalidArgument(f"the stream {name!r} has no pin {pin[:60]!r}", argument="pin")

    # Read.

    def read(
        self, name: str, partition: int, start: str = "earliest", until: int | None = None, *, limit: int = 100,
        max_bytes: int = 1 << 20, strict: bool = False,
    ) -> StreamRange:  # fmt: skip
        """Read messages of a partition; the same range brings the same messages each time. Nobody is given less by it.

        Args:
            name: the stream's name.
            partition: the partition's number.
            start: where to begin: an offset, or a start position.
            until: the offset to end before; None for the partition's end.
            limit: how many messages at the most.
            max_bytes: how many bytes of them; the first one comes whatever its size.
            strict: whether it is an error that messages from ``start`` on are gone.

        Raises:
            InvalidArgument: there is no such partition, or this is no range of it.
            DataLost: messages are gone, and that is an error.
            StoreCorrupt: the first message is damaged.
        """
        lane = self._lane(name, partition)
        first, end = self._first(lane, start)
        found = read_range(
            self._broker.core.store, lane, first, end if until is None else until, max_messages=limit,
            max_bytes=min(max_bytes, MAX_READ_BYTES),
        )  # fmt: skip
        if strict and found.is_cut:
            earliest = found.extent.earliest
            text = f"messages of partition {partition} of {name!r} are gone from offset {first} to before {earliest}"
            raise DataLost(text, name=name, partition=partition, first=first, earliest=earliest)
        return _range(partition, found)

    def _lane(self, name: str, partition: int) -> int:
        lanes = self._stream(name).stored.lanes
        if not 0 <= partition < len(lanes):
            text = f"partition is {partition}: {name} has partitions 0 to {len(lanes) - 1}"
            raise InvalidArgument(text, argument="partition")
        return lanes[partition]

    def _first(self, lane: int, start: str) -> tuple[int, int]:
        """Where a read begins, and the partition's end. An offset stands for itself, even if its message is gone."""
        with self._broker.core.store.snapshot() as reader:
            position = Start.parse(f"offset={start}" if start.isdecimal() else start)
            end = extent(reader, lane).end
            if position.kind is StartKind.OFFSET:
                return position.value, end
            return position.offset(reader, lane, self._broker.core.clock.now_ms()), end

    # Find.

    def find(self, name: str, wanted: Wanted) -> StreamSearch:
        """Look for messages, and for what became of them in each consumer group.

        Args:
            name: the stream's name.
            wanted: which.

        Returns:
            The search, to be driven step by step.

        Raises:
            InvalidArgument: what is looked for makes no sense.
            UnknownMessage: there is none at the offset.
            StoreCorrupt: the one at the offset is damaged.
        """
        return StreamSearch(self._stream(name), wanted, self._broker.queues)


def _range(partition: int, found: RangeRead) -> StreamRange:
    return StreamRange(
        messages=[described(partition, message.sequence, message) for message in found.messages], first=found.first,
        next=found.next, until=found.until, earliest=found.extent.earliest, end=found.extent.end, cut=found.is_cut,
        missing=found.missing,
    )  # fmt: skip
