"""What a client says of its connection, sessions, producers, consumers and destinations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quire.broker.broker import Broker
from quire.broker.routing.addresses import Address, Scope
from quire.destination import MAX_NAME, Destination, DestinationKind, is_plain
from quire.destination_pattern import Pattern
from quire.errors import (
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    LimitExceeded,
    ProtocolViolation,
    QuireError,
    UnknownSubscription,
)
from quire.management.queues import delete_queue, delete_topic
from quire.protocols.openwire.commands import (
    ConnectionControl,
    ConnectionInfo,
    ConsumerControl,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    FlushCommand,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionInfo,
)
from quire.protocols.openwire.structures import ActiveMQTopic, ConnectionId, ConsumerId, ProducerId, SessionId
from quire.protocols.openwire.throwable import Throwable
from quire.protocols.openwire.wire_fields import Structure
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.openwire_consumers import OpenWireConsumers, check_own_durable
from quire.server.openwire.openwire_destinations import STREAM, addresses_of, stream_option

MAX_OBJECTS = 10_000
"""How many sessions, and how many producers, a connection may have."""

MAX_TEMPORARIES = 1000
"""How many temporary destinations a connection may have."""


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer: where it sends if it says so, and how many bytes it sends ahead of their confirmation."""

    destination: Destination | None
    window: int


class ConnectionCommands:
    """The commands of one connection that are neither messages, acknowledgements nor transactions.

    Attributes:
        handlers: what does each of them.
        at_once: those that are answered at once, not when everything before them is durable.
    """

    at_once = frozenset({ConnectionInfo, SessionInfo, ProducerInfo, ConsumerInfo})

    def __init__(self, broker: Broker, session: ClientSession, consumers: OpenWireConsumers) -> None:
        self._broker = broker
        self._session = session
        self._consumers = consumers
        self._producers: dict[ProducerId, Producer] = {}
        self._sessions: set[SessionId] = set()
        self._temporaries = session.temporaries = {}
        self._deletion: Iterator[int] | None = None
        self.handlers: dict[type, Callable[[Any], Structure | None]] = {
            ConnectionInfo: self._connect, ConnectionControl: self._control, SessionInfo: self._add_session,
            ProducerInfo: self._add_producer, ConsumerInfo: consumers.add, ConsumerControl: self._control_consumer,
            DestinationInfo: self._change_destination, RemoveInfo: self._remove,
            RemoveSubscriptionInfo: self._remove_subscription, FlushCommand: self._control,
        }  # fmt: skip

    # The connection.

    def _connect(self, info: ConnectionInfo) -> Structure | None:
        session, broker = self._session, self._broker
        if info.connection_id is None or session.connection_id:
            raise ProtocolViolation("ConnectionInfo needs a connection id, and comes once", command="ConnectionInfo")
        session.identified(info.connection_id.value)
        try:
            broker.routing.client_ids.claim(info.client_id or "", session)
        except QuireError as error:
            session.end_soon()
            return ExceptionResponse(exception=Throwable(f"{session.package}.InvalidClientIDException", str(error)))
        session.client_id = info.client_id
        session.is_fault_tolerant = session.is_fault_tolerant or info.fault_tolerant
        if session.is_announced:
            broker.advisories.connection_started(session, session.client_id)
        if info.manageable:
            session.send_command(session.control())
        return None

    def _control(self, command: ConnectionControl | FlushCommand) -> None:
        if isinstance(command, ConnectionControl) and command.fault_tolerant:
            self._session.is_fault_tolerant = True

    # Sessions and producers.

    def _add_session(self, info: SessionInfo) -> None:
        if info.session_id is None:
            raise ProtocolViolation("a session needs an id", command="SessionInfo")
        self._check_room(len(self._sessions), "sessions")
        self._sessions.add(info.session_id)

    def _add_producer(self, info: ProducerInfo) -> None:
        if info.producer_id is None:
            raise ProtocolViolation("a producer needs an id", command="ProducerInfo")
        if info.producer_id in self._producers:  # a failover client repeats it
            return
        self._check_room(len(self._producers), "producers")
        destination = None
        if info.destination is not None:
            addresses = addresses_of(info.destination)
            if len(addresses) == 1:
                destination = Destination(addresses[0].kind, addresses[0].name)
                self._session.guard.check_send(addresses)
                self._make_known(addresses[0].scope, destination)
                id = str(info.producer_id)
                self._broker.advisories.producer_started(self._session, id, destination)
        self._producers[info.producer_id] = Producer(destination, info.window_size)

    def _make_known(self, scope: Scope, destination: Destination) -> None:
        """A destination is there before the first message comes."""
        if scope is Scope.COMMON and not Pattern(destination.name).is_wildcard:
            self._broker.routing.target(f"/{destination.kind}/{destination.name}")

    def _check_room(self, count: int, what: str) -> None:
        if count >= MAX_OBJECTS:
            raise LimitExceeded(f"{MAX_OBJECTS} {what} are the limit of a connection", limit=MAX_OBJECTS)

    def window(self, id: ProducerId) -> int:
        """How many bytes a producer sends ahead; 0 if it does not wait for ``ProducerAck``."""
        producer = self._producers.get(id)
        return 0 if producer is None else producer.window

    # Consumers.

    def _control_consumer(self, control: ConsumerControl) -> None:
        consumer = self._consumers.find(control.consumer_id)
        if consumer is not None and not (control.close or control.flush or control.start or control.stop):
            consumer.set_prefetch(control.prefetch)

    def _remove_subscription(self, info: RemoveSubscriptionInfo) -> None:
        client = info.client_id or self._session.client_id or ""
        name = info.subscription_name or ""
        if name.startswith(STREAM):
            self._remove_group(name)
            return
        check_own_durable(self._broker, self._session.guard, client, name)
        if self._broker.durable_patterns.find(client, name) is not None:
            self._broker.durable_patterns.remove(client, name)
        else:
            self._remove_durable(client, name)

    def _remove_durable(self, client: str, name: str) -> None:
        try:
            self._broker.durables.remove(client, name)
        except UnknownSubscription:
            guard = self._session.guard
            streams = [group.stream.destination for group in self._broker.groups.all() if group.name == name]
            of = [stream.name for stream in streams if guard.sees(stream)]
            if not of:
                raise
            exact = f"{STREAM}{of[0]}?group={name[:60]}"
            text = f"{name[:60]!r} is a consumer group, which all clients share: to remove it, unsubscribe {exact!r}"
            raise InvalidArgument(text, argument="subscription_name") from None

    def _remove_group(self, written: str) -> None:
        """Remove a consumer group that is written as ``stream://orders?group=billing``."""
        addresses, group = addresses_of(ActiveMQTopic(written)), stream_option(written, "group")
        if group is None or len(addresses) > 1:
            text = f"{written[:100]!r} is no group of a stream: write {STREAM}NAME?group=GROUP"
            raise InvalidArgument(text, argument="subscription_name")
        self._session.guard.check_manage(addresses[0])
        self._broker.groups.delete(self._broker.groups.existing(addresses[0].name, group))

    # Destinations.

    def _change_destination(self, info: DestinationInfo) -> None:
        if info.destination is None:
            raise ProtocolViolation("DestinationInfo needs a destination", command="DestinationInfo")
        for kind, name, scope in addresses_of(info.destination):
            is_new = info.operation_type == DestinationOperation.ADD
            if scope is Scope.REMOTE:
                (self._add_temporary if is_new else self._remove_temporary)(kind, name)
            elif is_new:
                self._session.guard.check_create(Address(kind, name))
                self._make_known(scope, Destination(kind, name))

    def _add_temporary(self, kind: DestinationKind, name: str) -> None:
        if name in self._temporaries:  # a failover client repeats it
            return
        self._check_own(name)
        if not is_plain(name):
            text = f"{name[:60]!r} is not a name for a temporary destination: up to {MAX_NAME} bytes, all printable"
            raise InvalidDestination(text, destination=name[:60])
        if len(self._temporaries) >= MAX_TEMPORARIES:
            text = f"a connection may have {MAX_TEMPORARIES} temporary destinations"
            raise LimitExceeded(text, limit=MAX_TEMPORARIES)
        self._broker.routing.temporaries.create(kind, name)
        self._temporaries[name] = kind

    def _check_own(self, name: str) -> None:
        if not name.startswith(f"{self._session.connection_id}:"):
            text = f"the temporary destination {name[:60]!r} does not belong to this connection"
            raise InvalidDestination(text, destination=name[:60])

    def _remove_temporary(self, kind: DestinationKind, name: str) -> None:
        self._check_own(name)
        if self._temporaries.get(name) is not kind:
            return
        temporaries = self._broker.routing.temporaries
        address = Address(kind, name, Scope.REMOTE)
        self._check_unused(temporaries.find(address).subscriptions, name)
        del self._temporaries[name]
        temporaries.delete(address)

    def is_deleting(self, info: DestinationInfo) -> bool:
        """Take a step of the deletion of what a client wants deleted, if it does; whether there are more steps.

        A client that goes meanwhile leaves a queue that has fewer messages.
        """
        if info.operation_type != DestinationOperation.REMOVE or info.destination is None:
            return False
        if self._deletion is None:
            self._deletion = self._delete(addresses_of(info.destination))
        try:
            is_deleting = next(self._deletion, None) is not None
        except QuireError:
            self._deletion = None
            raise
        if not is_deleting:
            self._deletion = None
        return is_deleting

    def _delete(self, addresses: Sequence[Address]) -> Iterator[int]:
        destinations = self._broker.destinations
        for kind, name, scope in addresses:
            if scope is Scope.REMOTE:
                continue
            self._session.guard.check_manage(Address(kind, name))
            if kind is DestinationKind.STREAM:
                text = f"the stream {name[:60]!r} is not deleted by a client: `quire stream delete` does that"
                raise InvalidDestination(text, destination=name[:60])
            if kind is DestinationKind.QUEUE and name in destinations.queues:
                yield from delete_queue(self._broker, name)
            elif kind is DestinationKind.TOPIC and name in destinations.topics:
                yield from delete_topic(self._broker, name)

    def _check_unused(self, subscriptions: list[Any], name: str) -> None:
        for subscription in list(subscriptions):
            subscription.leave_now()
        if any(subscription.departure is None for subscription in subscriptions):
            raise DestinationInUse(f"{name[:60]!r} still has an active subscription", destination=name[:60])

    # The end of any of them.

    def _remove(self, info: RemoveInfo) -> None:
        id, last_seen = info.object_id, info.last_delivered_sequence_id
        if isinstance(id, ConsumerId):
            self._consumers.remove(id, "the consumer was closed", last_seen)
        elif isinstance(id, SessionId):
            self._consumers.remove_session(id, last_seen)
            self._sessions.discard(id)
            for producer in [known for known in self._producers if _is_of(known, id)]:
                self._remove_producer(producer)
        elif isinstance(id, ProducerId):
            self._remove_producer(id)
        elif isinstance(id, ConnectionId) and id.value == self._session.connection_id:
            self._session.removed(last_seen)

    def _remove_producer(self, id: ProducerId) -> None:
        producer = self._producers.pop(id, None)
        if producer is not None and producer.destination is not None:
            self._broker.advisories.producer_stopped(self._session, str(id), producer.destination)

    def leave(self) -> None:
        """The client goes."""
        for id in list(self._producers):
            self._remove_producer(id)
        for name, kind in self._temporaries.items():
            self._broker.routing.temporaries.delete(Address(kind, name, Scope.REMOTE))
        self._temporaries.clear()
        self._sessions.clear()
        if self._session.client_id is not None:
            self._broker.routing.client_ids.release(self._session.client_id, self._session)


def _is_of(producer: ProducerId, session: SessionId) -> bool:
    return (producer.connection_id, producer.session_id) == (session.connection_id, session.value)
