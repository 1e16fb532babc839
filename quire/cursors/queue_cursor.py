"""The queue cursor: pages a lane's messages in when there is space, in order, skipping nothing.

The cursor holds a *position*: every committed message up to it was admitted, none after it was. A message is admitted
only if it fits into memory, or if no message before it is resident. The first refusal ends the read, and the position
stays on the refused message. Messages just committed are admitted without a read while the position is at the tail;
otherwise they are read from the store later. That is slower, and never different: both ways lead through the same test
in the same order.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from quire.clock import Clock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import LaneReader, Link

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
    """A part of a lane, from one source."""

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


class QueueCursor:
    """The cursor of one lane.

    Three sources are joined by sequence: the store has the persistent messages, the spool the non-persistent ones
    without memory, and the non-persistent ones with memory are *kept*: they are only in memory, which is reserved.
    """

    # Slots here, and in what it holds: there are tens of thousands of them.
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
        self._kept: deque[Message] = deque()
        self._kept_bytes = 0
        self._active = False
        self.window: deque[Message] = deque()  # admitted and not yet dispatched, in order
        self.position = 0
        self.excluded: set[int] = set()  # not to be admitted until their removal is committed
        self.redelivered_to = 0  # messages up to this sequence may have been delivered before a crash
        self.skipped: set[int] = set()  # behind the position since it was moved back, and admitted already
        self.blocked_since: float | None = None  # on the monotonic clock, while memory refuses the next message

    @property
    def has_more(self) -> bool:
        """Whether there may be committed messages behind the position."""
        return self.position < self._committed

    def activate(self) -> None:
        """Begin to admit: there is a consumer."""
        self._active = True

    def reset(self, in_flight: list[Message]) -> None:
        """Release the memory and start again from the head, because there is no consumer any more.

        Of the messages in flight, in order, stored ones will be read again, the others are kept.
        """
        self._active = False
        self.skipped.clear()
        self._go_back(in_flight)

    def rewind(self, set_aside: list[Message], out: set[int]) -> None:
        """Start again from the head while consumers go on: a new one may want what the others did not.

        Messages set aside that are only in memory are kept. Sequences still ``out`` (in flight, coming back, being
        removed) are skipped.
        """
        self.skipped = out
        self._go_back(set_aside)

    def give_up_window(self, out: set[int]) -> None:
        """Go back to the first message of the window, which has one: earlier messages need the memory.

        Sequences still ``out``, or set aside, are skipped.
        """
        first = self.window[0].sequence
        self.skipped |= {sequence for sequence in out if sequence > first}
        self._go_back([], first - 1)

    def _go_back(self, back: list[Message], position: int = 0) -> None:
        """Move the position back; resident messages behind it are released or kept."""
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
        """As ``set_aside``, for many."""
        kept = [message for message in messages if not message.stored]
        self._kept_bytes += _charge(kept)
        self._memory.release(_charge(messages) - _charge(kept))

    def take_up(self, message: Message) -> None:
        """Continue with a message that was set aside and is only in memory."""
        self._kept_bytes -= message.size + MESSAGE_OVERHEAD

    def recall(self, sequences: list[int], sizes: list[int]) -> tuple[list[Message], int]:
        """Load messages that were set aside behind the position, as many of the first as fit in memory.

        Returns them, without those removed meanwhile, and how many of the sequences are settled. If none is,
        ``blocked_since`` is set.
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
        """Move kept messages to the spool, if there is no consumer: others need the memory. Returns whether any moved.

        If the spool fails, they stay in memory.
        """
        kept = list(self._kept)
        if not kept or self._active:
            return False
        self._spool.take_over(self._lane, kept)
        for message in kept:
            message.stored = True
        self._kept.clear()
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
                self._kept.extend([m for m in messages[index:] if not m.stored])
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
        """Drop messages that expiry, a purge or a move removes; returns the resident ones, their memory released.

        They are not admitted until the caller removes them from ``excluded``.
        """
        kept = take_from(self._kept, sequences)
        gone = take_from(self.window, sequences) + kept
        if gone:
            self._kept_bytes -= _charge(kept)
            self.release(gone)
        self.excluded |= sequences
        return gone

    def resident(self) -> list[Message]:
        """What is in the window or kept."""
        return [*self.window, *self._kept]

    def sources(self) -> tuple[deque[Message], deque[Message]]:
        """The window and what is kept, each in order. Not to be changed."""
        return self.window, self._kept

    @property
    def last(self) -> int:
        """The highest sequence whose commit was announced."""
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
        """Whether the message at the position fits, by its indexed size, before it is read."""
        links = self._next_links(self._store)
        if not self._spool.is_empty(self._lane):
            links += self._next_links(self._spool)
        first = min(links, default=None)
        if first is None or (self._kept and self._kept[0].sequence < first.sequence):
            return True
        return first.size + MESSAGE_OVERHEAD <= available

    def _next_links(self, source: LaneReader | Spool) -> list[Link]:
        """The links of a source from the position on, the first one that is not skipped among them, if there is one."""
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
