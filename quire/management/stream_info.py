"""What is known of a stream, of its partitions, and of its messages. Reading it changes nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from quire.broker.queues.browsing import text_of
from quire.broker.streams.offsets import Start
from quire.store.base import LaneState, StoreReader
from quire.store.positions import Extent, extent, time_from, timestamp_of

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.message import Message


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream. ``appended`` begins at zero when the broker starts; the others are exact at any time.

    Attributes:
        name: its name.
        partitions: how many it has.
        records: how many messages it keeps.
        bytes: their size.
        resident_bytes: what its messages take in memory.
        appended: how many messages were sent to it.
        groups: how many consumer groups it has.
        members: how many members these have, those that are awaited included.
        readers: how many readers it has, which are of no group.
        pins: how many pins keep some of its messages.
    """

    name: str
    partitions: int
    records: int
    bytes: int
    resident_bytes: int
    appended: int
    groups: int
    members: int
    readers: int
    pins: int


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What of a partition can be read.

    Attributes:
        partition: its number.
        earliest: the offset of its first message; ``end`` if it has none.
        end: where the next message comes, or further on.
        records: how many messages there are.
        bytes: their size.
        offset: where a start position that was asked for is; null if none was.
    """

    partition: int
    earliest: int
    end: int
    records: int
    bytes: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition.

    Attributes:
        partition: its number.
        lane: the number of its lane in the store.
        earliest: the offset of its first message; ``end`` if it has none.
        end: where the next message comes, or further on.
        records: how many messages there are.
        bytes: their size.
        gaps: how many offsets from the earliest to the end have no message: it has gone, or its commit failed.
        oldest_timestamp: when the broker took its first message, in milliseconds since the epoch; null if there is
            none, or if it is not known.
        newest_timestamp: when it took the last one.
    """

    partition: int
    lane: int
    earliest: int
    end: int
    records: int
    bytes: int
    gaps: int
    oldest_timestamp: int | None
    newest_timestamp: int | None


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """A consumer group of a stream, in short.

    Attributes:
        name: its name.
        order: what order it relies on.
        members: how many members it has, those that are awaited included.
        lag: how many messages it has not finished, without retries; exact.
        in_flight: how many messages its members have, retries included.
        retries: how many messages wait in its retry lane or are in flight again; null if they wait at their place.
    """

    name: str
    order: str
    members: int
    lag: int
    in_flight: int
    retries: int | None


@dataclass(frozen=True, slots=True)
class StreamPin:
    """A pin.

    Attributes:
        name: whose it is.
        offsets: the first offset that stays, by partition.
        until: when it ends, in milliseconds since the epoch.
    """

    name: str
    offsets: dict[int, int]
    until: int


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """What of its policy says how long a stream keeps messages and what its groups do; by the settings' names.

    Attributes:
        partition_key_header: the header whose value decides on the partition.
        retention_time: how long a message stays, in seconds; -1 for no limit.
        retention_bytes: how many bytes stay; 0 for no limit.
        retention_groups_done: whether a message goes when all groups are done with it.
        consume_timeout: how long a member may have a message, in seconds.
        retry: where failed messages wait.
        retry_maximum: how often a failed message is tried again; -1 for no limit.
        rebalance_strategy: how partitions are shared out among members.
        member_grace: how long a member may be away, in seconds.
    """

    partition_key_header: str
    retention_time: float
    retention_bytes: int
    retention_groups_done: bool
    consume_timeout: float
    retry: str
    retry_maximum: int
    rebalance_strategy: str
    member_grace: float


@dataclass(frozen=True, slots=True)
class StreamDetails:
    """All that is known of a stream.

    Attributes:
        name: its name.
        records: how many messages it keeps.
        bytes: their size.
        resident_bytes: what its messages take in memory.
        appended: how many messages were sent to it since the broker started.
        readers: how many readers it has, which are of no group.
        policy: what applies to it.
        partitions: each of its partitions.
        groups: its consumer groups, by name.
        pins: its pins, by name.
    """

    name: str
    records: int
    bytes: int
    resident_bytes: int
    appended: int
    readers: int
    policy: StreamPolicy
    partitions: list[PartitionStatus]
    groups: list[StreamGroup]
    pins: list[StreamPin]


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message of a stream.

    Attributes:
        partition: the number of its partition.
        offset: its place in it.
        id: its message id.
        timestamp: when the broker took it, in milliseconds since the epoch.
        size: of headers and body, in bytes.
        headers: all its headers.
        body: as text, or base64 when it is not UTF-8.
        body_encoding: which of the two.
    """

    partition: int
    offset: int
    id: str
    timestamp: int
    size: int
    headers: dict[str, str]
    body: str
    body_encoding: Literal["text", "base64"]


def described(partition: int, offset: int, message: "Message") -> StreamMessage:
    """What is told of a message.

    Args:
        partition: the number of its partition.
        offset: its place in it.
        message: itself, or a retry of it.
    """
    text, encoding = text_of(message.body)
    return StreamMessage(
        partition, offset, message.id, timestamp_of(message), message.size, message.headers(), text, encoding
    )


class StreamInfoReader:
    """Tells what is known of streams.

    Args:
        broker: the broker they are in.
    """

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
        """All that is known of a stream.

        Raises:
            StoreError: the store cannot be read.
        """
        policy = stream.policy
        return StreamDetails(
            name=stream.destination.name, records=stream.count, bytes=stream.stored_bytes,
            resident_bytes=stream.memory.used, appended=stream.enqueued, readers=len(self._readers(stream)),
            policy=StreamPolicy(
                policy.partition_key_header, policy.retention_time, policy.retention_bytes,
                policy.retention_groups_done, policy.consume_timeout, policy.retry, policy.retry_maximum,
                policy.rebalance_strategy, policy.member_grace,
            ),
            partitions=self.partitions(stream),
            groups=[_group(group) for _, group in sorted(stream.groups.items())],
            pins=self.pins(stream),
        )  # fmt: skip

    def partitions(self, stream: "Stream") -> list[PartitionStatus]:
        """The partitions of a stream, all at one moment. Of one that nothing was ever sent to nothing has to be read.

        Raises:
            StoreError: the store cannot be read.
        """
        if all([partition.next_sequence == 1 for partition in stream.partitions]):
            new = Extent.of(LaneState())
            return [PartitionStatus(p.index, p.lane, *new, 0, None, None) for p in stream.partitions]
        with self._broker.core.store.snapshot() as reader:
            return [_partition(reader, index, lane) for index, lane in enumerate(stream.stored.lanes)]

    def offsets(self, stream: "Stream", start: Start | None) -> list[PartitionOffsets]:
        """What of each partition can be read, all at one moment.

        Args:
            stream: the stream.
            start: a start position to find in each of them; None for none.

        Raises:
            StoreError: the store cannot be read.
        """
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
