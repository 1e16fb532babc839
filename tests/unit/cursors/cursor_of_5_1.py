"""A cursor with the bug of ActiveMQ 5.1, to show what it does. Nothing but tests uses it.

Three things differ from Quire's. A read goes on after a refusal, if there is space again. The position moves over every
record that was looked at, admitted or not. An audit by message ids, which forgets, decides whether a record was seen
before.
"""

from collections import OrderedDict, deque

from quire.clock import Clock
from quire.cursors.lane import MemoryUsage
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import StoreReader
from tests.unit.cursors.lane import charge

PAGE = 200
"""Most messages of one read."""

PRODUCERS = 64
"""How many producers the audit remembers."""

DEPTH = 2048
"""How many numbers of a producer the audit remembers."""

BITS = 64
"""How many numbers one bit set has."""


class BitSets:
    """Which numbers of one producer were seen: bit sets in a row, of which the oldest is forgotten for a new one."""

    def __init__(self) -> None:
        self._first = 0
        self._sets: deque[int] = deque()

    def has(self, number: int) -> bool:
        """Whether a number was seen. Of one below the first set nothing is known; it counts as seen."""
        index, bit = divmod(number - self._first, BITS)
        if index < 0:
            return True
        return index < len(self._sets) and bool(self._sets[index] >> bit & 1)

    def add(self, number: int) -> None:
        """Note that a number was seen."""
        while number - self._first >= len(self._sets) * BITS:
            self._sets.append(0)
            if len(self._sets) > DEPTH // BITS:
                self._sets.popleft()
                self._first += BITS
        index, bit = divmod(number - self._first, BITS)
        self._sets[index] |= 1 << bit

    def discard(self, number: int) -> None:
        """Note that a number was not seen after all; too late for one below the first set."""
        index, bit = divmod(number - self._first, BITS)
        if 0 <= index < len(self._sets):
            self._sets[index] &= ~(1 << bit)


class Audit:
    """Which message ids were seen, of the producers that were heard of last."""

    def __init__(self) -> None:
        self._producers: OrderedDict[str, BitSets] = OrderedDict()

    def has(self, message: Message) -> bool:
        """Whether a message was seen."""
        seen, number = self._find(message)
        return seen.has(number)

    def add(self, message: Message) -> None:
        """Note that a message was seen."""
        seen, number = self._find(message)
        seen.add(number)

    def discard(self, message: Message) -> None:
        """Note that a message was not seen after all."""
        seen, number = self._find(message)
        seen.discard(number)

    def _find(self, message: Message) -> tuple[BitSets, int]:
        producer, _, number = message.id.rpartition(":")
        seen = self._producers.setdefault(producer, BitSets())
        self._producers.move_to_end(producer)
        if len(self._producers) > PRODUCERS:
            self._producers.popitem(last=False)
        return seen, int(number)


class CursorOf51:
    """The cursor of one lane of persistent messages, as 5.1 would have it.

    Attributes:
        dropped: how often a message was taken for a duplicate.
        refused: how often a message found no memory.
    """

    def __init__(
        self, store: StoreReader, spool: Spool, lane: int, memory: MemoryUsage, clock: Clock, last: int
    ) -> None:
        self._store = store
        self._lane = lane
        self._memory = memory
        self._clock = clock
        self._audit = Audit()
        self._active = False
        self.window: deque[Message] = deque()
        self.position = 0
        self.excluded: set[int] = set()
        self.blocked_since: float | None = None
        self.dropped = self.refused = 0

    def activate(self) -> None:
        """There is a consumer."""
        self._active = True

    def reset(self, in_flight: list[Message]) -> None:
        """There is none any more: begin again at the head; what was resident counts as not seen."""
        self._active = False
        self.blocked_since = None
        self.position = 0
        resident = [*in_flight, *self.window]
        self.window.clear()
        for message in resident:
            self._audit.discard(message)
        self.release(resident)

    def committed(self, messages: list[Message]) -> None:
        """New messages are read when there is a consumer."""

    def page_in(self) -> bool:
        """Read messages from the position on, going on after refusals for as long as there is space."""
        self.blocked_since = None
        admitted = 0
        record = self._next_record() if self._active else None
        while record:
            admitted += self._admit(record)
            self.position = record.sequence
            record = self._next_record()
            if admitted >= PAGE or self._memory.available() <= 0:
                break
        return admitted > 0

    def _next_record(self) -> Message | None:
        links = self._store.links(self._lane, self.position + 1, 1)
        return self._store.load(self._lane, [links[0].sequence])[0] if links else None

    def _admit(self, message: Message) -> bool:
        if self._audit.has(message):
            self.dropped += 1
            return False
        if not self._memory.reserve(charge(message)):
            self.refused += 1
            self.blocked_since = self._clock.monotonic()
            return False
        self._audit.add(message)
        self.window.append(message)
        return True

    def release(self, messages: list[Message]) -> None:
        """Give back the memory of messages that are done with."""
        self._memory.release(charge(*messages))

    def keep(self, message: Message) -> bool:
        """Of persistent messages only: there is nothing to keep."""
        raise NotImplementedError("this cursor knows persistent messages only")

    def discard(self, sequences: set[int]) -> list[Message]:
        """Nobody purges this lane."""
        raise NotImplementedError("nobody purges this lane")
