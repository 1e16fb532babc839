"""The messages that one OpenWire connection sends."""

from typing import NamedTuple

from quire.broker.schedule import Timing
from quire.broker.streams.stream import PARTITION
from quire.destination import DestinationKind
from quire.errors import InvalidHeader, ProtocolViolation
from quire.message import Message as Stored
from quire.message import with_headers
from quire.protocols.openwire.commands import ProducerAck
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.plain_frames import PlainMessage
from quire.protocols.openwire.structures import ActiveMQDestination, ProducerId
from quire.server.openwire.client_door import ClientDoor, response_to
from quire.server.openwire.message_content import content_of, plain_content
from quire.server.openwire.openwire_destinations import addresses_of, text_of
from quire.server.openwire.openwire_transactions import OpenWireTransactions
from quire.sessions.base import Route, Sending, Traits

SCHEDULED = b"AMQ_SCHEDULED_"
"""How the names of properties begin that say that a message is sent later."""

ROUTES = 1000
"""For how many destinations it is remembered how to send to them."""

_PARTITION = PARTITION.encode()


class Plan(NamedTuple):
    """How to send to a destination.

    Attributes:
        has_stream: whether a stream is among it: there the time of a message is the broker's.
    """

    route: Route
    has_stream: bool


class OpenWireSends:
    """The sends of a connection."""

    def __init__(self, door: ClientDoor, transactions: OpenWireTransactions) -> None:
        self._door = door
        self._transactions = transactions
        self._plans: dict[ActiveMQDestination, Plan] = {}
        self._producers: dict[ProducerId, str] = {}
        self._version = -1  # of the session, when the first of the plans was made
        self._has_sent = False

    def use(self, version: int) -> None:
        """If destinations have come or gone, or rules, or places, plan anew."""
        if version != self._version:
            self._plans.clear()
            self._version = version

    def take_sent(self) -> bool:
        """Whether messages were given to targets since the last call that this process stores."""
        sent, self._has_sent = self._has_sent, False
        return sent

    @property
    def destinations(self) -> list[str]:
        """Where it has sent to lately, for operators."""
        return [plan.route.text for plan in self._plans.values()]

    def send(self, message: Message | PlainMessage, *, restricted: bool) -> bool:
        """Take a message; False if it has to wait for room.

        Args:
            restricted: whether any send may have to wait now.
        """
        door, destination = self._door, message.destination
        if type(message) is PlainMessage:
            number, producer_id = message.number, message.producer_id
        elif (id := message.message_id) is not None:  # type: ignore[union-attr]
            number, producer_id = id.producer_sequence_id, id.producer_id or ProducerId()
        else:
            raise ProtocolViolation("a message needs a message id")
        if destination is None:
            raise ProtocolViolation("a message needs a destination")
        route, has_stream = self._plans.get(destination) or self._plan(destination)
        if has_stream:
            message.timestamp = door.now_ms()
        content = plain_content(message) if isinstance(message, PlainMessage) else content_of(message)
        if user := door.user_id:
            content = with_headers(content, {"JMSXUserID": user})
        properties, transaction = message.marshalled_properties, message.transaction_id
        if message.group_id is not None or (properties and (SCHEDULED in properties or _PARTITION in properties)):
            route = self._special(route, message, content)
        priority = min(max(message.priority, 0), 9)
        persistent = message.persistent if route.persistent is None else route.persistent
        is_numbered = persistent and door.is_fault_tolerant
        if route.is_plain and not restricted and transaction is None and not is_numbered:
            route.target.send(content, message.expiration, priority, persistent)
            self._has_sent = self._has_sent or route.stored
            if (token := self._token(message)) is not None:
                route.receipts.append(token)
            return True
        producer = (self._producers.get(producer_id) or self._numbered(producer_id)) if is_numbered else ""
        how = Sending(message.expiration, priority, persistent, producer, number)
        tx = None if transaction is None else self._transactions.name_of(transaction)
        return door.session.accept(route, content, how, tx=tx, token=self._token(message))

    def _token(self, message: Message | PlainMessage) -> bytes | None:
        """What the producer hears when a message is durable; None if it does not wait."""
        if message.response_required:
            return response_to(message)
        if message.producer_id is None or not (window := self._door.window(message.producer_id)):
            return None
        size = 1024 + len(message.marshalled_properties or b"") + len(message.content or b"")
        return self._door.frame(ProducerAck(producer_id=message.producer_id, size=min(size, window)))

    def _plan(self, destination: ActiveMQDestination) -> Plan:
        if len(self._plans) >= ROUTES:
            self._plans.clear()
        has_stream = any([address.kind is DestinationKind.STREAM for address in addresses_of(destination)])
        plan = Plan(self._door.session.route(text_of(destination)), has_stream)
        self._plans[destination] = plan
        return plan

    def _special(self, route: Route, message: Message | PlainMessage, content: bytes) -> Route:
        """The route of a message whose headers say more of its way than its destination."""
        headers, properties = Stored(0, content).headers(), message.marshalled_properties or b""
        timing = Timing.of(headers) if SCHEDULED in properties else None
        partition, grouped = headers.get(PARTITION), message.group_id is not None
        traits = Traits(grouped, timing, partition=partition, by_content=partition is None)
        return self._door.session.route(route.text, traits)

    def _numbered(self, producer: ProducerId) -> str:
        """The text of the id of a producer whose repeated sends must be found."""
        if len(self._producers) >= ROUTES:
            self._producers.clear()
        known = str(producer)
        if "\0" in known:
            raise InvalidHeader("the id of a producer has a NUL character", header="producer-id")
        self._producers[producer] = known
        return known
