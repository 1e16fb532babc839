"""The consumers of one OpenWire connection."""

from collections.abc import Callable

from quire.broker.acknowledgement import AckType, acknowledge_these
from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import is_dead_letter_queue
from quire.broker.routing.addresses import Address
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidHeader, LimitExceeded, ProtocolViolation
from quire.logs import event
from quire.protocols.openwire.commands import ConsumerInfo, MessagePull
from quire.protocols.openwire.structures import ConsumerId, SessionId
from quire.server.openwire.advisory_replay import AdvisoryReplay
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.openwire_browser import OpenWireBrowser
from quire.server.openwire.openwire_consumer import UNKNOWN, OpenWireConsumer, check_single
from quire.server.openwire.openwire_destinations import addresses_of
from quire.server.openwire.openwire_member import OpenWireMember
from quire.server.openwire.openwire_stream_browser import OpenWireStreamBrowser
from quire.server.openwire.openwire_wildcard import OpenWireWildcard
from quire.server.openwire.subscription_table import SubscriptionTable
from quire.sessions.rights import Guard

MAX_SELECTORS = 100_000
"""How many characters the selectors of a connection may have together: each takes up to 200 bytes of memory."""

MAX_CONSUMERS = 10_000
"""How many consumers a connection may have."""


def check_own_durable(broker: Broker, guard: Guard, client_id: str, name: str) -> None:
    """See that a durable subscription, if it is there, is the client's own.

    Raises:
        UnknownSubscription: it is another user's.
    """
    durable, pattern = broker.durables.find(client_id, name), broker.durable_patterns.find(client_id, name)
    if durable is not None:
        guard.check_durable(durable.definition.owner, durable.topic.destination, name)
    if pattern is not None:
        guard.check_durable(pattern.owner, Destination(DestinationKind.TOPIC, pattern.pattern), name)


class OpenWireConsumers:
    """The consumers of a session."""

    def __init__(self, broker: Broker, session: ClientSession) -> None:
        self.table = SubscriptionTable()
        self._broker = broker
        self._session = session
        self._by_id: dict[ConsumerId, OpenWireConsumer] = {}
        self._of_subscription: dict[str, OpenWireConsumer] = {}
        self._selectors = 0
        self._replay = AdvisoryReplay(broker)

    def find(self, id: ConsumerId | None) -> OpenWireConsumer | None:
        """The consumer of an id; None if it is gone."""
        return None if id is None else self._by_id.get(id)

    def of(self, subscription: Subscription) -> OpenWireConsumer | None:
        """The consumer that has a subscription of the core; None if it is gone."""
        return self._of_subscription.get(subscription.id)

    def only_subscription(self, id: ConsumerId | None) -> Subscription | None:
        """The subscription of a consumer of one destination; None if it has several, or is gone."""
        consumer = None if id is None else self._by_id.get(id)
        return consumer.single if consumer is not None else None

    def add(self, info: ConsumerInfo) -> None:
        """A consumer comes. A failover client repeats those it has: then nothing changes."""
        if info.consumer_id is None or info.destination is None:
            raise ProtocolViolation("a consumer needs an id and a destination")
        if info.consumer_id in self._by_id:
            return
        if len(self._by_id) >= MAX_CONSUMERS:
            text = f"{MAX_CONSUMERS} consumers are the limit of a connection"
            raise LimitExceeded(text, limit=MAX_CONSUMERS)
        length = len(info.selector or "")
        if self._selectors + length > MAX_SELECTORS:
            text = f"the selectors of a connection may have {MAX_SELECTORS} characters together"
            raise LimitExceeded(text, limit=MAX_SELECTORS)
        addresses = addresses_of(info.destination)
        check_single(info, addresses)
        self._check_allowed(info, addresses)
        consumer = self._kind(info, addresses)(self._broker, self._session, self.table, info, addresses)
        self._by_id[info.consumer_id] = self._of_subscription[consumer.id] = consumer
        self._selectors += length
        if addresses[0].kind is DestinationKind.TOPIC:
            for subscription in consumer.subscriptions:
                self._replay.begin(subscription)

    def _kind(self, info: ConsumerInfo, addresses: tuple[Address, ...]) -> type[OpenWireConsumer]:
        if addresses[0].kind is DestinationKind.STREAM:
            return OpenWireStreamBrowser if info.browser else OpenWireMember
        if info.subscription_name is not None and not self._session.client_id:
            raise InvalidHeader("a durable subscription belongs to a client: set a client id", header="client-id")
        if len(addresses) > 1 or Pattern(addresses[0].name).is_wildcard:
            return OpenWireWildcard
        return OpenWireBrowser if info.browser else OpenWireConsumer

    def _check_allowed(self, info: ConsumerInfo, addresses: tuple[Address, ...]) -> None:
        """See that the client may have what it asks for."""
        guard, name, client_id = self._session.guard, info.subscription_name, self._session.client_id or ""
        guard.check_subscribe(addresses)
        if name is not None and addresses[0].kind is DestinationKind.TOPIC:
            check_own_durable(self._broker, guard, client_id, name)

    def look_again(self) -> None:
        """Consumers of wildcards may have other destinations now."""
        for consumer in self._by_id.values():
            if isinstance(consumer, OpenWireWildcard):
                consumer.look_again()

    def when_started(self, info: ConsumerInfo, call: Callable[[], None]) -> bool:
        """Make a call when a consumer that was added is subscribed to everything; False if it is already."""
        consumer = self.find(info.consumer_id)
        return consumer is not None and consumer.when_started(call)

    def refused(self, subscription: Subscription) -> bool:
        """Messages that cannot be written for this client become dead letters: it could never take them.

        A dead letter stays where it is. The consumer passes it: it is in flight, takes no credit, and comes back when
        the consumer goes.
        """
        frames, consumer = self.table.frames.get(subscription.number), self.of(subscription)
        if frames is None or consumer is None:
            return False
        source = subscription.source
        stays = is_dead_letter_queue(source.destination, source.policy)
        for sequence, error in frames.take_refused():
            if sequence not in subscription.in_flight:
                continue
            if stays:
                subscription.extend([sequence])
                text = f"{consumer.id} passes a message of {source.destination}: {error}"
                destination = str(source.destination)
                event("message.passed", text, destination=destination, consumer=consumer.id, sequence=sequence)
            else:
                acknowledge_these(subscription, AckType.POISON, [sequence], cause=str(error))
            self._session.report(error)
        return False

    def pull(self, pull: MessagePull) -> None:
        """A consumer asks for a message."""
        consumer = self.find(pull.consumer_id)
        if consumer is not None:
            consumer.pull(pull.timeout)

    def remove(self, id: ConsumerId, cause: str, last_seen: int = UNKNOWN) -> None:
        """A consumer goes; nothing happens if it has gone already."""
        consumer = self._by_id.pop(id, None)
        if consumer is not None:
            del self._of_subscription[consumer.id]
            self._selectors -= len(consumer.info.selector or "")
            consumer.leave(cause, last_seen)

    def remove_session(self, id: SessionId, last_seen: int) -> None:
        """The consumers of a session go."""
        own = [
            known for known in self._by_id if (known.connection_id, known.session_id) == (id.connection_id, id.value)
        ]
        for known in own:
            self.remove(known, "the session was closed", last_seen)

    def leave(self, cause: str, last_seen: int = UNKNOWN) -> None:
        """All consumers go."""
        for id in list(self._by_id):
            self.remove(id, cause, last_seen)

    def wake(self) -> None:
        """The connection takes output again: consumers may be given messages."""
        for consumer in self._by_id.values():
            consumer.wake()
