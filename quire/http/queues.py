"""The API's queues, topics and durable subscriptions, their message groups, and single messages."""

import asyncio

import msgspec

from quire.broker.routing.addresses import Address
from quire.broker.topics.topic import DurableSubscription
from quire.destination import Destination, DestinationKind
from quire.errors import AccessRefused, InvalidArgument
from quire.http.answers import Answer, attachment
from quire.http.endpoint import (
    MAKE_QUEUE,
    MAKE_TOPIC,
    MANAGE_QUEUE,
    MANAGE_TOPIC,
    READ_QUEUE,
    READ_STREAM,
    SEE_QUEUE,
    SEE_TOPIC,
    USER,
    ActionQuery,
    Call,
    DeleteQuery,
    Endpoint,
    Fields,
    ListQuery,
    Removed,
    see_named,
    table_listing,
)
from quire.http.messages import BrowseQuery, Chosen, Purged, browsed, count
from quire.http.operations import Counted
from quire.management.messages import (
    LARGE,
    Browsable,
    BrowsePage,
    Choice,
    LedgerEntry,
    Located,
    MessageTransfer,
    MessageView,
)
from quire.management.queues import delete_queue, delete_topic
from quire.message import Message
from quire.resources import DurableStatus, GroupPage, QueueStatus, TopicStatus
from quire.security import Action, Permission
from quire.units import parse_number


class Closed(msgspec.Struct, frozen=True):
    """The message group that was taken from its consumer."""

    closed: str


def _close_group(call: Call) -> Closed:
    group = call.path["group"]
    call.admin.queues.close_group(call.name, group)
    call.audit("group.closed", "the message group {group} of queue {queue} was closed")
    return Closed(group)


def _count(call: Call) -> Counted:
    queue = call.broker.destinations.existing_queue(call.name)
    return Counted(queue.depth, consumers=len(queue.subscriptions))


ENDPOINTS = [
    table_listing(
        "QueueList", "/queues", USER, "List the queues with their counts.", "queues", QueueStatus,
        lambda call: call.admin.queues.table(), lambda call, queue: call.admin.queues.status(queue),
        see_named(DestinationKind.QUEUE),
    ),
    Endpoint(
        "GET", "/queues/{name}", SEE_QUEUE, "Get a queue: counts, consumers, held producers, why it is blocked.",
        lambda call: call.admin.queues.queue(call.name), QueueStatus,
    ),
    Endpoint(
        "PUT", "/queues/{name}", MAKE_QUEUE, "Create a queue, as sending to it does.",
        lambda call: call.changed("queue.created", "queue {queue} was created", call.admin.queues.create(call.name)),
        QueueStatus, status=201, check=lambda call: call.guard.creates(Address(DestinationKind.QUEUE, call.name)),
    ),
    Endpoint(
        "DELETE", "/queues/{name}", MANAGE_QUEUE, "Delete a queue with all its messages.",
        lambda call: call.removed(
            "queue.deleted", "queue {queue} was deleted", delete_queue(call.broker, call.name, force=call.query.force)
        ),
        Removed, DeleteQuery, dry_run=_count,
    ),
    Endpoint(
        "POST", "/queues/{name}/pause", MANAGE_QUEUE, "Pause the deliveries of a queue, also after a restart.",
        lambda call: call.changed("queue.paused", "queue {queue} was paused", call.admin.queues.pause(call.name)),
        QueueStatus,
    ),
    Endpoint(
        "POST", "/queues/{name}/resume", MANAGE_QUEUE, "Resume the deliveries of a queue.",
        lambda call: call.changed("queue.resumed", "queue {queue} was resumed", call.admin.queues.resume(call.name)),
        QueueStatus,
    ),
    Endpoint(
        "GET", "/queues/{name}/groups", SEE_QUEUE, "List the message groups of a queue and their owners.",
        lambda call: call.admin.queues.groups(call.name, call.query.after, call.query.limit), GroupPage, ListQuery,
    ),
    Endpoint(
        "DELETE", "/queues/{name}/groups/{group}", MANAGE_QUEUE, "Close a message group: take it from its owner.",
        _close_group, Closed,
    ),
]  # fmt: skip


def _count_of_topic(call: Call) -> Counted:
    topic = call.admin.topics.topic(call.name)
    return Counted(topic.depth, consumers=topic.consumers)


ENDPOINTS += [
    table_listing(
        "TopicList", "/topics", USER, "List the topics with their counts.", "topics", TopicStatus,
        lambda call: call.admin.topics.table(), lambda call, topic: call.admin.topics.status(topic),
        see_named(DestinationKind.TOPIC),
    ),
    Endpoint(
        "GET", "/topics/{name}", SEE_TOPIC, "Get a topic: counts, subscriptions, discarded messages.",
        lambda call: call.admin.topics.topic(call.name), TopicStatus,
    ),
    Endpoint(
        "PUT", "/topics/{name}", MAKE_TOPIC, "Create a topic, as sending to it does.",
        lambda call: call.changed("topic.created", "topic {topic} was created", call.admin.topics.create(call.name)),
        TopicStatus, status=201, check=lambda call: call.guard.creates(Address(DestinationKind.TOPIC, call.name)),
    ),
    Endpoint(
        "DELETE", "/topics/{name}", MANAGE_TOPIC,
        "Delete a topic. With force the broker disconnects consumers and removes durable subscriptions.",
        lambda call: call.removed(
            "topic.deleted", "topic {topic} was deleted", delete_topic(call.broker, call.name, force=call.query.force)
        ),
        Removed, DeleteQuery, dry_run=_count_of_topic,
    ),
]  # fmt: skip


_TOPIC = DestinationKind.TOPIC

# The topic is known when the subscription is found: the handlers look.
SEE_DURABLE = USER._replace(text="monitor, or read or manage on the topic")
MAKE_DURABLE = USER._replace(text="read (and create) or manage on the topic of the request")
MANAGE_DURABLE = USER._replace(text="manage on the topic")
BROWSE_DURABLE = USER._replace(text="read on the topic")


class NewDurable(Fields, frozen=True):
    """A new durable subscription: its topic, its selector and its options."""

    topic: str
    selector: str | None = None
    no_local: bool = False
    retroactive: bool = False


def require_topic(call: Call, *actions: Action) -> None:
    """See that the caller may do something with the topic of the subscription in the path.

    Of one that is not there, the broker says so to those only who may see all.
    """
    client, name, access = call.path["client"], call.name, call.access
    durable = call.broker.durables.find(client, name)
    if durable is None:
        allowed = access.may(Permission.MONITOR)
    else:
        allowed = any([access.allows(action, _TOPIC, durable.topic.destination.name) for action in actions])
    if not allowed:
        user = access.principal.name
        text = f"user {user!r} may not {actions[0]} the topic of the durable subscription {name!r} of {client!r}"
        raise AccessRefused(text, action=str(actions[0]), client=client, subscription=name)


def _durable(call: Call) -> DurableStatus:
    if not call.access.may(Permission.MONITOR):
        require_topic(call, Action.READ, Action.MANAGE)
    return call.admin.topics.durable(call.path["client"], call.name)


async def _create_durable(call: Call) -> DurableStatus:
    new: NewDurable = call.body
    if call.access.allows(Action.MANAGE, _TOPIC, new.topic):
        call.guard.check_selector(Destination(_TOPIC, new.topic), new.selector)
        call.guard.creates(Address(_TOPIC, new.topic))
    else:
        call.guard.check_subscribe([Address(_TOPIC, new.topic)])
    status = call.admin.topics.create_durable(
        call.path["client"], call.name, new.topic, wanted=new.selector, no_local=new.no_local,
        retroactive=new.retroactive,
    )  # fmt: skip
    text = "durable subscription {subscription} of {client} of topic {topic} was created"
    return await call.changed("subscription.created", text, status, topic=new.topic)


def _may_manage(call: Call) -> None:
    require_topic(call, Action.MANAGE)


async def _delete_durable(call: Call) -> Removed:
    steps = call.admin.topics.delete_durable(call.path["client"], call.name, force=call.query.force)
    text = "durable subscription {subscription} of {client} was removed"
    return await call.removed("subscription.deleted", text, steps)


def _may_purge(call: Call) -> None:
    _may_manage(call)
    call.body.choice(call, _found(call).topic.destination)


def _found(call: Call) -> DurableSubscription:
    return call.broker.durables.existing(call.path["client"], call.name)


def _purge_of_durable(call: Call, *, counts: bool = False) -> MessageTransfer:
    durable = _found(call)
    return MessageTransfer(call.broker, durable, call.body.choice(call, durable.topic.destination), counts=counts)


async def _purge_durable(call: Call) -> Purged:
    transfer = _purge_of_durable(call)
    text = "durable subscription {subscription} of {client} was purged"
    return await call.transferred("messages.purged", text, Purged, transfer)


def _count_of_durable(call: Call) -> Counted:
    durable = _found(call)
    return Counted(durable.depth, consumers=len(durable.subscriptions))


def _browse_durable(call: Call) -> BrowsePage:
    require_topic(call, Action.READ)
    return browsed(call, _found(call))


_DURABLE = "/durables/{client}/{name}"

ENDPOINTS += [
    table_listing(
        "DurableList", "/durables", USER, "List the durable subscriptions with their counts.", "durables",
        DurableStatus, lambda call: call.admin.topics.durable_table(),
        lambda call, durable: call.admin.topics.durable_status(durable),
        lambda access, durable: access.sees(_TOPIC, durable.topic.destination.name),
    ),
    Endpoint(
        "GET", _DURABLE, SEE_DURABLE, "Get a durable subscription: counts, its consumer, why it is blocked.", _durable,
        DurableStatus,
    ),
    Endpoint(
        "PUT", _DURABLE, MAKE_DURABLE, "Create a durable subscription.", _create_durable, DurableStatus,
        body=NewDurable, status=201,
    ),
    Endpoint(
        "DELETE", _DURABLE, MANAGE_DURABLE, "Remove a durable subscription and its backlog.", _delete_durable, Removed,
        DeleteQuery, dry_run=_count_of_durable, check=_may_manage,
    ),
    Endpoint(
        "POST", _DURABLE + "/purge", MANAGE_DURABLE, "Purge messages of a durable subscription.", _purge_durable,
        Purged, ActionQuery, Chosen,
        dry_run=lambda call: count(call, _purge_of_durable(call, counts=True)),
        check=_may_purge,
    ),
    Endpoint(
        "GET", _DURABLE + "/messages", BROWSE_DURABLE, "Browse the messages of a durable subscription, oldest first.",
        _browse_durable, BrowsePage, BrowseQuery,
    ),
]  # fmt: skip


def number_in_path(call: Call, name: str) -> int:
    number = parse_number(call.path[name])
    if number is None:
        raise InvalidArgument(f"{name} is {call.path[name][:60]!r}: write its number", argument=name)
    return number


def _source(call: Call) -> Browsable:
    if "client" in call.path:
        return _found(call)
    return call.broker.destinations.existing_queue(call.name)


def _located(call: Call) -> Located:
    viewer = call.admin.queues.viewer
    if "offset" in call.path:
        stream = call.broker.destinations.existing_stream(call.name)
        return viewer.locate_in_stream(stream, number_in_path(call, "partition"), number_in_path(call, "offset"))
    return viewer.locate(_source(call), number_in_path(call, "sequence"))


async def _read(call: Call, located: Located) -> Message:
    """Read a message; a large one on another thread, so that others are served meanwhile."""
    call.request.scope["memory"].take(located.size)
    if located.size > LARGE and located.is_apart:
        return await asyncio.to_thread(located.load)
    return located.load()


async def _view(call: Call) -> MessageView:
    located = _located(call)
    message = await _read(call, located)
    ledger: list[LedgerEntry] | None = None
    search = call.admin.queues.viewer.ledger(located.source, message)
    if search is not None:
        for _ in search:
            await asyncio.sleep(0)
        ledger = search.found
    return call.admin.queues.viewer.view(located, message, ledger)


async def _body(call: Call) -> Answer:
    located = _located(call)
    return attachment((await _read(call, located)).body, f"{located.sequence}.bin")


async def _delete_message(call: Call) -> Removed:
    sequence = number_in_path(call, "sequence")
    transfer = call.admin.queues.purge(call.name, Choice(ids=[str(sequence)]))
    return await call.removed("messages.purged", "message {sequence} of queue {queue} was removed", transfer)


_MESSAGE = "/queues/{name}/messages/{sequence}"
_OF_DURABLE = "/durables/{client}/{name}/messages/{sequence}"
_OF_STREAM = "/streams/{name}/partitions/{partition}/messages/{offset}"


def _may_read(call: Call) -> None:
    require_topic(call, Action.READ)


ENDPOINTS += [
    Endpoint(
        "GET", _MESSAGE, READ_QUEUE, "Get a message: headers, the first 64 KiB of its body, deliveries.", _view,
        MessageView,
    ),
    Endpoint("GET", _MESSAGE + "/body", READ_QUEUE, "Get the whole body of a message as a file.", _body, bytes),
    Endpoint("DELETE", _MESSAGE, MANAGE_QUEUE, "Remove a message that is not in flight.", _delete_message, Removed),
    Endpoint(
        "GET", _OF_DURABLE, BROWSE_DURABLE, "Get a message of a durable subscription.", _view, MessageView,
        check=_may_read,
    ),
    Endpoint(
        "GET", _OF_DURABLE + "/body", BROWSE_DURABLE, "Get the whole body of a message as a file.", _body, bytes,
        check=_may_read,
    ),
    Endpoint("GET", _OF_STREAM, READ_STREAM, "Get a message of a stream.", _view, MessageView),
    Endpoint("GET", _OF_STREAM + "/body", READ_STREAM, "Get the whole body of a message as a file.", _body, bytes),
]  # fmt: skip
