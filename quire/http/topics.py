"""The API's topics: list, look, create, delete."""

import msgspec

from quire.http.endpoint import Call, DeleteQuery, Endpoint, ListQuery, Removed
from quire.management.topic_status import TopicStatus


class TopicList(msgspec.Struct, frozen=True):
    """A page of the topics, by name. ``next`` is what to ask for the next one with; null at the end."""

    topics: list[TopicStatus]
    next: str | None


async def _list(call: Call) -> TopicList:
    limit = call.query.limit
    found = await call.gathered(call.topics.topics(call.query.after), limit + 1)
    return TopicList(found[:limit], found[limit - 1].name if len(found) > limit else None)


async def _show(call: Call) -> TopicStatus:
    return call.topics.topic(call.name)


async def _create(call: Call) -> TopicStatus:
    status = call.topics.create(call.name)
    call.audit("topic.created", f"topic {call.name} was created", topic=call.name)
    await call.durable()
    return status


async def _delete(call: Call) -> Removed:
    steps = call.topics.delete(call.name, force=call.query.force)
    return Removed(await call.total(steps, "topic.deleted", f"topic {call.name} was deleted", topic=call.name))


ENDPOINTS = [
    Endpoint("GET", "/topics", "All topics with their counts.", _list, TopicList, ListQuery),
    Endpoint("GET", "/topics/{name}", "A topic: counts, subscriptions, what they lost.", _show, TopicStatus),
    Endpoint("PUT", "/topics/{name}", "Create a topic, as sending to it does.", _create, TopicStatus, status=201),
    Endpoint(
        "DELETE", "/topics/{name}", "Delete a topic; with force also its consumers and durable subscriptions.",
        _delete, Removed, DeleteQuery,
    ),
]  # fmt: skip
