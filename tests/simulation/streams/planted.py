"""Bugs of streams and consumer groups: each breaks a promise, and the simulation must see it."""

from typing import Any

from quire.broker.core.shared_prefetch import SharedPrefetch
from quire.broker.queues.lane import QueueLane
from quire.broker.queues.shared_lane import AckSetSettlement, LaneSubscription
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_partition import GroupPartition, KeyOrder
from quire.broker.streams.groups.member import GroupMember, Leases, MemberSubscription
from quire.broker.streams.groups.rebalance import Coordinator
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import NOTHING_PINNED, Partition, PartitionPart, Pins
from quire.broker.streams.retention import Retention
from quire.broker.streams.stream import Stream
from quire.clock import WallClock
from quire.message import Message
from quire.store.base import Delivery
from tests.simulation.bug import Bugs, Method

PLANTED = Bugs()
"""All bugs of the world of streams."""

_bug = PLANTED.add


# What is finished.


@_bug("acknowledgements of a failed commit are not tried again", LaneSubscription, "commit_failed", first=260)
def _(right: Method) -> Method:
    def commit_failed(self: LaneSubscription, part: Any, restored: set[int]) -> None:
        part.removals.clear()
        right(self, part, restored)

    return commit_failed


@_bug("a group waits for offsets that no message will ever have", GroupPartition, "skip")
def _(right: Method) -> Method:
    return lambda self, first, last: None


@_bug("where a new group begins is not stored", GroupPartition, "write")
def _(right: Method) -> Method:
    return lambda self: None


@_bug("what the selector does not match is passed over and not finished", LaneSubscription, "_pass_over", first=13)
def _(right: Method) -> Method:
    return lambda self, stored, wanted: None


@_bug("a late acknowledgement counts, and its retry is not cancelled", RetryQueue, "_cancel", first=192)
def _(right: Method) -> Method:
    return lambda self, retry: True


# What comes back.


@_bug("a message that failed is finished, and its retry is lost", RetryQueue, "relocate", first=15)
def _(right: Method) -> Method:
    return lambda self, lane, message, state: None


@_bug("delivery states are not stored", LaneSubscription, "fill")
def _(right: Method) -> Method:
    def fill(self: LaneSubscription, commit: Any) -> None:
        self.commits.open.deliveries.clear()
        right(self, commit)

    return fill


@_bug("a retry does not wait for its time", RetryQueue, "relocate", first=15)
def _(right: Method) -> Method:
    def relocate(self: RetryQueue, lane: int, message: Message, state: Delivery) -> None:
        right(self, lane, message, state._replace(not_before=0))

    return relocate


@_bug("a lease that has ended does not count as a failure", Group, "time_is_up")
def _(right: Method) -> Method:
    def time_is_up(self: Group, child: MemberSubscription, messages: list[Message]) -> None:
        for message in messages:
            message.failures -= 1
        right(self, child, messages)

    return time_is_up


@_bug("there are two dead letters of a message", GroupPartition, "dead_letter")
def _(right: Method) -> Method:
    def dead_letter(self: GroupPartition, messages: list[Message], *arguments: Any) -> None:
        right(self, [*messages, *messages], *arguments)

    return dead_letter


@_bug("how far messages may have been delivered is not stored", AckSetSettlement, "_dispatch_marks_after")
def _(right: Method) -> Method:
    return lambda self, part: [0]


# Reads that fail.


@_bug("a group that is moved takes messages from its members before it has read all", Group, "restart", first=240)
def _(right: Method) -> Method:
    def restart(self: Group, places: Any) -> None:
        for member in self.members.values():
            for index, child in member.children.items():
                if index in places:
                    self.partitions[index].take_from(child)
        right(self, places)

    return restart


@_bug("a partition reads its lane when a commit is done", Partition, "committed")
def _(right: Method) -> Method:
    def committed(self: Partition, part: PartitionPart) -> None:
        self.core.store.lane_state(self.lane)
        right(self, part)

    return committed


# Leases.


@_bug("a lease ends early", GroupMember, "extend", first=34)
def _(right: Method) -> Method:
    return lambda self, child, messages, seconds: right(self, child, messages, seconds * 0.7)


@_bug("of a member's leases only the first one ends", Leases, "_look_at", first=66)
def _(right: Method) -> Method:
    def look_at(self: Leases[MemberSubscription], consumer: MemberSubscription, now: float) -> None:
        right(self, consumer, now)
        self.forget(consumer)

    return look_at


# Who has what.


@_bug("a partition goes to its new owner before the old one is done with it", Group, "revoke")
def _(right: Method) -> Method:
    def revoke(self: Group, member_id: str, partition: int) -> bool:
        right(self, member_id, partition)
        return True

    return revoke


@_bug("a member with a name loses its partitions with its connection", Coordinator, "lost")
def _(right: Method) -> Method:
    return lambda self, id: self.leave(id)


@_bug("what a member says it holds is delivered again", GroupPartition, "hold", first=32)
def _(right: Method) -> Method:
    return lambda self, consumer, sequences: []


@_bug("partitions are dealt out anew with every start", Coordinator, "restore")
def _(right: Method) -> Method:
    return lambda self, stored: None


@_bug("a member gets one message too many", SharedPrefetch, "credit")
def _(right: Method) -> Method:
    return lambda self, child: right(self, child) + 1


@_bug("a member that has credit again is not woken", SharedPrefetch, "wake")
def _(right: Method) -> Method:
    return lambda self: None


# Order.


@_bug("of a partition that is consumed in order two messages are out", GroupPartition, "room")
def _(right: Any) -> Any:
    return property(lambda self: right.fget(self) + 1)


@_bug("a key does not wait for its message that is out", KeyOrder, "is_moving")
def _(right: Method) -> Method:
    return lambda self, name: False


@_bug("a key goes to another partition each time", Stream, "partition_of")
def _(right: Method) -> Method:
    return lambda self, key: self.rotation.next()


# What goes and what stays.


@_bug("retention takes what retries need", RetryQueue, "pinned")
def _(right: Method) -> Method:
    return lambda self, lane, first, last, limit: []


@_bug("retention takes what members have", Retention, "_kept")
def _(right: Method) -> Method:
    return lambda self, partition, first, last: set()


@_bug("pins are not respected", Pins, "first")
def _(right: Method) -> Method:
    return lambda self, partition: NOTHING_PINNED


@_bug("a group without members keeps its memory", QueueLane, "rest")
def _(right: Method) -> Method:
    return lambda self: None


# A clock that is set.


@_bug("retries go by the time of day", WallClock, "steady_ms")
def _(right: Method) -> Method:
    return lambda self: self._clock.now_ms()


@_bug("records go by a clock that was set a moment ago", WallClock, "past_ms")
def _(right: Method) -> Method:
    return lambda self: self._clock.now_ms()
