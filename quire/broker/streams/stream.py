"""A stream: partitions whose records stay for a time or a size, and consumer groups that move over them."""

import zlib
from collections.abc import Mapping
from typing import Any

from quire.broker.core.core import Core
from quire.broker.streams.groups.group import Group
from quire.broker.streams.partition import Partition
from quire.broker.streams.pins import Pins
from quire.broker.streams.retention import Retention
from quire.broker.streams.rotation import Rotation
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidHeader
from quire.message import Message, escape
from quire.store.base import StoredDestination

PARTITION = "partition"
"""The header that says which partition a message goes to, and which one it is of."""

ORDERED_FROM = "ordered_from"
"""The setting of a stored stream that says, by partition, from which offset on timestamps ascend."""


class Stream:
    """One stream.

    Args:
        new: whether it is made now: then nothing is read.

    Attributes:
        destination: its address.
        policy: what applies to it.
        memory: its node of the memory tree.
        partitions: by number.
        groups: its consumer groups, by name; readers that store nothing are not among them.
        pins: what has to stay whatever the policy says.
        retention: lets records go.
        rotation: the partitions in turn.
        enqueued: how many messages were sent to it.
    """

    is_deleted = False

    def __init__(self, core: Core, stored: StoredDestination, *, new: bool = False) -> None:
        self.core = core
        self.stored = stored
        self.destination = Destination(DestinationKind(stored.kind), stored.name)
        self.policy = core.settings.policies.of(self.destination)
        self.memory = MemoryUsage(self.policy.memory_limit, core.memory)
        ordered: Any = [1] * len(stored.lanes) if new else stored.settings.get(ORDERED_FROM)
        self.partitions = [
            Partition(self, index, lane, ordered[index] if ordered else None, new=new)
            for index, lane in enumerate(stored.lanes)
        ]
        if self._note_order() and not new:
            core.change_destination(stored.id, self.stored)
        self.groups: dict[str, Group] = {}
        self.readers: dict[Group, None] = {}
        self.enqueued = 0
        self.pins = Pins(core, self.partitions, new=new)
        self.retention = Retention(self)
        self.rotation = Rotation(self.partitions)

    @property
    def count(self) -> int:
        """How many records it has."""
        return sum([partition.count for partition in self.partitions])

    @property
    def stored_bytes(self) -> int:
        """Their sizes."""
        return sum([partition.bytes for partition in self.partitions])

    def policy_changed(self) -> None:
        """Another policy applies from now on; the number of partitions stays."""
        self.policy = self.core.settings.policies.of(self.destination)
        self.memory.limit = self.policy.memory_limit
        self.retention.policy_changed()
        for partition in self.partitions:
            partition.policy_changed()
        for group in self._groups_and_readers():
            group.policy_changed()

    def committed(self, count: int) -> None:
        """Messages that were sent to it are stored."""
        self.enqueued += count
        self.retention.grown()

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition, or is gone."""
        self.retention.finished(partition)

    # Where a message goes.

    def route(self, headers: Mapping[str, str]) -> Rotation | Partition:
        """What takes the messages that have some headers: a partition, or all of them in turn."""
        if PARTITION in headers:
            partition = self._partition_named(headers[PARTITION])
            if partition is None:
                name, last = self.destination.name, len(self.partitions) - 1
                text = f"partition is {headers[PARTITION][:20]!r}: {name} has partitions 0 to {last}"
                raise InvalidHeader(text, header=PARTITION)
            return partition
        key = headers.get(self.policy.partition_key_header)
        return self.rotation if key is None else self.partition_of(key)

    def _partition_named(self, text: str) -> Partition | None:
        """The partition of a number; None if it is none."""
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return self.partitions[int(text)] if is_number and int(text) < len(self.partitions) else None

    def partition_of(self, key: str) -> Partition:
        """The partition of a key: always the same one, as long as there are as many partitions."""
        return self.partitions[zlib.crc32(key.encode()) % len(self.partitions)]

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Partition.send``. Its headers say where it goes; else the partitions take turns."""
        self._partition_for(content).send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another destination gives up in this commit. If it fails, both are in the next one."""
        return self._partition_for(content).transfer(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of a partition: there is nothing to do."""

    def _partition_for(self, content: bytes) -> Partition:
        """Where a message goes by its own headers, as when it was sent in a transaction or scheduled."""
        message = Message(0, content)
        partition = self._partition_named(message.header(PARTITION.encode()) or "")
        if partition is not None:
            return partition
        header = self.policy.partition_key_header.encode()
        key = message.header(escape(header)) if header else None
        return self.rotation.next() if key is None else self.partition_of(key)

    # Partitions come.

    def add_partitions(self, lanes: tuple[int, ...]) -> None:
        """There are more partitions. Groups begin at the first record of them."""
        first = len(self.partitions)
        self.stored = self.stored._replace(lanes=(*self.stored.lanes, *lanes))
        self.partitions += [Partition(self, first + index, lane, 1, new=True) for index, lane in enumerate(lanes)]
        self._note_order()
        self.core.change_destination(self.stored.id, self.stored)
        for group in self._groups_and_readers():
            group.partitions_added()
            self.core.limits.add_group_partitions(len(lanes))

    def _note_order(self) -> bool:
        """Put into what is stored from where on timestamps ascend; whether that is a change."""
        settings, known = self.stored.settings, [partition.ordered_from for partition in self.partitions]
        self.stored = self.stored._replace(settings={**settings, ORDERED_FROM: known})
        return settings != self.stored.settings

    def _groups_and_readers(self) -> list[Group]:
        return [*self.groups.values(), *self.readers]

    def forget_marks(self) -> None:
        """The stream is deleted: remove what it remembers besides its messages."""
        self.pins.clear()
        for partition in self.partitions:
            partition.forget_marks()
