"""What is known of the message groups of a queue: who has them, and what waits for whom."""

import heapq
from typing import TYPE_CHECKING, Annotated

from quire.management.described import Status, doc

if TYPE_CHECKING:
    from quire.broker.queues.queue import Queue


class GroupStatus(Status, frozen=True):
    """A message group."""

    name: Annotated[str, doc("The JMSXGroupID of the group.")]
    connection: Annotated[str | None, doc("The address of the connection of its owner; null if it has none.")]
    subscription: Annotated[str | None, doc("The subscription id of its owner.")]
    in_flight: Annotated[int, doc("How many of its messages are in flight.")]
    parked: Annotated[int, doc("How many of its messages are parked because the owner has no credit.")]
    moving: Annotated[bool, doc("Whether it changes its owner when none of its messages is in flight any more.")]


class GroupPage(Status, frozen=True):
    """A part of a queue's groups, by name."""

    groups: list[GroupStatus]
    next: Annotated[str | None, doc("The after of the next page; null at the end.")]


def group_page(queue: "Queue", after: str, limit: int) -> GroupPage:
    """A page of a queue's groups behind a name: those that a consumer has, or whose messages wait in memory."""
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
