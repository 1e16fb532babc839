"""The operator's door to streams: look, create, delete, add partitions, read, find, pin."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.pull import PullMembers
from quire.broker.streams.stream import RangeRead, read_range
from quire.destination import DestinationKind
from quire.errors import DataLost, DestinationExists, DestinationInUse, InvalidArgument, UnknownDestination
from quire.management.described import Status, doc
from quire.management.management import Management, dismiss_members, listed
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
    from quire.broker.streams.stream import Stream

MAX_READ_BYTES = 16 << 20
"""How many bytes of messages one read of a range brings, if one message is not larger."""


class StreamRange(Status, frozen=True):
    """The result of a range read."""

    messages: Annotated[list[StreamMessage], doc("The messages, in order.")]
    first: Annotated[int, doc("The offset at which the read began.")]
    next: Annotated[int, doc("The offset at which to continue; equal to ``until`` at the end of the range.")]
    until: Annotated[int, doc("The end of the range: the offset after its last one.")]
    earliest: Annotated[int, doc("The offset of the partition's first message at that moment.")]
    end: Annotated[int, doc("The end of the partition at that moment.")]
    cut: Annotated[bool, doc("Whether the range begins before ``earliest``: its first messages were removed.")]
    missing: Annotated[int, doc("How many of the offsets that were read have no message.")]


class StreamManagement:
    """Shows and changes a broker's streams; ``pull`` has the members that pull, ``reader`` tells the status."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self.reader = StreamInfoReader(management.broker, management.sampler)
        self.pull = PullMembers(management.broker.destinations, management.broker.groups)

    # Look.

    def streams(self, after: str = "") -> Iterator[StreamStatus]:
        """The streams behind a name, by name; each is looked at when it is asked for."""
        known = self._broker.destinations.streams
        return listed(self._broker, DestinationKind.STREAM, known, after, self.reader.status)

    def stream(self, name: str) -> StreamDetails:
        return self.reader.details(self.existing(name))

    def offsets(self, name: str, start: Start | None = None) -> list[PartitionOffsets]:
        """What of each partition can be read, all at one moment; as ``StreamInfoReader.offsets``."""
        return self.reader.offsets(self.existing(name), start)

    def existing(self, name: str) -> "Stream":
        """The stream of a name."""
        return self._broker.destinations.existing_stream(name)

    # Change.

    def create(self, name: str, partitions: int | None = None) -> StreamDetails:
        if name in self._broker.destinations.streams:
            raise DestinationExists(f"the stream {name!r} already exists", name=name)
        return self.reader.details(self._broker.destinations.create_stream(name, partitions))

    def add_partitions(self, name: str, count: int) -> StreamDetails:
        """Give a stream more partitions. Keys may go to other partitions from then on."""
        stream = self.existing(name)
        self._broker.destinations.add_partitions(stream, count)
        return self.reader.details(stream)

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a stream, with its consumer groups and all messages; tells how many there were."""
        stream = self.existing(name)
        readers = [reader for reader in self._broker.groups.readers if reader.stream is stream]
        members = sum([len(group.coordinator.members) for group in stream.groups.values()])
        if (members or readers) and not force:
            text = f"the stream {name!r} has members of groups: {members}, readers: {len(readers)}"
            raise DestinationInUse(text, name=name, members=members, readers=len(readers))
        for group in [*stream.groups.values(), *readers]:
            dismiss_members(group, UnknownDestination(f"the stream {name!r} was deleted", name=name))
        records = stream.count
        self._broker.destinations.delete_stream(stream)
        yield records

    # Pins.

    def pin(
        self, name: str, pin: str, time_to_live: float, *, offsets: Mapping[int, int] | None = None,
        start: Start | None = None,
    ) -> StreamPin:  # fmt: skip
        """Pin messages for some seconds, from offsets or a start position on; without both, all that the stream has."""
        stream = self.existing(name)
        if offsets is not None and start is not None:
            raise InvalidArgument("give offsets or start, not both", argument="start")
        if offsets is None:
            found = self.reader.offsets(stream, start or Start(StartKind.EARLIEST))
            offsets = {row.partition: row.earliest if row.offset is None else row.offset for row in found}
        made = stream.pins.set(pin, offsets, round(time_to_live * 1000))
        return StreamPin(pin, made.offsets, made.until)

    def pins(self, name: str) -> list[StreamPin]:
        """The pins of a stream that have not ended, by name."""
        return self.reader.pins(self.existing(name))

    def release(self, name: str, pin: str) -> None:
        if not self.existing(name).pins.release(pin):
            raise InvalidArgument(f"the stream {name!r} has no pin {pin[:60]!r}", argument="pin")

    # Read.

    def read(
        self, name: str, partition: int, start: str = "earliest", until: int | None = None, *, limit: int = 100,
        max_bytes: int = 1 << 20, strict: bool = False,
    ) -> StreamRange:  # fmt: skip
        """Read from ``start`` (offset or position) to before ``until``; ``strict`` refuses a cut range."""
        lane = self._lane(name, partition)
        first, end = self._first(lane, start)
        found = read_range(
            self._broker.core.store, lane, first, end if until is None else until, max_messages=limit,
            max_bytes=min(max_bytes, MAX_READ_BYTES),
        )  # fmt: skip
        if strict and found.is_cut:
            earliest = found.extent.earliest
            text = (
                f"messages of partition {partition} of {name!r} were removed from offset {first} to before {earliest}"
            )
            raise DataLost(text, name=name, partition=partition, first=first, earliest=earliest)
        return _range(partition, found)

    def _lane(self, name: str, partition: int) -> int:
        lanes = self.existing(name).stored.lanes
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
        """A search for messages, and for what became of them in each consumer group, to be driven step by step."""
        return StreamSearch(self.existing(name), wanted, self._broker.queues)


def _range(partition: int, found: RangeRead) -> StreamRange:
    return StreamRange(
        messages=[described(partition, message.sequence, message) for message in found.messages], first=found.first,
        next=found.next, until=found.until, earliest=found.extent.earliest, end=found.extent.end, cut=found.is_cut,
        missing=found.missing,
    )  # fmt: skip
