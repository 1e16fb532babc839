"""The queue cursor: pages a lane's messages in when there is space, in order, skipping nothing.

The cursor holds a *position*: every committed message up to it was admitted, none after it was. A message is admitted only if
it fits into memory, or if nothing of its lane is resident. The first refusal ends the read, and the position stays on the
refused message. Messages just committed are admitted without a read while the position is at the tail; otherwise they are
read from the store later. That is slower, and never different: both ways lead through the same test in the same order.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from quire.clock import Clock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Page, StoreReader

PAGE_LIMIT = 1000
"""Most messages of one read."""

PAGE_BYTES = 1 << 20
"""Most bytes of one read, so that a read never holds the event loop for long."""

_sequence = attrgetter("sequence")


class QueueCursor:
    """The cursor of one lane.

    Three sources are joined by sequence: the store has the persistent messages, the spool the non-persistent ones that found
    no memory, and non-persistent ones that did are *kept*: they are nowhere but in memory, their memory is reserved.

    Args:
        store: where the persistent messages are.
        spool: where non-persistent messages are that found no memory.
        lane: the lane's id, the same in both.
        memory: the destination's node of the memory tree.
        clock: for the age of a wait.
        last: the highest sequence committed so far.

    Attributes:
        window: messages admitted and not yet dispatched, in order.
        position: every committed message up to this sequence was admitted, none after it.
        excluded: sequences that are being removed and must not be admitted, until their removal is committed.
        redelivered_to: messages up to this sequence may have been delivered before a crash.
        blocked_since: since when the cursor is refused, on the monotonic clock; None while it is not.
    """

    def __init__(
        self, store: StoreReader, spool: Spool, lane: int, memory: MemoryUsage, clock: Clock, last: int
    ) -> None:
        self._store = store
        self._spool = spool
        self._lane = lane
        self._memory = memory
        self._clock = clock
        self._committed = last
        self._kept: deque[Message] = deque()
        self._active = False
        self.window: deque[Message] = deque()
        self.position = 0
        self.excluded: set[int] = set()
        self.redelivered_to = 0
        self.blocked_since: float | None = None

    @property
    def has_more(self) -> bool:
        """Whether there may be committed messages behind the position."""
        return self.position < self._committed

    def activate(self) -> None:
        """Begin to admit: there is a consumer."""
        self._active = True

    def reset(self, in_flight: list[Message]) -> None:
        """Give the memory back and start again from the head, because nobody is consuming any more.

        Args:
            in_flight: messages that were given out and came back, in order. Those that are stored will be read again; the
                others join the kept ones.
        """
        self._active = False
        self.blocked_since = None
        self.position = 0
        resident = list(heapq.merge(in_flight, self.window, key=_sequence))
        self.window.clear()
        self.release([message for message in resident if message.stored])
        kept = (message for message in resident if not message.stored)
        self._kept = deque(heapq.merge(kept, self._kept, key=_sequence))

    def keep(self, message: Message) -> bool:
        """Reserve memory for a non-persistent message that is about to be committed.

        Returns:
            Whether there is room; if not, it belongs into the spool.
        """
        return self._memory.reserve(message.size + MESSAGE_OVERHEAD)

    def committed(self, messages: list[Message]) -> None:
        """Take what was just committed; it is admitted if the position is at the tail and it fits.

        Args:
            messages: persistent, kept and spooled ones, in ascending sequence.
        """
        at_tail = self._active and self.position == self._committed
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
        """Read messages from the position on, as many as fit.

        Returns:
            Whether a message was admitted. If memory refused the first one, ``blocked_since`` is set.
        """
        if not self._active or not self.has_more:
            return False
        budget = min(self._memory.available(), PAGE_BYTES)
        if self._memory.used and not self._first_fits(budget):
            if self.blocked_since is None:
                self.blocked_since = self._clock.monotonic()
            return False
        self.blocked_since = None
        before = len(self.window)
        for message in self._read(budget):
            self.position = message.sequence
            if message.stored:
                if message.sequence in self.excluded:
                    continue
                if message.sequence <= self.redelivered_to:
                    message.redelivered = True
                self._memory.force(message.size + MESSAGE_OVERHEAD)
            self.window.append(message)
        return len(self.window) > before

    def discard(self, sequences: set[int]) -> list[Message]:
        """Drop messages that somebody else than a consumer removes: expiry, purge, move.

        Args:
            sequences: which. They are excluded from being admitted until the caller takes them out of ``excluded``.

        Returns:
            Those that were resident, their memory released.
        """
        gone = [m for m in (*self.window, *self._kept) if m.sequence in sequences]
        if gone:
            self.window = deque([m for m in self.window if m.sequence not in sequences])
            self._kept = deque([m for m in self._kept if m.sequence not in sequences])
            self.release(gone)
        self.excluded |= sequences
        return gone

    @property
    def last(self) -> int:
        """The highest sequence whose commit was announced."""
        return self._committed

    def hold(self, messages: list[Message]) -> None:
        """Reserve the memory of messages that are resident again, whether it fits or not."""
        self._memory.force(sum([m.size for m in messages]) + MESSAGE_OVERHEAD * len(messages))

    def release(self, messages: list[Message]) -> None:
        """Give back the memory of messages that are done with."""
        self._memory.release(sum([m.size for m in messages]) + MESSAGE_OVERHEAD * len(messages))

    def _admit(self, message: Message) -> bool:
        """Admit one message of a commit; a kept one has its memory already, a spooled one has to be read first."""
        if not message.persistent:
            return not message.stored
        charge = message.size + MESSAGE_OVERHEAD
        if self._memory.used == 0:
            self._memory.force(charge)
            return True
        return self._memory.reserve(charge)

    def _admit_all(self, messages: list[Message]) -> bool:
        """Admit a whole commit of persistent messages at once: what nearly every commit is."""
        if not all([m.persistent for m in messages]):
            return False
        if not self._memory.reserve(sum([m.size for m in messages]) + MESSAGE_OVERHEAD * len(messages)):
            return False
        self.window.extend(messages)
        self.position = messages[-1].sequence
        return True

    def _first_fits(self, budget: int) -> bool:
        """Whether the message at the position fits, told from its indexed size, before anything is read."""
        links = self._store.links(self._lane, self.position + 1, 1)
        if not self._spool.is_empty(self._lane):
            links += self._spool.links(self._lane, self.position + 1, 1)
        first = min(links, default=None)
        if first is None or (self._kept and self._kept[0].sequence < first.sequence):
            return True
        return first.size + MESSAGE_OVERHEAD <= budget

    def _read(self, budget: int) -> Iterator[Message]:
        """The messages from the position on that fit, joined from all sources; moves the position over what is gone.

        Nothing above the last announced commit is given out: the kept messages of a later one are not here yet.
        """
        pages = [self._stored_page(budget)]
        if not self._spool.is_empty(self._lane):
            pages.append(self._spool.page(self._lane, self.position + 1, budget, PAGE_LIMIT))
        kept = list(islice(self._kept, PAGE_LIMIT))
        bounds = [page.messages[-1].sequence for page in pages if not page.end]
        if len(kept) == PAGE_LIMIT:
            bounds.append(kept[-1].sequence)
        bound = min([self._committed, *bounds])
        given = False
        one_source = len(pages) == 1 and not kept
        merged = heapq.merge(*[page.messages for page in pages], kept, key=_sequence)
        for message in pages[0].messages if one_source else merged:
            if message.sequence > bound:
                break
            if message.stored:
                budget -= message.size + MESSAGE_OVERHEAD
                if given and budget < 0:
                    return
            else:
                self._kept.popleft()
            given = True
            yield message
        self.position = bound

    def _stored_page(self, budget: int) -> Page:
        """A page of the store; if a record in it is damaged, what stands before that record.

        Raises:
            StoreCorrupt: the record at the position is damaged. The position stays on it: nothing is skipped.
        """
        start = self.position + 1
        try:
            return self._store.page(self._lane, start, budget, PAGE_LIMIT)
        except StoreCorrupt as damage:
            links = self._store.links(self._lane, start, PAGE_LIMIT)
            sound = len([link for link in links if link.sequence < damage.data["sequence"]])
            if sound == 0:
                raise
            return self._store.page(self._lane, start, budget, sound)._replace(end=False)
