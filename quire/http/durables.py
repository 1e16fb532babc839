"""The API's durable subscriptions: list, look, create, delete, browse, purge."""

from quire.broker.routing.addresses import Address
from quire.destination import Destination, DestinationKind
from quire.errors import AccessRefused
from quire.http.endpoint import ActionQuery, Call, DeleteQuery, Endpoint, Fields, Removed
from quire.http.listing import table_listing
from quire.http.messages import BrowseQuery, browsed
from quire.http.rights import USER
from quire.http.transfers import Chosen, Purged, count_purge
from quire.http.two_steps import Counted
from quire.management.message_pages import BrowsePage
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


def require_topic(call: Call, *actions: Action) -> None:
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
        require_topic(call, Action.READ, Action.MANAGE)
    return call.topics.durable(call.path["client"], call.name)


async def _create(call: Call) -> DurableStatus:
    new: NewDurable = call.body
    if call.access.allows(Action.MANAGE, _TOPIC, new.topic):
        call.guard.check_selector(Destination(_TOPIC, new.topic), new.selector)
        call.guard.creates(Address(_TOPIC, new.topic))
    else:
        call.guard.check_subscribe([Address(_TOPIC, new.topic)])
    status = call.topics.create_durable(
        call.path["client"], call.name, new.topic, wanted=new.selector, no_local=new.no_local,
        retroactive=new.retroactive,
    )  # fmt: skip
    text = "durable subscription {subscription} of {client} of topic {topic} was created"
    return await call.changed("subscription.created", text, status, topic=new.topic)


def _may_manage(call: Call) -> None:
    require_topic(call, Action.MANAGE)


async def _delete(call: Call) -> Removed:
    steps = call.topics.delete_durable(call.path["client"], call.name, force=call.query.force)
    text = "durable subscription {subscription} of {client} was removed"
    return await call.removed("subscription.deleted", text, steps)


def _may_purge(call: Call) -> None:
    _may_manage(call)
    call.body.choice(call, _topic(call))


def _topic(call: Call) -> Destination:
    return call.topics.existing_durable(call.path["client"], call.name).topic.destination


async def _purge(call: Call) -> Purged:
    transfer = call.topics.purge_durable(call.path["client"], call.name, call.body.choice(call, _topic(call)))
    text = "durable subscription {subscription} of {client} was purged"
    return await call.transferred("messages.purged", text, Purged, transfer)


def _count(call: Call) -> Counted:
    durable = call.topics.existing_durable(call.path["client"], call.name)
    return Counted(durable.depth, consumers=len(durable.subscriptions))


def _browse(call: Call) -> BrowsePage:
    require_topic(call, Action.READ)
    return browsed(call, call.topics.existing_durable(call.path["client"], call.name))


_ONE = "/durables/{client}/{name}"

ENDPOINTS = [
    table_listing(
        "DurableList", "/durables", USER, "List the durable subscriptions with their counts.", "durables",
        DurableStatus, lambda call: call.management.tables.durables(),
        lambda call, durable: call.topics.reader.durable(durable),
        lambda access, durable: access.sees(_TOPIC, durable.topic.destination.name),
    ),
    Endpoint(
        "GET", _ONE, SEE, "Get a durable subscription: counts, its consumer, why it is blocked.",
        _get, DurableStatus,
    ),
    Endpoint("PUT", _ONE, READ, "Create a durable subscription.", _create, DurableStatus, body=NewDurable, status=201),
    Endpoint(
        "DELETE", _ONE, MANAGE, "Remove a durable subscription and its backlog.", _delete, Removed, DeleteQuery,
        dry_run=_count, check=_may_manage,
    ),
    Endpoint(
        "POST", _ONE + "/purge", MANAGE, "Purge messages of a durable subscription.", _purge, Purged, ActionQuery,
        Chosen,
        dry_run=lambda call: count_purge(
            call, call.topics.purge_durable, call.path["client"], call.name, source=_topic(call)
        ),
        check=_may_purge,
    ),
    Endpoint(
        "GET", _ONE + "/messages", BROWSE,
        "Browse the messages of a durable subscription, oldest first.", _browse, BrowsePage, BrowseQuery,
    ),
]  # fmt: skip
