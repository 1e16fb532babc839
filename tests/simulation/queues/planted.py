"""Bugs of the cursors and of the broker: each breaks a rule or a promise, and the simulation must see it."""

from collections.abc import Iterator
from typing import Any

from quire.broker.core.core import Core, ProducerFlow
from quire.broker.core.subscription import Session, Subscription
from quire.broker.producer_ids import ProducerIds
from quire.broker.queues.dispatch import NextMessages, RoundRobin
from quire.broker.queues.lane import DispatchMark, QueueLane, QueuePart
from quire.broker.queues.parking import MessageGroups
from quire.broker.queues.queue import Queue
from quire.broker.transactions.transaction import Transaction
from quire.clock import WallClock
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor
from quire.message import MESSAGE_OVERHEAD, Message
from tests.simulation.bug import Bugs, Method

PLANTED = Bugs()
"""All bugs of the world of queues."""

_bug = PLANTED.add

EVERYTHING = 1 << 40
"""More bytes than there are."""


# The cursor and memory.


@_bug("the cursor goes on after a refusal", QueueCursor, "_read")
def _(right: Method) -> Method:
    def read(self: QueueCursor, budget: int) -> Iterator[Message]:
        given = False
        for message in right(self, EVERYTHING):
            charge = message.size + MESSAGE_OVERHEAD if message.stored else 0
            if charge <= budget or not given:
                budget -= charge
                given = True
                yield message

    return read


@_bug("the position moves over a refused record", QueueCursor, "page_in")
def _(right: Method) -> Method:
    def page_in(self: QueueCursor) -> bool:
        admitted: bool = right(self)
        self.position += self.blocked_since is not None
        return admitted

    return page_in


@_bug("a release wakes nobody", MemoryUsage, "wake", first=212)
def _(right: Method) -> Method:
    return lambda self, *arguments: None


@_bug("of several messages that are done with, the memory of one is released", QueueCursor, "release")
def _(right: Method) -> Method:
    return lambda self, messages: right(self, messages[-1:])


@_bug("expiry moves the live cursor", QueueCursor, "discard")
def _(right: Method) -> Method:
    def discard(self: QueueCursor, sequences: set[int]) -> list[Message]:
        gone: list[Message] = right(self, sequences)
        self.position = max([self.position, *sequences])
        return gone

    return discard


# Commits.


@_bug("a receipt comes before its commit is durable", Core, "confirm")
def _(right: Method) -> Method:
    def confirm(self: Core, session: Session, receipts: list[bytes]) -> None:
        session.confirmed(receipts)

    return confirm


@_bug("the dispatch mark is not written ahead", DispatchMark, "reach", first=14)
def _(right: Method) -> Method:
    def reach(self: DispatchMark, sequence: int, window: int) -> bool:
        wants: bool = right(self, sequence, window)
        self.stored = max(self.stored, sequence)
        return wants

    return reach


@_bug("acknowledgements of a failed commit are not tried again", Queue, "commit_failed")
def _(right: Method) -> Method:
    def commit_failed(self: Queue, part: QueuePart, restored: set[int]) -> None:
        part.removals.clear()
        right(self, part, restored)

    return commit_failed


@_bug("a numbered send counts as taken though its commit failed", ProducerIds, "failed", first=48)
def _(right: Method) -> Method:
    return lambda self, batch, following: None


@_bug("a numbered send is taken twice", ProducerIds, "take")
def _(right: Method) -> Method:
    def take(self: ProducerIds, producer: str, sequence: int) -> bool:
        right(self, producer, sequence)
        return True

    return take


@_bug("dead letters are not sent again when their commit fails", Queue, "transfer", first=311)
def _(right: Method) -> Method:
    def transfer(self: Queue, *arguments: Any) -> Message:
        message: Message = right(self, *arguments)
        self.commits.open.transferred.clear()
        return message

    return transfer


@_bug("acknowledgements of a transaction are done at once", Transaction, "acknowledge", first=80)
def _(right: Method) -> Method:
    def acknowledge(self: Transaction, subscription: Subscription, sequences: list[int]) -> None:
        subscription.source.acknowledge(subscription.take(sequences))

    return acknowledge


# Reads that fail.


@_bug("a read in what follows a commit", Queue, "committed")
def _(right: Method) -> Method:
    def committed(self: Queue, part: QueuePart) -> None:
        self.lanes[0].state = self.core.store.lane_state(self.lanes[0].id)
        right(self, part)

    return committed


@_bug("memory changed before a read that fails", QueueCursor, "recall")
def _(right: Method) -> Method:
    def recall(self: QueueCursor, sequences: list[int], sizes: list[int]) -> tuple[list[Message], int]:
        self.hold([Message(sequence, bytes(size)) for sequence, size in zip(sequences, sizes, strict=True)])
        found, settled = right(self, sequences, sizes)
        self.release([Message(sequence, bytes(size)) for sequence, size in zip(sequences, sizes, strict=True)])
        return found, settled

    return recall


@_bug("the position moves before a read that fails", QueueCursor, "_read", first=22)
def _(right: Method) -> Method:
    def read(self: QueueCursor, budget: int) -> Iterator[Message]:
        before, self.position = self.position, self.position + 1
        self._store.lane_state(self._lane)
        self.position = before
        yield from right(self, budget)

    return read


# What comes back.


@_bug("the redelivered flag is lost", Queue, "redeliver")
def _(right: Method) -> Method:
    def redeliver(self: Queue, messages: list[Message], *arguments: Any, **options: Any) -> None:
        right(self, messages, *arguments, **options)
        for message in messages:
            message.redelivered = False

    return redeliver


@_bug("returned messages go behind later ones", QueueLane, "come_back", first=46)
def _(right: Method) -> Method:
    def come_back(self: QueueLane, messages: list[Message]) -> None:
        self.cursor.window.extend(messages)

    return come_back


@_bug("delivery states are not stored", QueuePart, "write", first=23)
def _(right: Method) -> Method:
    def write(self: QueuePart, *arguments: Any) -> None:
        self.deliveries.clear()
        right(self, *arguments)

    return write


@_bug("a queue is read before what was settled is known to the store", Queue, "_rest", first=38)
def _(right: Method) -> Method:
    def rest(self: Queue) -> None:
        right(self)
        self.commits._settles_with = 0

    return rest


@_bug("nobody wakes for a message whose delay is over", NextMessages, "wake_when_due")
def _(right: Method) -> Method:
    return lambda self, lane: None


# Producers and consumers.


@_bug("held producers are not released", ProducerFlow, "release")
def _(right: Method) -> Method:
    return lambda self: None


@_bug("a consumer gets one message too many", Subscription, "credit")
def _(right: Any) -> Any:
    return property(lambda self: right.fget(self) + (len(self.in_flight) == self.prefetch))


@_bug("an exclusive consumer shares its queue", RoundRobin, "eligible")
def _(right: Method) -> Method:
    return lambda self, policy: self._subscriptions


@_bug("a message group goes to whoever is free", MessageGroups, "bound_to", first=34)
def _(right: Method) -> Method:
    return lambda self, name: None


@_bug("a new consumer does not get what was parked before it came", QueueLane, "rewind", first=23)
def _(right: Method) -> Method:
    return lambda self, out: None


# A clock that is set.


@_bug("delays go by the time of day", WallClock, "steady_ms", first=57)
def _(right: Method) -> Method:
    return lambda self: self._clock.now_ms()


@_bug("when a delay began is not stored", Core, "note_delay", first=3081)
def _(right: Method) -> Method:
    return lambda self: None


@_bug("messages expire by a clock that was set a moment ago", WallClock, "past_ms", first=169)
def _(right: Method) -> Method:
    return lambda self: self._clock.now_ms()
