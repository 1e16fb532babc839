"""A stream: partitions whose records stay for a time or a size, and consumer groups that move over them.

A message that does not say which partition it belongs to goes to the next one in turn (``Rotation``).

A range of a partition can be read again and again: nothing is leased, no consumer group moves. What is read is decided
by the range alone. Offsets are never used again and records never change, so the same range brings the same records in
the same order each time, unless retention has removed some meanwhile: then the read says so. A stream browser is shown
all messages that way, one partition after the other.

Retention says which records go, and when, by three rules of the stream's policy: what is older than
``retention_time`` goes; the oldest go while there are more bytes than ``retention_bytes``, from each partition its
share; with ``retention_groups_done`` what all groups have finished goes, if there are any.

Some records stay for now: those that members of groups have in flight, those that waiting retries need, those that are
pinned (``Pins``). The rules end at what is pinned, and while a partition can give up nothing because of that, its bytes
do not count. What is in flight or needed by a retry is passed over, and looked at again, a step each second. Everything
is done in steps (``Steps``): a bounded look at one partition, the commit of what it removes, a pause. No body is read,
but for a few in a search by time, and where times are in no order (``Partition.ordered_from``).
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Any

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session
from quire.broker.queues.browsing import LEAST_PIECE, PIECE, PIECE_BYTES, Browsed
from quire.broker.streams.groups.group import Group
from quire.broker.streams.partition import Partition, Pins
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument, InvalidHeader, StoreCorrupt
from quire.message import Message, escape, timestamp_of
from quire.selectors import Selector, at_most
from quire.store.base import Link, Store, StoredDestination, StoreReader
from quire.store.positions import Extent, extent, offset_at, sound_page, time_from

STEP = 1000
"""How many records one step looks at."""

STEP_BYTES = 1 << 20
"""How many bytes of records it reads where their times are not in order, if one record is not larger."""

PAUSE = 0.01
"""How long what is to go gathers between two steps, in seconds."""

CHECK_PERIOD = 1.0
"""How often time is looked at, and what was passed over, in seconds."""

_Range = tuple[int, int]


class _Place:
    """How far retention has come in one partition.

    Attributes:
        passed: what is before this offset was due by age or size, and is gone or was passed over.
        again: where the next look at what was passed over begins.
        done: where the next look for what all groups have finished begins.
        surplus: how many bytes it has to give up still, by its share of what the stream has too many.
        old_before: what is before this offset was too old when time was looked at.
        look_at: when it is to be looked at again, in milliseconds since the epoch.
        look_by: the same by the steady time: whichever comes first, if the clock is set meanwhile.
    """

    __slots__ = (
        "again", "done", "is_again_due", "is_done_due", "look_at", "look_by", "old_before", "partition", "passed",
        "surplus",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.passed = self.again = self.done = 0
        self.is_again_due = False
        self.is_done_due = True
        self.surplus = self.old_before = self.look_at = self.look_by = 0

    @property
    def next(self) -> int:
        """The first offset that was not looked at yet, or one before it that has no record."""
        return max(self.passed, self.partition.head)


class Retention:
    """Removes records of one stream. Partitions tell it that they have grown, groups that they finished something."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._core = stream.core
        self._places: dict[int, _Place] = {}
        self._turn = 0
        self._is_busy = False
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)

    # When there is something to do.

    def grown(self) -> None:
        if self._stream.policy.retention_bytes:
            self._wake()

    def finished(self, partition: int) -> None:
        if self._stream.policy.retention_groups_done:
            self._place(partition).is_done_due = True
            self._wake()

    def policy_changed(self) -> None:
        self._places.clear()
        self._wake()

    def _check(self) -> None:
        if self._stream.is_deleted:
            return
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)
        self._stream.pins.expire()
        for place in self._places.values():
            place.is_again_due = place.is_done_due = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._plan()

    def _plan(self) -> None:
        self._core.scheduler.call_later(PAUSE, self._begin)

    def _begin(self) -> None:
        self._core.steps.add(self._step, f"retention of {self._stream.destination.name}")

    def _place(self, index: int) -> _Place:
        place = self._places.get(index)
        if place is None:
            place = self._places[index] = _Place(self._stream.partitions[index])
        return place

    # A step.

    def _step(self) -> bool:
        """Look at the next partition that has something; if there is one, it goes on after the commit and a pause."""
        self._is_busy = not self._stream.is_deleted and self._look_at_all()
        if self._is_busy:
            self._core.after_commit(self._plan)
        return False

    def _look_at_all(self) -> bool:
        count = len(self._stream.partitions)
        self._share_out()
        for _ in range(count):
            self._turn = (self._turn + 1) % count
            if self._look(self._turn):
                return True
        return False

    def _look(self, index: int) -> bool:
        """Remove what may go of the next records of a partition that are due; whether there were some.

        How far it has come is noted when everything is read.
        """
        place = copy(self._place(index))
        links = self._passed(place) or self._due(place) or self._done(place)
        kept = self._kept(place.partition, links[0].sequence, links[-1].sequence) if links else set()
        self._places[index] = place
        if going := [link for link in links if link.sequence not in kept]:
            place.partition.remove(going)
        return bool(links)

    def _kept(self, partition: Partition, first: int, last: int) -> set[int]:
        """The offsets in a range whose records stay for now.

        What is being acknowledged is among them: a transaction that fails brings it back.
        """
        busy = [subscriber.out_sequences() for subscriber in partition.subscribers]
        kept = {sequence for sequences in busy for sequence in sequences if first <= sequence <= last}
        for group in self._stream.groups.values():
            if group.retries is not None:
                kept.update(group.retries.pinned(partition.lane, first, last, STEP))
        return kept

    # What goes by age or size: the oldest first.

    def _due(self, place: _Place) -> list[Link]:
        old_before, end = self._old_before(place), self._end(place)
        if not place.partition.count or place.next >= (end if place.surplus > 0 else min(end, old_before)):
            return []
        due: list[Link] = []
        for link in self._core.store.links(place.partition.lane, place.next, STEP):
            if link.sequence >= end or (link.sequence >= old_before and place.surplus <= 0):
                break
            due.append(link)
            place.surplus -= link.size
            place.passed = link.sequence + 1
        return due

    def _old_before(self, place: _Place) -> int:
        kept_for = round(self._stream.policy.retention_time * 1000)
        if kept_for < 0:
            return 0
        wall = self._core.wall
        now, steady, latest = wall.past_ms(), wall.steady_ms(), wall.future_ms()
        if now >= place.look_at or steady >= place.look_by:
            with self._core.store.snapshot() as reader:
                lane, young = place.partition.lane, now - kept_for + 1
                if place.next < place.partition.ordered_from:
                    place.old_before, is_known = _walk(reader, place, young, latest)
                else:
                    place.old_before, is_known = offset_at(reader, lane, young, place.next, latest), True
                oldest = time_from(reader, lane, place.old_before) if is_known else None
            if is_known:
                left = kept_for if oldest is None else 0 if oldest > latest else oldest + kept_for - now
                left = max(left, round(CHECK_PERIOD * 1000))
                place.look_at, place.look_by = now + left, steady + left
        return place.old_before

    def _share_out(self) -> None:
        """Say how many bytes each partition has to give up: its share, by bytes, of what the stream has too many."""
        limit = self._stream.policy.retention_bytes
        if not limit:
            return
        excess, givers = -limit, []
        for index in range(len(self._stream.partitions)):
            place = self._place(index)
            if place.next < self._stream.pins.first(index):
                excess += place.partition.bytes
            if place.partition.count and place.next < self._end(place):
                givers.append(place)
            else:
                place.surplus = 0
        is_begun = any([place.surplus > 0 for place in givers])
        whole = sum([place.partition.bytes for place in givers])
        for place in givers:
            share = place.surplus if is_begun else -(-excess * place.partition.bytes // whole)
            place.surplus = max(min(share, excess), 0)

    def _end(self, place: _Place) -> int:
        return min(self._stream.pins.first(place.partition.index), place.partition.announced + 1)

    def _passed(self, place: _Place) -> list[Link]:
        """Some of the records that were due and had to stay: perhaps they can go now."""
        if not (place.is_again_due and 0 < place.partition.head < place.passed):
            return []
        place.is_again_due = False
        links = self._core.store.links(place.partition.lane, place.again, STEP)
        place.again = links[-1].sequence + 1 if len(links) == STEP else 0
        end = min(place.passed, self._end(place))
        return [link for link in links if link.sequence < end]

    # What goes because it is done.

    def _done(self, place: _Place) -> list[Link]:
        partition = place.partition
        sets = [subscriber.finished for subscriber in partition.subscribers if subscriber.is_stored]
        if not (place.is_done_due and sets and self._stream.policy.retention_groups_done):
            return []
        ranges = reduce(_common, [_finished(ack_set) for ack_set in sets], _present(partition))
        end = self._end(place)
        start = next((max(first, place.done) for first, last in ranges if last >= place.done), end)
        if start >= end:
            place.done, place.is_done_due = 0, False
            return []
        links = self._core.store.links(partition.lane, start, STEP)
        place.done = links[-1].sequence + 1 if links else end
        return [link for link in links if link.sequence < end and all([link.sequence in s for s in sets])]


def _walk(reader: StoreReader, place: _Place, young: int, latest: int) -> tuple[int, bool]:
    """Where the first young record of a partition is, of those whose times are in no order.

    A record is as old as the youngest one before it: so none goes that is younger than it may be. One with a time after
    the latest possible one is as old as the next one without.
    """
    lane, first = place.partition.lane, place.next
    until = min(place.partition.ordered_from, extent(reader, lane).end)
    if first >= until:
        return until, False
    try:
        page = sound_page(reader, lane, first, until, STEP_BYTES, STEP)
    except StoreCorrupt as damage:
        return damage.data["sequence"] + 1, False
    ahead = 0
    for message in page.messages:
        if young <= (time := timestamp_of(message)) <= latest:
            return ahead or message.sequence, True
        ahead = 0 if time < young else ahead or message.sequence
    if ahead:
        return ahead, True
    return until if page.end else page.messages[-1].sequence + 1, False


def _finished(ack_set: AckSet) -> Iterator[_Range]:
    if ack_set.base:
        yield 1, ack_set.base
    yield from ack_set.ranges()


def _present(partition: Partition) -> Iterator[_Range]:
    start = 1
    for first, last in _finished(partition.gone):
        if start < first:
            yield start, first - 1
        start = last + 1
    if start <= partition.announced:
        yield start, partition.announced


def _common(left: Iterator[_Range], right: Iterator[_Range]) -> Iterator[_Range]:
    one, other = next(left, None), next(right, None)
    while one and other:
        first, last = max(one[0], other[0]), min(one[1], other[1])
        if first <= last:
            yield first, last
        if one[1] < other[1]:
            one = next(left, None)
        else:
            other = next(right, None)


class Rotation:
    """The partitions in turn: a target of sends."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._turn = 0

    def next(self) -> Partition:
        self._turn += 1
        return self._partitions[self._turn % len(self._partitions)]

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self.next().send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
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
        groups: its consumer groups, by name; readers that store nothing are not among them.
        pins: what has to stay whatever the policy says.
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
        return sum([partition.count for partition in self.partitions])

    @property
    def stored_bytes(self) -> int:
        return sum([partition.bytes for partition in self.partitions])

    def policy_changed(self) -> None:
        self.policy = self.core.settings.policies.of(self.destination)
        self.memory.limit = self.policy.memory_limit
        self.retention.policy_changed()
        for partition in self.partitions:
            partition.policy_changed()
        for group in self._groups_and_readers():
            group.policy_changed()

    def committed(self, count: int) -> None:
        self.enqueued += count
        self.retention.grown()

    def finished(self, partition: int) -> None:
        self.retention.finished(partition)

    # Where a message goes.

    def route(self, headers: Mapping[str, str]) -> Rotation | Partition:
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
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return self.partitions[int(text)] if is_number and int(text) < len(self.partitions) else None

    def partition_of(self, key: str) -> Partition:
        return self.partitions[zlib.crc32(key.encode()) % len(self.partitions)]

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self._partition_for(content).send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        return self._partition_for(content).transfer(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of a partition: there is nothing to do."""

    def _partition_for(self, content: bytes) -> Partition:
        message = Message(0, content)
        partition = self._partition_named(message.header(PARTITION.encode()) or "")
        if partition is not None:
            return partition
        header = self.policy.partition_key_header.encode()
        key = message.header(escape(header)) if header else None
        return self.rotation.next() if key is None else self.partition_of(key)

    # Partitions come.

    def add_partitions(self, lanes: tuple[int, ...]) -> None:
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
        self.pins.clear()
        for partition in self.partitions:
            partition.forget_marks()


class StreamBrowser(Browsed):
    """Shows a stream to one client.

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
        next: where to go on; ``until`` when the range is done.
        until: the offset behind the last one of the range.
        extent: what of the partition could be read at that moment.
    """

    messages: list[Message]
    first: int
    next: int
    until: int
    extent: Extent

    @property
    def is_done(self) -> bool:
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
