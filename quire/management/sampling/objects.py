"""What is sampled: queues, topics, streams, durable subscriptions and consumer groups, and their names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidArgument

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch

KINDS = ("queue", "topic", "stream", "durable", "group")
"""The kinds of objects."""


def objects(broker: "Broker") -> Iterator[tuple[str, list[Any]]]:
    """All objects, by kind."""
    found = broker.destinations
    yield "queue", list(found.queues.values())
    yield "topic", list(found.topics.values())
    yield "stream", list(found.streams.values())
    yield "durable", list(broker.durables)
    yield "group", list(broker.groups.all())


def name_of(kind: str, source: Any) -> str:
    """The name of an object: ``orders``, ``CLIENT/SUBSCRIPTION``, ``STREAM/GROUP``."""
    if kind == "durable":
        return "/".join(source.key)
    if kind == "group":
        return f"{source.definition.stream}/{source.name}"
    return str(source.destination.name)


def existing(broker: "Broker", kind: str, name: str) -> Any:
    """The object of a name; an unknown one is an error, as of its kind."""
    if kind == "durable":
        client, _, subscription = name.partition("/")
        for durable in broker.durables:  # a client id may have a slash too
            if name_of(kind, durable) == name:
                return durable
        return broker.durables.existing(client, subscription)
    if kind == "group":
        stream, _, group = name.rpartition("/")
        return broker.groups.existing(stream, group)
    finders = {
        "queue": broker.destinations.existing_queue, "topic": broker.destinations.existing_topic,
        "stream": broker.destinations.existing_stream,
    }  # fmt: skip
    if kind not in finders:
        raise InvalidArgument(f"{kind[:60]!r} is no kind: write {', '.join(KINDS)}", argument="of")
    return finders[kind](name)


def lanes_of(kind: str, source: Any) -> "list[LaneDispatch]":
    """What of an object has a first message whose age is told."""
    if kind in ("queue", "durable"):
        return [source]
    if kind == "group":
        return [*source.partitions, *([] if source.retries is None else [source.retries])]
    return []
