"""The API's queues: list, look, create, delete, purge, pause, resume, move, redrive."""

from typing import Annotated

import msgspec

from quire.broker.queue_status import QueueStatus
from quire.console.endpoint import Call, Endpoint, Fields, Moved, Removed

Limit = Annotated[int, msgspec.Meta(ge=1)]


class QueueList(msgspec.Struct, frozen=True):
    """All queues, by name."""

    queues: list[QueueStatus]


class DeleteQuery(Fields, frozen=True):
    """How to delete a queue."""

    force: bool = False


class Move(Fields, frozen=True):
    """What to move, and where to."""

    to: str
    ids: list[str] = msgspec.field(default_factory=list)
    limit: Limit | None = None


class Redrive(Fields, frozen=True):
    """How many dead letters to send back."""

    limit: Limit | None = None


async def _list(call: Call) -> QueueList:
    return QueueList(call.management.queues())


async def _show(call: Call) -> QueueStatus:
    return call.management.queue(call.name)


async def _create(call: Call) -> QueueStatus:
    status = call.management.create(call.name)
    await call.durable()
    return status


async def _delete(call: Call) -> Removed:
    return Removed(await call.total(call.management.delete(call.name, force=call.query.force)))


async def _purge(call: Call) -> Removed:
    return Removed(await call.total(call.management.purge(call.name)))


async def _pause(call: Call) -> QueueStatus:
    status = call.management.pause(call.name)
    await call.durable()
    return status


async def _resume(call: Call) -> QueueStatus:
    status = call.management.resume(call.name)
    await call.durable()
    return status


async def _move(call: Call) -> Moved:
    body: Move = call.body
    steps = call.management.move(call.name, body.to, ids=body.ids, limit=body.limit)
    return Moved(await call.total(steps))


async def _redrive(call: Call) -> Moved:
    return Moved(await call.total(call.management.redrive(call.name, call.body.limit)))


ENDPOINTS = [
    Endpoint("GET", "/queues", "All queues with their counts.", _list, QueueList),
    Endpoint("GET", "/queues/{name}", "A queue: counts, consumers, who waits and why.", _show, QueueStatus),
    Endpoint("PUT", "/queues/{name}", "Create a queue, as sending to it does.", _create, QueueStatus, status=201),
    Endpoint("DELETE", "/queues/{name}", "Delete a queue with all its messages.", _delete, Removed, DeleteQuery),
    Endpoint("POST", "/queues/{name}/purge", "Remove all messages that are not in flight.", _purge, Removed),
    Endpoint("POST", "/queues/{name}/pause", "Stop deliveries, also over a restart.", _pause, QueueStatus),
    Endpoint("POST", "/queues/{name}/resume", "Let deliveries go on.", _resume, QueueStatus),
    Endpoint("POST", "/queues/{name}/move", "Move messages to another queue, oldest first.", _move, Moved, body=Move),
    Endpoint(
        "POST", "/queues/{name}/redrive", "Send dead letters back to the queues they came from.", _redrive, Moved,
        body=Redrive,
    ),
]  # fmt: skip
