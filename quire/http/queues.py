"""The API's queues: list, look, create, delete, pause, resume, and their message groups."""

import msgspec

from quire.http.endpoint import Call, DeleteQuery, Endpoint, ListQuery, Removed
from quire.management.group_status import GroupPage
from quire.management.queue_status import QueueStatus


class QueueList(msgspec.Struct, frozen=True):
    """A page of the queues, by name. ``next`` is what to ask for the next one with; null at the end."""

    queues: list[QueueStatus]
    next: str | None


class Closed(msgspec.Struct, frozen=True):
    """The message group that was taken from its consumer."""

    closed: str


async def _list(call: Call) -> QueueList:
    limit = call.query.limit
    found = await call.gathered(call.management.queues(call.query.after), limit + 1)
    return QueueList(found[:limit], found[limit - 1].name if len(found) > limit else None)


async def _show(call: Call) -> QueueStatus:
    return call.management.queue(call.name)


async def _create(call: Call) -> QueueStatus:
    status = call.management.create(call.name)
    call.audit("queue.created", f"queue {call.name} was created", queue=call.name)
    await call.durable()
    return status


async def _delete(call: Call) -> Removed:
    steps = call.management.delete(call.name, force=call.query.force)
    return Removed(await call.total(steps, "queue.deleted", f"queue {call.name} was deleted", queue=call.name))


async def _pause(call: Call) -> QueueStatus:
    status = call.management.pause(call.name)
    call.audit("queue.paused", f"queue {call.name} was paused", queue=call.name)
    await call.durable()
    return status


async def _resume(call: Call) -> QueueStatus:
    status = call.management.resume(call.name)
    call.audit("queue.resumed", f"queue {call.name} was resumed", queue=call.name)
    await call.durable()
    return status


async def _groups(call: Call) -> GroupPage:
    return call.management.groups(call.name, call.query.after, call.query.limit)


async def _close_group(call: Call) -> Closed:
    group = call.path["group"]
    call.management.close_group(call.name, group)
    text = f"the message group {group} of queue {call.name} was taken from its consumer"
    call.audit("group.closed", text, queue=call.name, group=group)
    return Closed(group)


ENDPOINTS = [
    Endpoint("GET", "/queues", "All queues with their counts.", _list, QueueList, ListQuery),
    Endpoint("GET", "/queues/{name}", "A queue: counts, consumers, who waits and why.", _show, QueueStatus),
    Endpoint("PUT", "/queues/{name}", "Create a queue, as sending to it does.", _create, QueueStatus, status=201),
    Endpoint("DELETE", "/queues/{name}", "Delete a queue with all its messages.", _delete, Removed, DeleteQuery),
    Endpoint("POST", "/queues/{name}/pause", "Stop deliveries, also over a restart.", _pause, QueueStatus),
    Endpoint("POST", "/queues/{name}/resume", "Let deliveries go on.", _resume, QueueStatus),
    Endpoint("GET", "/queues/{name}/groups", "Message groups and who has them.", _groups, GroupPage, ListQuery),
    Endpoint(
        "DELETE", "/queues/{name}/groups/{group}", "Take a message group from its consumer.", _close_group, Closed
    ),
]
