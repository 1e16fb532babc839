"""The queue cursor: pages a lane's messages in when there is space, in order, skipping nothing.

The cursor holds a *position*: every committed message up to it was admitted, none after it was. A message is admitted
only if it fits into memory, or if no message before it is resident. The first refusal ends the read, and the position
stays on the refused message. Messages just committed are admitted without a read while the position is at the tail;
otherwise they are read from the store later. That is slower, and never different: both ways lead through the same test
in the same order.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from quire.clock import Clock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.source_part import SourcePart, read_part
from quire.cursors.spool import Spool
from quire.cursors.take_from import take_from
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Link, StoreReader

PAGE_LIMIT = 1000
"""Most messages of one read."""

PAGE_BYTES = 1 << 20
"""Most bytes of one read, so that a read never holds the event loop for long."""

WINDOW_LIMIT = 4096
"""With so many messages waiting in memory, what is committed stays in the store until it is wanted: a queue whose
consumers are slow must not take the memory of all others."""

_sequence = attrgetter("sequence")


def _charge(messages: list[Message]) -> int:
    return sum([message.size for message in messages]) + MESSAGE_OVERHEAD * len(messages)


class QueueCursor:
    """The cursor of one lane.

    Three sources are joined by sequence: the store has the persistent messages, the spool the non-persistent ones that
    found no memory, and non-persistent ones that did are *kept*: they are nowhere but in memory, their memory is
    reserved.

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
        skipped: sequences at or above the position that were admitted before it was moved back, and still are out.
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
        self._kept_bytes = 0
        self._active = False
        self.window: deque[Message] = deque()
        self.position = 0
        self.excluded: set[int] = set()
        self.redelivered_to = 0
        self.skipped: set[int] = set()
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
            in_flight: messages that were given out and came back, in order. Those that are stored will be read again;
                the others join the kept ones.
        """
        self._active = False
        self.skipped.clear()
        self._go_back(in_flight)

    def rewind(self, set_aside: list[Message], out: set[int]) -> None:
        """Start again from the head while consumers go on: a new one may want what the others did not.

        Args:
            set_aside: messages that were set aside and are nowhere but in memory, in order; they join the kept ones.
            out: sequences that were admitted and are still out: in flight, coming back, being removed.
        """
        self.skipped = out
        self._go_back(set_aside)

    def give_up_window(self, out: set[int]) -> None:
        """Go back to the first message of the window, which may not be empty: what comes before it needs its memory.

        Args:
            out: sequences that were admitted and are still out, or are set aside.
        """
        first = self.window[0].sequence
        self.skipped |= {sequence for sequence in out if sequence > first}
        self._go_back([], first - 1)

    def _go_back(self, back: list[Message], position: int = 0) -> None:
        """To the head, or further on; what is resident behind it is given up or kept."""
        self.blocked_since = None
        self.position = position
        resident = list(heapq.merge(back, self.window, key=_sequence)) if self.window else back
        self.window.clear()
        self.read_again(resident)

    def read_again(self, messages: list[Message]) -> None:
        """Read messages again later that are behind the position: their memory is needed meanwhile.

        Args:
            messages: resident, in order, and with nobody; those that are nowhere but in memory are kept.
        """
        self.skipped.difference_update([message.sequence for message in messages])
        self.release([message for message in messages if message.stored])
        if kept := [message for message in messages if not message.stored]:
            self._kept = deque(heapq.merge(kept, self._kept, key=_sequence))
            self._kept_bytes += _charge(kept)

    def set_aside(self, message: Message) -> None:
        """An admitted message waits for a consumer that may take it: a stored one gives its memory back meanwhile."""
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
        """A message that was set aside, and is nowhere but in memory, goes on its way."""
        self._kept_bytes -= message.size + MESSAGE_OVERHEAD

    def recall(self, sequences: list[int], sizes: list[int]) -> tuple[list[Message], int]:
        """Bring messages back into memory that were set aside behind the position, as many of the first as fit.

        Args:
            sequences: which, in order.
            sizes: their sizes in bytes.

        Returns:
            The messages, without those that are gone meanwhile or are being removed; and how many of the sequences that
            settles. With none settled, ``blocked_since`` is set.

        Raises:
            StoreCorrupt: one of them is damaged.
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
        """Reserve memory for a non-persistent message that is about to be committed.

        Returns:
            Whether there is room; if not, it belongs into the spool.
        """
        charge = message.size + MESSAGE_OVERHEAD
        if not self._memory.reserve(charge):
            return False
        self._kept_bytes += charge
        return True

    def give_up(self) -> bool:
        """Put what is kept in memory into the spool: others need the memory, and nobody is consuming.

        Returns:
            Whether there was anything.

        Raises:
            StoreError: the spool takes nothing; the messages stay in memory.
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
        """Take what was just committed; it is admitted if the position is at the tail and it fits.

        Args:
            messages: persistent, kept and spooled ones, in ascending sequence.
        """
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
        """Read messages from the position on, as many as fit.

        Returns:
            Whether a message was admitted. If memory refused the first one, ``blocked_since`` is set.
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
        """Drop messages that somebody else than a consumer removes: expiry, purge, move.

        Args:
            sequences: which. They are excluded from being admitted until the caller takes them out of ``excluded``.

        Returns:
            Those that were resident, their memory released.
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
        """Give back the memory of messages that are done with: all of them admitted, or all of them kept in vain.

        Those kept in vain are of a commit that failed; they are above every announced one.
        """
        charge = _charge(messages)
        if messages and messages[-1].sequence > self._committed:
            self._kept_bytes -= charge
        self._memory.release(charge)

    @property
    def _may_force(self) -> bool:
        """Whether the next message is admitted whatever its size: no message before it is resident.

        Kept messages behind the position do not count. They leave only after it, so it would wait for them forever.
        """
        return self._memory.used == self._kept_bytes

    def _admit(self, message: Message) -> bool:
        """Admit one message of a commit; a kept one has its memory already, a spooled one has to be read first."""
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
        """Whether the message at the position fits, told from its indexed size, before anything is read."""
        links = self._next_links(self._store)
        if not self._spool.is_empty(self._lane):
            links += self._next_links(self._spool)
        first = min(links, default=None)
        if first is None or (self._kept and self._kept[0].sequence < first.sequence):
            return True
        return first.size + MESSAGE_OVERHEAD <= available

    def _next_links(self, source: StoreReader | Spool) -> list[Link]:
        """The links of a source from the position on, the first one that is not skipped among them, if there is one."""
        links = source.links(self._lane, self.position + 1, 1)
        if links and links[0].sequence in self.skipped:
            links = source.links(self._lane, self.position + 1, 1 + len(self.skipped))
        return [link for link in links if link.sequence not in self.skipped]

    def _read(self, budget: int) -> Iterator[Message]:
        """The messages from the position on that fit, joined from all sources; moves the position over what is gone.

        Nothing above the last announced commit is given out: the kept messages of a later one are not here yet.

        Raises:
            StoreCorrupt: the next record is damaged. The position stays before it: nothing is skipped.
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
