"""A partition of a stream: one lane, whose records stay until retention lets them go.

Their timestamps ascend: one that would go back is that of the record before it. But if that lies ahead of the clock by
far, the clock was wrong then: times begin anew (``set_back``), and the later records have their own. What older
versions stored need not be so: ``ordered_from`` says where that ends.
"""

from typing import Protocol

import msgspec

from quire.broker.core.commit import Commit
from quire.broker.core.core import Core
from quire.broker.queues.lane_records import LaneKeys, read_finished
from quire.broker.queues.message_locator import MessageLocator
from quire.broker.streams.partition_part import PartitionPart
from quire.cursors.ack_set import AckSet
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.message import Message
from quire.store.base import LaneState, Link, StoredDestination
from quire.store.positions import set_back, set_back_key, time_from

_TIMESTAMP = b"\ntimestamp:"
"""What the first header line ends with, and the second one begins with."""


MOST_SET_BACK = 16
"""At how many offsets times may begin anew; if all of them have records still, times wait for the clock to catch up."""


class PartitionedStream(Protocol):
    """The stream of a partition.

    Attributes:
        core: the core.
        destination: its address.
        stored: as the store has it.
        memory: its node of the memory tree.
    """

    core: Core
    destination: Destination
    stored: StoredDestination
    memory: MemoryUsage

    def committed(self, count: int) -> None:
        """Messages that were sent to it are stored."""


class Subscriber(Protocol):
    """A group's part of a partition.

    Attributes:
        finished: what it has finished, and all offsets that have no message.
        locator: says where its messages are.
    """

    finished: AckSet
    locator: MessageLocator

    @property
    def is_stored(self) -> bool:
        """Whether its group is there after a restart."""

    def take_in(self, stored: list[Message]) -> None:
        """Take what was committed to the partition, in order."""

    def skip(self, first: int, last: int) -> None:
        """Offsets that no message will ever have."""

    def records_gone(self, sequences: list[int]) -> None:
        """Retention lets records go, none of which a member has in flight."""


class Partition:
    """One partition. The offset of a message is the sequence of its record.

    Args:
        ordered_from: from which offset on timestamps ascend; None if everything that is stored is of an older version.
        new: whether it is made now: then nothing is read.

    Attributes:
        destination: its address.
        gone: the sequences that have no record: retention let them go, or their commit failed.
        count: how many records there are; exact.
        bytes: their sizes.
        head: the first sequence that has a record; 0 if there is none.
        announced: the highest sequence of those commits that are done.
        ledger: where events of its messages are noted; None if the policy does not ask for it.
        ordered_from: from which offset on timestamps ascend.
        subscribers: the groups' parts of it.
    """

    def __init__(
        self, stream: PartitionedStream, index: int, lane: int, ordered_from: int | None, *, new: bool = False
    ) -> None:
        self.stream = stream
        self.core = stream.core
        self.destination = stream.destination
        self.index = index
        self.lane = lane
        self.subscribers: list[Subscriber] = []
        self._keys = LaneKeys(progress="", pages=f"stream/{lane}/gone/", states="")
        state = LaneState() if new else self.core.store.lane_state(lane)
        self.gone = AckSet() if new else self._read_gone()
        self.count, self.bytes, self.head = state.count, state.bytes, state.head
        self.next_sequence = state.next_sequence
        self.announced = state.next_sequence - 1
        self.start_after(self.gone.highest)
        last = time_from(self.core.store, lane, state.tail) if state.count else 0
        self._set_back = [] if new else set_back(self.core.store, lane)
        self._stamp, self._stamp_at = b"%b%d\n" % (_TIMESTAMP, last or 0), slice(0, 0)
        self.ordered_from = self.next_sequence if ordered_from is None or last is None else ordered_from
        self._open = PartitionPart(self)
        self.policy_changed()

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.ledger = self.core.ledger.of(self.stream.destination, lane=self.index)

    def _read_gone(self) -> AckSet:
        with self.core.store.snapshot() as reader:
            known = reader.marks(self._keys.pages, limit=1)
            return read_finished(reader, self._keys) if known else AckSet()

    @property
    def lanes(self) -> tuple[int, ...]:
        """Its one lane."""
        return (self.lane,)

    @property
    def memory(self) -> MemoryUsage:
        """The stream's node of the memory tree."""
        return self.stream.memory

    @property
    def filled_to(self) -> int:
        """The highest sequence that was given to a message, committed or not."""
        return self.next_sequence - 1

    def start_after(self, sequence: int) -> None:
        """Give no message a sequence up to this one: a message whose record is gone had it."""
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1
            self.announced = max(self.announced, sequence)

    # A message comes in.

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. It has its offset now, and is there for consumers when the open commit is done."""
        if content[self._stamp_at] != self._stamp:
            content = self._stamped(content)
        message = Message(self.next_sequence, content, 0, priority)
        self.next_sequence += 1
        part = self._open
        part.appends.append(message)
        self.core.charge_open(message.size)
        if self.ledger is not None:
            self.ledger.sent(self.core.sender)
        if not part.listed:
            self.core.list_part(part)

    def _stamped(self, content: bytes) -> bytes:
        """The content of a message with a time that does not go back; mostly that is the time it has.

        Its line is mostly where it was in the message before: then one comparison tells that the time is the same.
        """
        place = content.index(b"\n")
        end = content.index(b"\n", place + 1) + 1
        self._stamp_at = slice(place, end)
        time, last = int(content[place + len(_TIMESTAMP) : end]), int(self._stamp[len(_TIMESTAMP) :])
        if behind := self.core.wall.behind_ms():
            time = min(time, self.core.clock.now_ms()) + behind
            content = b"%b%b%d\n%b" % (content[:place], _TIMESTAMP, time, content[end:])
            end = content.index(b"\n", place + 1) + 1
            self._stamp_at = slice(place, end)
        if time < last and not self._begin_anew(last):
            return b"".join((content[:place], self._stamp, content[end:]))
        self._stamp = content[place:end]
        return content

    def _begin_anew(self, last_ms: int) -> bool:
        """Let times begin anew with the next record, if that of the last one lies ahead; whether they do."""
        if last_ms <= self.core.wall.future_ms():
            return False
        first = self.head or self.announced + 1
        known = [offset for offset in self._set_back if offset > first]
        if len(known) == MOST_SET_BACK:
            return False
        self._set_back = [*known, self.next_sequence]
        self.core.set_mark(set_back_key(self.lane), msgspec.msgpack.encode(self._set_back))
        return True

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another destination gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        message = self._open.appends[-1]
        self._open.transferred.append(message)
        return message

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of the partition: there is nothing to do."""

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self._open = self._open, PartitionPart(self)
        commit.parts[self] = part
        if part.appends or part.removals:
            lane = commit.batch.lane(self.lane)
            lane.appends = part.appends
            lane.removals = [link.sequence for link in part.removals]
        for page, value in self.gone.changed_pages().items():
            commit.batch.marks[self._keys.page(page)] = value

    def committed(self, part: PartitionPart) -> None:
        """A commit is done: what it brought goes to the groups."""
        appends, removals = part.appends, part.removals
        grown = sum([message.size for message in appends]) - sum([link.size for link in removals])
        self.count += len(appends) - len(removals)
        self.bytes += grown
        self.core.charge_stored(grown)
        if appends:
            self.announced = appends[-1].sequence
            self.head = self.head or appends[0].sequence
        if removals:
            first = self.gone.next_unfinished(0)
            self.head = first if first <= self.announced else 0
        if appends:
            self.stream.committed(len(appends))
            for subscriber in self.subscribers:
                subscriber.take_in(appends)

    def commit_failed(self, part: PartitionPart, restored: set[int]) -> None:
        """A commit failed: what was sent in it is refused, the rest is put into the next commit."""
        if part.appends:  # no message ever has these sequences: no group is to wait for them
            first, last = part.appends[0].sequence, part.appends[-1].sequence
            self.gone.add_range(first, last)
            self.announced = max(self.announced, last)
            for subscriber in self.subscribers:
                subscriber.skip(first, last)
        self._open.removals += part.removals
        for message in part.transferred:
            self.transfer(message.content, message.expiration, message.priority)
        self.core.list_part(self._open)

    def write(self) -> None:
        """Have the open commit write what has changed."""
        self.core.list_part(self._open)

    # Records go.

    def remove(self, links: list[Link]) -> None:
        """Let records go, with the open commit; groups that had not finished them will not get them."""
        sequences = [link.sequence for link in links]
        self._open.removals += links
        self.gone.add_all(sequences)
        for subscriber in self.subscribers:
            subscriber.records_gone(sequences)
        self.core.list_part(self._open)

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """None: a stream keeps its records, whichever groups have finished them."""
        return []

    def forget_marks(self) -> None:
        """The stream is deleted: remove what the partition remembers besides its messages."""
        for key in (set_back_key(self.lane), *[self._keys.page(page) for page in self.gone.page_keys()]):
            self.core.set_mark(key, None)
