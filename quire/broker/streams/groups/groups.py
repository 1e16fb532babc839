"""The consumer groups of a broker: made, found, moved, removed; readers, which are groups that store nothing.

An operator moves a group by reset, shift and skip, and another one begins where it is: clone. Each can be looked at
before it is done: the same numbers come out, exact at that moment, and nothing is changed. What is done is in one
commit. It does not matter whether the group has members: what they have is taken from them, it has not failed, and what
they say of it later does not count (``Group.restart``). A group that was moved begins anew from its new place: it gets
all that stands behind that, what it had finished there too, and knows of no failure from before.

What a removed group leaves behind goes in steps: its marks, its retry lane, at last its definition, which says that it
is being removed. The progress of an external reader, a job on Spark, is shown as a group too.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from quire.broker.core.core import Core
from quire.broker.queues.shared_lane import read_finished
from quire.broker.streams.groups.group import Group, GroupPartition, Leases, MemberSubscription, Progress
from quire.broker.streams.groups.group_definition import (
    DEFINITIONS,
    GroupDefinition,
    Mode,
    Order,
    check_name,
    definition_key,
    members_key,
    partition_keys,
    prefix_of,
)
from quire.broker.streams.groups.rebalance import StoredMembership
from quire.broker.streams.partition import PartitionedStream, Start, StartKind
from quire.cursors.ack_set import AckSet
from quire.errors import DestinationExists, DestinationInUse, GroupMismatch, InvalidArgument, UnknownConsumerGroup
from quire.logs import event
from quire.message import Message
from quire.selectors import Selector
from quire.store.base import StoredDestination, walk_marks

STEP = 1000
"""How many marks are removed at once."""


RETRY_KIND = "retry"
"""The kind of the destinations that retries are in."""

EXTERNAL = "external"
"""The start of a group that has its position from elsewhere."""

Begun = list[tuple[AckSet, Progress]]
"""What a group has finished of each partition of its stream where it begins."""


class GroupedStream(PartitionedStream, Protocol):
    """The stream as its groups' registry sees it: ``Stream`` knows groups."""

    groups: dict[str, Group]
    readers: dict[Group, None]


class Streams(Protocol):
    """All streams, which stand with the other destinations above this package."""

    @property
    def streams(self) -> Mapping[str, GroupedStream]: ...

    def existing_stream(self, name: str) -> GroupedStream:
        """The stream of a name, if there is one."""

    def create_internal(self, kind: str, name: str) -> StoredDestination:
        """Store a destination that clients do not see, with the open commit."""


class Groups:
    """All groups."""

    def __init__(self, core: Core, streams: Streams) -> None:
        self._core = core
        self._streams = streams
        self._next_number = 1
        self.leases = Leases(core.clock, core.scheduler, _time_is_up)

    def load(self) -> None:
        store = self._core.store
        retries = {stored.id: stored for stored in store.destinations() if stored.kind == RETRY_KIND}
        with store.snapshot() as reader:
            definitions = list(walk_marks(reader, DEFINITIONS))
        for key, value in definitions:
            number = int(key.removeprefix(DEFINITIONS))
            self._next_number = max(self._next_number, number + 1)
            definition = msgspec.msgpack.decode(value, type=GroupDefinition)
            stream = self._streams.streams.get(definition.stream)
            if definition.is_removed or stream is None:
                self._remove(number, definition)
            else:
                self._load(stream, number, definition, retries.get(definition.retry))

    def _load(
        self, stream: GroupedStream, number: int, definition: GroupDefinition, retry: StoredDestination | None
    ) -> None:
        begun = [self._progress(number, partition.index, partition.gone) for partition in stream.partitions]
        group = self._group(stream, number, definition, begun, retry)
        members = self._core.store.mark(members_key(number))
        if members is not None:
            group.coordinator.restore(msgspec.msgpack.decode(members, type=StoredMembership))

    def _group(
        self, stream: GroupedStream, number: int, definition: GroupDefinition, begun: Begun,
        retry: StoredDestination | None = None, *, is_stored: bool = True, new: bool = False,
    ) -> Group:  # fmt: skip
        group = Group(
            self.leases, partial(self._drop, stream), stream, number, definition, begun, retry, is_stored=is_stored,
            new=new,
        )  # fmt: skip
        if is_stored:
            stream.groups[definition.name] = group
        else:
            stream.readers[group] = None
        self._core.limits.add_group_partitions(len(group.partitions))
        return group

    def _progress(self, number: int, partition: int, gone: AckSet) -> tuple[AckSet, Progress]:
        keys = partition_keys(number, partition)
        with self._core.store.snapshot() as reader:
            value = reader.mark(keys.progress)
            finished = AckSet() if value is None else read_finished(reader, keys)
        return _merged(finished, gone), Progress() if value is None else msgspec.msgpack.decode(value, type=Progress)

    # Find.

    def all(self) -> list[Group]:
        return [group for stream in self._streams.streams.values() for group in stream.groups.values()]

    @property
    def partitions(self) -> int:
        return self._core.limits.group_partitions

    @property
    def readers(self) -> list[Group]:
        return [reader for stream in self._streams.streams.values() for reader in stream.readers]

    def existing(self, stream: str, name: str) -> Group:
        group = self._streams.existing_stream(stream).groups.get(name)
        if group is None:
            text = f"the stream {stream[:60]!r} has no consumer group {name[:60]!r}"
            raise UnknownConsumerGroup(text, stream=stream[:60], group=name[:60])
        return group

    # Come.

    def open(
        self, stream: GroupedStream, name: str, *, start: Start | None = None, order: Order | None = None,
        mode: Mode = Mode.CLUSTERING, selector: Selector | None = None,
    ) -> Group:  # fmt: skip
        """The group of a stream and a name; made if it is not there.

        Args:
            start: where a new one begins; ``latest`` if nothing is said.
            order: what order it relies on; None for whatever it does, and none for a new one.
        """
        group = stream.groups.get(name)
        text = None if selector is None else selector.text
        if group is None:
            definition = self._defined(
                stream, name, mode, order or Order.CONCURRENT, text, start or Start(StartKind.LATEST)
            )
            return self.create(definition, begin(stream, start or Start(StartKind.LATEST)))
        known = group.definition
        wanted = {"selector": text, "mode": mode, "order": order or known.order}
        has = {"selector": known.selector, "mode": known.mode, "order": known.order}
        for what, value in wanted.items():
            if value != has[what]:
                wrong = f"the group {name[:60]!r} has the {what} {has[what] or 'none'!s}, not {value or 'none'!s}"
                raise GroupMismatch(wrong, group=name[:60], what=what)
        return group

    def _defined(
        self, stream: GroupedStream, name: str, mode: Mode, order: Order, selector: str | None, start: Start
    ) -> GroupDefinition:  # fmt: skip
        check_name(name)
        now = self._core.clock.now_ms()
        return GroupDefinition(stream.destination.name, name, mode, order, selector, str(start), now)

    def create(self, definition: GroupDefinition, begun: Begun, *, retries: bool = True) -> Group:
        stream = self._streams.streams[definition.stream]
        self._core.limits.check_subscriptions(len(stream.partitions))
        retry = None
        if retries and definition.order is Order.CONCURRENT and stream.policy.retry == "relocated":
            name = f"%RETRY%{definition.name}@{definition.stream}"
            retry = self._streams.create_internal(RETRY_KIND, name)
            definition = msgspec.structs.replace(definition, retry=retry.id)
        group = self._group(stream, self._take_number(), definition, begun, retry, new=True)
        self._core.set_mark(definition_key(group.number), msgspec.msgpack.encode(definition))
        for part in group.partitions:
            part.write()
        return group

    def _cloned(self, group: Group, name: str) -> GroupDefinition:
        known = group.definition
        stream = self._streams.streams[known.stream]
        if name in stream.groups:
            text = f"the stream {known.stream[:60]!r} has a consumer group {name[:60]!r} already"
            raise DestinationExists(text, stream=known.stream[:60], group=name[:60])
        definition = self._defined(stream, name, known.mode, known.order, known.selector, Start(StartKind.LATEST))
        return msgspec.structs.replace(definition, start=f"clone of {known.name}")

    def reader(self, stream: GroupedStream, start: Start, selector: Selector | None) -> Group:
        self._core.limits.check_subscriptions(len(stream.partitions))
        number = self._take_number()
        text = None if selector is None else selector.text
        definition = GroupDefinition(stream.destination.name, f"reader-{number}", selector=text, start=str(start))
        return self._group(stream, number, definition, begin(stream, start), is_stored=False)

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    # Go.

    def delete(self, group: Group) -> None:
        if group.members:
            stream, names = group.stream.destination.name, ", ".join(list(group.members)[:5])
            text = f"the group {group.name[:60]!r} of {stream[:60]!r} has members: {names}"
            raise DestinationInUse(text, stream=stream[:60], group=group.name[:60])
        group.drop()

    def _drop(self, stream: GroupedStream, group: Group) -> None:
        self._forget(group)
        if not group.is_stored:
            stream.readers.pop(group, None)
            return
        del stream.groups[group.name]
        removed = msgspec.structs.replace(group.definition, is_removed=True)
        self._core.set_mark(definition_key(group.number), msgspec.msgpack.encode(removed))
        self._remove(group.number, removed)
        facts = {"stream": group.stream.destination.name, "group": group.name}
        event("group.removed", f"group {group.name} is removed", logging.INFO, **facts)

    def _remove(self, number: int, definition: GroupDefinition) -> None:
        """Remove what a group leaves behind, after the open commit, so that all is seen that was written before."""
        core = self._core
        if definition.retry:
            core.change_destination(definition.retry, None)
        step = partial(self._remove_marks, number)
        core.after_commit(partial(core.steps.add, step, f"the removal of the group {definition.name}"))

    def _remove_marks(self, number: int) -> bool:
        found = [key for key, _ in self._core.store.marks(prefix_of(number), limit=STEP)]
        for key in found or (members_key(number), definition_key(number)):
            self._core.set_mark(key, None)
        return bool(found)

    def _forget(self, group: Group) -> None:
        core = self._core
        group.coordinator.close()
        self._core.limits.add_group_partitions(-len(group.partitions))
        for part in group.partitions:
            part.partition.subscribers.remove(part)
            group.stream.finished(part.partition.index)
        for source in [*group.partitions, *([group.retries] if group.retries else [])]:
            core.dispatch.forget(source)
            source.memory.stop_waiting(source.memory_released)
            source.memory.release(source.memory.used)
            core.forget(source)
        if group.retries is not None:
            group.retries.is_deleted = True

    def clone(self, group: Group, name: str, *, dry_run: bool = False) -> "list[PartitionClone]":
        """Make a group that has finished what another one has, exactly, whatever holes there are.

        What the other one knows of failures is not copied, and neither are its retries. Acknowledgements of the other
        one that are not stored yet are not copied: their messages come to the new one.

        Args:
            dry_run: whether to tell only.

        Raises:
            StoreError: the store cannot be read. Nothing is changed.
        """
        definition = self._cloned(group, name)
        begun = [_stored(part) for part in group.partitions]
        clones = [_clone_of(part, finished) for part, finished in zip(group.partitions, begun, strict=True)]
        if not dry_run:
            self.create(definition, [(finished, Progress()) for finished in begun])
        return clones

    def note_progress(self, stream: GroupedStream, name: str, offsets: Mapping[int, int]) -> Group:
        """Note how far an external reader has come; its group is made if it is not there, and has no retries.

        Args:
            offsets: by partition, the first offset that is not done. Others stay where they are; in a new group they
                begin at the first record.
        """
        for partition, offset in offsets.items():
            if not 0 <= partition < len(stream.partitions):
                raise InvalidArgument(f"there is no partition {partition}", argument="offsets", partition=partition)
            end = stream.partitions[partition].announced + 1
            if not 1 <= offset <= end:
                text = f"offset {offset} of partition {partition}: it has offsets 1 to {end}"
                raise InvalidArgument(text, argument="offsets", partition=partition, end=end)
        group = stream.groups.get(name) or self._external(stream, name)
        if group.members:
            raise DestinationInUse(f"the group {name[:60]!r} has members", group=name[:60])
        for partition, offset in offsets.items():
            group.partitions[partition].go_to(offset)
        return group

    def _external(self, stream: GroupedStream, name: str) -> Group:
        check_name(name)
        now, gone = self._core.clock.now_ms(), [partition.gone for partition in stream.partitions]
        definition = GroupDefinition(stream.destination.name, name, start=EXTERNAL, created=now)
        return self.create(definition, [(_merged(AckSet(), known), Progress()) for known in gone], retries=False)


def begin(stream: PartitionedStream, start: Start) -> Begun:
    """Where a new group begins in each partition, decided now: what is sent later it gets in any case."""
    at_end = start.kind is StartKind.LATEST
    offsets = start.offsets(stream.core.store, stream.stored.lanes, stream.core.clock.now_ms())
    begun = []
    for partition, offset in zip(stream.partitions, offsets, strict=True):
        base = partition.filled_to if at_end else max(min(offset, partition.next_sequence) - 1, 0)
        begun.append((_merged(AckSet(base), partition.gone), Progress()))
    return begun


def _merged(finished: AckSet, other: AckSet) -> AckSet:
    finished.merge(other)
    return finished


def _time_is_up(child: MemberSubscription, messages: list[Message]) -> None:
    child.member.group.time_is_up(child, messages)


Places = Mapping[int, AckSet]
"""What a group is to have finished of some partitions, by their numbers."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What a change means for one partition.

    Attributes:
        partition: its number.
        from_offset: the first offset that is not finished before it.
        to_offset: the first one that is not finished after it; that of the next message to come if there is none.
        again: how many messages come again that were finished. A message that waits in the retry lane is one of these.
        skipped: how many messages do not come that were not finished.
        in_flight: how many messages are taken from members, retries not counted.
        retries_dropped: how many failed messages lose their retry: each comes again if it stands behind the new place,
            and else it does not.
    """

    partition: int
    from_offset: int
    to_offset: int
    again: int
    skipped: int
    in_flight: int
    retries_dropped: int


@dataclass(frozen=True, slots=True)
class PartitionClone:
    """What a group that begins where another one is gets of one partition.

    Attributes:
        partition: its number.
        offset: the first offset that is not finished.
        lag: how many messages are not finished; those that members of the other group have are among them.
        holes: how many runs of them have finished ones above them.
        retries_left: how many messages wait in the retry lane of the other group. They are finished in both: the new
            group does not get them.
    """

    partition: int
    offset: int
    lag: int
    holes: int
    retries_left: int


def reset(group: Group, start: Start, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on from a position, forwards or backwards.

    Args:
        start: from where; an offset that a partition does not have is moved to its first or behind its last one.
        partition: the number of the only partition that this is about; None for all.
        dry_run: whether to tell only.
    """
    begun = begin(group.stream, start)
    return _move(group, {number: begun[number][0] for number in _chosen(group, partition)}, dry_run=dry_run)


def shift(group: Group, by: int, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on ``by`` offsets behind the first one it has not finished, within the partition's ends."""
    return _move(group, {number: _shifted(group, number, by) for number in _chosen(group, partition)}, dry_run=dry_run)


def skip(group: Group, partition: int | None = None, *, dry_run: bool = False) -> list[PartitionChange]:
    """Have a group go on with what is sent from now on: what it has not finished is done, and so are its retries."""
    return reset(group, Start(StartKind.LATEST), partition, dry_run=dry_run)


# Where it goes.


def _chosen(group: Group, partition: int | None) -> list[int]:
    count = len(group.partitions)
    if partition is None:
        return list(range(count))
    if not 0 <= partition < count:
        text = f"partition is {partition}: {group.stream.destination.name} has partitions 0 to {count - 1}"
        raise InvalidArgument(text, argument="partition")
    return [partition]


def _shifted(group: Group, number: int, by: int) -> AckSet:
    part = group.partitions[number]
    partition, position = part.partition, part.settled().base + 1
    earliest = partition.head or partition.announced + 1
    return _merged(AckSet(min(max(position + by, earliest), partition.next_sequence) - 1), partition.gone)


def _stored(part: GroupPartition) -> AckSet:
    """What a group has finished for certain: nothing that is still being committed."""
    finished = _merged(AckSet(), part.finished)
    for commit_part in part.core.parts_of(part):
        for message in commit_part.removals:
            finished.discard_range(message.sequence, message.sequence)
    return _merged(finished, part.partition.gone)


# What it means, and doing it.


def _move(group: Group, places: Places, *, dry_run: bool) -> list[PartitionChange]:
    changes = [_change_of(group.partitions[number], finished) for number, finished in places.items()]
    if not dry_run:
        group.restart(places)
    return changes


def _change_of(part: GroupPartition, after: AckSet) -> PartitionChange:
    """What it means for a group to have finished something else of a partition: all up to a place, and what is gone."""
    partition, before = part.partition, part.settled()
    last = partition.announced
    place = min(after.base, last)
    behind = _count(before, last) - _count(before, place)
    gone_behind = _count(partition.gone, last) - _count(partition.gone, place)
    return PartitionChange(
        partition.index, before.base + 1, after.base + 1, again=behind - gone_behind,
        skipped=place - _count(before, place), in_flight=part.in_flight, retries_dropped=_retries_of(part, before),
    )  # fmt: skip


def _retries_of(part: GroupPartition, finished: AckSet) -> int:
    waiting = [offset for offset, state in part.came_back().items() if state.failures and offset not in finished]
    return len(waiting) + _relocated(part)


def _relocated(part: GroupPartition) -> int:
    retries = part.group.retries
    return 0 if retries is None else retries.count_of(part.partition.lane)


def _clone_of(part: GroupPartition, finished: AckSet) -> PartitionClone:
    partition = part.partition
    lag = partition.announced - _count(finished, partition.announced)
    return PartitionClone(partition.index, finished.base + 1, lag, finished.holes, _relocated(part))


def _count(ack_set: AckSet, last: int) -> int:
    above = [min(end, last) - first + 1 for first, end in ack_set.ranges() if first <= last]
    return min(ack_set.base, last) + sum(above)
