"""The API's topics: list, look, create, delete."""

from quire.http.endpoint import DeleteQuery, Endpoint, ListQuery, Removed, listing
from quire.management.topic_status import TopicStatus

ENDPOINTS = [
    listing(
        "TopicList", "/topics", "List the topics with their counts.", "topics", TopicStatus,
        lambda call: call.topics.topics(call.query.after), ListQuery,
    ),
    Endpoint(
        "GET", "/topics/{name}", "Get a topic: counts, subscriptions, discarded messages.",
        lambda call: call.topics.topic(call.name), TopicStatus,
    ),
    Endpoint(
        "PUT", "/topics/{name}", "Create a topic, as sending to it does.",
        lambda call: call.changed("topic.created", "topic {topic} was created", call.topics.create(call.name)),
        TopicStatus, status=201,
    ),
    Endpoint(
        "DELETE", "/topics/{name}",
        "Delete a topic. With force the broker disconnects consumers and removes durable subscriptions.",
        lambda call: call.removed(
            "topic.deleted", "topic {topic} was deleted", call.topics.delete(call.name, force=call.query.force)
        ),
        Removed, DeleteQuery,
    ),
]  # fmt: skip
