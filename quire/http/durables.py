"""The API's durable subscriptions: list, look, create, delete, browse, purge."""

import msgspec

from quire.http.endpoint import Call, DeleteQuery, Endpoint, Fields, Removed
from quire.http.messages import BrowseQuery
from quire.http.transfers import Chosen, Purged
from quire.management.management import BrowsePage
from quire.management.topic_status import DurableStatus


class DurableList(msgspec.Struct, frozen=True):
    """All durable subscriptions, by client id and name."""

    durables: list[DurableStatus]


class NewDurable(Fields, frozen=True):
    """A durable subscription to be: its topic, and what it wants of it."""

    topic: str
    selector: str | None = None
    no_local: bool = False
    retroactive: bool = False


async def _list(call: Call) -> DurableList:
    return DurableList(await call.gathered(call.topics.durables()))


async def _show(call: Call) -> DurableStatus:
    return call.topics.durable(call.path["client"], call.name)


async def _create(call: Call) -> DurableStatus:
    client, new = call.path["client"], call.body
    status = call.topics.create_durable(
        client, call.name, new.topic, wanted=new.selector, no_local=new.no_local, retroactive=new.retroactive
    )
    text = f"durable subscription {call.name} of {client} to topic {new.topic} was created"
    call.audit("subscription.created", text, client=client, subscription=call.name, topic=new.topic)
    await call.durable()
    return status


async def _delete(call: Call) -> Removed:
    client = call.path["client"]
    steps = call.topics.delete_durable(client, call.name, force=call.query.force)
    text = f"durable subscription {call.name} of {client} was removed"
    return Removed(await call.total(steps, "subscription.deleted", text, client=client, subscription=call.name))


async def _purge(call: Call) -> Purged:
    client = call.path["client"]
    transfer = call.topics.purge_durable(client, call.name, call.body.choice())
    text = f"durable subscription {call.name} of {client} was purged"
    removed = await call.total(transfer, "messages.purged", text, client=client, subscription=call.name)
    return Purged(removed, transfer.next)


async def _browse(call: Call) -> BrowsePage:
    query = call.query
    return call.topics.browse_durable(call.path["client"], call.name, query.after, query.limit, query.selector)


_ONE = "/durables/{client}/{name}"

ENDPOINTS = [
    Endpoint("GET", "/durables", "All durable subscriptions with their counts.", _list, DurableList),
    Endpoint("GET", _ONE, "A durable subscription: counts, its consumer, what is in the way.", _show, DurableStatus),
    Endpoint("PUT", _ONE, "Create a durable subscription.", _create, DurableStatus, body=NewDurable, status=201),
    Endpoint("DELETE", _ONE, "Remove a durable subscription, with what waits for it.", _delete, Removed, DeleteQuery),
    Endpoint("POST", _ONE + "/purge", "Remove messages that wait for it.", _purge, Purged, body=Chosen),
    Endpoint("GET", _ONE + "/messages", "Look at what waits for it, oldest first.", _browse, BrowsePage, BrowseQuery),
]
