"""The retries of a consumer group: messages that failed and are delivered again after a delay.

They are a queue over a lane of its own, ``%RETRY%group@stream``. What is stored there are links: no body is ever
copied. A link names a message of the stream, and its content has the form of every message's content, so that every
walk of a store can read it: the message id of its origin, the time of the attempt that failed as its ``timestamp``, and
the origin's lane, offset and size. Consumers get the content of the origin, which retention keeps as long as
``pinned`` names it.

A message is *relocated* in one commit with the change of the group's ack set. Each link has a mark,
``group/NUMBER/r/LANE/OFFSET/RETRY``, whose value is the size of the body. The marks come and go in the same commits as
the links, and find the retries of a message, and those of a partition in the order of its messages, without a look at
any link.

When the group goes on from elsewhere in some partitions, their retries are removed in steps (``RetryPurge``). A mark
says which ones are to go, and is written in the commit that moves the group: so a crash on the way brings none of them
back. Until they are gone, no retry of the group is given out.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from quire.broker.core.core import Commit, Core
from quire.broker.core.destination_ledger import DestinationLedger, LedgerLane
from quire.broker.core.subscription import Subscription
from quire.broker.queues.queue import DamageReport, LaneDispatch, QueuePart
from quire.broker.streams.groups.group_definition import dead_letter_of, prefix_of
from quire.broker.streams.partition import PartitionedStream
from quire.cursors.lane import MemoryUsage, QueueLane
from quire.errors import InvalidArgument, StoreCorrupt, StoreError
from quire.ledger_block import LedgerEvent, Run
from quire.message import MESSAGE_OVERHEAD, Message
from quire.settings import Policy
from quire.store.base import (
    Delivery,
    LaneReader,
    LaneState,
    Link,
    Page,
    Store,
    StoredDestination,
    StoreReader,
    WriteBatch,
)
from quire.units import parse_duration

LINKS_AT_ONCE = 100
"""How many links one read looks at: their bodies may be large, and then only some of them are taken."""

LINKS_BYTES = 1 << 20
"""How many bytes of links one read takes at the most."""

_LINK = re.compile(
    rb"message-id:[^\n]*\ntimestamp:\d+\norigin-lane:(\d{1,19})\norigin-offset:(\d{1,19})\norigin-size:(\d{1,19})\n\n"
)


class RetryMessage(Message):
    """A message that waits in a retry lane: its own place and delivery state, with the content of its origin."""

    __slots__ = ("origin_lane", "origin_sequence")

    def __init__(
        self, sequence: int, content: bytes, origin_lane: int, origin_sequence: int, expiration: int = 0,
        priority: int = 4,
    ) -> None:  # fmt: skip
        super().__init__(sequence, content, expiration, priority)
        self.origin_lane = origin_lane
        self.origin_sequence = origin_sequence

    def set_state(self, deliveries: int, failures: int, not_before: int) -> None:
        self.deliveries, self.failures, self.not_before = deliveries, failures, not_before
        self.redelivered = deliveries > 0


def link_record(message: RetryMessage, attempted_ms: int) -> Message:
    """The record that stands for a message in the retry lane; ``attempted_ms`` is when its delivery failed."""
    content = b"%s\ntimestamp:%d\norigin-lane:%d\norigin-offset:%d\norigin-size:%d\n\n" % (
        message.content[: message.content.index(b"\n")],
        attempted_ms,
        message.origin_lane,
        message.origin_sequence,
        message.size,
    )
    return Message(message.sequence, content, message.expiration, message.priority)


class Origin(NamedTuple):
    """What a link names: the lane of a partition, the offset in it, and the size of the content there, in bytes."""

    lane: int
    sequence: int
    size: int


def origin_of(lane: int, record: Message) -> Origin:
    found = _LINK.fullmatch(record.content)
    if found is None:
        text = f"record {record.sequence} of lane {lane} is no link to a message of a stream"
        raise StoreCorrupt(text, lane=lane, sequence=record.sequence)
    return Origin(*[int(number) for number in found.groups()])


class LinkReader(LaneReader):
    """Reads a retry lane as if the bodies were in it. What it says of sizes is about the bodies."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read messages in order, as ``StoreReader.page``. It may end before the budget does."""
        with self._store.snapshot() as reader:
            found = reader.page(lane, start, LINKS_BYTES, min(limit, LINKS_AT_ONCE))
            links = [(link, origin_of(lane, link)) for link in found.messages]
            taken = _that_fit(links, byte_budget)
            return Page(_resolved(reader, lane, taken), found.end and len(taken) == len(links))

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read messages by sequence; those that are not there are left out."""
        with self._store.snapshot() as reader:
            links = [(link, origin_of(lane, link)) for link in reader.load(lane, sequences)]
            return _resolved(reader, lane, links)

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links with the sizes of the bodies. One that is damaged has its own: who loads it is told."""
        with self._store.snapshot() as reader:
            found = reader.links(lane, start, limit)
            sizes = _sizes(reader, lane, [link.sequence for link in found])
        return [link._replace(size=sizes.get(link.sequence, link.size)) for link in found]

    def lane_state(self, lane: int) -> LaneState:
        """The lane's state. Its bytes are those of the links."""
        return self._store.lane_state(lane)

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        return self._store.deliveries(lane, start, limit)


_Named = list[tuple[Message, Origin]]


def _that_fit(links: _Named, byte_budget: int) -> _Named:
    for index, (_, origin) in enumerate(links):
        byte_budget -= origin.size + MESSAGE_OVERHEAD
        if index and byte_budget < 0:
            return links[:index]
    return links


def _resolved(reader: StoreReader, lane: int, links: _Named) -> list[Message]:
    """The messages that links stand for.

    Raises:
        StoreCorrupt: a body is damaged or gone; ``data`` has the place of the first link of which that is so.
    """
    try:
        bodies = _bodies(reader, [origin for _, origin in links])
    except StoreCorrupt:  # a link after the other, to tell which one it is
        bodies = {}
        for link, origin in links:
            try:
                bodies |= _bodies(reader, [origin])
            except StoreCorrupt as damage:
                raise _unreadable(lane, link, origin, str(damage)) from damage
    messages: list[Message] = []
    for link, origin in links:
        body = bodies.get(origin[:2])
        if body is None:
            raise _unreadable(lane, link, origin, "it is gone")
        message = RetryMessage(
            link.sequence, body.content, origin.lane, origin.sequence, link.expiration, link.priority
        )
        message.set_state(link.deliveries, link.failures, link.not_before)
        messages.append(message)
    return messages


def _bodies(reader: StoreReader, origins: list[Origin]) -> dict[tuple[int, ...], Message]:
    wanted: dict[int, list[int]] = {}
    for origin in origins:
        wanted.setdefault(origin.lane, []).append(origin.sequence)
    return {
        (lane, message.sequence): message
        for lane, sequences in wanted.items()
        for message in reader.load(lane, sequences)
    }


def _unreadable(lane: int, link: Message, origin: Origin, why: str) -> StoreCorrupt:
    text = f"retry {link.sequence} of lane {lane} needs message {origin.sequence} of lane {origin.lane}: {why}"
    return StoreCorrupt(
        text, lane=lane, sequence=link.sequence, origin_lane=origin.lane, origin_sequence=origin.sequence
    )


def _sizes(reader: StoreReader, lane: int, sequences: list[int]) -> dict[int, int]:
    """The sizes of bodies, by the sequences of their links; damaged links are left out."""
    while True:
        try:
            return {record.sequence: origin_of(lane, record).size for record in reader.load(lane, sequences)}
        except StoreCorrupt as damage:
            sequences = [sequence for sequence in sequences if sequence != damage.data["sequence"]]


MARKS_AT_ONCE = 1000
"""How many marks of a partition are read at once."""

RETRIES_OF_ONE = 10
"""How many retries of a message are looked for: there is one, unless a reset made the group get the message again."""


class RetryMarks:
    """The marks of one retry lane, as the store has them. All that reads them may raise ``StoreError``."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._prefix = f"{prefix_of(number)}r/"

    def key(self, retry: RetryMessage) -> str:
        return f"{self._prefix}{retry.origin_lane}/{retry.origin_sequence:016x}/{retry.sequence:016x}"

    def of_message(self, lane: int, sequence: int) -> list[RetryMessage]:
        prefix = f"{self._prefix}{lane}/{sequence:016x}/"
        return self._read(prefix, prefix, RETRIES_OF_ONE)

    def of_partition(self, lane: int, start: int = 0, limit: int = MARKS_AT_ONCE) -> list[RetryMessage]:
        """The retries of a partition's messages, without their content, in the order of these, from an offset on."""
        prefix = f"{self._prefix}{lane}/"
        return self._read(prefix, f"{prefix}{start:016x}", limit)

    def sequences(self, lane: int) -> Iterator[int]:
        prefix = start = f"{self._prefix}{lane}/"
        while keys := [key for key, _ in self._store.marks(prefix, start, MARKS_AT_ONCE)]:
            yield from [int(key[-16:], 16) for key in keys]
            start = f"{keys[-1]}!"  # behind it, and before any other

    def origins(self, lane: int, first: int, last: int, limit: int) -> set[int]:
        """The lowest offsets of messages in a range that have a retry, at least ``limit`` if there are as many."""
        found: set[int] = set()
        while len(found) < limit:
            retries = self.of_partition(lane, first, limit)
            found |= {retry.origin_sequence for retry in retries if retry.origin_sequence <= last}
            if len(retries) < limit or retries[-1].origin_sequence >= last:
                break
            first = retries[-1].origin_sequence + 1
        return found

    def _read(self, prefix: str, start: str, limit: int) -> list[RetryMessage]:
        found: list[RetryMessage] = []
        for key, size in self._store.marks(prefix, start, limit):
            lane, offset, sequence = key.removeprefix(self._prefix).split("/")
            found.append(RetryMessage(int(sequence, 16), b"", int(lane), int(offset, 16)))
            found[-1].size = int(size)
        return found


class RetryLinks:
    """The links of one retry lane. Settling a retry removes its link and its mark, and its origin may go.

    Args:
        settled: is told the lane and the offset of the origin of each retry that is done for good.

    Attributes:
        bytes: the sizes of all messages that links stand for.
        uncommitted: the retries whose links are not stored yet, by the lane and the offset of their origins.
    """

    def __init__(
        self, core: Core, lane: QueueLane, marks: RetryMarks, group: int, settled: Callable[[int, int], None], *,
        new: bool,
    ) -> None:  # fmt: skip
        self._core = core
        self._lane = lane
        self._marks = marks
        self._settled = settled
        self._bytes_key = f"{prefix_of(group)}retry-bytes"
        self.bytes = 0 if new else int(core.store.mark(self._bytes_key) or b"0")
        self.uncommitted: dict[tuple[int, int], RetryMessage] = {}

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        part.write([self._lane], batch, self._core.spool)
        appends, marks = retries_of(part.appends), batch.marks
        if appends:
            now = self._core.clock.now_ms()
            batch.lane(self._lane.id).appends = [link_record(retry, now) for retry in appends]
            marks.update([(self._marks.key(retry), b"%d" % retry.size) for retry in appends])
        for retry in retries_of(part.removals):
            marks[self._marks.key(retry)] = None
        if part.appends or part.removals:
            marks[self._bytes_key] = b"%d" % self._bytes_after(part)

    def _bytes_after(self, part: QueuePart) -> int:
        came, went = [sum([message.size for message in run]) for run in (part.appends, part.removals)]
        return self.bytes + came - went

    def committed(self, part: QueuePart) -> None:
        self.bytes = self._bytes_after(part)
        for retry in retries_of(part.appends):
            self.uncommitted.pop((retry.origin_lane, retry.origin_sequence), None)
        for retry in retries_of(part.removals):
            self._settled(retry.origin_lane, retry.origin_sequence)

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled retries failed, and they are not settled after all: they keep their marks."""
        for retry in retries_of(messages):
            self._core.set_mark(self._marks.key(retry), b"%d" % retry.size)

    def drop(self, retry: RetryMessage) -> None:
        self.uncommitted.pop((retry.origin_lane, retry.origin_sequence), None)
        self._settled(retry.origin_lane, retry.origin_sequence)


def retries_of(messages: list[Message]) -> list[RetryMessage]:
    """The same messages: in a retry lane all of them are retries."""
    return [message for message in messages if isinstance(message, RetryMessage)]


STEP = 1000
"""How many retries one step is about."""

THROUGH = 1 << 62
"""Above the offsets of all messages: those of a partition were all looked at."""


class RetryPurge:
    """What is to go from one retry lane. A purge that a crash ended goes on when it is made."""

    def __init__(self, retries: "RetryQueue", number: int, *, new: bool = False) -> None:
        self._retries = retries
        self._core = retries.core
        self._key = f"{prefix_of(number)}purge"
        value = None if new else self._core.store.mark(self._key)
        self._last: dict[int, int] = {} if value is None else msgspec.msgpack.decode(value, type=dict[int, int])
        self._next = dict.fromkeys(self._last, 0)
        if self._last:
            self._begin()

    def __bool__(self) -> bool:
        return bool(self._last)

    @property
    def last(self) -> int:
        return max(self._last.values(), default=0)

    def last_of(self, lane: int) -> int:
        return self._last.get(lane, 0)

    def covers(self, retry: RetryMessage) -> bool:
        return retry.sequence <= self.last_of(retry.origin_lane)

    def begin(self, lanes: Iterable[int], last: int) -> None:
        was_at_work = bool(self._last)
        for lane in lanes:
            self._last[lane], self._next[lane] = last, 0
        self._write()
        if not was_at_work:
            self._begin()

    def _begin(self) -> None:
        """After the open commit, so that it sees all that was written before. Until it is through, dispatch waits."""
        self._retries.awaited += 1
        add, name = self._core.steps.add, f"the purge of {self._retries.name}"
        self._core.after_commit(partial(add, self._step, name))

    def _step(self) -> bool:
        if self._retries.is_deleted:
            return False
        lane, start = next(iter(self._next.items()))
        if start == THROUGH:
            del self._next[lane], self._last[lane]
            self._write()
            self._retries.awaited -= not self._last
            self._retries.wake()
            return bool(self._last)
        found = self._retries.marks.of_partition(lane, start, STEP)
        self._retries.remove_waiting([retry for retry in found if retry.sequence <= self._last[lane]])
        # Of the last message there may be more retries than one.
        self._next[lane] = THROUGH if len(found) < STEP else max(found[-1].origin_sequence, start + 1)
        return True

    def _write(self) -> None:
        self._core.set_mark(self._key, msgspec.msgpack.encode(self._last) if self._last else None)


_SECONDS: tuple[int, ...] = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)

LEVELS_MS: tuple[int, ...] = tuple([seconds * 1000 for seconds in _SECONDS])
"""The delay levels 1 to 18, in milliseconds; RocketMQ's ``messageDelayLevel``."""

LONGEST_MS = 100 * 365 * 86_400_000
"""No delay is longer: times further away do not fit the records of every store."""


class RetryLadder:
    """The delays of a group: of the first retry, the second and so on, in milliseconds; at least one."""

    def __init__(self, delays: tuple[int, ...] = LEVELS_MS[2:]) -> None:
        self._delays = delays

    @classmethod
    def parse(cls, text: str) -> "RetryLadder | None":
        """Read a policy's ``retry_delays``; None if that is empty: then the delays are those of a queue."""
        delays = [min(round(parse_duration(part) * 1000), LONGEST_MS) for part in text.split()]
        return cls(tuple(delays)) if delays else None

    def delay_ms(self, attempt: int) -> int:
        """The wait before a retry, counted from 1; by default the nth one has the level n + 2."""
        return self._delays[min(attempt, len(self._delays)) - 1]


def level_ms(level: int) -> int:
    if not 1 <= level <= len(LEVELS_MS):
        raise InvalidArgument(f"there is no delay level {level}: say 1 to {len(LEVELS_MS)}", argument="delay-level")
    return LEVELS_MS[level - 1]


class RetryLedger(DestinationLedger):
    """Notes events of a group's retries."""

    def __init__(self, ledger: LedgerLane, destination: str, subscriber: str, lanes: tuple[int, ...]) -> None:
        super().__init__(ledger, destination, subscriber)
        self._lanes = lanes

    def committing(self, messages: list[Message]) -> list[Run]:
        """Retries are no new messages."""
        return []

    def _note(
        self, event: LedgerEvent, messages: list[Message], who: str = "", flagged: list[int] | None = None
    ) -> None:  # fmt: skip
        for message in messages:
            if isinstance(message, RetryMessage):
                self._lane = self._lanes.index(message.origin_lane)
                origin = [message.origin_sequence, 1]
                is_flagged = event is LedgerEvent.DISPATCH and message.redelivered
                run = self._run(event, self._ledger.now_ms(), who, origin, origin if is_flagged else [])
                self._ledger.note(run)


def resume_messages(queue: LaneDispatch, consumer: Subscription, sequences: list[int]) -> list[Message]:
    """Put messages into a consumer's in-flight table.

    They are read before they are taken from where they wait: what cannot be read goes on waiting there.
    """
    (lane,) = queue.lanes
    found = {message.sequence: message for message in _read(lane, queue.parts(), sequences)}
    taken = [found[sequence] for sequence in queue.take_out(list(found))]
    if not taken:
        return []
    free = {message.sequence for message in taken}
    cursor = lane.cursor
    cursor.excluded -= free
    queue.open_part().excluded -= free
    cursor.skip([sequence for sequence in free if sequence > cursor.position])
    cursor.hold(taken)
    for message in taken:
        message.redelivered = True
    consumer.in_flight.update([(message.sequence, message) for message in taken])
    return taken


def _read(lane: QueueLane, parts: list[QueuePart], sequences: list[int]) -> list[Message]:
    found: list[Message] = []
    for sequence in sequences:
        try:
            found += lane.reader.load(lane.id, [sequence])
        except StoreError:  # dispatch will come to it, and say so
            continue
    states = {sequence: state for part in parts for sequence, (_, state) in part.deliveries.items()}
    for message in found:
        if state := states.get(message.sequence):
            message.deliveries, message.failures = state.deliveries, state.failures
    return found


LINK_SIZE = 160
"""About how many bytes a link takes in a commit."""


class RetryQueue(LaneDispatch):
    """The retries of one group. Counts and sizes are about the messages, not about the links.

    Args:
        number: of the group: it tells its marks from those of others.
        ladder: how long retries wait; None for what the policy says of a queue's redeliveries.
        settled: is told the lane and the offset of the origin of each retry that is done for good.
        new: whether it is made now: then nothing is read.

    Attributes:
        timed_out: how many leases ended because their time was up.
    """

    owns_records = False

    def __init__(
        self, stream: PartitionedStream, number: int, group: str, policy: Policy, ladder: RetryLadder | None,
        stored: StoredDestination, settled: Callable[[int, int], None], *, new: bool = False,
    ) -> None:  # fmt: skip
        core = stream.core
        self.stored = stored
        self.name = stored.name
        self.timed_out = 0
        self.marks = RetryMarks(core.store, number)
        self._stream = stream
        self._group = group
        self._cancelled: dict[int, RetryMessage] = {}
        memory, state = MemoryUsage(0, stream.memory), LaneState() if new else core.store.lane_state(stored.lanes[0])
        lane = QueueLane(LinkReader(core.store), core.spool, core.clock, stored.lanes[0], memory, state)
        self._links = RetryLinks(core, lane, self.marks, number, settled, new=new)
        super().__init__(core, stream.destination, policy, self._ledger(), [lane], memory)
        self.depth, self.bytes = state.count, self._links.bytes
        self._purge = RetryPurge(self, number, new=new)
        self._next_sequence = max(state.next_sequence, self._purge.last + 1)
        self.take_group_policy(policy, ladder)

    def _damage(self) -> DamageReport:
        return DamageReport("retries.damaged", f"retries {self.name}", {"retries": self.name})

    def _write(self, part: QueuePart, batch: WriteBatch) -> None:
        self._links.write(part, batch)

    def _written(self, part: QueuePart) -> None:
        self._links.committed(part)

    def _undo(self, messages: list[Message]) -> None:
        self._links.undo(messages)

    def fill(self, commit: Commit) -> None:
        self._remove_cancelled()
        super().fill(commit)

    def dispatch(self) -> None:
        self._remove_cancelled()
        super().dispatch()

    def take_group_policy(self, policy: Policy, ladder: RetryLadder | None) -> None:
        self.max_in_flight = policy.max_in_flight
        self.retry_delays = ladder
        self.take_policy(policy, self._ledger(), policy.max_in_flight_bytes)

    def _ledger(self) -> DestinationLedger | None:
        stream, ledger = self._stream, self._stream.core.ledger
        if not ledger.is_kept(stream.destination):
            return None
        return RetryLedger(ledger, str(stream.destination), self._group, stream.stored.lanes)

    # For the figures of the group's lag; depth, bytes and in_flight are the queue's.

    @property
    def delayed(self) -> int:
        return len(self.lanes[0].delayed)

    @property
    def next_due(self) -> int | None:
        delayed = self.lanes[0].delayed
        return self.core.wall.shown_ms(delayed.earliest) if delayed else None

    def room_for(self, consumer: "Subscription") -> int:
        return self.room

    # A message comes in, and is found.

    def relocate(self, lane: int, message: Message, state: Delivery) -> None:
        """Take a message of a partition, with the open commit; the caller finishes it there, in the same commit.

        Args:
            message: with its content. Its record must be there, and stay as long as ``pinned`` names it.
            state: what is known of its deliveries; it says when the next one is.
        """
        retry = RetryMessage(0, message.content, lane, message.sequence, message.expiration, message.priority)
        retry.set_state(*state[:3])
        self._append(retry, state)

    def _append(self, retry: RetryMessage, state: Delivery) -> None:
        retry.sequence = self._next_sequence
        self._next_sequence += 1
        part = self.open_part()
        part.appends.append(retry)
        part.deliveries[retry.sequence] = (retry, state)
        self._links.uncommitted[retry.origin_lane, retry.origin_sequence] = retry
        self.core.charge_open(LINK_SIZE)

    def find(self, lane: int, sequence: int) -> int | None:
        return max([retry.sequence for retry in self._retries_of(lane, sequence)], default=None)

    def pinned(self, lane: int, first: int, last: int, limit: int) -> list[int]:
        """The offsets of messages that retries need, in a range: their records have to stay."""
        pinned = {offset for known, offset in self._links.uncommitted if known == lane and first <= offset <= last}
        return sorted(self.marks.origins(lane, first, last, limit) | pinned)[:limit]

    def _retries_of(self, lane: int, sequence: int) -> list[RetryMessage]:
        found = {retry.sequence: retry for retry in self.marks.of_message(lane, sequence)}
        if uncommitted := self._links.uncommitted.get((lane, sequence)):
            found[uncommitted.sequence] = uncommitted
        left = [retry for retry in found.values() if not self._purge.covers(retry)]
        return [retry for retry in left if not self._is_leaving(retry.sequence)]

    def _is_leaving(self, sequence: int) -> bool:
        return sequence in self._cancelled or sequence in self.leaving()

    # It is cancelled.

    def waiting(self, lane: int, sequence: int) -> list[RetryMessage]:
        if (
            not self.depth and not self._links.uncommitted
        ):  # so a client that acknowledges everything twice costs no reads
            return []
        return [retry for retry in self._retries_of(lane, sequence) if self._is_waiting(retry)]

    def find_late(self, sequence: int) -> list[Message]:
        """As ``GroupPartition.find_late``, of a retry itself."""
        lane = self.lanes[0]
        return lane.reader.load(lane.id, [sequence])

    def finish_late(self, found: list[Message]) -> bool:
        return any([self._cancel(retry) for retry in retries_of(found)])

    def _is_waiting(self, retry: RetryMessage) -> bool:
        sequence = retry.sequence
        is_in_flight = any([sequence in s.in_flight for s in self.subscriptions])
        is_taken_out = sequence in self.lanes[0].cursor.excluded
        return not (is_in_flight or is_taken_out or self._is_leaving(sequence) or self._purge.covers(retry))

    def _cancel(self, retry: RetryMessage) -> bool:
        sequence = retry.sequence
        if not self._is_waiting(retry):
            return False
        self._cancelled[sequence] = retry
        self.open_part()
        return True

    def _remove_cancelled(self) -> None:
        """Remove what was cancelled in this turn, all at once. What is in the commit under way has to wait for it."""
        if not self._cancelled:
            return
        part, last = self.open_part(), self.last
        for retry in retries_of(part.appends):
            if retry.sequence in self._cancelled:
                del part.deliveries[retry.sequence]
                self._drop(retry)
        part.appends = [message for message in part.appends if message.sequence in part.deliveries]
        self._take_away({seq: retry for seq, retry in self._cancelled.items() if seq <= last})
        self._cancelled = {seq: retry for seq, retry in self._cancelled.items() if seq > last}

    def _take_away(self, retries: dict[int, RetryMessage]) -> None:
        if free := self.take_out(list(retries)):  # else dispatch would wake itself again and again
            self.remove_taken_out([retries[sequence] for sequence in free])

    def _drop(self, retry: RetryMessage) -> None:
        del self._cancelled[retry.sequence]
        self._links.drop(retry)

    # An operator gives up those of some partitions.

    def count_of(self, lane: int) -> int:
        """How many retries there are of a partition's messages, those that members have included. It reads them all."""
        found = {retry.sequence for retry in self._links.uncommitted.values() if retry.origin_lane == lane}
        purged = self._purge.last_of(lane)
        found.update([sequence for sequence in self.marks.sequences(lane) if sequence > purged])
        return len(found - self.leaving() - self._cancelled.keys())

    def take_from(self, consumer: "Subscription", lanes: Collection[int]) -> list[Message]:
        held = retries_of(list(consumer.in_flight.values()))
        messages = consumer.take([retry.sequence for retry in held if retry.origin_lane in lanes])
        self.remove_resident(messages)
        return messages

    def purge(self, lanes: Collection[int]) -> None:
        """Remove the retries of some partitions that there are now, step by step. What members have stays."""
        for retry in self._links.uncommitted.values():
            if retry.origin_lane in lanes:
                self._cancelled[retry.sequence] = retry
        self.open_part()
        self._purge.begin(lanes, self._next_sequence - 1)

    def remove_waiting(self, retries: list[RetryMessage]) -> None:
        self._take_away({retry.sequence: retry for retry in retries})

    # It goes out again, and fails again.

    def hold(self, consumer: "Subscription", sequences: list[int]) -> list[Message]:
        """A member that comes back says which retries it still has: it keeps them, and no other member gets them."""
        if self._purge:
            return []
        return resume_messages(self, consumer, sequences)

    def _letter(self, message: Message) -> Message:
        (retry,) = retries_of([message])
        partition = self._stream.stored.lanes.index(retry.origin_lane)
        return dead_letter_of(self._group, partition, retry.origin_sequence, message)

    def _refuse(self, part: QueuePart) -> None:
        """A commit failed: what was relocated is put into the next one."""
        for retry in retries_of(part.appends):
            _, state = self.open_part().deliveries.pop(retry.sequence)
            self.core.set_mark(self.marks.key(retry), None)  # or the next commit would write that of the failed one
            if retry.sequence in self._cancelled:
                self._drop(retry)
            else:
                self._append(retry, state)
