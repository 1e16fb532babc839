"""What is known of a stream, of its partitions, and of its messages. Reading it changes nothing."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from quire.broker.queues.browsing import text_of
from quire.broker.streams.partition import Start
from quire.management.described import Status, counter, doc, gauge
from quire.management.sampling.sampler import Sampler
from quire.store.base import LaneState, StoreReader
from quire.store.positions import Extent, extent, time_from, timestamp_of

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.message import Message


class StreamStatus(Status, frozen=True):
    """A stream. ``appended`` begins at zero when the broker starts; the others are exact at any time."""

    name: Annotated[str, doc("The name.")]
    partitions: Annotated[int, gauge("quire_stream_partitions", "Partitions.")]
    records: Annotated[int, gauge("quire_stream_messages", "Messages in the stream.")]
    bytes: Annotated[int, gauge("quire_stream_bytes", "Size of the messages in bytes.")]
    resident_bytes: Annotated[int, gauge("quire_stream_resident_bytes", "Memory of resident messages in bytes.")]
    appended: Annotated[int, counter("quire_stream_appended_messages", "Messages that were sent to the stream.")]
    groups: Annotated[int, gauge("quire_stream_consumer_groups", "Consumer groups.")]
    members: Annotated[int, gauge("quire_stream_members", "Members of groups, connected or awaited.")]
    readers: Annotated[int, gauge("quire_stream_readers", "Readers.")]
    pins: Annotated[int, gauge("quire_stream_pins", "Pins.")]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.")]
    out_rate: Annotated[float, doc("Messages that all groups acknowledge, per second, in the last seconds.")]


class PartitionExtent(Status, frozen=True):
    """The offsets of a partition that can be read."""

    partition: Annotated[int, doc("The number of the partition.")]
    earliest: Annotated[int, doc("The offset of the first message; the end if there is none.")]
    end: Annotated[int, doc("The end: no message has this offset or a higher one.")]
    records: Annotated[int, doc("The number of messages.")]
    bytes: Annotated[int, doc("The size of the messages in bytes.")]


class PartitionOffsets(PartitionExtent, frozen=True):
    """The offsets of a partition that can be read, and of a start position."""

    offset: Annotated[int | None, doc("The offset of the requested start position; null if none was requested.")] = None


class PartitionStatus(PartitionExtent, frozen=True):
    """A partition."""

    lane: Annotated[int, doc("The number of the lane in the store.")]
    gaps: Annotated[int, doc("How many offsets have no message: it was removed, or its commit failed.")]
    oldest_timestamp: Annotated[int | None, doc("When the first message was sent, in ms since the epoch; or null.")]
    newest_timestamp: Annotated[int | None, doc("When the last message was sent, in ms since the epoch; or null.")]


class StreamGroup(Status, frozen=True):
    """A consumer group of a stream."""

    name: Annotated[str, doc("The name.")]
    order: Annotated[str, doc("The order: concurrent, key-ordered or orderly.")]
    members: Annotated[int, doc("The number of members, including those that the group waits for.")]
    lag: Annotated[int, doc("The number of messages that the group has not finished, without retries; exact.")]
    in_flight: Annotated[int, doc("The number of messages in flight to members, including retries.")]
    retries: Annotated[int | None, doc("The number of messages in the retry lane; null if retries wait in place.")]


class StreamPin(Status, frozen=True):
    """A pin."""

    name: Annotated[str, doc("The name.")]
    offsets: Annotated[dict[int, int], doc("The first offset that the pin keeps, by partition.")]
    until: Annotated[int, doc("When the pin ends, in milliseconds since the epoch.")]


class StreamPolicy(Status, frozen=True):
    """The settings of a stream's policy for retention and consumer groups, by the names of the settings."""

    partition_key_header: Annotated[str, doc("The header whose value determines the partition.")]
    retention_time: Annotated[float, doc("How long the stream keeps a message, in seconds; -1 for no limit.")]
    retention_bytes: Annotated[int, doc("How many bytes of messages the stream keeps; 0 for no limit.")]
    retention_groups_done: Annotated[bool, doc("Whether a message is removed when all groups have finished it.")]
    consume_timeout: Annotated[float, doc("How long a member may keep a message before it is retried, in seconds.")]
    retry: Annotated[str, doc("Where failed messages wait.")]
    retry_maximum: Annotated[int, doc("How often a failed message is retried; -1 for no limit.")]
    rebalance_strategy: Annotated[str, doc("The strategy that assigns partitions to members.")]
    member_grace: Annotated[float, doc("How long a static member may be disconnected, in seconds.")]


class StreamDetails(Status, frozen=True):
    """The details of a stream."""

    name: Annotated[str, doc("The name.")]
    records: Annotated[int, doc("The number of messages.")]
    bytes: Annotated[int, doc("The size of the messages in bytes.")]
    resident_bytes: Annotated[int, doc("The memory of resident messages in bytes.")]
    appended: Annotated[int, doc("The number of messages sent to the stream since the broker started.")]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.")]
    out_rate: Annotated[float, doc("Messages that all groups acknowledge, per second, in the last seconds.")]
    readers: Annotated[int, doc("The number of readers.")]
    policy: Annotated[StreamPolicy, doc("The policy of the stream.")]
    partitions: Annotated[list[PartitionStatus], doc("The partitions.")]
    groups: Annotated[list[StreamGroup], doc("The consumer groups, by name.")]
    pins: Annotated[list[StreamPin], doc("The pins, by name.")]


class StreamMessage(Status, frozen=True):
    """A message of a stream."""

    partition: Annotated[int, doc("The number of the partition.")]
    offset: Annotated[int, doc("The offset in the partition.")]
    id: Annotated[str, doc("The message id.")]
    timestamp: Annotated[int, doc("When the message was sent, in milliseconds since the epoch.")]
    size: Annotated[int, doc("The size of headers and body, in bytes.")]
    headers: Annotated[dict[str, str], doc("The headers.")]
    body: Annotated[str, doc("The body as text, or as base64 if it is not UTF-8.")]
    body_encoding: Annotated[Literal["text", "base64"], doc("The encoding of the body.")]


def described(partition: int, offset: int, message: "Message") -> StreamMessage:
    """What is told of a message, or of a retry of it."""
    text, encoding = text_of(message.body)
    return StreamMessage(
        partition, offset, message.id, timestamp_of(message), message.size, message.headers(), text, encoding
    )


class StreamInfoReader:
    """Tells what is known of streams."""

    def __init__(self, broker: "Broker", sampler: Sampler) -> None:
        self._broker = broker
        self._sampler = sampler

    def status(self, stream: "Stream") -> StreamStatus:
        """The counts of a stream; the store is not read."""
        groups = stream.groups.values()
        in_rate, out_rate = self._sampler.rates(stream)
        return StreamStatus(
            name=stream.destination.name, partitions=len(stream.partitions), records=stream.count,
            bytes=stream.stored_bytes, resident_bytes=stream.memory.used, appended=stream.enqueued, groups=len(groups),
            members=sum([len(group.coordinator.members) for group in groups]), readers=len(self._readers(stream)),
            pins=len(self.pins(stream)), in_rate=in_rate, out_rate=out_rate,
        )  # fmt: skip

    def _readers(self, stream: "Stream") -> "list[Group]":
        return [reader for reader in self._broker.groups.readers if reader.stream is stream]

    def details(self, stream: "Stream") -> StreamDetails:
        """All that is known of a stream; the store may not be readable."""
        policy = stream.policy
        in_rate, out_rate = self._sampler.rates(stream)
        return StreamDetails(
            name=stream.destination.name, records=stream.count, bytes=stream.stored_bytes,
            resident_bytes=stream.memory.used, appended=stream.enqueued, in_rate=in_rate, out_rate=out_rate,
            readers=len(self._readers(stream)),
            policy=msgspec.convert(policy, StreamPolicy, from_attributes=True),
            partitions=self.partitions(stream),
            groups=[_group(group) for _, group in sorted(stream.groups.items())],
            pins=self.pins(stream),
        )  # fmt: skip

    def partitions(self, stream: "Stream") -> list[PartitionStatus]:
        """The partitions of a stream, all at one moment. Where nothing was ever sent, nothing is read."""
        if all([partition.next_sequence == 1 for partition in stream.partitions]):
            new = Extent.of(LaneState())
            return [PartitionStatus(p.index, *new, p.lane, 0, None, None) for p in stream.partitions]
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
        index, *here, lane, gaps=here.end - here.earliest - here.records,
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
