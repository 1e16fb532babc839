"""What is known of a stream, of its partitions, and of its messages. Reading it changes nothing."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from quire.broker.queues.browsing import text_of
from quire.broker.streams.offsets import Start
from quire.management.described import Status, counter, doc, gauge
from quire.store.base import LaneState, StoreReader
from quire.store.positions import Extent, extent, time_from, timestamp_of

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.message import Message


class StreamStatus(Status, frozen=True):
    """A stream. ``appended`` begins at zero when the broker starts; the others are exact at any time."""

    name: Annotated[str, doc("Its name.")]
    partitions: Annotated[int, gauge("quire_stream_partitions", "Partitions.")]
    records: Annotated[int, gauge("quire_stream_messages", "Messages that it keeps.")]
    bytes: Annotated[int, gauge("quire_stream_bytes", "Their size.")]
    resident_bytes: Annotated[int, gauge("quire_stream_resident_bytes", "What its messages take in memory.")]
    appended: Annotated[int, counter("quire_stream_appended_messages", "Messages that were sent to it.")]
    groups: Annotated[int, gauge("quire_stream_consumer_groups", "Consumer groups.")]
    members: Annotated[int, gauge("quire_stream_members", "Members of its groups, those that are awaited included.")]
    readers: Annotated[int, gauge("quire_stream_readers", "Readers, which are of no group.")]
    pins: Annotated[int, gauge("quire_stream_pins", "Pins, which keep messages whatever the policy says.")]


class PartitionOffsets(Status, frozen=True):
    """What of a partition can be read."""

    partition: Annotated[int, doc("Its number.")]
    earliest: Annotated[int, doc("The offset of its first message; the end if it has none.")]
    end: Annotated[int, doc("Where the next message comes, or further on.")]
    records: Annotated[int, doc("How many messages there are.")]
    bytes: Annotated[int, doc("Their size.")]
    offset: Annotated[int | None, doc("Where a start position that was asked for is; null if none was.")] = None


class PartitionStatus(Status, frozen=True):
    """A partition."""

    partition: Annotated[int, doc("Its number.")]
    lane: Annotated[int, doc("The number of its lane in the store.")]
    earliest: Annotated[int, doc("The offset of its first message; the end if it has none.")]
    end: Annotated[int, doc("Where the next message comes, or further on.")]
    records: Annotated[int, doc("How many messages there are.")]
    bytes: Annotated[int, doc("Their size.")]
    gaps: Annotated[int, doc("How many offsets have no message: it has gone, or its commit failed.")]
    oldest_timestamp: Annotated[
        int | None, doc("When the broker took its first message, in milliseconds since the epoch; null if not known.")
    ]
    newest_timestamp: Annotated[int | None, doc("When it took the last one.")]


class StreamGroup(Status, frozen=True):
    """A consumer group of a stream, in short."""

    name: Annotated[str, doc("Its name.")]
    order: Annotated[str, doc("What order it relies on.")]
    members: Annotated[int, doc("How many members it has, those that are awaited included.")]
    lag: Annotated[int, doc("How many messages it has not finished, without retries; exact.")]
    in_flight: Annotated[int, doc("How many messages its members have, retries included.")]
    retries: Annotated[int | None, doc("How many messages its retry lane has; null if they wait at their place.")]


class StreamPin(Status, frozen=True):
    """A pin."""

    name: Annotated[str, doc("Its name.")]
    offsets: Annotated[dict[int, int], doc("The first offset that stays, by partition.")]
    until: Annotated[int, doc("When it ends, in milliseconds since the epoch.")]


class StreamPolicy(Status, frozen=True):
    """What of its policy says how long a stream keeps messages and what its groups do; by the settings' names."""

    partition_key_header: Annotated[str, doc("The header whose value decides on the partition.")]
    retention_time: Annotated[float, doc("How long a message stays, in seconds; -1 for no limit.")]
    retention_bytes: Annotated[int, doc("How many bytes stay; 0 for no limit.")]
    retention_groups_done: Annotated[bool, doc("Whether a message goes when all groups are done with it.")]
    consume_timeout: Annotated[float, doc("How long a member may have a message, in seconds.")]
    retry: Annotated[str, doc("Where failed messages wait.")]
    retry_maximum: Annotated[int, doc("How often a failed message is tried again; -1 for no limit.")]
    rebalance_strategy: Annotated[str, doc("How partitions are shared out among members.")]
    member_grace: Annotated[float, doc("How long a member may be away, in seconds.")]


class StreamDetails(Status, frozen=True):
    """All that is known of a stream."""

    name: Annotated[str, doc("Its name.")]
    records: Annotated[int, doc("How many messages it keeps.")]
    bytes: Annotated[int, doc("Their size.")]
    resident_bytes: Annotated[int, doc("What its messages take in memory.")]
    appended: Annotated[int, doc("How many messages were sent to it since the broker started.")]
    readers: Annotated[int, doc("How many readers it has, which are of no group.")]
    policy: Annotated[StreamPolicy, doc("What applies to it.")]
    partitions: Annotated[list[PartitionStatus], doc("Each of its partitions.")]
    groups: Annotated[list[StreamGroup], doc("Its consumer groups, by name.")]
    pins: Annotated[list[StreamPin], doc("Its pins, by name.")]


class StreamMessage(Status, frozen=True):
    """A message of a stream."""

    partition: Annotated[int, doc("The number of its partition.")]
    offset: Annotated[int, doc("Its place in it.")]
    id: Annotated[str, doc("Its message id.")]
    timestamp: Annotated[int, doc("When the broker took it, in milliseconds since the epoch.")]
    size: Annotated[int, doc("Of headers and body, in bytes.")]
    headers: Annotated[dict[str, str], doc("All its headers.")]
    body: Annotated[str, doc("As text, or base64 when it is not UTF-8.")]
    body_encoding: Annotated[Literal["text", "base64"], doc("Which of the two.")]


def described(partition: int, offset: int, message: "Message") -> StreamMessage:
    """What is told of a message, or of a retry of it."""
    text, encoding = text_of(message.body)
    return StreamMessage(
        partition, offset, message.id, timestamp_of(message), message.size, message.headers(), text, encoding
    )


class StreamInfoReader:
    """Tells what is known of streams."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def status(self, stream: "Stream") -> StreamStatus:
        """The counts of a stream; the store is not read."""
        groups = stream.groups.values()
        return StreamStatus(
            name=stream.destination.name, partitions=len(stream.partitions), records=stream.count,
            bytes=stream.stored_bytes, resident_bytes=stream.memory.used, appended=stream.enqueued, groups=len(groups),
            members=sum([len(group.coordinator.members) for group in groups]), readers=len(self._readers(stream)),
            pins=len(self.pins(stream)),
        )  # fmt: skip

    def _readers(self, stream: "Stream") -> "list[Group]":
        return [reader for reader in self._broker.groups.readers if reader.stream is stream]

    def details(self, stream: "Stream") -> StreamDetails:
        """All that is known of a stream; the store may not be readable."""
        policy = stream.policy
        return StreamDetails(
            name=stream.destination.name, records=stream.count, bytes=stream.stored_bytes,
            resident_bytes=stream.memory.used, appended=stream.enqueued, readers=len(self._readers(stream)),
            policy=msgspec.convert(policy, StreamPolicy, from_attributes=True),
            partitions=self.partitions(stream),
            groups=[_group(group) for _, group in sorted(stream.groups.items())],
            pins=self.pins(stream),
        )  # fmt: skip

    def partitions(self, stream: "Stream") -> list[PartitionStatus]:
        """The partitions of a stream, all at one moment. Where nothing was ever sent, nothing is read."""
        if all([partition.next_sequence == 1 for partition in stream.partitions]):
            new = Extent.of(LaneState())
            return [PartitionStatus(p.index, p.lane, *new, 0, None, None) for p in stream.partitions]
        with self._broker.core.store.snapshot() as reader:
            return [_partition(reader, index, lane) for index, lane in enumerate(stream.stored.lanes)]

    def offsets(self, stream: "Stream", start: Start | None) -> list[PartitionOffsets]:
        """What of each partition can be read, and where a start position is in it, all at one moment."""
        now = self._broker.core.clock.now_ms()
        with self._broker.core.store.snapshot() as reader:
            return [
                PartitionOffsets(
                    index, *extent(reader, lane), None if start is None else start.offset(reader, lane, now)
                )
                for index, lane in enumerate(stream.stored.lanes)
            ]

    def pins(self, stream: "Stream") -> list[StreamPin]:
        """The pins of a stream that have not ended, by name."""
        now = self._broker.core.clock.now_ms()
        pins = sorted(stream.pins.by_name.items())
        return [StreamPin(name, pin.offsets, pin.until) for name, pin in pins if pin.until > now]


def _partition(reader: StoreReader, index: int, lane: int) -> PartitionStatus:
    here, tail = extent(reader, lane), reader.lane_state(lane).tail
    return PartitionStatus(
        index, lane, *here, gaps=here.end - here.earliest - here.records,
        oldest_timestamp=time_from(reader, lane, here.earliest) if here.records else None,
        newest_timestamp=time_from(reader, lane, tail) if here.records else None,
    )  # fmt: skip


def _group(group: "Group") -> StreamGroup:
    retries = group.retries
    in_flight = sum([part.in_flight for part in group.partitions])
    return StreamGroup(
        name=group.name, order=group.definition.order, members=len(group.coordinator.members), lag=group.lag,
        in_flight=in_flight + (0 if retries is None else retries.in_flight),
        retries=None if retries is None else retries.depth,
    )  # fmt: skip
