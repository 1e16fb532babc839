"""Bugs planted by hand, a wrong method in place of the right one: each breaks a promise that the simulation checks."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from quire.broker.core.core import Core, ProducerFlow
from quire.broker.core.shared_prefetch import SharedPrefetch
from quire.broker.core.subscription import Session, Subscription
from quire.broker.producer_ids import ProducerIds
from quire.broker.queues.queue import Queue, QueuePart
from quire.broker.queues.selective import MessageGroups
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.group import Group, GroupMember, GroupPartition, KeyOrder, Leases, MemberSubscription
from quire.broker.streams.groups.rebalance import Coordinator
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import NOTHING_PINNED, Partition, PartitionPart, Pins
from quire.broker.streams.stream import Retention, Stream
from quire.broker.transactions.decisions import Xid
from quire.broker.transactions.transaction import Transaction
from quire.clock import WallClock
from quire.cluster.cluster_map import ClusterMap
from quire.cluster.link import Link, VirtualConnection
from quire.cluster.remote_session import RemoteSession
from quire.cluster.spread_consumer import Covered, SpreadConsumer
from quire.cluster.verb_frames import Run
from quire.cursors.lane import DispatchMark, MemoryUsage, QueueCursor, QueueLane
from quire.message import MESSAGE_OVERHEAD, Message
from quire.server.cluster.cluster_session import ClusterSession
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.shard_transactions import LineEnd, Outcomes
from quire.sessions.base import Leaving, Settlement, These, Token, Tx, UpTo
from quire.store.base import Delivery
from tests.simulation.shard_process import ShardDatabase, ShardProcess, ShardStore

Method = Callable[..., Any]


class Bug(NamedTuple):
    """A wrong method; it is called with the right one, and then as that is.

    ``first`` is the seed of the first history in which it is looked for: more than 0 where few histories show it.
    """

    owner: type
    method: str
    wrong: Method
    first: int = 0

    def plant(self) -> AbstractContextManager[Any]:
        """Have the wrong method, or property, in place of the right one."""
        right = getattr(self.owner, self.method)
        is_property = isinstance(right, property)
        called = right.fget if is_property else right

        def wrong(*arguments: Any, **options: Any) -> Any:
            return self.wrong(called, *arguments, **options)

        return patch.object(self.owner, self.method, property(wrong) if is_property else wrong)


class Bugs(dict[str, Bug]):
    """The bugs of a world, by what is wrong."""

    def add(self, name: str, owner: type, method: str, first: int = 0) -> Callable[[Method], None]:
        """Enter the decorated function, or a lambda."""

        def enter(wrong: Method) -> None:
            self[name] = Bug(owner, method, wrong, first)

        return enter


QUEUES, STREAMS, CLUSTER = Bugs(), Bugs(), Bugs()
PLANTED = {"queues": QUEUES, "streams": STREAMS, "cluster": CLUSTER}


# The world of queues.
EVERYTHING = 1 << 40
"""More bytes than there are."""


# The cursor and memory.


@QUEUES.add("the cursor goes on after a refusal", QueueCursor, "_read")
def _(right: Method, self: QueueCursor, budget: int) -> Iterator[Message]:
    given = False
    for message in right(self, EVERYTHING):
        charge = message.size + MESSAGE_OVERHEAD if message.stored else 0
        if charge <= budget or not given:
            budget -= charge
            given = True
            yield message


@QUEUES.add("the position moves over a refused record", QueueCursor, "page_in")
def _(right: Method, self: QueueCursor) -> bool:
    admitted: bool = right(self)
    self.position += self.blocked_since is not None
    return admitted


QUEUES.add("a release wakes nobody", MemoryUsage, "wake", first=212)(lambda right, self, *arguments: None)
QUEUES.add("of several messages that are done with, the memory of one is released", QueueCursor, "release")(
    lambda right, self, messages: right(self, messages[-1:])
)


@QUEUES.add("expiry moves the live cursor", QueueCursor, "discard")
def _(right: Method, self: QueueCursor, sequences: set[int]) -> list[Message]:
    gone: list[Message] = right(self, sequences)
    self.position = max([self.position, *sequences])
    return gone


# Commits.


@QUEUES.add("a receipt comes before its commit is durable", Core, "confirm")
def _(right: Method, self: Core, session: Session, receipts: list[bytes]) -> None:
    session.confirmed(receipts)


@QUEUES.add("the dispatch mark is not written ahead", DispatchMark, "reach", first=14)
def _(right: Method, self: DispatchMark, sequence: int, window: int) -> bool:
    wants: bool = right(self, sequence, window)
    self.stored = max(self.stored, sequence)
    return wants


@QUEUES.add("acknowledgements of a failed commit are not tried again", Queue, "commit_failed")
def _(right: Method, self: Queue, part: QueuePart, restored: set[int]) -> None:
    part.removals.clear()
    right(self, part, restored)


QUEUES.add("a numbered send counts as taken though its commit failed", ProducerIds, "failed", first=48)(
    lambda right, self, batch, following: None
)


@QUEUES.add("a numbered send is taken twice", ProducerIds, "take")
def _(right: Method, self: ProducerIds, producer: str, sequence: int) -> bool:
    right(self, producer, sequence)
    return True


@QUEUES.add("dead letters are not sent again when their commit fails", Queue, "transfer", first=311)
def _(right: Method, self: Queue, *arguments: Any) -> Message:
    message: Message = right(self, *arguments)
    self.open_part().transferred.clear()
    return message


@QUEUES.add("acknowledgements of a transaction are done at once", Transaction, "acknowledge", first=80)
def _(right: Method, self: Transaction, subscription: Subscription, sequences: list[int]) -> None:
    subscription.source.acknowledge(subscription.take(sequences))


# Reads that fail.


@QUEUES.add("a read in what follows a commit", Queue, "committed")
def _(right: Method, self: Queue, part: QueuePart) -> None:
    self.core.store.lane_state(self.lanes[0].id)
    right(self, part)


@QUEUES.add("memory changed before a read that fails", QueueCursor, "recall")
def _(right: Method, self: QueueCursor, sequences: list[int], sizes: list[int]) -> tuple[list[Message], int]:
    self.hold([Message(sequence, bytes(size)) for sequence, size in zip(sequences, sizes, strict=True)])
    found, settled = right(self, sequences, sizes)
    self.release([Message(sequence, bytes(size)) for sequence, size in zip(sequences, sizes, strict=True)])
    return found, settled


@QUEUES.add("the position moves before a read that fails", QueueCursor, "_read", first=22)
def _(right: Method, self: QueueCursor, budget: int) -> Iterator[Message]:
    before, self.position = self.position, self.position + 1
    self._store.lane_state(self._lane)
    self.position = before
    yield from right(self, budget)


# What comes back.


@QUEUES.add("the redelivered flag is lost", Queue, "redeliver")
def _(right: Method, self: Queue, messages: list[Message], *arguments: Any, **options: Any) -> None:
    right(self, messages, *arguments, **options)
    for message in messages:
        message.redelivered = False


@QUEUES.add("returned messages go behind later ones", QueueLane, "come_back", first=46)
def _(right: Method, self: QueueLane, messages: list[Message]) -> None:
    self.cursor.window.extend(messages)


@QUEUES.add("delivery states are not stored", QueuePart, "write", first=23)
def _(right: Method, self: QueuePart, *arguments: Any) -> None:
    self.deliveries.clear()
    right(self, *arguments)


@QUEUES.add("a queue is read before what was settled is known to the store", Queue, "_rest", first=38)
def _(right: Method, self: Queue) -> None:
    right(self)
    self._settles_with = 0


QUEUES.add("nobody wakes for a message whose delay is over", Queue, "_wake_when_due")(lambda right, self, lane: None)


# Producers and consumers.

QUEUES.add("held producers are not released", ProducerFlow, "release")(lambda right, self: None)
QUEUES.add("a consumer gets one message too many", Subscription, "credit")(
    lambda right, self: right(self) + (len(self.in_flight) == self.prefetch)
)
QUEUES.add("an exclusive consumer shares its queue", Queue, "eligible_consumers")(
    lambda right, self: self.subscriptions
)
QUEUES.add("a message group goes to whoever is free", MessageGroups, "bound_to", first=34)(
    lambda right, self, name: None
)
QUEUES.add("a new consumer does not get what was parked before it came", QueueLane, "rewind", first=23)(
    lambda right, self, out: None
)


# A clock that is set.

QUEUES.add("delays go by the time of day", WallClock, "steady_ms", first=57)(lambda right, self: self._clock.now_ms())
QUEUES.add("when a delay began is not stored", Core, "note_delay", first=3081)(lambda right, self: None)
QUEUES.add("messages expire by a clock that was set a moment ago", WallClock, "past_ms", first=169)(
    lambda right, self: self._clock.now_ms()
)


# The world of streams.


# What is finished.


@STREAMS.add("acknowledgements of a failed commit are not tried again", LaneSubscription, "commit_failed", first=260)
def _(right: Method, self: LaneSubscription, part: Any, restored: set[int]) -> None:
    part.removals.clear()
    right(self, part, restored)


STREAMS.add("a group waits for offsets that no message will ever have", GroupPartition, "skip")(
    lambda right, self, first, last: None
)
STREAMS.add("where a new group begins is not stored", GroupPartition, "write")(lambda right, self: None)
STREAMS.add(
    "what the selector does not match is passed over and not finished", LaneSubscription, "_pass_over", first=13
)(lambda right, self, stored, wanted: None)
STREAMS.add("a late acknowledgement counts, and its retry is not cancelled", RetryQueue, "_cancel", first=192)(
    lambda right, self, retry: True
)


# What comes back.

STREAMS.add("a message that failed is finished, and its retry is lost", RetryQueue, "relocate", first=15)(
    lambda right, self, lane, message, state: None
)


@STREAMS.add("delivery states are not stored", LaneSubscription, "fill")
def _(right: Method, self: LaneSubscription, commit: Any) -> None:
    self.open_part().deliveries.clear()
    right(self, commit)


@STREAMS.add("a retry does not wait for its time", RetryQueue, "relocate", first=15)
def _(right: Method, self: RetryQueue, lane: int, message: Message, state: Delivery) -> None:
    right(self, lane, message, state._replace(not_before=0))


@STREAMS.add("a lease that has ended does not count as a failure", Group, "time_is_up")
def _(right: Method, self: Group, child: MemberSubscription, messages: list[Message]) -> None:
    for message in messages:
        message.failures -= 1
    right(self, child, messages)


@STREAMS.add("there are two dead letters of a message", GroupPartition, "dead_letter")
def _(right: Method, self: GroupPartition, messages: list[Message], *arguments: Any) -> None:
    right(self, [*messages, *messages], *arguments)


STREAMS.add("how far messages may have been delivered is not stored", LaneSubscription, "_dispatch_marks_after")(
    lambda right, self, part: [0]
)


# Reads that fail.


@STREAMS.add(
    "a group that is moved takes messages from its members before it has read all", Group, "restart", first=240
)
def _(right: Method, self: Group, places: Any) -> None:
    for member in self.members.values():
        for index, child in member.children.items():
            if index in places:
                self.partitions[index].take_from(child)
    right(self, places)


@STREAMS.add("a partition reads its lane when a commit is done", Partition, "committed")
def _(right: Method, self: Partition, part: PartitionPart) -> None:
    self.core.store.lane_state(self.lane)
    right(self, part)


# Leases.

STREAMS.add("a lease ends early", GroupMember, "extend", first=34)(
    lambda right, self, child, messages, seconds: right(self, child, messages, seconds * 0.7)
)


@STREAMS.add("of a member's leases only the first one ends", Leases, "_look_at", first=66)
def _(right: Method, self: Leases, consumer: MemberSubscription, now: float) -> None:
    right(self, consumer, now)
    self.forget(consumer)


# Who has what.


@STREAMS.add("a partition goes to its new owner before the old one is done with it", Group, "revoke")
def _(right: Method, self: Group, member_id: str, partition: int) -> bool:
    right(self, member_id, partition)
    return True


STREAMS.add("a member with a name loses its partitions with its connection", Coordinator, "lost")(
    lambda right, self, id: self.leave(id)
)
STREAMS.add("what a member says it holds is delivered again", GroupPartition, "hold", first=32)(
    lambda right, self, consumer, sequences: []
)
STREAMS.add("partitions are dealt out anew with every start", Coordinator, "restore")(lambda right, self, stored: None)
STREAMS.add("a member gets one message too many", SharedPrefetch, "credit")(
    lambda right, self, child: right(self, child) + 1
)
STREAMS.add("a member that has credit again is not woken", SharedPrefetch, "wake")(lambda right, self: None)


# Order.

STREAMS.add("of a partition that is consumed in order two messages are out", GroupPartition, "room")(
    lambda right, self: right(self) + 1
)
STREAMS.add("a key does not wait for its message that is out", KeyOrder, "is_moving")(lambda right, self, name: False)
STREAMS.add("a key goes to another partition each time", Stream, "partition_of")(
    lambda right, self, key: self.rotation.next()
)


# What goes and what stays.

STREAMS.add("retention takes what retries need", RetryQueue, "pinned")(lambda right, self, lane, first, last, limit: [])
STREAMS.add("retention takes what members have", Retention, "_kept")(lambda right, self, partition, first, last: set())
STREAMS.add("pins are not respected", Pins, "first")(lambda right, self, partition: NOTHING_PINNED)
STREAMS.add("a group without members keeps its memory", QueueLane, "rest")(lambda right, self: None)


# A clock that is set.

STREAMS.add("retries go by the time of day", WallClock, "steady_ms")(lambda right, self: self._clock.now_ms())
STREAMS.add("records go by a clock that was set a moment ago", WallClock, "past_ms")(
    lambda right, self: self._clock.now_ms()
)


# The world of a cluster.


# Two owners.

CLUSTER.add("fencing is off", ShardStore, "fence")(lambda right, self: None)
CLUSTER.add("an owner trusts its lease for too long", ShardStore, "lock_until")(lambda right, self: right(self) + 60)


@CLUSTER.add("the epoch is not counted up", ShardStore, "try_lock")
def _(right: Method, self: ShardStore, owner: str) -> bool:
    database = self._database
    epoch = database.epoch
    taken: bool = right(self, owner)
    if taken and epoch:
        database.epoch = self.epoch = epoch
    return taken


CLUSTER.add("a shard is taken before the lease of its owner is over", ShardDatabase, "is_free")(
    lambda right, self: True
)


# Moving.

CLUSTER.add("where a queue is the database says alone", ClusterMap, "keep")(lambda right, self, pins: None)
CLUSTER.add("a later owner does not know what was given away", KeptPins, "_stored")(lambda right, self: [])
CLUSTER.add("a queue is given away that exists", KeptPins, "_look_for")(lambda right, self, key: iter(()))


@CLUSTER.add("a shard is given up before what is under way is settled", ShardProcess, "_leave")
def _(right: Method, self: ShardProcess) -> Iterator[None]:
    if isinstance(self.store, ShardStore):
        self.store._database.owner = ""  # and it goes on as if it had the shard
    yield
    yield from right(self)


# Confirmations.


@CLUSTER.add("a receipt is passed on before the commit of the owner", Core, "confirm")
def _(right: Method, self: Core, session: Session, receipts: list[bytes]) -> None:
    session.confirmed(receipts)


@CLUSTER.add("the entry confirms what it passes on", RemoteSession, "_number_receipts")
def _(right: Method, self: RemoteSession, run: Run) -> None:
    tokens = list(self._receipts)
    self._receipts.clear()
    self._receipts.places.clear()
    self._door.confirmed(tokens)


@CLUSTER.add("a client that disconnects is not waited for at other shards", ClusterSession, "leave")
def _(right: Method, self: ClusterSession, how: Leaving, token: Token = None) -> bool:
    right(self, how)
    if token is not None:
        self._core.steps.add(partial(self._say_left, token), "a goodbye", stores=False)
    return True


# Transactions over several shards.


@CLUSTER.add("a part is said to be committed before that is durable", Outcomes, "_commit")
def _(right: Method, self: Outcomes, end: LineEnd, xid: Xid) -> None:
    end.say("done", xid, self._map.epoch)


# Links.

CLUSTER.add("who uses a link is not told of its end", Link, "ends")(lambda right, self: iter(()))
CLUSTER.add("a machine that is gone is not noticed", Link, "tick")(lambda right, self: None)


@CLUSTER.add("no credit is given back", VirtualConnection, "taken")
def _(right: Method, self: VirtualConnection, size: int) -> None:
    self.unread -= size


# Consumers at several shards.


@CLUSTER.add("a cumulative acknowledgement covers one shard", SpreadConsumer, "settled")
def _(right: Method, self: SpreadConsumer, what: These | UpTo, how: Settlement, tx: Tx | None) -> Covered:
    return dict(list(right(self, what, how, tx).items())[-1:])
