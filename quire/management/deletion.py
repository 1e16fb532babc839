"""Deleting queues and topics, for operators and for clients of OpenWire."""

from collections.abc import Iterator

from quire.broker.broker import Broker
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.queue import Queue
from quire.broker.topics.topic import Topic
from quire.errors import DestinationInUse, UnknownDestination
from quire.management.message_transfer import ALL, MessageTransfer


def delete_queue(broker: Broker, name: str, *, force: bool = False) -> Iterator[int]:
    """Purge a queue in steps, and then delete it; tells how many messages each step removed.

    The purge lets the ledger know of each message. Without ``force``, a queue with consumers raises
    ``DestinationInUse``, also one that gets a consumer meanwhile.
    """
    queue = broker.destinations.existing_queue(name)
    _dismiss(queue, force)
    yield from MessageTransfer(broker, queue, ALL)
    if broker.queues.get(name) is queue:
        _dismiss(queue, force)
        rest = queue.depth
        broker.destinations.delete_queue(queue)
        yield rest


def delete_topic(broker: Broker, name: str, *, force: bool = False) -> Iterator[int]:
    """Delete a topic, with its durable subscriptions and their messages; tells how many were stored.

    Without ``force``, a topic with consumers or durable subscriptions raises ``DestinationInUse``.
    """
    topic = broker.destinations.existing_topic(name)
    consumers, durables = len(topic.subscriptions), len(topic.durables)
    if (consumers or durables) and not force:
        text = f"the topic {name!r} has consumers: {consumers}, durable subscriptions: {durables}"
        raise DestinationInUse(text, name=name, consumers=consumers, durables=durables)
    dismiss_consumers(topic, f"the topic {name!r} was deleted")
    stored = topic.depth
    broker.destinations.delete_topic(topic)
    yield stored


def _dismiss(queue: Queue, force: bool) -> None:
    name = queue.destination.name
    for subscription in list(queue.subscriptions):
        subscription.leave_now()
    if queue.subscriptions and not force:
        count = len(queue.subscriptions)
        raise DestinationInUse(f"the queue {name!r} has consumers: {count}", name=name, consumers=count)
    dismiss_consumers(queue, f"the queue {name!r} was deleted")


def dismiss_consumers(source: LaneDispatch | Topic, text: str) -> None:
    """Disconnect all consumers of a queue, topic or durable subscription, and say why."""
    for session in list(dict.fromkeys([subscription.session for subscription in source.subscriptions])):
        session.fail(UnknownDestination(text, name=source.destination.name))
    for subscription in list(source.subscriptions):
        subscription.leave_now()
