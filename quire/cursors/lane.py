"""A lane of messages and what of it is in memory: its cursor, what came back, what waits, and the memory tree.

The cursor holds a *position*: every committed message up to it was admitted, none after it was. A message is admitted
only if it fits into memory, or if no message before it is resident. The first refusal ends the read, and the position
stays on the refused message. Messages just committed are admitted without a read while the position is at the tail;
otherwise they are read from the store later. That is slower, and never different: both ways lead through the same test
in the same order.

``MemoryUsage`` is a node of the memory tree: how many bytes of messages are resident, in the broker and in each
destination, against limits. A cursor reserves memory before it admits a message and releases it when the message is
done with. A refused cursor waits there; a release anywhere in the tree wakes the waiting cursors, in the order of their
refusal.

``QueueLane`` has the cursor's window, the messages that came back, those that wait for their next delivery
(``DelayedMessages``) and those that are parked.

The **dispatch mark** says up to which sequence messages may have been delivered, should the broker die now. It is
written ahead, by what consumers may be given until the next commit, so that it goes along with commits that happen
anyway. After a crash, what is at or below the mark comes back flagged as redelivered.

There are tens of thousands of lanes, so their classes have slots, and what most of them never need is an empty one that
all share: nothing is ever put into that.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, TypeVar

from quire.clock import Clock, SystemClock
from quire.cursors.parking import Parking
from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import LaneReader, LaneState, Link

Waiter = Callable[[], bool]
"""Called after a release: try again, and say whether the wait is over."""


ROUNDS = 16
"""After so many rounds without progress, waiters wait for another release."""


class MemoryUsage:
    __slots__ = ("_released", "_root", "_untried", "_waiters", "limit", "parent", "peak", "used")

    def __init__(self, limit: int = 0, parent: "MemoryUsage | None" = None) -> None:
        self.limit = limit
        self.parent = parent
        self.used = 0
        self.peak = 0
        self._root: MemoryUsage = parent._root if parent else self
        if not parent:  # the whole tree waits at its root
            self._waiters: dict[Waiter, None] = {}
            self._untried: deque[Waiter] = deque()
            self._released = False

    def available(self) -> int:
        """Bytes that may still be reserved here, under every limit above; negative when a lone giant exceeds one."""
        room = self.limit - self.used if self.limit else 1 << 62
        return min(room, self.parent.available()) if self.parent else room

    def reserve(self, size: int) -> bool:
        if size > self.available():
            return False
        self.force(size)
        return True

    def force(self, size: int) -> None:
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        if self.parent:
            self.parent.force(size)

    def release(self, size: int) -> None:
        """Release reserved bytes. The next ``wake`` wakes waiting cursors."""
        self.used -= size
        if self.parent:
            self.parent.release(size)
        else:
            self._released = True

    def wait(self, waiter: Waiter) -> None:
        """Be woken after a release. A waiter that waits already keeps its place."""
        root = self._root
        if not root._waiters:
            root._released = False  # what was released up to now is what it did not suffice
        root._waiters.setdefault(waiter, None)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._root._waiters.pop(waiter, None)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._root._waiters)

    def wake(self, is_over: Callable[[], bool] = lambda: False) -> bool:
        """After a release: let every waiter try again, in the order of refusal. The broker calls it once a turn.

        With ``is_over`` the time is up: True is returned if waiters are left, and the next call continues with them.
        """
        root, in_vain = self._root, 0
        while root._untried or (root._released and root._waiters and in_vain < ROUNDS):
            if not root._untried:
                root._released = False
                root._untried.extend(root._waiters)
            before, waiting = root.used, len(root._waiters)
            while root._untried:
                waiter = root._untried.popleft()
                if waiter in root._waiters and waiter():
                    root._waiters.pop(waiter, None)
                if is_over():
                    return bool(root._untried or root._released)
            # What waiters release that they reserved themselves must not wake them for ever.
            in_vain = in_vain + 1 if root.used >= before and len(root._waiters) >= waiting else 0
        root._released = False
        return False


_sequence = attrgetter("sequence")


def take_from(messages: deque[Message], sequences: set[int]) -> list[Message]:
    """Remove the messages with some sequences, and return them in order.

    The messages are in ascending sequence. It costs what lies between the first and the last one removed.
    """
    if not messages or not sequences:
        return []
    start = bisect_left(messages, min(sequences), key=_sequence)
    count = bisect_right(messages, max(sequences), start, key=_sequence) - start
    messages.rotate(-start)
    between = [messages.popleft() for _ in range(count)]
    messages.extendleft(reversed([message for message in between if message.sequence not in sequences]))
    messages.rotate(start)
    return [message for message in between if message.sequence in sequences]


class SourcePart(NamedTuple):
    messages: list[Message]
    bound: int | None
    """The highest sequence up to which the messages are complete; None if the source has nothing behind them."""
    damage: StoreCorrupt | None = None


def read_part(source: LaneReader | Spool, lane: int, start: int, budget: int, limit: int) -> SourcePart:
    """Read a part of a lane, from the store or the spool; if a record of it is damaged, what precedes that record."""
    try:
        page = source.page(lane, start, budget, limit)
        return SourcePart(page.messages, None if page.end else page.messages[-1].sequence)
    except StoreCorrupt as damage:
        bound = damage.data["sequence"] - 1
        sound = len([link for link in source.links(lane, start, limit) if link.sequence <= bound])
        messages = source.page(lane, start, budget, sound).messages if sound else []
        return SourcePart(messages, bound if len(messages) == sound else messages[-1].sequence, damage)


PAGE_LIMIT = 1000
"""Most messages of one read."""

PAGE_BYTES = 1 << 20
"""Most bytes of one read, so that it does not block the event loop for long."""

WINDOW_LIMIT = 4096
"""With so many messages in the window, committed messages stay in the store: a queue with slow consumers must not take
the memory of all others."""


def _charge(messages: list[Message]) -> int:
    return sum([message.size for message in messages]) + MESSAGE_OVERHEAD * len(messages)


_NO_MESSAGES = deque[Message]()

_NO_SEQUENCES = set[int]()


class QueueCursor:
    """The cursor of one lane.

    Three sources are joined by sequence: the store has the persistent messages, the spool the non-persistent ones
    without memory, and the non-persistent ones with memory are *kept*: they are only in memory, which is reserved.
    """

    __slots__ = (
        "_active", "_clock", "_committed", "_kept", "_kept_bytes", "_lane", "_memory", "_spool", "_store",
        "blocked_since", "excluded", "position", "redelivered_to", "skipped", "window",
    )  # fmt: skip

    def __init__(
        self, store: LaneReader, spool: Spool, lane: int, memory: MemoryUsage, clock: Clock, last: int
    ) -> None:
        self._store = store
        self._spool = spool
        self._lane = lane
        self._memory = memory
        self._clock = clock
        self._committed = last
        self._kept = _NO_MESSAGES
        self._kept_bytes = 0
        self._active = False
        self.window = _NO_MESSAGES  # admitted and not yet dispatched, in order
        self.position = 0
        self.excluded = _NO_SEQUENCES  # not to be admitted until their removal is committed
        self.redelivered_to = 0  # messages up to this sequence may have been delivered before a crash
        self.skipped = _NO_SEQUENCES  # behind the position since it was moved back, and admitted already
        self.blocked_since: float | None = None  # on the monotonic clock, while memory refuses the next message

    @property
    def has_more(self) -> bool:
        return self.position < self._committed

    def activate(self) -> None:
        self._active = True
        if self.window is _NO_MESSAGES:
            self.window = deque()

    def reset(self, in_flight: list[Message]) -> None:
        """Release the memory and start again from the head, because there is no consumer any more.

        Of the messages in flight, in order, stored ones will be read again, the others are kept.
        """
        self._active = False
        self.skipped = _NO_SEQUENCES
        self._go_back(in_flight)
        self.window = _NO_MESSAGES

    def exclude(self, sequences: Collection[int]) -> None:
        self.excluded = self.excluded or set()
        self.excluded.update(sequences)

    def skip(self, sequences: Collection[int]) -> None:
        self.skipped = self.skipped or set()
        self.skipped.update(sequences)

    def rewind(self, set_aside: list[Message], out: set[int]) -> None:
        """Start again from the head while consumers go on: a new one may want more. What is ``out`` or set aside is
        skipped.
        """
        self.skipped = out
        self._go_back(set_aside)

    def give_up_window(self, out: set[int]) -> None:
        first = self.window[0].sequence
        self.skip([sequence for sequence in out if sequence > first])
        self._go_back([], first - 1)

    def _go_back(self, back: list[Message], position: int = 0) -> None:
        self.blocked_since = None
        self.position = position
        resident = list(heapq.merge(back, self.window, key=_sequence)) if self.window else back
        self.window.clear()
        self.read_again(resident)

    def read_again(self, messages: list[Message]) -> None:
        """Read resident messages, in order and behind the position, again later: their memory is needed."""
        self.skipped.difference_update([message.sequence for message in messages])
        self.release([message for message in messages if message.stored])
        if kept := [message for message in messages if not message.stored]:
            self._kept = deque(heapq.merge(kept, self._kept, key=_sequence))
            self._kept_bytes += _charge(kept)

    def set_aside(self, message: Message) -> None:
        """Release the memory of a stored message that waits for a consumer that may take it."""
        if message.stored:
            self._memory.release(message.size + MESSAGE_OVERHEAD)
        else:
            self._kept_bytes += message.size + MESSAGE_OVERHEAD

    def set_all_aside(self, messages: list[Message]) -> None:
        kept = [message for message in messages if not message.stored]
        self._kept_bytes += _charge(kept)
        self._memory.release(_charge(messages) - _charge(kept))

    def take_up(self, message: Message) -> None:
        """Continue with a message that was set aside and is only in memory."""
        self._kept_bytes -= message.size + MESSAGE_OVERHEAD

    def recall(self, sequences: list[int], sizes: list[int]) -> tuple[list[Message], int]:
        """Load messages set aside behind the position, as many as fit; and how many of the sequences are settled, 0 if
        memory refuses.
        """
        room, count = self._memory.available(), 0
        for size in sizes:
            room -= size + MESSAGE_OVERHEAD
            if room < 0 and (count or not self._may_force):
                break
            count += 1
        if count == 0:
            self.blocked_since = self.blocked_since or self._clock.monotonic()
            return [], 0
        self.blocked_since = None
        wanted = [sequence for sequence in sequences[:count] if sequence not in self.excluded]
        messages = self._store.load(self._lane, wanted)
        if len(messages) < len(wanted) and not self._spool.is_empty(self._lane):
            messages = list(heapq.merge(messages, self._spool.load(self._lane, wanted), key=_sequence))
        for message in messages:
            if message.sequence <= self.redelivered_to:
                message.redelivered = True
        self._memory.force(_charge(messages))
        return messages, count

    def keep(self, message: Message) -> bool:
        """Reserve memory for a non-persistent message before its commit; without memory it belongs into the spool."""
        charge = message.size + MESSAGE_OVERHEAD
        if not self._memory.reserve(charge):
            return False
        self._kept_bytes += charge
        return True

    def give_up(self) -> bool:
        """Move kept messages to the spool, if there is no consumer; whether any moved. If that fails, they stay."""
        kept = list(self._kept)
        if not kept or self._active:
            return False
        self._spool.take_over(self._lane, kept)
        for message in kept:
            message.stored = True
        self._kept = _NO_MESSAGES
        self._kept_bytes -= _charge(kept)
        self._memory.release(_charge(kept))
        return True

    def committed(self, messages: list[Message]) -> None:
        """Add committed messages, in order; they are admitted if the position is at the tail and they fit."""
        at_tail = self._active and self.position == self._committed and len(self.window) < WINDOW_LIMIT
        self._committed = messages[-1].sequence
        if at_tail and self._admit_all(messages):
            return
        for index, message in enumerate(messages):
            if not (at_tail and self._admit(message)):  # the first refusal ends it; the rest is read later
                if kept := [m for m in messages[index:] if not m.stored]:
                    self._kept = self._kept or deque()
                    self._kept.extend(kept)
                return
            self.window.append(message)
            self.position = message.sequence

    def page_in(self) -> bool:
        """Read messages from the position on, as many as fit; returns whether any was admitted.

        If memory refused the first one, ``blocked_since`` is set.
        """
        before = len(self.window)
        while self._active and self.has_more and len(self.window) == before:  # a page may be all excluded or gone
            available = self._memory.available()
            if not self._may_force and not self._first_fits(available):
                if self.blocked_since is None:
                    self.blocked_since = self._clock.monotonic()
                return False
            self.blocked_since = None
            self._admit_page(min(available, PAGE_BYTES))
        if not self.has_more:
            self.blocked_since = None
        return len(self.window) > before

    def discard(self, sequences: set[int]) -> list[Message]:
        kept = take_from(self._kept, sequences)
        gone = take_from(self.window, sequences) + kept
        if gone:
            self._kept_bytes -= _charge(kept)
            self.release(gone)
        self.exclude(sequences)
        return gone

    def resident(self) -> list[Message]:
        return [*self.window, *self._kept]

    def sources(self) -> tuple[deque[Message], deque[Message]]:
        """The window and what is kept, each in order. Not to be changed."""
        return self.window, self._kept

    @property
    def last(self) -> int:
        return self._committed

    def hold(self, messages: list[Message]) -> None:
        """Reserve the memory of messages that are resident again, whether it fits or not."""
        self._memory.force(_charge(messages))

    def release(self, messages: list[Message]) -> None:
        """Release the memory of messages that are done with: all of them admitted, or all of a commit that failed.

        The latter are above every announced commit, and were kept.
        """
        charge = _charge(messages)
        if messages and messages[-1].sequence > self._committed:
            self._kept_bytes -= charge
        self._memory.release(charge)

    @property
    def _may_force(self) -> bool:
        """Whether the next message is admitted whatever its size: no message before it is resident.

        Kept messages behind the position do not count: they are dispatched after it, so waiting would never end.
        """
        return self._memory.used == self._kept_bytes

    def _admit(self, message: Message) -> bool:
        """Admit one message of a commit; a kept one has its memory already, a spooled one must be read first."""
        charge = message.size + MESSAGE_OVERHEAD
        if not message.persistent:
            if not message.stored:
                self._kept_bytes -= charge
            return not message.stored
        if self._may_force:
            self._memory.force(charge)
            return True
        return self._memory.reserve(charge)

    def _admit_all(self, messages: list[Message]) -> bool:
        """Admit a whole commit of persistent messages at once: what nearly every commit is."""
        if not all([m.persistent for m in messages]) or not self._memory.reserve(_charge(messages)):
            return False
        self.window.extend(messages)
        self.position = messages[-1].sequence
        return True

    def _admit_page(self, budget: int) -> None:
        charge, append = 0, self.window.append
        for message in self._read(budget):
            self.position = message.sequence
            if message.stored:
                if message.sequence in self.excluded:
                    continue
                if self.skipped and message.sequence in self.skipped:
                    self.skipped.discard(message.sequence)
                    continue
                if message.sequence <= self.redelivered_to:
                    message.redelivered = True
                charge += message.size + MESSAGE_OVERHEAD
            append(message)
        self._memory.force(charge)

    def _first_fits(self, available: int) -> bool:
        links = self._next_links(self._store)
        if not self._spool.is_empty(self._lane):
            links += self._next_links(self._spool)
        first = min(links, default=None)
        if first is None or (self._kept and self._kept[0].sequence < first.sequence):
            return True
        return first.size + MESSAGE_OVERHEAD <= available

    def _next_links(self, source: LaneReader | Spool) -> list[Link]:
        links = source.links(self._lane, self.position + 1, 1)
        if links and links[0].sequence in self.skipped:
            links = source.links(self._lane, self.position + 1, 1 + len(self.skipped))
        return [link for link in links if link.sequence not in self.skipped]

    def _read(self, budget: int) -> Iterator[Message]:
        """The messages from the position on that fit, joined from all sources; moves the position over what is gone.

        Nothing above the last announced commit is read: the kept messages of a later one are not here yet. A damaged
        record is an error when it is the next one; the position stays before it.
        """
        parts = [read_part(self._store, self._lane, self.position + 1, budget, PAGE_LIMIT)]
        if not self._spool.is_empty(self._lane):
            parts.append(read_part(self._spool, self._lane, self.position + 1, budget, PAGE_LIMIT))
        kept = list(islice(self._kept, PAGE_LIMIT))
        if kept:
            parts.append(SourcePart(kept, kept[-1].sequence if len(kept) == PAGE_LIMIT else None))
        bound = min([self._committed, *[part.bound for part in parts if part.bound is not None]])
        given = False
        merged = heapq.merge(*[part.messages for part in parts], key=_sequence)
        for message in merged if len(parts) > 1 else parts[0].messages:
            if message.sequence > bound:
                break
            if message.stored:
                budget -= message.size + MESSAGE_OVERHEAD
                if given and budget < 0:
                    return
            else:
                self._kept_bytes -= message.size + MESSAGE_OVERHEAD
                self._kept.popleft()
            given = True
            yield message
        self.position = bound
        damages = [part.damage for part in parts if part.damage]
        if damages and not given and self.has_more:
            raise damages[0]


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
        while self._by_sequence[0] not in self._entries:
            heapq.heappop(self._by_sequence)
        return self._by_sequence[0]

    def add(self, message: Message, group: str | None) -> None:
        entry = self._entries[message.sequence] = (message.not_before, message.sequence, message.size)
        heapq.heappush(self._by_time, entry)
        heapq.heappush(self._by_sequence, message.sequence)
        if not message.stored:
            self.kept[message.sequence] = message
        if group is not None:
            self._groups.setdefault(group, set()).add(message.sequence)
            self._group_of[message.sequence] = group

    def holds(self, group: str, sequence: int) -> bool:
        return group in self._groups and min(self._groups[group]) < sequence

    def due(self, now_ms: int, limit: int, unsettled: set[int]) -> tuple[list[int], list[int]]:
        """Sequences and sizes of messages that are due, the longest due first; they stay until ``drop``. What is
        unsettled ends it.
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
        for _ in range(count):
            self._forget_gone()
            self._leave(heapq.heappop(self._by_time)[1])
        self._tidy()

    def discard(self, sequences: set[int]) -> list[Message]:
        gone = [sequence for sequence in sequences if sequence in self._entries]
        for sequence in gone:
            self._leave(sequence)
        self._tidy()
        return [self.kept.pop(sequence) for sequence in gone if sequence in self.kept]

    def sequences(self) -> set[int]:
        return set(self._entries)

    def clear(self) -> list[Message]:
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
        if self._wanted <= self._asked:
            return None
        self._asked = self._wanted
        self._start = self._reached
        return self._asked

    def failed(self) -> None:
        self._asked = self.stored


GAP = 32
"""Records that are so near to each other are read together, with what is between them."""


def found_links(source: LaneReader | Spool, lane: int, sequences: list[int]) -> list[Link]:
    found: list[Link] = []
    for run in _runs(sequences):
        wanted, last = set(run), run[-1]
        links = source.links(lane, run[0], last - run[0] + 1)
        found += [link for link in links if link.sequence in wanted]
    return found


def _runs(sequences: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for sequence in sequences:
        if run and sequence - run[-1] > GAP:
            yield run
            run = []
        run.append(sequence)
    if run:
        yield run


END = 1 << 63
"""Above all sequences."""

NOTHING_DELAYED = DelayedMessages()

NOTHING_PARKED = Parking(SystemClock())


class QueueLane:
    """One lane: a queue has one, or ten by priority.

    Args:
        mark: its dispatch mark; None for the stored one.

    Attributes:
        returned: messages that came back, in order; they go before the window, as far as it is behind them.
        parking: messages that no present consumer can take now.
        is_scanning: whether the search for its next message goes on in the next turn.
    """

    __slots__ = (
        "_clock", "_spool", "_taken_from", "cursor", "delayed", "delayed_since", "id", "is_scanning", "mark",
        "memory", "parking", "priority", "reader", "returned",
    )  # fmt: skip

    def __init__(
        self, reader: LaneReader, spool: Spool, clock: Clock, id: int, memory: MemoryUsage, state: LaneState,
        priority: int = 4, mark: DispatchMark | None = None,
    ) -> None:  # fmt: skip
        self.id = id
        self.priority = priority
        self.memory = memory
        self.reader = reader
        self.cursor = QueueCursor(reader, spool, id, memory, clock, state.next_sequence - 1)
        # The mark is written ahead: what comes in from now on was not delivered before the crash.
        self.cursor.redelivered_to = min(state.dispatch_mark, state.next_sequence - 1)
        self.mark = mark or DispatchMark(state.dispatch_mark)
        self.returned = _NO_MESSAGES
        self.delayed = NOTHING_DELAYED
        self.delayed_since = 0.0
        self.parking = NOTHING_PARKED
        self.is_scanning = False
        self._taken_from = self.returned
        self._clock = clock
        self._spool = spool

    def head(self) -> int | None:
        links = self.links(0, 1)
        return links[0].sequence if links else None

    def links(self, start: int, limit: int) -> list[Link]:
        return self.reader.links(self.id, start, limit)

    def without_contents(self, sequences: list[int]) -> list[Message]:
        found = [self._shell(link) for link in found_links(self.reader, self.id, sequences)]
        if not self._spool.is_empty(self.id):
            found += [self._shell(link, persistent=False) for link in found_links(self._spool, self.id, sequences)]
        return found

    def _shell(self, link: Link, *, persistent: bool = True) -> Message:
        message = Message(link.sequence, b"", 0, self.priority, persistent)
        message.size, message.stored = link.size, True
        return message

    def own(self, messages: list[Message]) -> list[Message]:
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
        if not self.cursor.window and not self.cursor.page_in():
            return []
        run = self._take_from(self.cursor.window, limit)
        if self.returned and self.returned[-1].sequence > run[0].sequence:
            return self.cut(run, next(m.sequence for m in self.returned if m.sequence > run[0].sequence))
        return run

    @property
    def scanned(self) -> int:
        window = self.cursor.window
        return window[0].sequence - 1 if window else self.cursor.position

    def first_of_window(self) -> int:
        """The first sequence of the window, paged in when it is empty; ``END`` if there is none."""
        window = self.cursor.window
        return window[0].sequence if window or self.cursor.page_in() else END

    def cut(self, run: list[Message], below: int) -> list[Message]:
        count = bisect_left(run, below, key=_sequence)
        self.put_back(run[count:])
        return run[:count]

    def _take_from(self, source: deque[Message], limit: int) -> list[Message]:
        self._taken_from = source
        popleft = source.popleft
        return [popleft() for _ in range(min(len(source), limit))]

    def put_back(self, run: list[Message]) -> None:
        self._taken_from.extendleft(reversed(run))

    def come_back(self, messages: list[Message]) -> None:
        returned, messages = self.returned, sorted(messages, key=_sequence)
        if returned is _NO_MESSAGES:
            self.returned = deque(messages)
        elif not returned or (messages and returned[-1].sequence < messages[0].sequence):
            returned.extend(messages)
        elif messages and messages[-1].sequence < returned[0].sequence:
            returned.extendleft(reversed(messages))
        else:
            self.returned = deque(heapq.merge(messages, returned, key=_sequence))

    def delay(self, messages: list[Message], group_header: bytes | None) -> None:
        self._begin_delaying()
        for message in messages:
            group = message.header(group_header) if group_header else None
            self.cursor.set_aside(message)
            self.delayed.add(message, group)

    def recall_later(self, messages: list[Message]) -> None:
        if messages:
            self._begin_delaying()
        for message in messages:
            self.delayed.add(message, None)

    def _begin_delaying(self) -> None:
        if not self.delayed:
            self.delayed_since = self._clock.monotonic()
        if self.delayed is NOTHING_DELAYED:
            self.delayed = DelayedMessages()

    def recall(self, sequences: list[int], sizes: list[int], kept: dict[int, Message]) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, those that are still there; and how many of the sequences that
        settles.
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
        """What came back from further on gives its memory to what comes before it, but for what the store does not
        know of yet.
        """
        back = [m for m in self.returned if m.sequence > self.cursor.position and m.sequence not in unsettled]
        if back:
            gone = {message.sequence for message in back}
            self.returned = deque([message for message in self.returned if message.sequence not in gone])
            self.cursor.read_again(back)

    def give_up_window(self, out: set[int]) -> None:
        self.cursor.give_up_window(out | self._waiting() | self.parking.above(self.cursor.window[0].sequence))

    def _waiting(self) -> set[int]:
        return {message.sequence for message in self.returned} | self.delayed.sequences()

    def rest(self) -> None:
        back = self._take_up([*self.parking.clear(), *self.delayed.clear()])
        back = sorted([*self.returned, *back], key=_sequence)
        self.returned = self._taken_from = _NO_MESSAGES
        self.delayed = NOTHING_DELAYED
        self.cursor.reset(back)

    def discard(self, sequences: set[int]) -> None:
        gone = take_from(self.returned, sequences)
        gone += self._take_up([*self.parking.discard(sequences), *self.delayed.discard(sequences)])
        self.cursor.release(gone)
        self.cursor.discard(sequences)

    def resident(self) -> list[Message]:
        return [*self.parking.kept.values(), *self.delayed.kept.values(), *self.returned, *self.cursor.resident()]

    def unstored(self) -> list[Message]:
        return [message for message in self.resident() if not message.stored]

    def unstored_from(self, start: int, limit: int) -> list[Message]:
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
    if len(lanes) == 1:
        return [(lanes[0], messages)]
    return [(lane, own) for lane in lanes if (own := lane.own(messages))]
