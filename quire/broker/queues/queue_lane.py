"""One lane of a queue as dispatch sees it: what comes next, and what waits beside it."""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeVar

from quire.broker.core.core import Core
from quire.broker.queues.delayed_messages import DelayedMessages
from quire.broker.queues.dispatch_mark import DispatchMark
from quire.broker.queues.found_links import found_links
from quire.broker.queues.parking import Parking
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor
from quire.cursors.take_from import take_from
from quire.message import Message
from quire.store.base import LaneReader, LaneState, Link

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
