"""Finding messages of a stream: by message id, by application key, by time, by offset.

A search is a sequence of steps. Each reads a bounded number of records and yields what it found, perhaps nothing, so
that its caller can let others have their turn in between. It sees what is committed when it comes there.

What the groups of a stream have done with one message, as exactly as it is known.

An ack set says that a message is finished, not why. So ``done`` means that the group will not be given it again: it was
acknowledged, or not wanted by the selector, or was there before the group began, or was skipped by an operator, or has
become a dead letter. Whether it has is known from the dead letter alone, as long as that is in its queue: a search says
so (``dead_letters``), nothing else does.

Everything is told as memory has it now. What is settled in a commit that fails comes back.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import ORIGIN
from quire.broker.queues.browsing import read
from quire.broker.queues.queue import LaneDispatch
from quire.broker.streams.groups.group import MemberSubscription
from quire.errors import InvalidArgument, StoreCorrupt
from quire.message import Message, escape
from quire.store.base import Delivery
from quire.store.positions import extent, offset_at, search, sound_page

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.partition import Partition
    from quire.broker.streams.stream import Stream


STEP = 1000
"""How many records one step reads at the most."""

STEP_BYTES = 1 << 20
"""How many bytes of records it reads, if one record is not larger."""

NEIGHBOURHOOD = 1000
"""How far from its place, in offsets, a message is looked for whose id is out of order."""

KEY = b"key"
"""The header with the application's key."""

_ID = re.compile(r"ID:[0-9a-f]{8}-(\d{1,15})-(\d{1,15})", re.ASCII)


class Found(NamedTuple):
    """A message that was found, and the number of its partition; the message's ``sequence`` is its offset."""

    partition: int
    message: Message


class Lookup:
    """Looks for messages of a stream; ``damaged`` are the places of damaged records that it passed over."""

    def __init__(self, stream: "Stream") -> None:
        self.damaged: list[tuple[int, int]] = []
        self._stream = stream
        self._store = stream.core.store

    def at(self, partition: int, offset: int) -> Found | None:
        count = len(self._stream.partitions)
        if not 0 <= partition < count:
            raise InvalidArgument(f"partition is {partition}: partitions are 0 to {count - 1}", argument="partition")
        messages = self._store.load(self._stream.partitions[partition].lane, [offset])
        return Found(partition, messages[0]) if messages else None

    def by_id(self, message_id: str) -> Iterator[list[Found]]:
        """Look for the message with an id; the search ends with it.

        The broker numbers messages as they are sent, so ids ascend along a partition, and a few reads find one. What
        was sent in a transaction stands where that was committed, behind messages with higher numbers. Such a message
        is found if it stands among the ``NEIGHBOURHOOD`` offsets before or behind the place of its id; after a longer
        transaction it is not, nor is one that was moved here, from a dead letter queue say. ``by_time`` shows these.

        Raises:
            InvalidArgument: this broker gives no such ids, so their order is not known.
        """
        wanted = _order(message_id)
        if wanted is None:
            text = f"{message_id[:60]!r} is no message id of this broker: look for the message by its time or key"
            raise InvalidArgument(text, argument="id")
        return self._by_id(message_id, wanted)

    def _by_id(self, message_id: str, wanted: tuple[int, int]) -> Iterator[list[Found]]:
        places = []
        for partition in self._stream.partitions:
            place = search(self._store, partition.lane, lambda message: _order(message.id) or (0, 0), wanted)
            places.append((partition, place))
            try:
                found = [m for m in self._store.load(partition.lane, [place]) if m.id == message_id]
            except StoreCorrupt:  # the search of the neighbourhood tells
                found = []
            yield [Found(partition.index, message) for message in found]
            if found:
                return
        for partition, place in places:
            first, until = max(place - NEIGHBOURHOOD, 1), place + NEIGHBOURHOOD
            for step in self._scan(partition, first, until, lambda message: message.id == message_id):
                yield step
                if step:
                    return

    def by_key(self, key: str, since_ms: int, until_ms: int) -> Iterator[list[Found]]:
        """Look for all messages with a key in a time range, partition by partition. Every record of it is read.

        The key is the header ``key``, or the one that determines the partition: the sink of Spark writes that one.

        Args:
            since_ms: when the range begins, in milliseconds since the epoch.
            until_ms: the first time that is not in it.
        """
        headers = (KEY, escape(self._stream.policy.partition_key_header.encode()))
        return self._in_time(since_ms, until_ms, lambda message: key in map(message.header, headers))

    def by_time(self, since_ms: int, until_ms: int) -> Iterator[list[Found]]:
        """All messages of a time range, partition by partition: those that stand between the places of its two ends."""
        return self._in_time(since_ms, until_ms, lambda message: True)

    def _in_time(self, since_ms: int, until_ms: int, wanted: Callable[[Message], bool]) -> Iterator[list[Found]]:
        for partition in self._stream.partitions:
            first = offset_at(self._store, partition.lane, since_ms)
            until = offset_at(self._store, partition.lane, until_ms)
            yield []
            yield from self._scan(partition, first, until, wanted)

    def _scan(
        self, partition: "Partition", first: int, until: int, wanted: Callable[[Message], bool]
    ) -> Iterator[list[Found]]:
        until = min(until, extent(self._store, partition.lane).end)
        while first < until:
            try:
                page = sound_page(self._store, partition.lane, first, until, STEP_BYTES, STEP)
            except StoreCorrupt as damage:
                first = damage.data["sequence"] + 1
                if (place := (partition.index, first - 1)) not in self.damaged:
                    self.damaged.append(place)
                continue
            first = until if page.end else page.messages[-1].sequence + 1
            yield [Found(partition.index, message) for message in page.messages if wanted(message)]


def _order(message_id: str) -> tuple[int, int] | None:
    """What ids ascend by: when the broker that gave it had started, and its number; None if it is another's id."""
    found = _ID.fullmatch(message_id)
    return (int(found[1]), int(found[2])) if found else None


LETTERS_AT_ONCE = 1000
"""How many dead letters one step of a search reads at the most."""

LETTER_BYTES = 1 << 20
"""How many bytes of them it reads, if one is not larger."""

Place = tuple[int, int]
"""A partition's number and an offset in it."""


class MessageState(StrEnum):
    """What became of a message in a group."""

    NEW = "new"
    """It has not been given to any member."""
    LEASED = "leased"
    """A member has it."""
    WAITING = "waiting"
    """It came back from a member, and is to be given out again."""
    SETTLING = "settling"
    """It is settled in a transaction or a commit that is not done."""
    DONE = "done"
    """The group will not be given it again."""
    GONE = "gone"
    """It has no record any more."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What became of a message in one group.

    Attributes:
        group: the group's name.
        state: what became of it.
        member: who has it, if leased.
        until: when the lease ends, in milliseconds since the epoch; if leased.
        attempts: how often it was given to a member, if it is leased or waiting; None while that is not stored.
        due: when it may be given out again, in milliseconds since the epoch; 0 for at once; if waiting.
        cause: why it came back last; if waiting.
        may_be_delivered: whether it may have been given out before a crash of the broker without this being known; if
            new.
    """

    group: str
    state: MessageState
    member: str | None = None
    until: int | None = None
    attempts: int | None = None
    due: int | None = None
    cause: str | None = None
    may_be_delivered: bool = False


def states_of(stream: "Stream", partition: int, offset: int) -> list[GroupState]:
    return [_state_in(group, partition, offset) for group in stream.groups.values()]


def _state_in(group: "Group", partition: int, offset: int) -> GroupState:
    part = group.partitions[partition]
    if leased := _leased(group, part.subscriptions, offset):
        return leased
    retry = None if group.retries is None else group.retries.find(part.partition.lane, offset)
    if group.retries is not None and retry is not None:
        return _leased(group, group.retries.subscriptions, retry) or _waiting(group, group.retries, retry)
    if offset in part.partition.gone:
        return GroupState(group.name, MessageState.GONE)
    if offset in part.finished:
        return GroupState(group.name, MessageState.DONE)
    if offset in part.out_sequences():
        return GroupState(group.name, MessageState.SETTLING)
    if offset in part.unsettled() or _delivery(part, offset) is not None:
        return _waiting(group, part, offset)
    crashed = offset <= part.lanes[0].cursor.redelivered_to
    return GroupState(group.name, MessageState.NEW, may_be_delivered=crashed)


def _leased(group: "Group", consumers: list[Subscription], sequence: int) -> GroupState | None:
    clock = group.core.clock
    for consumer in consumers:
        if message := consumer.in_flight.get(sequence):
            assert isinstance(consumer, MemberSubscription)
            until = clock.now_ms() + round((message.deadline - clock.monotonic()) * 1000)
            attempts = message.deliveries + 1
            return GroupState(group.name, MessageState.LEASED, consumer.member.id, until, attempts)
    return None


def _waiting(group: "Group", queue: "LaneDispatch", sequence: int) -> GroupState:
    delivery = _delivery(queue, sequence)
    if delivery is None:
        return GroupState(group.name, MessageState.WAITING)
    due = group.core.wall.shown_ms(delivery.not_before)
    return GroupState(group.name, MessageState.WAITING, attempts=delivery.deliveries, due=due, cause=delivery.cause)


def _delivery(queue: "LaneDispatch", sequence: int) -> Delivery | None:
    for part in queue.core.parts_of(queue):
        if sequence in part.deliveries:
            delivery: Delivery = part.deliveries[sequence][1]
            return delivery
    lane = queue.lanes[0]
    found = lane.reader.deliveries(lane.id, sequence, 1)
    return found[0][1] if found and found[0][0] == sequence else None


def dead_letters(group: "Group", queue: LaneDispatch | None, places: set[Place]) -> Iterator[set[Place]]:
    """Look for the dead letters of some messages of a stream, a step after the other.

    Yields:
        Those of the messages whose dead letter was found in this step. What was found in no step has no dead letter in
        the group's dead letter queue: it never was one, or was consumed, moved or removed.
    """
    core, stream = group.core, group.stream.destination.name
    wanted = {"group": group.name, ORIGIN: f"/stream/{stream}"}
    start: int | None = 0
    while queue is not None and start is not None and not queue.is_deleted:
        messages, start = read(core, queue, start, LETTER_BYTES, LETTERS_AT_ONCE)
        found: set[Place] = set()
        for message in messages:
            headers = message.headers()
            if wanted.items() <= headers.items():
                found.add((int(headers["partition"]), int(headers["offset"])))
        yield found & places
