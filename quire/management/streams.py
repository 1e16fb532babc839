"""Streams and their consumer groups: what is known of them; create, delete, read, find, pin; try a strategy out.

What is unknown of a group is null, never 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec.structs import asdict

from quire.broker.queues.browsing import text_of
from quire.broker.queues.queue import Queue
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group import rebalance_settings
from quire.broker.streams.groups.rebalance import Candidate, MemberStatus, Strategy, assign
from quire.broker.streams.lookup import Found, GroupState, Lookup, MessageState, Place, dead_letters, states_of
from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import RangeRead, read_range
from quire.destination import DestinationKind
from quire.errors import (
    DataLost,
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    UnknownConsumerGroup,
    UnknownDestination,
    UnknownMessage,
)
from quire.management.blocked import blocked
from quire.management.overview import name_of
from quire.management.queues import Management, destinations, dismiss_members
from quire.management.tables import Reader, Table, concerned, name_of_destination, rates
from quire.message import timestamp_of
from quire.resources import (
    Assignment,
    Blocked,
    ConsumerGroupDetails,
    ConsumerGroupStatus,
    GroupCounters,
    GroupLag,
    GroupMemberInfo,
    GroupPartitionStatus,
    GroupRetries,
    PartitionAssignment,
    PartitionLag,
    PartitionOffsets,
    PartitionStatus,
    Status,
    StreamDetails,
    StreamGroup,
    StreamMessage,
    StreamPin,
    StreamPolicy,
    StreamStatus,
    doc,
)
from quire.store.base import LaneState, StoreReader
from quire.store.positions import Extent, extent, time_from

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group, GroupPartition
    from quire.broker.streams.groups.retries import RetryQueue
    from quire.broker.streams.stream import Stream
    from quire.message import Message


def described(partition: int, offset: int, message: "Message") -> StreamMessage:
    text, encoding = text_of(message.body)
    return StreamMessage(
        partition, offset, message.id, timestamp_of(message), message.size, message.headers(), text, encoding
    )


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages of a stream are looked for: by id, or by offset, or all of a key, of a time, or of both."""

    id: str | None = None  # the message id
    partition: int | None = None  # the partition of an offset
    offset: int | None = None  # the offset
    key: str | None = None  # the value of the header ``key``, or of the one that determines the partition
    since: int = 0  # when the time begins, in milliseconds since the epoch
    until: int | None = None  # where it ends: the first time that is not in it; None for now
    limit: int = 100  # how many at the most
    with_dead_letters: bool = False  # whether the dead letter queues are searched for them too


class FoundMessage(Status, frozen=True):
    """A message that was found, and its state."""

    message: Annotated[StreamMessage, doc("The message.")]
    groups: Annotated[list[GroupState], doc("The state of the message in each consumer group.")]
    dead_letters: Annotated[list[str] | None, doc("The groups with a dead letter of it; null if not searched.")]


class StreamSearch:
    """One search. Iterate over it: each step does a bounded amount of work."""

    def __init__(self, stream: "Stream", wanted: Wanted, queues: Mapping[str, Queue]) -> None:
        self.found: list[FoundMessage] = []  # what was found, when the search is through
        self.whole = False  # whether it has seen everything there was to see
        self._stream = stream
        self._wanted = wanted
        self._queues = queues
        lookup = Lookup(stream)
        self.damaged = lookup.damaged  # partition and offset of damaged messages that it came to and passed over
        self._steps = _steps(lookup, wanted, stream.core.clock.now_ms())

    def __iter__(self) -> Iterator[None]:
        messages: list[Found] = []
        for step in self._steps:
            messages += step
            if len(messages) > self._wanted.limit:
                break
            yield
        else:
            self.whole = True
        states: dict[Place, list[GroupState]] = {}
        for partition, message in messages[: self._wanted.limit]:
            states[partition, message.sequence] = states_of(self._stream, partition, message.sequence)
            yield
        dead_lettered: dict[Place, list[str]] = {place: [] for place in states}
        if self._wanted.with_dead_letters:
            yield from self._look_for_dead_letters(states, dead_lettered)
        for partition, message in messages[: self._wanted.limit]:
            place = (partition, message.sequence)
            letters = dead_lettered[place] if self._wanted.with_dead_letters else None
            self.found.append(FoundMessage(described(*place, message), states[place], letters))

    def _look_for_dead_letters(
        self, states: dict[Place, list[GroupState]], dead_lettered: dict[Place, list[str]]
    ) -> Iterator[None]:
        for group in list(self._stream.groups.values()):
            done = GroupState(group.name, MessageState.DONE)
            places = {place for place, known in states.items() if done in known}
            queue = self._queues.get(group.policy.dead_letter_queue)
            for step in dead_letters(group, queue, places) if places else ():
                for place in step:
                    dead_lettered[place].append(group.name)
                yield


def _steps(lookup: Lookup, wanted: Wanted, now: int) -> Iterator[list[Found]]:
    by_place = wanted.offset is not None
    if by_place is not (wanted.partition is not None) or (by_place and wanted.id is not None):
        raise InvalidArgument("give an id, or a partition and an offset, or a key or a time", argument="id")
    if wanted.id is not None:
        return lookup.by_id(wanted.id)
    if wanted.partition is not None and wanted.offset is not None:
        found = lookup.at(wanted.partition, wanted.offset)
        if found is None:
            text = f"partition {wanted.partition} has no message at offset {wanted.offset}"
            raise UnknownMessage(text, partition=wanted.partition, offset=wanted.offset)
        return iter([[found]])
    until = now + 1 if wanted.until is None else wanted.until
    return lookup.by_time(wanted.since, until) if wanted.key is None else lookup.by_key(wanted.key, wanted.since, until)


MAX_READ_BYTES = 16 << 20  # how many bytes of messages one read of a range brings, if one message is not larger


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
    def __init__(self, management: Management) -> None:
        self._broker = broker = management.broker
        self.status = Reader(  # the counts; the store is not read
            StreamStatus, name="destination.name", partitions=lambda s: len(s.partitions), records="count",
            bytes="stored_bytes", resident_bytes="memory.used", appended="enqueued", groups=lambda s: len(s.groups),
            members=lambda s: sum([len(group.coordinator.members) for group in s.groups.values()]),
            readers=lambda s: len([reader for reader in broker.groups.readers if reader.stream is s]),
            pins=lambda s: len(self.pins(s)), **rates(management.sampler),
        )  # fmt: skip

    def table(self) -> "Table[Stream]":
        return Table(
            lambda: destinations(self._broker, DestinationKind.STREAM, self._broker.destinations.streams),
            name_of_destination, self.status.columns,
            {"nonempty": lambda s: s.count > 0, "grouped": lambda s: bool(s.groups)}, is_ordered=True,
        )  # fmt: skip

    def stream(self, name: str) -> StreamDetails:
        return self.details(self._existing(name))

    def _existing(self, name: str) -> "Stream":
        return self._broker.destinations.existing_stream(name)

    def details(self, stream: "Stream") -> StreamDetails:
        known = asdict(self.status(stream))
        del known["members"]
        return StreamDetails(**known | {
            "policy": msgspec.convert(stream.policy, StreamPolicy, from_attributes=True),
            "partitions": self.partitions(stream), "pins": self.pins(stream),
            "groups": [_group(group) for _, group in sorted(stream.groups.items())],
        })  # fmt: skip

    def partitions(self, stream: "Stream") -> list[PartitionStatus]:
        """The partitions of a stream, all at one moment. Where nothing was ever sent, nothing is read."""
        if all([partition.next_sequence == 1 for partition in stream.partitions]):
            new = Extent.of(LaneState())
            return [PartitionStatus(p.index, *new, p.lane, 0, None, None) for p in stream.partitions]
        with self._broker.core.store.snapshot() as reader:
            return [_partition(reader, index, lane) for index, lane in enumerate(stream.stored.lanes)]

    def offsets(self, stream: "Stream", start: Start | None) -> list[PartitionOffsets]:
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

    def create(self, name: str, partitions: int | None = None) -> StreamDetails:
        if name in self._broker.destinations.streams:
            raise DestinationExists(f"the stream {name!r} already exists", name=name)
        return self.details(self._broker.destinations.create_stream(name, partitions))

    def add_partitions(self, name: str, count: int) -> StreamDetails:
        """Give a stream more partitions. Keys may go to other partitions from then on."""
        stream = self._existing(name)
        self._broker.destinations.add_partitions(stream, count)
        return self.details(stream)

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        stream = self._existing(name)
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

    def pin(
        self, name: str, pin: str, time_to_live: float, *, offsets: Mapping[int, int] | None = None,
        start: Start | None = None,
    ) -> StreamPin:  # fmt: skip
        """Pin messages for some seconds, from offsets or a start position on; without both, all that the stream has."""
        stream = self._existing(name)
        if offsets is not None and start is not None:
            raise InvalidArgument("give offsets or start, not both", argument="start")
        if offsets is None:
            found = self.offsets(stream, start or Start(StartKind.EARLIEST))
            offsets = {row.partition: row.earliest if row.offset is None else row.offset for row in found}
        made = stream.pins.set(pin, offsets, round(time_to_live * 1000))
        return StreamPin(pin, made.offsets, made.until)

    def release(self, name: str, pin: str) -> None:
        if not self._existing(name).pins.release(pin):
            raise InvalidArgument(f"the stream {name!r} has no pin {pin[:60]!r}", argument="pin")

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
            which = f"from offset {first} to before {earliest}"
            text = f"messages of partition {partition} of {name!r} were removed {which}"
            raise DataLost(text, name=name, partition=partition, first=first, earliest=earliest)
        return _range(partition, found)

    def _lane(self, name: str, partition: int) -> int:
        lanes = self._existing(name).stored.lanes
        if not 0 <= partition < len(lanes):
            text = f"partition is {partition}: {name} has partitions 0 to {len(lanes) - 1}"
            raise InvalidArgument(text, argument="partition")
        return lanes[partition]

    def _first(self, lane: int, start: str) -> tuple[int, int]:
        with self._broker.core.store.snapshot() as reader:
            position = Start.parse(f"offset={start}" if start.isdecimal() else start)
            end = extent(reader, lane).end
            if position.kind is StartKind.OFFSET:
                return position.value, end
            return position.offset(reader, lane, self._broker.core.clock.now_ms()), end


def _range(partition: int, found: RangeRead) -> StreamRange:
    return StreamRange(
        messages=[described(partition, message.sequence, message) for message in found.messages], first=found.first,
        next=found.next, until=found.until, earliest=found.extent.earliest, end=found.extent.end, cut=found.is_cut,
        missing=found.missing,
    )  # fmt: skip


class GroupDeleted(Status, frozen=True):
    """The backlog of a group that was deleted."""

    lag: Annotated[int, doc("The number of messages that the group had not finished.")]
    retries: Annotated[int, doc("The number of messages in its retry lane.")]


class ConsumerGroupManagement:
    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._sampler = management.sampler
        self.status = Reader(  # a group, or a reader, in short
            ConsumerGroupStatus, stream="stream.destination.name", mode="definition.mode", order="definition.order",
            strategy="policy.rebalance_strategy", epoch="coordinator.epoch", partitions=lambda g: len(g.partitions),
            members=lambda g: len(g.coordinator.members),
            connected=lambda g: len([member for member in g.coordinator.members if member.connected]),
            in_flight=_in_flight, retries=lambda g: None if g.retries is None else g.retries.depth,
            oldest_message_age_seconds=self._age, blocked=self._blocked_longest, counters=_counters,
            **rates(self._sampler),
        )  # fmt: skip

    def table(self) -> "Table[Group]":
        return Table(
            self._all, partial(name_of, "group"), self.status.columns | {"oldest": self._sampler.age},
            {
                "lagging": lambda g: g.lag > 0, "memberless": lambda g: not g.coordinator.members,
                "attention": concerned(self._sampler),
            },
        )  # fmt: skip

    def groups(self) -> Iterator[ConsumerGroupStatus]:
        """All groups, by stream and name; each is looked at when it is asked for."""
        return map(self.status, self._all())

    def _all(self) -> "list[Group]":
        return sorted(self._broker.groups.all(), key=lambda group: (group.definition.stream, group.name))

    def details(self, group: "Group") -> ConsumerGroupDetails:
        definition = group.definition
        return ConsumerGroupDetails(
            **asdict(self.status(group)), selector=definition.selector, start=definition.start,
            created=definition.created, partition_states=[self._partition(group, part) for part in group.partitions],
            retry_lane=self._retries(group), group_members=self.members(group),
        )  # fmt: skip

    def lag(self, group: "Group") -> GroupLag:
        retries = group.retries
        return GroupLag(
            group.lag, _in_flight(group),
            None if retries is None else retries.depth, [_lag(group, part) for part in group.partitions],
        )  # fmt: skip

    def members(self, group: "Group") -> list[GroupMemberInfo]:
        return [self._member(group, status) for status in group.coordinator.members]

    def _partition(self, group: "Group", part: "GroupPartition") -> GroupPartitionStatus:
        settled, out = part.settled(), part.in_flight_sequences()
        failed = [offset for offset, state in part.came_back().items() if state.failures and offset not in settled]
        lag = _lag(group, part)
        return GroupPartitionStatus(
            lag.partition, lag.base, lag.end, lag.lag, lag.in_flight, lag.owners, holes=part.finished.holes,
            ack_set_bytes=part.finished.encoded_size, waiting_retries=len(set(failed) - out), lost=part.lost,
            oldest_message_age_seconds=self._sampler.first_messages.age(part), blocked=self._blocked(part),
        )  # fmt: skip

    def _retries(self, group: "Group") -> GroupRetries | None:
        retries = group.retries
        if retries is None:
            return None
        is_known = bool(retries.subscriptions)
        return GroupRetries(
            retries.depth, retries.in_flight, retries.delayed if is_known else None, retries.next_due,
            self._sampler.first_messages.age(retries), self._blocked(retries),
        )  # fmt: skip

    def _age(self, group: "Group") -> float | None:
        ages = [self._sampler.first_messages.age(source) for source in _sources(group)]
        return max([age for age in ages if age is not None], default=None)

    def _blocked_longest(self, group: "Group") -> Blocked | None:
        waits = [wait for source in _sources(group) if (wait := self._blocked(source)) is not None]
        return max(waits, key=lambda wait: wait.age_seconds, default=None)

    def _blocked(self, source: "GroupPartition | RetryQueue") -> Blocked | None:
        since = source.full_of_holes_since if isinstance(source, LaneSubscription) else None
        if since is not None and source.subscriptions and source.depth > source.in_flight:
            return Blocked("ack-set-full", self._broker.core.clock.monotonic() - since)
        return blocked(self._broker, source)

    def _member(self, group: "Group", status: MemberStatus) -> GroupMemberInfo:
        member, now = group.members.get(status.id), self._broker.core.clock.monotonic()
        children = member.children.values() if member else ()
        held = [message.deadline for child in children for message in child.in_flight.values()]
        return GroupMemberInfo(
            status.id, status.static, status.room, status.connected,
            connection=member.session.name if member and status.connected else None, since=status.since,
            partitions=list(status.partitions), revoking=list(status.revoking),
            in_flight=member.in_flight if member else None, prefetch=member.prefetch if member else None,
            consume_timeout_seconds=member.consume_timeout if member else None,
            lease_ends_seconds=max(min(held) - now, 0.0) if held else None,
        )  # fmt: skip

    def progress(self, stream: str, name: str, offsets: Mapping[int, int]) -> GroupLag:
        """Store the progress of an external reader: by partition, the first offset that it has not finished."""
        broker, of = self._broker, self._broker.destinations.existing_stream(stream)
        return self.lag(broker.groups.note_progress(of, name, offsets))

    def assign(self, group: "Group", members: Sequence[Candidate], strategy: str | None = None) -> Assignment:
        """Preview the assignment if a group had these members only, by a strategy or the group's own."""
        if len({member.id for member in members}) < len(members):
            raise InvalidArgument("two of the members have the same name", argument="members")
        chosen = _strategy(strategy or group.policy.rebalance_strategy)
        owners = {number: list(group.coordinator.owners(number)) for number in range(len(group.partitions))}
        previous = {number: ids[0] for number, ids in owners.items() if ids}
        rooms = rebalance_settings(group.policy).partition_rooms
        target = assign(chosen, len(group.partitions), members, previous, rooms)
        moved = [number for number, ids in target.items() if owners[number] and not set(owners[number]) <= set(ids)]
        partitions = [PartitionAssignment(number, list(ids), owners[number]) for number, ids in target.items()]
        return Assignment(str(chosen), len(moved), partitions)

    def delete(self, group: "Group", *, force: bool = False) -> GroupDeleted:
        deleted = GroupDeleted(group.lag, 0 if group.retries is None else group.retries.depth)
        if force:
            stream, name = group.definition.stream, group.name[:60]
            error = UnknownConsumerGroup(f"the consumer group {name!r} was deleted", stream=stream[:60], group=name)
            dismiss_members(group, error)
        self._broker.groups.delete(group)
        return deleted


def _sources(group: "Group") -> "list[GroupPartition | RetryQueue]":
    return [*group.partitions, *([] if group.retries is None else [group.retries])]


def _in_flight(group: "Group") -> int:
    return sum([source.in_flight for source in _sources(group)])


def _lag(group: "Group", part: "GroupPartition") -> PartitionLag:
    number = part.partition.index
    owners = list(group.coordinator.owners(number))
    return PartitionLag(number, part.finished.base, part.partition.announced + 1, part.lag, part.in_flight, owners)


def _counters(group: "Group") -> GroupCounters:
    sources = _sources(group)
    return GroupCounters(
        delivered=sum([source.dispatched for source in sources]),
        acknowledged=sum([source.dequeued for source in sources]),
        redelivered=sum([source.redelivered for source in sources]),
        timed_out=sum([source.timed_out for source in sources]),
        late=group.late, stale=group.stale, fenced=group.fenced,
        dead_lettered=sum([source.dead_lettered for source in sources]),
        lost=sum([part.lost for part in group.partitions]),
    )  # fmt: skip


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError as error:
        text = f"{name[:60]!r} is not a strategy: write {', '.join(Strategy)}"
        raise InvalidArgument(text, argument="strategy") from error
