"""The API's durable subscriptions: list, look, create, delete, browse, purge."""

from quire.http.endpoint import Call, DeleteQuery, Endpoint, Fields, Removed, listing
from quire.http.messages import BrowseQuery
from quire.http.transfers import Chosen, Purged
from quire.management.management import BrowsePage
from quire.management.topic_status import DurableStatus


class NewDurable(Fields, frozen=True):
    """A new durable subscription: its topic, its selector and its options."""

    topic: str
    selector: str | None = None
    no_local: bool = False
    retroactive: bool = False


async def _create(call: Call) -> DurableStatus:
    new: NewDurable = call.body
    status = call.topics.create_durable(
        call.path["client"], call.name, new.topic, wanted=new.selector, no_local=new.no_local,
        retroactive=new.retroactive,
    )  # fmt: skip
    text = "durable subscription {subscription} of {client} of topic {topic} was created"
    return await call.changed("subscription.created", text, status, topic=new.topic)


async def _delete(call: Call) -> Removed:
    steps = call.topics.delete_durable(call.path["client"], call.name, force=call.query.force)
    text = "durable subscription {subscription} of {client} was removed"
    return await call.removed("subscription.deleted", text, steps)


async def _purge(call: Call) -> Purged:
    transfer = call.topics.purge_durable(call.path["client"], call.name, call.body.choice())
    text = "durable subscription {subscription} of {client} was purged"
    return await call.transferred("messages.purged", text, Purged, transfer)


def _browse(call: Call) -> BrowsePage:
    query = call.query
    return call.topics.browse_durable(call.path["client"], call.name, query.after, query.limit, query.selector)


_ONE = "/durables/{client}/{name}"

ENDPOINTS = [
    listing(
        "DurableList", "/durables", "List the durable subscriptions with their counts.", "durables", DurableStatus,
        lambda call: call.topics.durables(),
    ),
    Endpoint(
        "GET", _ONE, "Get a durable subscription: counts, its consumer, why it is blocked.",
        lambda call: call.topics.durable(call.path["client"], call.name), DurableStatus,
    ),
    Endpoint("PUT", _ONE, "Create a durable subscription.", _create, DurableStatus, body=NewDurable, status=201),
    Endpoint("DELETE", _ONE, "Remove a durable subscription and its backlog.", _delete, Removed, DeleteQuery),
    Endpoint("POST", _ONE + "/purge", "Purge messages of a durable subscription.", _purge, Purged, body=Chosen),
    Endpoint(
        "GET", _ONE + "/messages", "Browse the messages of a durable subscription, oldest first.", _browse, BrowsePage,
        BrowseQuery,
    ),
]  # fmt: skip
