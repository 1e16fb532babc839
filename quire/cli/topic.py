"""``quire topic``: topics and who has subscribed to them."""

from quire.cli.api import topic_path
from quire.cli.output import columns
from quire.cli.resource import HELD_COLUMNS, Resource

SUBSCRIPTION_COLUMNS = columns(
    "client_id", "name:Durable", "connection", "id", "selector::40", "prefetch", "in_flight", "pending", "discarded",
    "slow_seconds:Slow for",
)  # fmt: skip

topic = Resource("topic", "List, create, delete topics; list their subscriptions.", "topics", "name", place=topic_path)
topic.ls(
    "List the topics with their counts.",
    columns(
        "name:Topic", "consumers", "durables:Durable", "offline_durables:Offline", "backlog", "pending", "depth:Stored",
        "bytes", "enqueued", "dispatched",
    ),
    paged=True,
)  # fmt: skip
topic.show(
    "Show the details of a topic: counts, subscriptions, held producers.",
    {"subscriptions": ("Subscriptions", SUBSCRIPTION_COLUMNS), "producers_held": ("Producers held", HELD_COLUMNS)},
)
topic.rows(
    "subscriptions", "List the subscriptions of a topic, including offline durable subscriptions.", SUBSCRIPTION_COLUMNS
)
topic.act("create", "PUT", "Create a topic. Sending or subscribing to it creates it too.", "created {it}")
topic.act(
    "delete", "DELETE", "Delete a topic with all its messages.", "deleted {it}",
    ask="Delete the topic {it} with all its messages?",
    force="Delete it even if it has consumers or durable subscriptions.",
)  # fmt: skip
