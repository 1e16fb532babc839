"""A lane driven as the broker's queue drives it, without a broker: commits, dispatch, consumers that come and go."""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Protocol

from quire.clock import Clock, ManualClock
from quire.cursors.lane import MemoryUsage, QueueCursor
from quire.cursors.spool import Spool
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import Delivery, Store, StoreReader, WriteBatch
from quire.store.memory import MemoryStore

EVERYTHING = 1 << 40
"""A limit that nothing reaches."""


def make_message(sequence: int, size: int = 100, *, persistent: bool = True, stored: bool | None = None) -> Message:
    """A message whose id tells its producer and its number.

    Args:
        sequence: its sequence, and its number at the producer.
        size: how long its content is, in bytes; at least 40.
        persistent: whether it is.
        stored: whether it can be read again; None for what a persistent one is.
    """
    content = b"message-id:producer:%d\n\n" % sequence
    message = Message(sequence, content.ljust(size, b"."), persistent=persistent)
    if stored is not None:
        message.stored = stored
    return message


def charge(*messages: Message) -> int:
    """What messages take of the memory."""
    return sum(message.size + MESSAGE_OVERHEAD for message in messages)


def sequences(messages: Iterable[Message]) -> list[int]:
    """The sequences of messages."""
    return [message.sequence for message in messages]


def opened(store: MemoryStore | None = None) -> MemoryStore:
    """An open memory store."""
    store = store or MemoryStore()
    store.open()
    return store


class Receipt(NamedTuple):
    """That the consumer was given a message.

    Attributes:
        sequence: the message's.
        redelivered: whether it was flagged so then.
    """

    sequence: int
    redelivered: bool


@dataclass
class Host:
    """What the lanes of one broker share."""

    memory: MemoryUsage = field(default_factory=MemoryUsage)
    store: Store = field(default_factory=opened)
    spool: Spool = field(default_factory=lambda: Spool(opened(), EVERYTHING))
    clock: ManualClock = field(default_factory=ManualClock)


class Cursor(Protocol):
    """What a lane needs of its cursor."""

    window: deque[Message]
    excluded: set[int]
    blocked_since: float | None

    def activate(self) -> None: ...
    def reset(self, in_flight: list[Message]) -> None: ...
    def keep(self, message: Message) -> bool: ...
    def committed(self, messages: list[Message]) -> None: ...
    def page_in(self) -> bool: ...
    def discard(self, sequences: set[int]) -> list[Message]: ...
    def release(self, messages: list[Message]) -> None: ...


class CursorType(Protocol):
    """How a cursor is made."""

    def __call__(
        self, store: StoreReader, spool: Spool, lane: int, memory: MemoryUsage, clock: Clock, last: int
    ) -> Cursor: ...


@dataclass
class Part:
    """What one commit does to the lane."""

    appends: list[Message] = field(default_factory=list)
    removals: list[Message] = field(default_factory=list)
    returned: dict[int, Message] = field(default_factory=dict)
    excluded: set[int] = field(default_factory=set)


class Lane:
    """One lane and its only consumer.

    Args:
        host: what it shares with other lanes; an attribute, too.
        limit: of its memory, in bytes.
        number: the lane's id.
        cursor_type: which cursor it has.

    Attributes:
        received: what the consumer was given, in order, again if it was given again.
        in_flight: what the consumer has and did not acknowledge, by sequence.
        returned: what came back and waits to be given out again.
        credit: how many messages the consumer would take.
        written: a commit that the store has done and that is not announced yet.
    """

    def __init__(self, host: Host, limit: int, number: int = 1, cursor_type: CursorType = QueueCursor) -> None:
        self.number = number
        self.memory = MemoryUsage(limit, host.memory)
        next_sequence = host.store.lane_state(number).next_sequence
        self.cursor = cursor_type(host.store, host.spool, number, self.memory, host.clock, next_sequence - 1)
        self.received: list[Receipt] = []
        self.in_flight: dict[int, Message] = {}
        self.returned: deque[Message] = deque()
        self.connected = False
        self.credit = 0
        self.written: Part | None = None
        self.open = Part()
        self.host = host
        self._next_sequence = next_sequence
        self._settles_with: Part | None = None

    # What the store does.

    def send(self, size: int = 100, *, persistent: bool = True) -> Message:
        """Put a message into the open commit."""
        message = make_message(self._next_sequence, size, persistent=persistent)
        self._next_sequence += 1
        if not persistent:
            message.stored = not self.cursor.keep(message)
        self.open.appends.append(message)
        return message

    def write(self) -> Part:
        """Have the store do the open commit. The one before must be announced."""
        assert self.written is None
        part, self.open = self.open, Part()
        self._write_spool(part)
        batch = WriteBatch()
        lane = batch.lane(self.number)
        lane.appends = [message for message in part.appends if message.persistent]
        lane.removals = [message.sequence for message in part.removals if message.persistent]
        lane.deliveries = {m.sequence: Delivery(m.deliveries) for m in part.returned.values() if m.persistent}
        self.host.store.apply(batch)
        self.written = part
        return part

    def _write_spool(self, part: Part) -> None:
        spool = self.host.spool
        if appends := [message for message in part.appends if _is_spooled(message)]:
            spool.append(self.number, appends)
        if removals := [message.sequence for message in part.removals if _is_spooled(message)]:
            spool.remove(self.number, removals)
        if returned := {m.sequence: Delivery(m.deliveries) for m in part.returned.values() if _is_spooled(m)}:
            spool.set_deliveries(self.number, returned)

    def announce(self) -> None:
        """Tell the cursor of the written commit."""
        part, self.written = self.written, None
        assert part is not None
        if self._settles_with is part:
            self._settles_with = None
        self.cursor.excluded -= part.excluded
        if part.appends:
            self.cursor.committed(part.appends)

    def commit(self) -> None:
        """Write and announce the open commit."""
        self.write()
        self.announce()

    def fail(self) -> Part:
        """Have the open commit fail: its messages are refused, the rest is tried again with the next one."""
        assert self.written is None
        part, self.open = self.open, Part()
        self._write_spool(part)
        self.cursor.release([message for message in part.appends if not message.stored])
        self.host.spool.remove(self.number, [m.sequence for m in part.appends if _is_spooled(m)])
        self.open.removals, self.open.returned, self.open.excluded = part.removals, part.returned, part.excluded
        if self._settles_with is part:
            self._settles_with = self.open
        return part

    # What the consumer does.

    def connect(self) -> None:
        """The consumer comes."""
        self.connected = True
        self.cursor.activate()

    def disconnect(self) -> None:
        """The consumer goes; what it had comes back, and the lane rests."""
        self.connected, self.credit = False, 0
        self.give_back(list(self.in_flight))
        self.host.memory.stop_waiting(self._memory_released)
        returned, self.returned = list(self.returned), deque()
        self.cursor.reset(returned)
        self._settles_with = self.open

    @property
    def settling(self) -> bool:
        """Whether nothing is dispatched until a commit is announced."""
        return self._settles_with is not None

    def dispatch(self) -> None:
        """Give the consumer what it has credit for."""
        if self.settling or not self.connected:
            return
        while self.credit and (source := self.returned or self._window()):
            message = source.popleft()
            self.credit -= 1
            self.in_flight[message.sequence] = message
            self.received.append(Receipt(message.sequence, message.redelivered))

    def _window(self) -> deque[Message]:
        if not self.cursor.window and not self.cursor.page_in() and self.cursor.blocked_since is not None:
            self.memory.wait(self._memory_released)
        return self.cursor.window

    def _memory_released(self) -> bool:
        self.dispatch()
        return self.cursor.blocked_since is None

    def take(self, credit: int) -> list[int]:
        """Give the consumer credit, and return the sequences of what it gets for it at once."""
        before = len(self.received)
        self.credit += credit
        self.dispatch()
        return [receipt.sequence for receipt in self.received[before:]]

    def acknowledge(self, numbers: list[int]) -> None:
        """The consumer is done with messages. Their removal is in the open commit, their memory is free."""
        messages = [self.in_flight.pop(number) for number in numbers]
        self.open.removals += messages
        self.cursor.release(messages)

    def give_back(self, numbers: list[int]) -> None:
        """The consumer does not acknowledge messages; they go out again before later ones, flagged."""
        messages = [self.in_flight.pop(number) for number in sorted(numbers)]
        for message in messages:
            message.redelivered = True
            message.deliveries += 1
            self.open.returned[message.sequence] = message
        self.returned = deque(heapq.merge(messages, self.returned, key=attrgetter("sequence")))

    def purge(self, messages: list[Message]) -> None:
        """Somebody else removes messages that are not in flight."""
        gone = set(sequences(messages))
        self.cursor.release([message for message in self.returned if message.sequence in gone])
        self.returned = deque(message for message in self.returned if message.sequence not in gone)
        self.cursor.discard(gone)
        self.open.excluded |= gone
        self.open.removals += messages


def _is_spooled(message: Message) -> bool:
    return message.stored and not message.persistent
