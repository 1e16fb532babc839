"""What is known of the message groups of a queue: who has them, and what waits for whom."""

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.broker.queues.queue import Queue


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A message group.

    Attributes:
        name: its JMSXGroupID.
        connection: the address of the consumer that has it; null if nobody does.
        subscription: the id of that consumer.
        in_flight: how many of its messages that consumer has.
        parked: how many wait because their consumer is busy.
        moving: whether it gets another consumer when nothing of it is in flight any more.
    """

    name: str
    connection: str | None
    subscription: str | None
    in_flight: int
    parked: int
    moving: bool


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A part of a queue's groups.

    Attributes:
        groups: by name.
        next: what to ask for the next page with; null at the end.
    """

    groups: list[GroupStatus]
    next: str | None


def group_page(queue: "Queue", after: str, limit: int) -> GroupPage:
    """A page of a queue's groups: those that a consumer has, or that have messages waiting in memory.

    Args:
        queue: the queue.
        after: only groups behind this name.
        limit: how many at the most.
    """
    owned = queue.dispatcher.groups.groups
    names = owned.keys() | {name for lane in queue.lanes for name, fifo in lane.parking.groups.items() if fifo}
    found = heapq.nsmallest(limit + 1, [name for name in names if name > after])
    page = [_status(queue, name) for name in found[:limit]]
    return GroupPage(page, page[-1].name if len(found) > limit else None)


def _status(queue: "Queue", name: str) -> GroupStatus:
    parked = sum([len(lane.parking.groups[name]) for lane in queue.lanes if name in lane.parking.groups])
    group = queue.dispatcher.groups.groups.get(name)
    if group is None:
        return GroupStatus(name, None, None, 0, parked, False)
    return GroupStatus(name, group.owner.session.name, group.owner.id, group.in_flight, parked, group.moving)
