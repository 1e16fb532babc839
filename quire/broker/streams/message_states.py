"""What the groups of a stream have done with one message, as exactly as it is known.

An ack set says that a message is finished, not why. So ``done`` means that the group will not be given it again: it was
acknowledged, or not wanted by the selector, or was there before the group began, or was skipped by an operator, or has
become a dead letter. Whether it has is known from the dead letter alone, as long as that is in its queue: a search says
so (``dead_letters``), nothing else does.

Everything is told as memory has it now. What is settled in a commit that fails comes back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import ORIGIN
from quire.broker.queues.browsing import read
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.streams.groups.group_member import MemberSubscription
from quire.store.base import Delivery

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream

STEP = 1000
"""How many dead letters one step of a search reads at the most."""

STEP_BYTES = 1 << 20
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
    """What became of a message in each group of its stream.

    Raises:
        StoreError: the store cannot be read.
    """
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
    if offset in part.locator.out_sequences():
        return GroupState(group.name, MessageState.SETTLING)
    if offset in part.locator.unsettled() or _delivery(part, offset) is not None:
        return _waiting(group, part, offset)
    crashed = offset <= part.lanes[0].cursor.redelivered_to
    return GroupState(group.name, MessageState.NEW, may_be_delivered=crashed)


def _leased(group: "Group", consumers: list[Subscription], sequence: int) -> GroupState | None:
    """The state of a message that a member has in flight."""
    clock = group.core.clock
    for consumer in consumers:
        if message := consumer.in_flight.get(sequence):
            assert isinstance(consumer, MemberSubscription)
            until = clock.now_ms() + round((message.deadline - clock.monotonic()) * 1000)
            attempts = message.deliveries + 1
            return GroupState(group.name, MessageState.LEASED, consumer.member.id, until, attempts)
    return None


def _waiting(group: "Group", queue: "LaneDispatch", sequence: int) -> GroupState:
    """The state of a message that came back."""
    delivery = _delivery(queue, sequence)
    if delivery is None:
        return GroupState(group.name, MessageState.WAITING)
    due = group.core.wall.shown_ms(delivery.not_before)
    return GroupState(group.name, MessageState.WAITING, attempts=delivery.deliveries, due=due, cause=delivery.cause)


def _delivery(queue: "LaneDispatch", sequence: int) -> Delivery | None:
    """What is known of a message's deliveries, in the commit under way or stored."""
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
        messages, start = read(core, queue, start, STEP_BYTES, STEP)
        found: set[Place] = set()
        for message in messages:
            headers = message.headers()
            if wanted.items() <= headers.items():
                found.add((int(headers["partition"]), int(headers["offset"])))
        yield found & places
