"""The API's durable subscriptions: list, look, create, delete, browse, purge."""

from quire.destination import DestinationKind
from quire.errors import AccessRefused
from quire.http.endpoint import Call, DeleteQuery, Endpoint, Fields, Removed, listing
from quire.http.messages import BrowseQuery
from quire.http.rights import USER
from quire.http.transfers import Chosen, Purged
from quire.management.management import BrowsePage
from quire.management.topic_status import DurableStatus
from quire.security import Action, Permission

_TOPIC = DestinationKind.TOPIC

# The topic is known when the subscription is found: the handlers look.
SEE = USER._replace(text="monitor, or read or manage on the topic")
READ = USER._replace(text="read (and create) or manage on the topic of the request")
MANAGE = USER._replace(text="manage on the topic")
BROWSE = USER._replace(text="read on the topic")


class NewDurable(Fields, frozen=True):
    """A new durable subscription: its topic, its selector and its options."""

    topic: str
    selector: str | None = None
    no_local: bool = False
    retroactive: bool = False


def _require(call: Call, *actions: Action) -> None:
    """See that the caller may do something with the topic of the subscription in the path.

    Of one that is not there, the broker says so to those only who may see all.
    """
    client, name, access = call.path["client"], call.name, call.access
    durable = call.service.broker.durables.find(client, name)
    if durable is None:
        allowed = access.may(Permission.MONITOR)
    else:
        allowed = any([access.allows(action, _TOPIC, durable.topic.destination.name) for action in actions])
    if not allowed:
        user = access.principal.name
        text = f"user {user!r} may not {actions[0]} the topic of the durable subscription {name!r} of {client!r}"
        raise AccessRefused(text, action=str(actions[0]), client=client, subscription=name)


def _get(call: Call) -> DurableStatus:
    if not call.access.may(Permission.MONITOR):
        _require(call, Action.READ, Action.MANAGE)
    return call.topics.durable(call.path["client"], call.name)


async def _create(call: Call) -> DurableStatus:
    new: NewDurable = call.body
    if not call.access.allows(Action.MANAGE, _TOPIC, new.topic):
        call.access.check(Action.READ, _TOPIC, new.topic, exists=new.topic in call.service.broker.destinations.topics)
    status = call.topics.create_durable(
        call.path["client"], call.name, new.topic, wanted=new.selector, no_local=new.no_local,
        retroactive=new.retroactive,
    )  # fmt: skip
    text = "durable subscription {subscription} of {client} of topic {topic} was created"
    return await call.changed("subscription.created", text, status, topic=new.topic)


async def _delete(call: Call) -> Removed:
    _require(call, Action.MANAGE)
    steps = call.topics.delete_durable(call.path["client"], call.name, force=call.query.force)
    text = "durable subscription {subscription} of {client} was removed"
    return await call.removed("subscription.deleted", text, steps)


async def _purge(call: Call) -> Purged:
    _require(call, Action.MANAGE)
    transfer = call.topics.purge_durable(call.path["client"], call.name, call.body.choice())
    text = "durable subscription {subscription} of {client} was purged"
    return await call.transferred("messages.purged", text, Purged, transfer)


def _browse(call: Call) -> BrowsePage:
    _require(call, Action.READ)
    query = call.query
    return call.topics.browse_durable(call.path["client"], call.name, query.after, query.limit, query.selector)


_ONE = "/durables/{client}/{name}"

ENDPOINTS = [
    listing(
        "DurableList", "/durables", USER, "List the durable subscriptions with their counts.", "durables",
        DurableStatus, lambda call: call.topics.durables(),
        sees=lambda access, durable: access.sees(_TOPIC, durable.topic),
    ),
    Endpoint(
        "GET", _ONE, SEE, "Get a durable subscription: counts, its consumer, why it is blocked.",
        _get, DurableStatus,
    ),
    Endpoint("PUT", _ONE, READ, "Create a durable subscription.", _create, DurableStatus, body=NewDurable, status=201),
    Endpoint("DELETE", _ONE, MANAGE, "Remove a durable subscription and its backlog.", _delete, Removed, DeleteQuery),
    Endpoint("POST", _ONE + "/purge", MANAGE, "Purge messages of a durable subscription.", _purge, Purged, body=Chosen),
    Endpoint(
        "GET", _ONE + "/messages", BROWSE,
        "Browse the messages of a durable subscription, oldest first.", _browse, BrowsePage, BrowseQuery,
    ),
]  # fmt: skip
