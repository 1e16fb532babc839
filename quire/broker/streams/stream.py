"""A stream: partitions whose records stay for a time or a size, and consumer groups that move over them.

A message that does not say which partition it belongs to goes to the next one in turn (``Rotation``).

A range of a partition can be read again and again: nothing is leased, no consumer group moves. What is read is decided
by the range alone. Offsets are never used again and records never change, so the same range brings the same records in
the same order each time, unless retention has removed some meanwhile: then the read says so. A stream browser is shown
all messages that way, one partition after the other.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session
from quire.broker.queues.browsing import LEAST_PIECE, PIECE, PIECE_BYTES, Browsed
from quire.broker.streams.groups.group import Group
from quire.broker.streams.partition import Partition, Pins
from quire.broker.streams.retention import Retention
from quire.cursors.lane import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument, InvalidHeader, StoreCorrupt
from quire.message import Message, escape
from quire.selectors import Selector, at_most
from quire.store.base import Store, StoredDestination
from quire.store.positions import Extent, extent, sound_page


class Rotation:
    """A target of sends."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._turn = 0

    def next(self) -> Partition:
        """Whose turn it is."""
        self._turn += 1
        return self._partitions[self._turn % len(self._partitions)]

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Partition.send``."""
        self.next().send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """Take a message, as ``Partition.transfer``."""
        return self.next().transfer(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of a partition: there is nothing to do."""


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


class StreamBrowser(Browsed):
    """One browser of one stream.

    Args:
        number_of: the number by which the client knows a message, of its offset and its partition.
    """

    def __init__(
        self, stream: "Stream", session: Session, number_of: Callable[[int, int], int], *, id: str, number: int,
        prefetch: int, selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__(
            stream.core, stream.destination, stream.policy, session, id=id, number=number, ack=AckMode.INDIVIDUAL,
            prefetch=prefetch, selector=selector, ended=ended,
        )  # fmt: skip
        self._stream = stream
        self._number_of = number_of
        self._ranges: list[tuple[int, int, int]] = []  # from where to where each partition is shown; the first is last
        for partition in reversed(stream.partitions):
            self._go_on(partition.index, 1, partition.next_sequence)

    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end of the stream."""
        if not self._ranges or self._stream.is_deleted:
            return False
        index, first, until = self._ranges.pop()
        selector, lane = self.subscription.selector, self._stream.partitions[index].lane
        limit = at_most(min(PIECE, room if selector is None else max(room, LEAST_PIECE)), [selector])
        try:
            with self.core.store.snapshot() as reader:
                messages, is_done = sound_page(reader, lane, first, until, PIECE_BYTES, limit)
        except StoreCorrupt as damage:
            self._damaged += 1
            self._go_on(index, damage.data["sequence"] + 1, until)
            return True
        wanted = [message for message in messages if selector is None or selector.matches(message)]
        if len(wanted) > room:
            self._go_on(index, wanted[room].sequence, until)
        elif not is_done:
            self._go_on(index, messages[-1].sequence + 1, until)
        for message in wanted[:room]:
            message.sequence = self._number_of(message.sequence, index)
        self._give(wanted[:room])
        return True

    def _go_on(self, index: int, first: int, until: int) -> None:
        if first < until:
            self._ranges.append((index, first, until))


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What one read brought.

    Attributes:
        messages: in order.
        first: the offset it began at.
        next: where to go on; ``until`` when the range is done.
        until: where the range ends: the offset behind its last one.
        extent: what of the partition could be read at that moment.
    """

    messages: list[Message]
    first: int
    next: int
    until: int
    extent: Extent

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been read."""
        return self.next == self.until

    @property
    def is_cut(self) -> bool:
        """Whether the partition begins only behind the first offset: what was before is gone."""
        return self.first < min(self.extent.earliest, self.until)

    @property
    def missing(self) -> int:
        """How many of the offsets that were passed have no record: it is gone, or its commit failed."""
        return self.next - self.first - len(self.messages)


def read_range(
    store: Store, lane: int, first: int, until: int, *, max_messages: int = 1000, max_bytes: int = 1 << 20
) -> RangeRead:
    """Read a part of a partition, in one snapshot.

    Args:
        until: the offset to end before; no further than the partition's end, or what is read would depend on when.
        max_messages: how many messages at the most, at least 1.
        max_bytes: how many bytes they may be charged together (``StoreReader.page``); the first one comes whatever its
            size.

    Raises:
        StoreCorrupt: the first record is damaged; ``data`` has its ``sequence``. A damaged record further on ends the
            read before it.
    """
    if max_messages < 1:
        raise InvalidArgument("max_messages is at least 1", argument="max_messages")
    with store.snapshot() as reader:
        here = extent(reader, lane)
        if not 1 <= first <= until <= here.end:
            text = f"{first} to before {until} is no range of this partition: its offsets are 1 to before {here.end}"
            raise InvalidArgument(text, first=first, until=until, earliest=here.earliest, end=here.end)
        if first == until:
            return RangeRead([], first, until, until, here)
        messages, is_done = sound_page(reader, lane, first, until, max_bytes, max_messages)
    return RangeRead(messages, first, until if is_done else messages[-1].sequence + 1, until, here)
