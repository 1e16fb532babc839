"""What a client says of its connection, sessions, producers and destinations."""

from collections.abc import Callable
from typing import Any, NamedTuple

from quire.broker.routing.addresses import Address, Scope
from quire.errors import InvalidArgument, InvalidDestination, LimitExceeded, ProtocolViolation
from quire.protocols.openwire.commands import (
    ConnectionControl,
    DestinationInfo,
    DestinationOperation,
    FlushCommand,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionInfo,
)
from quire.protocols.openwire.structures import ActiveMQTopic, ConnectionId, ConsumerId, ProducerId, SessionId
from quire.server.openwire.client_door import ClientDoor
from quire.server.openwire.openwire_consumers import OpenWireConsumers
from quire.server.openwire.openwire_destinations import STREAM, addresses_of, stream_option

MAX_OBJECTS = 10_000
"""How many sessions, and how many producers, a connection may have."""


class Producer(NamedTuple):
    """A producer: where it sends if it says so, and how many bytes it sends ahead of their confirmation."""

    address: Address | None
    window: int


class ConnectionCommands:
    """The commands of one connection that are about neither messages, consumers nor transactions.

    Attributes:
        handlers: what does each of them.
    """

    def __init__(self, door: ClientDoor, consumers: OpenWireConsumers) -> None:
        self._door = door
        self._consumers = consumers
        self._producers: dict[ProducerId, Producer] = {}
        self._sessions: set[SessionId] = set()
        self.handlers: dict[type, Callable[[Any], bool | None]] = {
            ConnectionControl: self._control, FlushCommand: door.answer_in_order,
            SessionInfo: self._add_session, ProducerInfo: self._add_producer, DestinationInfo: self._change_destination,
            RemoveInfo: self._remove, RemoveSubscriptionInfo: self._remove_subscription,
        }  # fmt: skip

    def _control(self, command: ConnectionControl) -> None:
        self._door.is_fault_tolerant = self._door.is_fault_tolerant or command.fault_tolerant
        self._door.answer_in_order(command)

    # Sessions and producers.

    def _add_session(self, info: SessionInfo) -> None:
        if info.session_id is None:
            raise ProtocolViolation("a session needs an id", command="SessionInfo")
        self._check_room(len(self._sessions), "sessions")
        self._sessions.add(info.session_id)
        self._door.answer_at_once(info)

    def _add_producer(self, info: ProducerInfo) -> bool:
        door = self._door
        if info.producer_id is None:
            raise ProtocolViolation("a producer needs an id", command="ProducerInfo")
        if info.producer_id in self._producers:  # a failover client repeats it
            door.answer_at_once(info)
            return True
        self._check_room(len(self._producers), "producers")
        addresses = () if info.destination is None else addresses_of(info.destination)
        address = addresses[0] if len(addresses) == 1 else None
        if address is None:
            door.answer_at_once(info)
        elif not door.session.call("producer", (str(info.producer_id), address, True), door.token(info)):
            return False
        self._producers[info.producer_id] = Producer(address, info.window_size)
        return True

    def _check_room(self, count: int, what: str) -> None:
        if count >= MAX_OBJECTS:
            raise LimitExceeded(f"{MAX_OBJECTS} {what} are the limit of a connection", limit=MAX_OBJECTS)

    def window(self, id: ProducerId) -> int:
        """How many bytes a producer sends ahead; 0 if it does not wait for ``ProducerAck``."""
        producer = self._producers.get(id)
        return 0 if producer is None else producer.window

    def _remove_producer(self, id: ProducerId) -> bool:
        """A producer goes; False if it has to wait."""
        producer = self._producers.get(id)
        if producer is None:
            return True
        address, session = producer.address, self._door.session
        if address is not None and not session.call("producer", (str(id), address, False)):
            return False
        del self._producers[id]
        return True

    # Destinations.

    def _change_destination(self, info: DestinationInfo) -> bool:
        door = self._door
        if info.destination is None:
            raise ProtocolViolation("DestinationInfo needs a destination", command="DestinationInfo")
        addresses, is_new = addresses_of(info.destination), info.operation_type == DestinationOperation.ADD
        temporary = [address for address in addresses if address.scope is Scope.REMOTE]
        common = tuple(address for address in addresses if address.scope is not Scope.REMOTE)
        if not is_new and info.operation_type == DestinationOperation.REMOVE and common:
            if not door.session.call("delete", (common,), None if temporary else door.token(info)):
                return False
        elif is_new:
            for address in common:
                last = address is common[-1] and not temporary
                door.session.call("create", (address,), door.token(info) if last else None)
        for address in temporary:
            token = door.token(info) if address is temporary[-1] else None
            self._check_own(address.name)
            if is_new:
                door.session.temporary(address.kind, address.name, token)
            else:
                door.session.call("drop-temporary", (address,), token)
        door.look_at_session()
        return True

    def _check_own(self, name: str) -> None:
        if not name.startswith(f"{self._door.connection_id}:"):
            text = f"the temporary destination {name[:60]!r} does not belong to this connection"
            raise InvalidDestination(text, destination=name[:60])

    # Stored subscriptions.

    def _remove_subscription(self, info: RemoveSubscriptionInfo) -> bool:
        session = self._door.session
        client, name = info.client_id or session.client_id or "", info.subscription_name or ""
        if name.startswith(STREAM):
            return self._remove_group(info, name)
        return session.call("remove-durable", (client, name, STREAM), self._door.token(info))

    def _remove_group(self, info: RemoveSubscriptionInfo, written: str) -> bool:
        """Remove a consumer group that is written as ``stream://orders?group=billing``."""
        addresses, group = addresses_of(ActiveMQTopic(written)), stream_option(written, "group")
        if group is None or len(addresses) > 1:
            text = f"{written[:100]!r} is no group of a stream: write {STREAM}NAME?group=GROUP"
            raise InvalidArgument(text, argument="subscription_name")
        return self._door.session.call("remove-group", (addresses[0].name, group), self._door.token(info))

    # The end of any of them.

    def _remove(self, info: RemoveInfo) -> bool:
        id, door = info.object_id, self._door
        if isinstance(id, ConsumerId):
            return self._consumers.remove(info, id)
        if isinstance(id, ConnectionId) and door.connection_id and id.value == door.connection_id:
            return door.remove_connection(info)
        if isinstance(id, SessionId):
            if not self._consumers.remove_of(id, info.last_delivered_sequence_id):
                return False
            self._sessions.discard(id)
            producers = [known for known in self._producers if _is_of(known, id)]
        else:
            producers = [id] if isinstance(id, ProducerId) else []
        if not all([self._remove_producer(producer) for producer in producers]):
            return False
        door.answer_in_order(info)
        return True

    def forget(self) -> None:
        """The connection is over."""
        self._producers.clear()
        self._sessions.clear()


def _is_of(producer: ProducerId, session: SessionId) -> bool:
    return (producer.connection_id, producer.session_id) == (session.connection_id, session.value)
