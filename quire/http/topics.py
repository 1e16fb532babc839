"""The API's topics: list, look, create, delete."""

from quire.destination import DestinationKind
from quire.http.endpoint import Call, DeleteQuery, Endpoint, Removed
from quire.http.listing import see_named, table_listing
from quire.http.rights import MAKE_TOPIC, MANAGE_TOPIC, SEE_TOPIC, USER
from quire.http.two_steps import Counted
from quire.management.topic_status import TopicStatus


def _count(call: Call) -> Counted:
    topic = call.topics.topic(call.name)
    return Counted(topic.depth, consumers=topic.consumers)


ENDPOINTS = [
    table_listing(
        "TopicList", "/topics", USER, "List the topics with their counts.", "topics", TopicStatus,
        lambda call: call.management.tables.topics(), lambda call, topic: call.topics.reader.topic(topic),
        see_named(DestinationKind.TOPIC),
    ),
    Endpoint(
        "GET", "/topics/{name}", SEE_TOPIC, "Get a topic: counts, subscriptions, discarded messages.",
        lambda call: call.topics.topic(call.name), TopicStatus,
    ),
    Endpoint(
        "PUT", "/topics/{name}", MAKE_TOPIC, "Create a topic, as sending to it does.",
        lambda call: call.changed("topic.created", "topic {topic} was created", call.topics.create(call.name)),
        TopicStatus, status=201, check=lambda call: call.creates(DestinationKind.TOPIC),
    ),
    Endpoint(
        "DELETE", "/topics/{name}",
        MANAGE_TOPIC, "Delete a topic. With force the broker disconnects consumers and removes durable subscriptions.",
        lambda call: call.removed(
            "topic.deleted", "topic {topic} was deleted", call.topics.delete(call.name, force=call.query.force)
        ),
        Removed, DeleteQuery, dry_run=_count,
    ),
]  # fmt: skip
