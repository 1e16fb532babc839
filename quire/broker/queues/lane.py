"""One lane of a queue as dispatch sees it: what comes next, what waits beside it, what it has in commits.

``QueueLane`` has the cursor's window, the messages that came back, those that wait for their next delivery
(``DelayedMessages``) and those that are parked.

The **dispatch mark** says up to which sequence messages may have been delivered, should the broker die now. It is
written ahead, by what consumers may be given until the next commit, so that it goes along with commits that happen
anyway. After a crash, what is at or below the mark comes back flagged as redelivered.

``LaneCommits`` gathers what came, what is settled, what came back and the marks for the open commit (a ``QueuePart``).
What settling a message means to the store is a ``Settlement``; for a queue its record is removed (``RecordRemoval``).
``MessageLocator`` says where messages are: with consumers, on their way out, or nowhere but in memory.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import Protocol, TypeVar

from quire.broker.core.core import Commit, Core, Owner
from quire.broker.core.subscription import Subscription
from quire.broker.queues.parking import Parking
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor, take_from
from quire.cursors.spool import Spool
from quire.errors import StoreError
from quire.message import Message
from quire.store.base import Delivery, LaneBatch, LaneReader, LaneState, Link, WriteBatch

Entry = tuple[int, int, int]
"""When a message may be delivered, its sequence, its size."""


class DelayedMessages:
    """Messages that may not be delivered before a time. Those that are stored take no memory meanwhile.

    One that is taken out stays in the heaps until it is the first one there.

    Attributes:
        kept: those of them that are nowhere but in memory, by sequence.
    """

    __slots__ = ("_by_sequence", "_by_time", "_entries", "_group_of", "_groups", "kept")

    def __init__(self) -> None:
        self.kept: dict[int, Message] = {}
        self._entries: dict[int, Entry] = {}
        self._by_time: list[Entry] = []
        self._by_sequence: list[int] = []
        self._groups: dict[str, set[int]] = {}
        self._group_of: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def earliest(self) -> int:
        """When the first of them is due, by the steady time; there must be one."""
        self._forget_gone()
        return self._by_time[0][0]

    @property
    def lowest(self) -> int:
        """The lowest sequence; there must be one."""
        while self._by_sequence[0] not in self._entries:
            heapq.heappop(self._by_sequence)
        return self._by_sequence[0]

    def add(self, message: Message, group: str | None) -> None:
        """A message waits until its ``not_before``.

        Args:
            group: its message group, if it has one.
        """
        entry = self._entries[message.sequence] = (message.not_before, message.sequence, message.size)
        heapq.heappush(self._by_time, entry)
        heapq.heappush(self._by_sequence, message.sequence)
        if not message.stored:
            self.kept[message.sequence] = message
        if group is not None:
            self._groups.setdefault(group, set()).add(message.sequence)
            self._group_of[message.sequence] = group

    def holds(self, group: str, sequence: int) -> bool:
        """Whether a message of a group has to wait for an earlier one."""
        return group in self._groups and min(self._groups[group]) < sequence

    def due(self, now_ms: int, limit: int, unsettled: set[int]) -> tuple[list[int], list[int]]:
        """The sequences and sizes of messages that are due, the longest due first; they stay until ``drop``.

        Args:
            now_ms: the steady time, in milliseconds.
            unsettled: those of which the store does not know yet why they wait; the first of them ends it.
        """
        found: list[Entry] = []
        while self and len(found) < limit and self.earliest <= now_ms and self._by_time[0][1] not in unsettled:
            found.append(heapq.heappop(self._by_time))
            if len(found) == len(self):
                break
        for entry in found:
            heapq.heappush(self._by_time, entry)
        return [entry[1] for entry in found], [entry[2] for entry in found]

    def drop(self, count: int) -> None:
        """The first of them wait no more."""
        for _ in range(count):
            self._forget_gone()
            self._leave(heapq.heappop(self._by_time)[1])
        self._tidy()

    def discard(self, sequences: set[int]) -> list[Message]:
        """Drop messages that are removed."""
        gone = [sequence for sequence in sequences if sequence in self._entries]
        for sequence in gone:
            self._leave(sequence)
        self._tidy()
        return [self.kept.pop(sequence) for sequence in gone if sequence in self.kept]

    def sequences(self) -> set[int]:
        """All of them."""
        return set(self._entries)

    def clear(self) -> list[Message]:
        """Forget all."""
        kept = list(self.kept.values())
        for table in (self.kept, self._entries, self._by_time, self._by_sequence, self._groups, self._group_of):
            table.clear()
        return kept

    def _forget_gone(self) -> None:
        """Have one that is there first in the heap."""
        heap, there = self._by_time, self._entries
        while there.get(heap[0][1]) is not heap[0]:
            heapq.heappop(heap)

    def _tidy(self) -> None:
        """When most of the heaps is gone, make them anew."""
        if len(self._by_time) > 2 * len(self) + 64:
            self._by_time = sorted(self._entries.values())
        if len(self._by_sequence) > 2 * len(self) + 64:
            self._by_sequence = sorted(self._entries)

    def _leave(self, sequence: int) -> None:
        del self._entries[sequence]
        group = self._group_of.pop(sequence, None)
        if group is not None:
            self._groups[group].discard(sequence)
            if not self._groups[group]:
                del self._groups[group]


STEP = 4096
"""How far ahead of dispatch the mark is written at the most, in sequences."""

NEVER_STORED = 1 << 62
"""The mark of a lane of which nothing is stored: there is no crash after which anything could come back."""


class DispatchMark:
    """One lane's mark: what is stored, what is on its way there, and what is wanted."""

    __slots__ = ("_asked", "_reached", "_start", "_wanted", "stored")

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self._asked = self._wanted = stored
        self._reached = self._start = 0  # how far dispatch was when more was wanted last, and when that was asked for

    def reach(self, sequence: int, window: int) -> bool:
        """A message is about to be dispatched. It may be, if its sequence is not above ``stored``.

        Args:
            window: how many messages the consumers may have in flight, all together. The mark runs ahead by so many,
                or by as many as were dispatched since the last commit; by twice that if dispatch waits for the mark.

        Returns:
            Whether the mark has to be written further ahead, with the open commit.
        """
        ahead = window
        if self._start:
            ahead = max(window, sequence - self._start) * (2 if sequence > self.stored else 1)
        ahead = min(ahead, STEP)
        if sequence <= self._wanted - (ahead + 1) // 2:
            return False
        self._reached = sequence
        self._wanted = sequence + ahead
        return True

    def take(self) -> int | None:
        """What the commit that begins now has to write; None if nothing."""
        if self._wanted <= self._asked:
            return None
        self._asked = self._wanted
        self._start = self._reached
        return self._asked

    def failed(self) -> None:
        """The commit that had it failed: it is written with the next one."""
        self._asked = self.stored


GAP = 32
"""Records that are so near to each other are read together, with what is between them."""


def found_links(source: LaneReader | Spool, lane: int, sequences: list[int]) -> list[Link]:
    """The links of those records that are there."""
    found: list[Link] = []
    for run in _runs(sequences):
        wanted, last = set(run), run[-1]
        links = source.links(lane, run[0], last - run[0] + 1)
        found += [link for link in links if link.sequence in wanted]
    return found


def _runs(sequences: list[int]) -> Iterator[list[int]]:
    """Split sequences where there is much between two of them."""
    run: list[int] = []
    for sequence in sequences:
        if run and sequence - run[-1] > GAP:
            yield run
            run = []
        run.append(sequence)
    if run:
        yield run


_sequence = attrgetter("sequence")

END = 1 << 63
"""Above all sequences."""

RECALL_LIMIT = 64
"""How many messages that were set aside are brought back at once."""


class QueueLane:
    """One lane: a queue has one, or ten by priority.

    Args:
        priority: of its messages, if the queue has a lane for each.
        state: what the store knows of it; None if it is to be asked.
        reader: reads its stored messages; None for the store.
        mark: its dispatch mark; None for the stored one.

    Attributes:
        reader: as given, or the store.
        cursor: pages them in.
        mark: its dispatch mark.
        returned: messages that came back, in order; they go before the window, as far as it is behind them.
        delayed: messages that may not be delivered before a time.
        delayed_since: since when there are some, on the monotonic clock.
        parking: messages that no present consumer can take now.
        is_scanning: whether the search for its next message goes on in the next turn.
        state: what the store knew of it at the start.
    """

    # Slots here, and in what it holds: there are tens of thousands of them.
    __slots__ = (
        "_clock", "_spool", "_taken_from", "cursor", "delayed", "delayed_since", "id", "is_scanning", "mark",
        "memory", "parking", "priority", "reader", "returned", "state",
    )  # fmt: skip

    def __init__(
        self, core: Core, id: int, memory: MemoryUsage, priority: int = 4, state: LaneState | None = None,
        reader: LaneReader | None = None, mark: DispatchMark | None = None,
    ) -> None:  # fmt: skip
        self.id = id
        self.priority = priority
        self.memory = memory
        self.reader = reader or core.store
        self.state = state = core.store.lane_state(id) if state is None else state
        self.cursor = QueueCursor(self.reader, core.spool, id, memory, core.clock, state.next_sequence - 1)
        # The mark is written ahead: what comes in from now on was not delivered before the crash.
        self.cursor.redelivered_to = min(state.dispatch_mark, state.next_sequence - 1)
        self.mark = mark or DispatchMark(state.dispatch_mark)
        self.returned: deque[Message] = deque()
        self.delayed = DelayedMessages()
        self.delayed_since = 0.0
        self.parking = Parking(core.clock)
        self.is_scanning = False
        self._taken_from = self.returned
        self._clock = core.clock
        self._spool = core.spool

    def head(self) -> int | None:
        """The sequence of its first stored message, as far as a short look can tell."""
        links = self.links(0, 1)
        return links[0].sequence if links else None

    def links(self, start: int, limit: int) -> list[Link]:
        """Read links of its stored messages.

        Args:
            start: the first sequence wanted; it need not be there.
        """
        return self.reader.links(self.id, start, limit)

    def without_contents(self, sequences: list[int]) -> list[Message]:
        """Read messages without their contents; those that are not there are left out."""
        found = [self._shell(link) for link in found_links(self.reader, self.id, sequences)]
        if not self._spool.is_empty(self.id):
            found += [self._shell(link, persistent=False) for link in found_links(self._spool, self.id, sequences)]
        return found

    def _shell(self, link: Link, *, persistent: bool = True) -> Message:
        message = Message(link.sequence, b"", 0, self.priority, persistent)
        message.size, message.stored = link.size, True
        return message

    def own(self, messages: list[Message]) -> list[Message]:
        """Those of a prioritized queue's messages that are in this lane."""
        return [message for message in messages if message.priority == self.priority]

    def take(self, limit: int) -> list[Message]:
        """The next messages in order, of what came back and of the window, which is paged in when it is empty."""
        if not self.returned:
            return self.take_from_window(limit)
        first = self.scanned + 1 if self.returned[0].sequence <= self.scanned else self.first_of_window()
        if self.returned[0].sequence < first:
            return self.cut(self._take_from(self.returned, limit), first)
        return self.take_from_window(limit)

    def take_from_window(self, limit: int) -> list[Message]:
        """The next messages of the window, paged in when it is empty, up to the first one that came back."""
        if not self.cursor.window and not self.cursor.page_in():
            return []
        run = self._take_from(self.cursor.window, limit)
        if self.returned and self.returned[-1].sequence > run[0].sequence:
            return self.cut(run, next(m.sequence for m in self.returned if m.sequence > run[0].sequence))
        return run

    @property
    def scanned(self) -> int:
        """Up to which sequence all messages were looked at since the lane was scanned from its head last."""
        window = self.cursor.window
        return window[0].sequence - 1 if window else self.cursor.position

    def first_of_window(self) -> int:
        """The first sequence of the window, paged in when it is empty; ``END`` if there is none."""
        window = self.cursor.window
        return window[0].sequence if window or self.cursor.page_in() else END

    def cut(self, run: list[Message], below: int) -> list[Message]:
        """What comes before a sequence; the rest goes back to where it was."""
        count = bisect_left(run, below, key=_sequence)
        self.put_back(run[count:])
        return run[:count]

    def _take_from(self, source: deque[Message], limit: int) -> list[Message]:
        self._taken_from = source
        popleft = source.popleft
        return [popleft() for _ in range(min(len(source), limit))]

    def put_back(self, run: list[Message]) -> None:
        """The last of the messages that were just taken go back to where they were."""
        self._taken_from.extendleft(reversed(run))

    def come_back(self, messages: list[Message]) -> None:
        """Messages come back from consumers."""
        returned, messages = self.returned, sorted(messages, key=_sequence)
        if not returned or (messages and returned[-1].sequence < messages[0].sequence):
            returned.extend(messages)
        elif messages and messages[-1].sequence < returned[0].sequence:
            returned.extendleft(reversed(messages))
        else:
            self.returned = deque(heapq.merge(messages, returned, key=_sequence))

    def delay(self, messages: list[Message], group_header: bytes | None) -> None:
        """Set messages aside until their ``not_before``.

        Args:
            group_header: the header whose value is a message's group; None if there are no groups.
        """
        if not self.delayed:
            self.delayed_since = self._clock.monotonic()
        for message in messages:
            group = message.header(group_header) if group_header else None
            self.cursor.set_aside(message)
            self.delayed.add(message, group)

    def recall_later(self, messages: list[Message]) -> None:
        """Have messages read again that are due at once, and take no memory until then."""
        if messages and not self.delayed:
            self.delayed_since = self._clock.monotonic()
        for message in messages:
            self.delayed.add(message, None)

    def recall(self, sequences: list[int], sizes: list[int], kept: dict[int, Message]) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, as many of the first as fit.

        Args:
            sizes: their sizes in bytes.

        Returns:
            The messages that are still there, and how many of the sequences that settles; 0 if memory refuses.
        """
        first_is_kept = sequences[0] in kept
        count = next((i for i, s in enumerate(sequences) if (s in kept) is not first_is_kept), len(sequences))
        if not first_is_kept:
            return self.cursor.recall(sequences[:count], sizes[:count])
        messages = [kept.pop(sequence) for sequence in sequences[:count]]
        for message in messages:
            self.cursor.take_up(message)
        return messages, count

    def set_aside_again(self, messages: list[Message]) -> None:
        """Parked messages that were recalled found no consumer: they are put back into the parking."""
        for message in messages:
            self.cursor.set_aside(message)
            if not message.stored:
                self.parking.kept[message.sequence] = message

    def set_aside_unwanted(self, messages: list[Message]) -> None:
        """Park messages of the window, in order, that no present consumer wants."""
        if messages:
            self.cursor.set_all_aside(messages)
            self.parking.kept.update([(message.sequence, message) for message in messages if not message.stored])
            self.parking.note_unwanted(messages[0].sequence)

    def rewind(self, out: set[int]) -> None:
        """Scan the lane again from its head: a consumer came that may want what the others did not."""
        if self.parking:
            kept = self._take_up(self.parking.clear())
            self.cursor.rewind(kept, out | self._waiting())

    def read_returned_again(self, unsettled: set[int]) -> None:
        """What came back from further on than the lane is scanned gives its memory to what comes before it.

        Args:
            unsettled: those of which the store does not know yet that they came back; they keep it.
        """
        back = [m for m in self.returned if m.sequence > self.cursor.position and m.sequence not in unsettled]
        if back:
            gone = {message.sequence for message in back}
            self.returned = deque([message for message in self.returned if message.sequence not in gone])
            self.cursor.read_again(back)

    def give_up_window(self, out: set[int]) -> None:
        """Read the window again later: what comes before it needs its memory."""
        out = out | self._waiting() | self.parking.above(self.cursor.window[0].sequence)
        self.cursor.give_up_window(out)

    def _waiting(self) -> set[int]:
        """The sequences of what waits beside the window and the parked ones."""
        return {message.sequence for message in self.returned} | self.delayed.sequences()

    def rest(self) -> None:
        """The last consumer has gone: give the memory back, and begin at the head with the next consumer."""
        back = self._take_up([*self.parking.clear(), *self.delayed.clear()])
        back = sorted([*self.returned, *back], key=_sequence)
        self.returned = deque()
        self.cursor.reset(back)

    def discard(self, sequences: set[int]) -> None:
        """Drop messages that the queue removes or hides without giving them to a consumer."""
        gone = take_from(self.returned, sequences)
        gone += self._take_up([*self.parking.discard(sequences), *self.delayed.discard(sequences)])
        self.cursor.release(gone)
        self.cursor.discard(sequences)

    def resident(self) -> list[Message]:
        """What is in memory and with no consumer."""
        return [*self.parking.kept.values(), *self.delayed.kept.values(), *self.returned, *self.cursor.resident()]

    def unstored(self) -> list[Message]:
        """What is nowhere but in memory and with no consumer."""
        return [message for message in self.resident() if not message.stored]

    def unstored_from(self, start: int, limit: int) -> list[Message]:
        """The first of what is nowhere but in memory and with no consumer.

        Args:
            start: the first sequence wanted; it need not be there.
        """
        beside = (*self.parking.kept.values(), *self.delayed.kept.values())
        found = [message for message in beside if message.sequence >= start]
        for source in (self.returned, *self.cursor.sources()):
            first = bisect_left(source, start, key=_sequence)
            found += islice((message for message in islice(source, first, None) if not message.stored), limit)
        return found

    def _take_up(self, kept: list[Message]) -> list[Message]:
        for message in kept:
            self.cursor.take_up(message)
        return kept


_Lane = TypeVar("_Lane", bound=QueueLane)


def by_lane(lanes: Sequence[_Lane], messages: list[Message]) -> list[tuple[_Lane, list[Message]]]:
    """Which of a queue's messages are in which of its lanes; lanes that have none of them are left out."""
    if len(lanes) == 1:
        return [(lanes[0], messages)]
    return [(lane, own) for lane in lanes if (own := lane.own(messages))]


class QueuePart:
    """What concerns one queue.

    Attributes:
        owner: the queue, or what is dispatched as one.
        appends: new messages, persistent or not, in ascending sequence.
        mixed: whether there are non-persistent ones among them.
        transferred: those of them that another queue gives up in this commit.
        removals: messages that are done with.
        deliveries: messages that came back and their delivery states, by sequence.
        marks: new dispatch marks, by lane.
        excluded: sequences that the cursors may not admit until this commit is done.
        owned: of a subscription to shared lanes, what the batch has of those that it removes records of.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = (
        "appends", "deliveries", "excluded", "listed", "marks", "mixed", "owned", "owner", "removals", "transferred",
    )  # fmt: skip

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.mixed = False
        self.transferred: list[Message] = []
        self.removals: list[Message] = []
        self.deliveries: dict[int, tuple[Message, Delivery]] = {}
        self.marks: dict[int, int] = {}
        self.excluded: set[int] = set()
        self.owned: dict[int, LaneBatch] | None = None
        self.listed = False

    def write(self, lanes: Sequence[QueueLane], batch: WriteBatch, spool: Spool) -> None:
        """Put the persistent messages' part into a batch, and the others' into the spool."""
        if len(lanes) == 1:
            self._write_lane(lanes[0].id, self.appends, self.removals, self.deliveries, batch, spool)
            return
        for lane in lanes:
            appends, removals = lane.own(self.appends), lane.own(self.removals)
            deliveries = {seq: entry for seq, entry in self.deliveries.items() if entry[0].priority == lane.priority}
            self._write_lane(lane.id, appends, removals, deliveries, batch, spool)

    def _write_lane(
        self, lane: int, appends: list[Message], removals: list[Message],
        deliveries: dict[int, tuple[Message, Delivery]], batch: WriteBatch, spool: Spool,
    ) -> None:  # fmt: skip
        if self.mixed:
            spooled = [message for message in appends if message.stored and not message.persistent]
            appends = [message for message in appends if message.persistent]
            if spooled:
                spool.append(lane, spooled)
        if not spool.is_empty(lane):
            gone = [message.sequence for message in removals if message.stored and not message.persistent]
            if gone:
                spool.remove(lane, gone)
            if states := {seq: state for seq, (m, state) in deliveries.items() if m.stored and not m.persistent}:
                spool.set_deliveries(lane, states)
        sequences = [message.sequence for message in removals if message.persistent] if removals else []
        if appends or sequences or deliveries or lane in self.marks:
            part = batch.lane(lane)
            part.appends, part.removals = appends, sequences
            if deliveries:
                part.deliveries = {seq: state for seq, (message, state) in deliveries.items() if message.persistent}
            part.dispatch_mark = self.marks.get(lane)


class Settlement(Protocol):
    """What settling messages means to the store."""

    @property
    def charge(self) -> Callable[[int], None]:
        """Counts the bytes of messages that are settled, with a minus, or are not settled after all."""

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put what is settled, and what is known of deliveries, into a batch."""

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it settled is settled for good."""

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled messages failed, and they are not settled after all."""

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether a lane may have a message up to a sequence that is not settled, as far as can be told."""


class RecordRemoval:
    """Messages that are settled are removed, from the store or from the spool.

    Args:
        spool: has those that are not persistent.
        charge: counts their bytes.
    """

    __slots__ = ("_lanes", "_spool", "charge")

    def __init__(self, lanes: Sequence[QueueLane], spool: Spool, charge: Callable[[int], None]) -> None:
        self._lanes = lanes
        self._spool = spool
        self.charge = charge

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put records that come and go into a batch, or into the spool."""
        part.write(self._lanes, batch, self._spool)

    def committed(self, part: QueuePart) -> None:
        """Their records are gone."""

    def undo(self, messages: list[Message]) -> None:
        """Their records are there still."""

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether a lane may have a record up to a sequence."""
        try:
            return 0 < lane.reader.lane_state(lane.id).head <= sequence
        except StoreError:
            return True


def charged_elsewhere(size: int) -> None:
    """The records are those of a topic, a stream: their bytes count there."""


class LaneCommits:
    """The part of one queue in commits.

    Attributes:
        open: what it has in the open commit.
    """

    __slots__ = ("_core", "_lanes", "_owner", "_settlement", "_settles_with", "open")

    def __init__(self, core: Core, owner: Owner, lanes: Sequence[QueueLane], settlement: Settlement) -> None:
        self.open = QueuePart(owner)
        self._core = core
        self._owner = owner
        self._lanes = lanes
        self._settlement = settlement
        self._settles_with = 0

    def parts(self) -> list[QueuePart]:
        """What it has in the commit under way, and in the open one."""
        return [*self._core.parts_of(self._owner), self.open]

    # The open commit.

    def list(self) -> None:
        """There is something for the open commit."""
        self._core.list_part(self.open)

    def hurry(self) -> None:
        """The open commit is waited for: a dispatch mark has to be written further ahead."""
        self._core.list_part(self.open)
        self._core.hurry()

    def exclude(self, sequences: Iterable[int]) -> None:
        """Let the cursors not admit messages until the open commit is done."""
        self.open.excluded.update(sequences)
        self._core.list_part(self.open)

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Store what is known of a message's deliveries."""
        if message.stored:
            self.open.deliveries[message.sequence] = (message, state)
            self._core.list_part(self.open)

    def forget(self) -> None:
        """What it has in commits is of no concern any more, whether they succeed or fail."""
        self._core.forget(self._owner)
        self.open = QueuePart(self._owner)

    # What was settled before a read.

    def await_settled(self) -> None:
        """The lanes are read from their heads next: what is settled until now has to be known to the store before."""
        self._settles_with = self._core.open_commit_number
        self.hurry()

    @property
    def is_settled(self) -> bool:
        """Whether the store knows what has to be known before the lanes are read."""
        return self._settles_with <= self._core.commits_done

    @property
    def rested_meanwhile(self) -> bool:
        """Whether the last consumer left since the commit that ended last began."""
        return self._settles_with >= self._core.commits_done

    # A commit begins, and ends.

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self.open = self.open, QueuePart(self._owner)
        commit.parts[self._owner] = part
        for lane in self._lanes:
            if (mark := lane.mark.take()) is not None:
                part.marks[lane.id] = mark
        self._settlement.write(part, commit.batch)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: marks are stored, and cursors do not come to what it removed."""
        if part.marks or part.excluded:
            for lane in self._lanes:
                lane.mark.stored = part.marks.get(lane.id, lane.mark.stored)
                lane.cursor.excluded -= part.excluded
        self._settlement.committed(part)

    def failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had is put into the next one, but for what came.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        following = self.open
        if restored:
            self._settlement.undo([message for message in part.removals if id(message) in restored])
        following.removals = [m for m in part.removals if id(m) not in restored] + following.removals
        following.deliveries = {**part.deliveries, **following.deliveries}
        following.excluded |= part.excluded
        for lane in self._lanes:
            lane.mark.failed()
        if self._settles_with == self._core.commits_done:
            self._settles_with = self._core.open_commit_number
        self._core.list_part(following)

    def stop(self) -> None:
        """Before a clean stop, with no consumers left: nothing was delivered that the delivery states do not tell.

        Only messages that were flagged by an earlier crash, and are still here, keep the mark.
        """
        for lane in self._lanes:
            crashed = lane.cursor.redelivered_to
            self.open.marks[lane.id] = crashed if crashed and self._settlement.may_have(lane, crashed) else 0
        self._core.list_part(self.open)


class MessageLocator:
    """Finds messages of some lanes by sequence. It changes nothing.

    Args:
        subscriptions: the consumers; the list changes with them.
        parts: what the lanes' owner has in commits.
    """

    __slots__ = ("_lanes", "_parts", "_subscriptions")

    def __init__(
        self, lanes: Sequence[QueueLane], subscriptions: list[Subscription], parts: Callable[[], list[QueuePart]]
    ) -> None:
        self._lanes = lanes
        self._subscriptions = subscriptions
        self._parts = parts

    @property
    def last(self) -> int:
        """The highest sequence whose commit was announced."""
        return max([lane.cursor.last for lane in self._lanes])

    def free_of(self, sequences: list[int], *, in_flight: bool = False) -> list[int]:
        """Those of some sequences that no consumer has and that are not being removed; what else is out costs nothing.

        Args:
            in_flight: whether those that consumers have count as free.
        """
        last = self.last
        free = {sequence for sequence in sequences if sequence <= last}
        if not in_flight:
            for subscription in self._subscriptions:
                free.difference_update(subscription.in_flight.keys() & free)
        for lane in self._lanes:
            free.difference_update(free & lane.cursor.excluded)
        for part in self._parts():
            free.difference_update([message.sequence for message in part.removals])
        return sorted(free)

    def unstored(self) -> list[Message]:
        """The messages that are nowhere but in memory, in order: non-persistent ones that found room."""
        found = [m for s in self._subscriptions for m in s.in_flight.values() if not m.stored]
        for lane in self._lanes:
            found += lane.unstored()
        return sorted(found, key=attrgetter("sequence"))

    def unstored_from(self, start: int, limit: int, *, in_flight: bool) -> list[Message]:
        """The first messages that are nowhere but in memory, in order.

        Args:
            start: the first sequence wanted; it need not be there.
            in_flight: whether those that consumers have are wanted too.
        """
        found = [message for lane in self._lanes for message in lane.unstored_from(start, limit)]
        if in_flight:
            given = [message for s in self._subscriptions for message in s.in_flight.values() if not message.stored]
            found += [message for message in given if message.sequence >= start]
        return nsmallest(limit, found, key=attrgetter("sequence"))

    def in_flight_of(self, sequences: list[int]) -> set[int]:
        """Those of some sequences that consumers have."""
        wanted = set(sequences)
        return {sequence for s in self._subscriptions for sequence in s.in_flight.keys() & wanted}

    def in_flight_sequences(self) -> set[int]:
        """The sequences of all messages that consumers have."""
        return {sequence for s in self._subscriptions for sequence in s.in_flight}

    def unsettled(self) -> set[int]:
        """The sequences of messages that came back and of which the store does not know it yet."""
        return {sequence for part in self._parts() for sequence in part.deliveries}

    def leaving(self) -> set[int]:
        """The sequences of messages that commits remove."""
        return {message.sequence for part in self._parts() for message in part.removals}

    def out_sequences(self) -> set[int]:
        """The sequences of messages that consumers have or that are being removed."""
        excluded = {sequence for lane in self._lanes for sequence in lane.cursor.excluded}
        return self.in_flight_sequences() | excluded | self.leaving()
