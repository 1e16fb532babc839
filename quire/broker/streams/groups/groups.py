"""The consumer groups of a broker: made, found, removed; readers, which are groups that store nothing."""

import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from quire.broker.core.core import Core
from quire.broker.queues.lane_records import read_finished
from quire.broker.streams.groups.group import Group, GroupedStream
from quire.broker.streams.groups.group_definition import (
    DEFINITIONS,
    GroupDefinition,
    Mode,
    Order,
    check_name,
    definition_key,
    members_key,
    partition_keys,
)
from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.streams.groups.group_removal import GroupRemoval
from quire.broker.streams.groups.leases import Leases
from quire.broker.streams.groups.membership import StoredMembership
from quire.broker.streams.groups.partition_progress import Progress
from quire.broker.streams.offsets import Start, StartKind
from quire.cursors.ack_set import AckSet
from quire.errors import (
    DestinationExists,
    DestinationInUse,
    GroupMismatch,
    UnknownConsumerGroup,
)
from quire.logs import event
from quire.message import Message
from quire.selectors import Selector
from quire.store.base import StoredDestination
from quire.store.marks import walk_marks

RETRY_KIND = "retry"
"""The kind of the destinations that retries are in."""


class Streams(Protocol):
    """All streams."""

    @property
    def streams(self) -> Mapping[str, GroupedStream]:
        """The streams, by name."""

    def stream(self, name: str) -> GroupedStream:
        """The stream of a name."""

    def existing_stream(self, name: str) -> GroupedStream:
        """The stream of a name, if there is one."""

    def create_internal(self, kind: str, name: str) -> StoredDestination:
        """Store a destination that clients do not see, with the open commit."""


class Groups:
    """All groups.

    Attributes:
        leases: how long members may have messages.
    """

    def __init__(self, core: Core, streams: Streams) -> None:
        self._core = core
        self._streams = streams
        self._next_number = 1
        self.leases = Leases(core.clock, core.scheduler, _time_is_up)

    def load(self) -> None:
        """Take what the store has; the streams are there already."""
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
                GroupRemoval(self._core, number, definition)
            else:
                self._load(stream, number, definition, retries.get(definition.retry))

    def _load(
        self, stream: GroupedStream, number: int, definition: GroupDefinition, retry: StoredDestination | None
    ) -> None:
        begun = [self._progress(number, partition.index, partition.gone) for partition in stream.partitions]
        group = stream.groups[definition.name] = Group(self, stream, number, definition, begun, retry)
        self._core.limits.add_group_partitions(len(group.partitions))
        members = self._core.store.mark(members_key(number))
        if members is not None:
            group.restore(msgspec.msgpack.decode(members, type=StoredMembership))

    def _progress(self, number: int, partition: int, gone: AckSet) -> tuple[AckSet, Progress]:
        """What a group has finished of a partition; of one that was added just before a crash, nothing."""
        keys = partition_keys(number, partition)
        with self._core.store.snapshot() as reader:
            value = reader.mark(keys.progress)
            finished = AckSet() if value is None else read_finished(reader, keys)
        finished.merge(gone)
        return finished, Progress() if value is None else msgspec.msgpack.decode(value, type=Progress)

    # Find.

    def all(self) -> list[Group]:
        """All groups, by stream; without readers."""
        return [group for stream in self._streams.streams.values() for group in stream.groups.values()]

    @property
    def partitions(self) -> int:
        """How many groups and readers have, each of them counted by itself."""
        return self._core.limits.group_partitions

    @property
    def readers(self) -> list[Group]:
        """The readers there are now."""
        return [reader for stream in self._streams.streams.values() for reader in stream.readers]

    def existing(self, stream: str, name: str) -> Group:
        """The group of a stream and a name."""
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
        """The group of a stream and a name; made if it is not there, and then it begins where ``start`` says.

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
            return self.create(definition, self.begin(stream, start or Start(StartKind.LATEST)))
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

    def begin(self, stream: GroupedStream, start: Start) -> list[tuple[AckSet, Progress]]:
        """Where a new group begins in each partition, decided now: what is sent later it gets in any case."""
        begun = []
        core, lanes = self._core, stream.stored.lanes
        offsets = start.offsets(core.store, lanes, core.clock.now_ms())
        for partition, offset in zip(stream.partitions, offsets, strict=True):
            at_end = start.kind is StartKind.LATEST
            finished = AckSet(partition.filled_to if at_end else max(min(offset, partition.next_sequence) - 1, 0))
            finished.merge(partition.gone)
            begun.append((finished, Progress()))
        return begun

    def create(
        self, definition: GroupDefinition, begun: list[tuple[AckSet, Progress]], *, retries: bool = True
    ) -> Group:
        """Make a group, and store it with the open commit.

        Args:
            definition: what it is; there is none of that stream and name.
            retries: whether it may have a retry lane.
        """
        stream = self._streams.streams[definition.stream]
        self._core.limits.check_subscriptions(len(stream.partitions))
        retry = None
        if retries and definition.order is Order.CONCURRENT and stream.policy.retry == "relocated":
            name = f"%RETRY%{definition.name}@{definition.stream}"
            retry = self._streams.create_internal(RETRY_KIND, name)
            definition = msgspec.structs.replace(definition, retry=retry.id)
        group = Group(self, stream, self._take_number(), definition, begun, retry, new=True)
        stream.groups[definition.name] = group
        self._core.limits.add_group_partitions(len(group.partitions))
        self._core.set_mark(definition_key(group.number), msgspec.msgpack.encode(definition))
        for part in group.partitions:
            part.write()
        return group

    def cloned(self, group: Group, name: str) -> GroupDefinition:
        """What a group is that is to begin where another one of its stream is; ``create`` makes it."""
        stream, known = group.stream, group.definition
        if name in stream.groups:
            text = f"the stream {known.stream[:60]!r} has a consumer group {name[:60]!r} already"
            raise DestinationExists(text, stream=known.stream[:60], group=name[:60])
        definition = self._defined(stream, name, known.mode, known.order, known.selector, Start(StartKind.LATEST))
        return msgspec.structs.replace(definition, start=f"clone of {known.name}")

    def reader(self, stream: GroupedStream, start: Start, selector: Selector | None) -> Group:
        """A reader: a group of one member that nothing is stored of."""
        self._core.limits.check_subscriptions(len(stream.partitions))
        number = self._take_number()
        text = None if selector is None else selector.text
        definition = GroupDefinition(stream.destination.name, f"reader-{number}", selector=text, start=str(start))
        group = Group(self, stream, number, definition, self.begin(stream, start), is_stored=False)
        stream.readers[group] = None
        self._core.limits.add_group_partitions(len(group.partitions))
        return group

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    # Go.

    def reader_left(self, group: Group) -> None:
        """A reader's member is gone."""
        group.stream.readers.pop(group, None)
        self._forget(group)

    def delete(self, group: Group) -> None:
        """Remove a group without members, with everything it remembers."""
        if group.members:
            stream, names = group.stream.destination.name, ", ".join(list(group.members)[:5])
            text = f"the group {group.name[:60]!r} of {stream[:60]!r} has members: {names}"
            raise DestinationInUse(text, stream=stream[:60], group=group.name[:60])
        self.drop(group)

    def drop(self, group: Group) -> None:
        """Remove a group: it has no members any more."""
        del group.stream.groups[group.name]
        self._forget(group)
        removed = msgspec.structs.replace(group.definition, is_removed=True)
        self._core.set_mark(definition_key(group.number), msgspec.msgpack.encode(removed))
        GroupRemoval(self._core, group.number, removed)
        facts = {"stream": group.stream.destination.name, "group": group.name}
        event("group.removed", f"group {group.name} is removed", logging.INFO, **facts)

    def _forget(self, group: Group) -> None:
        """Nothing of a group is dispatched or written any more."""
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


def _time_is_up(child: MemberSubscription, messages: list[Message]) -> None:
    child.member.group.time_is_up(child, messages)
