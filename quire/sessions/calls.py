"""Requests of clients to services, by name: ``Session.call``. What a new door needs of a service is a row here.

A row is a function of the session and the arguments. It returns the result, which ``Door.answered`` gets; None if there
is none, then the token is confirmed; or an iterator of steps.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quire.broker.routing.addresses import Address, Scope
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import DestinationInUse, InvalidArgument, InvalidDestination, UnknownSubscription
from quire.management.queues import delete_queue, delete_topic
from quire.sessions.base import Tx
from quire.sessions.consumers import ConsumingSession, check_own_durable


def remove_durable(session: ConsumingSession, client_id: str, name: str, written: str = "") -> None:
    """Remove a durable subscription, to a topic or to a pattern, with what waits for it.

    Args:
        written: how the client writes streams, if it consumes a group as a durable subscription; empty if not.

    Raises:
        UnknownSubscription: there is none.
        InvalidArgument: there is none, but a group of that name.
        DestinationInUse: it has a consumer.
    """
    broker = session.broker
    check_own_durable(session, client_id, name)
    if broker.durable_patterns.find(client_id, name) is not None:
        broker.durable_patterns.remove(client_id, name)
        return
    try:
        broker.durables.remove(client_id, name)
    except UnknownSubscription:
        streams = [group.stream.destination for group in broker.groups.all() if group.name == name]
        of = [stream.name for stream in streams if session.guard.sees(stream)]
        if not of or not written:
            raise
        exact = f"{written}{of[0]}?group={name[:60]}"
        text = f"{name[:60]!r} is a consumer group, which all clients share: to remove it, unsubscribe {exact!r}"
        raise InvalidArgument(text, argument="subscription_name") from None


def remove_group(session: ConsumingSession, stream: str, group: str) -> None:
    """Remove a consumer group without members, with all that it remembers."""
    session.guard.check_manage(Address(DestinationKind.STREAM, stream))
    session.broker.groups.delete(session.broker.groups.existing(stream, group))


def create(session: ConsumingSession, address: Address) -> None:
    """Create a destination, if it is not there."""
    session.guard.check_create(Address(address.kind, address.name))
    _make_known(session, address)


def _make_known(session: ConsumingSession, address: Address) -> None:
    """A destination is there before the first message comes."""
    if address.scope is Scope.COMMON and not Pattern(address.name).is_wildcard:
        session.broker.routing.target(str(address))


def delete(session: ConsumingSession, addresses: Sequence[Address]) -> Iterator[int]:
    """Delete queues and topics, in steps. A client that goes meanwhile leaves a queue that has fewer messages."""
    broker = session.broker
    for kind, name, scope in addresses:
        if scope is not Scope.COMMON:
            continue
        session.guard.check_manage(Address(kind, name))
        if kind is DestinationKind.STREAM:
            text = f"the stream {name[:60]!r} is not deleted by a client: `quire stream delete` does that"
            raise InvalidDestination(text, destination=name[:60])
        if kind is DestinationKind.QUEUE and name in broker.destinations.queues:
            yield from delete_queue(broker, name)
        elif kind is DestinationKind.TOPIC and name in broker.destinations.topics:
            yield from delete_topic(broker, name)


def drop_temporary(session: ConsumingSession, address: Address) -> None:
    """Delete a temporary destination of the session's own; nothing happens if it has none of that name.

    Raises:
        DestinationInUse: it has a consumer.
    """
    if address not in session.temporaries:
        return
    temporaries = session.broker.routing.temporaries
    subscriptions = temporaries.find(address).subscriptions
    for subscription in list(subscriptions):
        subscription.leave_now()
    if any([subscription.departure is None for subscription in subscriptions]):
        name = address.name[:60]
        raise DestinationInUse(f"{name!r} still has an active subscription", destination=name)
    del session.temporaries[address]
    temporaries.delete(address)


def recover(session: ConsumingSession) -> list[Tx]:
    """The XA branches that are prepared, and the client's own."""
    return session.transactions.recover()


def producer(session: ConsumingSession, id: str, address: Address, came: bool) -> None:
    """A producer that says where it sends comes, or goes."""
    if not came:
        producer_stopped(session, id)
    elif id not in session.producers:
        destination = Destination(address.kind, address.name)
        session.guard.check_send([address])
        _make_known(session, address)
        session.producers[id] = destination
        session.broker.advisories.producer_started(session, id, destination)


def producer_stopped(session: ConsumingSession, id: str) -> None:
    """A producer goes."""
    if (destination := session.producers.pop(id, None)) is not None:
        session.broker.advisories.producer_stopped(session, id, destination)


CALLS: dict[str, Callable[..., Any]] = {
    "create": create, "delete": delete, "drop-temporary": drop_temporary, "producer": producer, "recover": recover,
    "remove-durable": remove_durable, "remove-group": remove_group,
}  # fmt: skip
