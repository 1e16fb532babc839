"""The messages that one OpenWire connection sends."""

from typing import NamedTuple

from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause, Target
from quire.broker.routing.addresses import Address, Scope
from quire.broker.schedule import SENDER, ScheduledSend, Timing
from quire.broker.streams.stream import PARTITION, Stream
from quire.destination import DestinationKind
from quire.errors import InvalidHeader, ProtocolViolation, TransactionTooLarge
from quire.message import Message as Stored
from quire.message import with_headers
from quire.protocols.openwire.messages import Message
from quire.protocols.openwire.plain_frames import PlainMessage
from quire.protocols.openwire.structures import ActiveMQDestination, ProducerId
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.message_content import content_of, plain_content
from quire.server.openwire.openwire_destinations import addresses_of, text_of
from quire.server.openwire.openwire_transactions import OpenWireTransactions

SCHEDULED = b"AMQ_SCHEDULED_"
"""How the names of properties begin that say that a message is sent later."""

PLANS = 1000
"""For how many destinations it is remembered how to send to them."""


class Plan(NamedTuple):
    """How to send to a destination.

    Attributes:
        text: the destination, as the core's headers have it.
        persistent: nothing that goes to a temporary destination is stored, everything that goes to a stream is; None
            if the message says.
        has_stream: whether a stream is among it: there the time of a message is the broker's.
    """

    text: str
    persistent: bool | None
    has_stream: bool


class Sending(NamedTuple):
    """How a message is sent in a transaction."""

    destination: str
    target: Target
    expiration: int
    priority: int
    persistent: bool
    producer: str | None
    producer_sequence: int


class OpenWireSends:
    """The sends of a session."""

    def __init__(self, broker: Broker, session: ClientSession, transactions: OpenWireTransactions) -> None:
        self._broker = broker
        self._session = session
        self._transactions = transactions
        self._plans: dict[ActiveMQDestination, Plan] = {}
        self._producers: dict[ProducerId, str] = {}
        self.version = broker.destinations.version  # of the destinations, when the first of the plans was made

    def forget(self) -> None:
        """Plan anew: destinations have come or gone, which the client may have to be allowed to create, or rules."""
        self._plans.clear()
        self.version = self._broker.destinations.version

    @property
    def destinations(self) -> list[str]:
        """Where it has sent to lately, for operators."""
        return [plan.text for plan in self._plans.values()]

    def send(self, message: Message | PlainMessage, *, restricted: bool) -> bool:
        """Take a message; False if it has to wait for room.

        Args:
            restricted: whether any send may have to wait now.
        """
        broker, destination = self._broker, message.destination
        if type(message) is PlainMessage:
            number, producer_id = message.number, message.producer_id
        elif (id := message.message_id) is not None:  # type: ignore[union-attr]
            number, producer_id = id.producer_sequence_id, id.producer_id or ProducerId()
        else:
            raise ProtocolViolation("a message needs a message id")
        if destination is None:
            raise ProtocolViolation("a message needs a destination")
        plan = self._plans.get(destination) or self._plan(destination)
        persistent = message.persistent if plan.persistent is None else plan.persistent
        if restricted and self._must_wait(plan, message, stored=persistent):
            return False
        if plan.has_stream:
            message.timestamp = broker.core.clock.now_ms()
        content = plain_content(message) if isinstance(message, PlainMessage) else content_of(message)
        if user := self._session.user_id:
            content = with_headers(content, {"JMSXUserID": user})
        target = self._target(plan.text, message, content)
        if isinstance(target, ScheduledSend) and (sender := self._session.guard.sender):
            target.check_room(sender)
            content = with_headers(content, {SENDER: sender})
        priority = min(max(message.priority, 0), 9)
        producer = self._numbered(producer_id) if persistent and self._session.is_fault_tolerant else None
        if message.transaction_id is not None:
            transaction = self._transactions.working(message.transaction_id)
            sending = Sending(plan.text, target, message.expiration, priority, persistent, producer, number)
            transaction.send(sending, content)
            return True
        broker.core.sent(self._session)  # with a duplicate too: what it repeats may be in a commit that fails
        if producer is None or broker.producers.take(producer, number):
            target.send(content, message.expiration, priority, persistent)
        return True

    def _plan(self, destination: ActiveMQDestination) -> Plan:
        if len(self._plans) >= PLANS:
            self._plans.clear()
        addresses = addresses_of(destination)
        self._session.guard.check_send(addresses)
        has_stream = any([address.kind is DestinationKind.STREAM for address in addresses])
        persistent = _persistence(addresses[0]) if len(addresses) == 1 else None
        plan = Plan(text_of(destination), persistent, has_stream)
        self._plans[destination] = plan
        return plan

    def _target(self, text: str, message: Message | PlainMessage, content: bytes) -> Target:
        routing = self._broker.routing
        properties = message.marshalled_properties
        if properties and SCHEDULED in properties:
            timing = Timing.of(Stored(0, content).headers())
            return routing.scheduled(text, timing, grouped=message.group_id is not None)
        target = routing.target(text)
        if isinstance(target, Stream) and properties and PARTITION.encode() in properties:
            target = target.route(Stored(0, content).headers())
        if message.group_id is not None:
            target.expect_groups()
        return target

    def _numbered(self, producer: ProducerId) -> str:
        """The text of the id of a producer whose repeated sends must be found."""
        known = self._producers.get(producer)
        if known is None:
            if len(self._producers) >= PLANS:
                self._producers.clear()
            known = str(producer)
            if "\0" in known:
                raise InvalidHeader("the id of a producer has a NUL character", header="producer-id")
            self._producers[producer] = known
        return known

    def _must_wait(self, plan: Plan, message: Message | PlainMessage, *, stored: bool) -> bool:
        """Hold this producer if a limit it is subject to is exceeded; refuse it if the store takes no writes."""
        core = self._broker.core
        properties = message.marshalled_properties
        stored = stored or bool(properties and SCHEDULED in properties)
        if stored and core.store_error is not None:
            raise core.store_error
        cause = core.hold_cause(stored=stored)
        if cause is None:
            return False
        limit = core.settings.store.limit
        if cause is HoldCause.STORE and message.transaction_id is not None and core.transaction_bytes >= limit:
            # Consumers cannot make room, and this producer's commit would wait behind its send.
            text = f"the open transactions hold {limit} bytes of messages, as many as the store may (store.limit)"
            raise TransactionTooLarge(text, limit=limit)
        core.flow.hold(self._session, cause, plan.text.removeprefix("/queue/"))
        return True


def _persistence(address: Address) -> bool | None:
    if address.kind is DestinationKind.STREAM:
        return True
    return False if address.scope is Scope.REMOTE else None
