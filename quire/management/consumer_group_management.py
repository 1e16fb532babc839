"""The operator's door to consumer groups of streams: look, reset, shift, skip, clone, delete; try a strategy out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire.broker.streams.groups import group_changes
from quire.broker.streams.groups.assignment import Candidate, Strategy, assign
from quire.broker.streams.groups.group import Group, rebalance_settings
from quire.broker.streams.groups.group_changes import PartitionChange, PartitionClone
from quire.broker.streams.groups.group_progress import note_progress
from quire.broker.streams.offsets import Start
from quire.errors import InvalidArgument, UnknownConsumerGroup
from quire.management.consumer_group_info import (
    ConsumerGroupDetails,
    ConsumerGroupReader,
    ConsumerGroupStatus,
    GroupLag,
    GroupMemberInfo,
)
from quire.management.management import Management


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Who would own a partition.

    Attributes:
        partition: its number.
        members: who would own it.
        owners: who owns it now.
    """

    partition: int
    members: list[str]
    owners: list[str]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a strategy would make of some members.

    Attributes:
        strategy: which.
        moved: how many of the partitions that have owners now would go to others.
        partitions: each of them.
    """

    strategy: str
    moved: int
    partitions: list[PartitionAssignment]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """What a group had that was deleted.

    Attributes:
        lag: how many messages it had not finished.
        retries: how many were in its retry lane.
    """

    lag: int
    retries: int


class ConsumerGroupManagement:
    """Looks at a broker's consumer groups and changes them.

    A stream's name may raise ``UnknownDestination``, a group's ``UnknownConsumerGroup``; and a look or a change
    ``StoreError``.

    Args:
        management: the door to its queues.
    """

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._groups = management.broker.groups
        self._reader = ConsumerGroupReader(management.broker, management.reader)

    # Look.

    def groups(self) -> Iterator[ConsumerGroupStatus]:
        """All groups, by stream and name; each is looked at when it is asked for."""
        ordered = sorted(self._groups.all(), key=lambda group: (group.definition.stream, group.name))
        return (self._reader.status(group) for group in ordered)

    def readers(self) -> Iterator[ConsumerGroupStatus]:
        """All readers, in the order they came; each is looked at when it is asked for."""
        return (self._reader.status(group) for group in list(self._groups.readers))

    def group(self, stream: str, name: str) -> ConsumerGroupDetails:
        """One group."""
        return self._reader.details(self._groups.existing(stream, name))

    def members(self, stream: str, name: str) -> list[GroupMemberInfo]:
        """The members of a group, by id."""
        return self._reader.members(self._groups.existing(stream, name))

    def lag(self, stream: str, name: str) -> GroupLag:
        """How far a group is behind."""
        return self._reader.lag(self._groups.existing(stream, name))

    def progress(self, stream: str, name: str, offsets: Mapping[int, int]) -> GroupLag:
        """Note how far a reader has come that is no member; its group is made if it is not there.

        Args:
            stream: the stream's name.
            name: the group's.
            offsets: by partition, the first offset that is not done.

        Raises:
            InvalidHeader: a group cannot have such a name.
            InvalidArgument: there is no such partition, or nothing with such an offset can have been read.
            DestinationInUse: the group has members.
        """
        broker = self._broker
        return self._reader.lag(
            note_progress(
                broker.groups, broker.core.clock.now_ms(), broker.destinations.existing_stream(stream), name, offsets
            )
        )

    def assign(self, stream: str, name: str, members: Sequence[Candidate], strategy: str | None = None) -> Assignment:
        """Who would own which partition, if a group had some members and no others. Nothing is changed.

        Args:
            stream: the stream's name.
            name: the group's.
            members: whom.
            strategy: by which strategy; None for the group's own.

        Raises:
            InvalidArgument: there is no such strategy, or two members have one name.
        """
        group = self._groups.existing(stream, name)
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

    # Change. What is told before is what is done.

    def reset(
        self, stream: str, name: str, start: Start, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group go on from a position; as ``group_changes.reset``."""
        return group_changes.reset(self._groups.existing(stream, name), start, partition, dry_run=dry_run)

    def shift(
        self, stream: str, name: str, by: int, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group go on so many offsets further on or back; as ``group_changes.shift``."""
        return group_changes.shift(self._groups.existing(stream, name), by, partition, dry_run=dry_run)

    def skip(
        self, stream: str, name: str, partition: int | None = None, *, dry_run: bool = False
    ) -> list[PartitionChange]:
        """Have a group be done with everything; as ``group_changes.skip``."""
        return group_changes.skip(self._groups.existing(stream, name), partition, dry_run=dry_run)

    def clone(self, stream: str, name: str, to: str, *, dry_run: bool = False) -> list[PartitionClone]:
        """Make a group that begins where another one is; as ``group_changes.clone``."""
        return group_changes.clone(self._groups.existing(stream, name), to, dry_run=dry_run)

    def delete(self, stream: str, name: str, *, force: bool = False) -> GroupDeleted:
        """Delete a group, with everything it remembers. The messages stay in their stream.

        Args:
            stream: the stream's name.
            name: the group's.
            force: disconnect its members first.

        Raises:
            DestinationInUse: it has members.
        """
        group = self._groups.existing(stream, name)
        deleted = GroupDeleted(group.lag, 0 if group.retries is None else group.retries.depth)
        if force:
            _dismiss(group)
        self._groups.delete(group)
        return deleted


def _dismiss(group: Group) -> None:
    """Disconnect all members; nobody is awaited."""
    text = f"the consumer group {group.name[:60]!r} was deleted"
    for member in list(group.members.values()):
        member.session.fail(UnknownConsumerGroup(text, stream=group.definition.stream[:60], group=group.name[:60]))
        group.leave(member, text)


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError as error:
        text = f"{name[:60]!r} is no strategy: write {', '.join(Strategy)}"
        raise InvalidArgument(text, argument="strategy") from error
