"""The API's queues: list, look, create, delete, pause, resume, and their message groups."""

import msgspec

from quire.destination import DestinationKind
from quire.http.endpoint import Call, DeleteQuery, Endpoint, ListQuery, Removed
from quire.http.listing import see_named, table_listing
from quire.http.rights import MAKE_QUEUE, MANAGE_QUEUE, SEE_QUEUE, USER
from quire.http.two_steps import Counted
from quire.management.group_status import GroupPage
from quire.management.queue_status import QueueStatus


class Closed(msgspec.Struct, frozen=True):
    """The message group that was taken from its consumer."""

    closed: str


def _close_group(call: Call) -> Closed:
    group = call.path["group"]
    call.management.close_group(call.name, group)
    call.audit("group.closed", "the message group {group} of queue {queue} was closed")
    return Closed(group)


def _count(call: Call) -> Counted:
    queue = call.management.existing(call.name)
    return Counted(queue.depth, consumers=len(queue.subscriptions))


ENDPOINTS = [
    table_listing(
        "QueueList", "/queues", USER, "List the queues with their counts.", "queues", QueueStatus,
        lambda call: call.management.tables.queues(), lambda call, queue: call.management.reader.status(queue),
        see_named(DestinationKind.QUEUE),
    ),
    Endpoint(
        "GET", "/queues/{name}", SEE_QUEUE, "Get a queue: counts, consumers, held producers, why it is blocked.",
        lambda call: call.management.queue(call.name), QueueStatus,
    ),
    Endpoint(
        "PUT", "/queues/{name}", MAKE_QUEUE, "Create a queue, as sending to it does.",
        lambda call: call.changed("queue.created", "queue {queue} was created", call.management.create(call.name)),
        QueueStatus, status=201, check=lambda call: call.creates(DestinationKind.QUEUE),
    ),
    Endpoint(
        "DELETE", "/queues/{name}", MANAGE_QUEUE, "Delete a queue with all its messages.",
        lambda call: call.removed(
            "queue.deleted", "queue {queue} was deleted", call.management.delete(call.name, force=call.query.force)
        ),
        Removed, DeleteQuery, dry_run=_count,
    ),
    Endpoint(
        "POST", "/queues/{name}/pause", MANAGE_QUEUE, "Pause the deliveries of a queue, also after a restart.",
        lambda call: call.changed("queue.paused", "queue {queue} was paused", call.management.pause(call.name)),
        QueueStatus,
    ),
    Endpoint(
        "POST", "/queues/{name}/resume", MANAGE_QUEUE, "Resume the deliveries of a queue.",
        lambda call: call.changed("queue.resumed", "queue {queue} was resumed", call.management.resume(call.name)),
        QueueStatus,
    ),
    Endpoint(
        "GET", "/queues/{name}/groups", SEE_QUEUE, "List the message groups of a queue and their owners.",
        lambda call: call.management.groups(call.name, call.query.after, call.query.limit), GroupPage, ListQuery,
    ),
    Endpoint(
        "DELETE", "/queues/{name}/groups/{group}", MANAGE_QUEUE,
        "Close a message group: take it from its owner.", _close_group,
        Closed,
    ),
]  # fmt: skip
