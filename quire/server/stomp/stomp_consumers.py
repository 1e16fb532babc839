"""The consumers of one STOMP connection: SUBSCRIBE, UNSUBSCRIBE, and the SEND frames that pull."""

from collections.abc import Callable, Iterator

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.routing.route import whole_number
from quire.errors import InvalidHeader, LimitExceeded, UnknownSubscription
from quire.protocols.stomp.frames import Head
from quire.server.stomp.browser_consumer import BrowserConsumer
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.member_consumer import MemberConsumer
from quire.server.stomp.single_consumer import SingleConsumer, required_client_id
from quire.server.stomp.stomp_consumer import StompConsumer
from quire.server.stomp.stomp_subscribe import SubscribeRequest, durable_name, read_subscribe
from quire.server.stomp.wildcard_consumer import WildcardConsumer

MAX_SELECTORS = 100_000
"""How many characters the selectors of a connection may have together: each takes up to 200 bytes of memory."""

MAX_SUBSCRIPTIONS = 1000
"""How many subscriptions a connection may have."""

MAX_WAIT = 365 * 86_400_000
"""How long a pull may wait, in milliseconds."""

PULL = "/pull/"
"""A SEND to this and a subscription's id asks for messages."""


class StompConsumers:
    """The consumers of a session."""

    def __init__(self, broker: Broker, session: ClientSession) -> None:
        self.table = ConsumerTable(broker, session)
        self._broker = broker
        self._session = session
        self._by_id: dict[str, StompConsumer] = {}
        self._namesakes: list[StompConsumer] = []  # those whose id a later subscription has too
        self._selectors: dict[str, int] = {}  # how long each is, by subscription

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """Those of the core, by number; one to several destinations has one for each."""
        return self.table.subscriptions

    def _all(self) -> Iterator[StompConsumer]:
        yield from self._by_id.values()
        yield from self._namesakes

    def subscribe(self, head: Head) -> None:
        """A SUBSCRIBE frame; one that is refused leaves no consumer."""
        request = read_subscribe(head, self._session.version)
        if len(self._by_id) + len(self._namesakes) >= MAX_SUBSCRIPTIONS:
            raise LimitExceeded(
                f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a connection", limit=MAX_SUBSCRIPTIONS
            )
        before = self._by_id.get(request.id)
        if before is not None and not (before.shares_id and request.membership is None):
            raise InvalidHeader(f"there is a subscription {request.id[:60]!r} already", header="id")
        length = 0 if request.selector is None else len(request.selector.text)
        if sum(self._selectors.values()) + length > MAX_SELECTORS:
            text = f"the selectors of a connection may have {MAX_SELECTORS} characters together"
            raise LimitExceeded(text, limit=MAX_SELECTORS)
        self._check_allowed(request)
        self._by_id[request.id] = self._made(request)
        if before is not None:
            self._namesakes.append(before)
        if length:
            self._selectors[request.id] = self._selectors.get(request.id, 0) + length

    def _check_allowed(self, request: SubscribeRequest) -> None:
        """See that the client may have what it asks for."""
        guard = self._session.guard
        guard.check_subscribe(request.addresses)
        if request.durable is not None:
            known = self._broker.durables.find(required_client_id(self._session), request.durable)
            if known is not None:
                guard.check_durable(known.definition.owner, known.topic.destination, request.durable)

    def _made(self, request: SubscribeRequest) -> StompConsumer:
        if request.membership is not None:
            return MemberConsumer(self.table, request, request.membership)
        if request.browser:
            return BrowserConsumer(self.table, request)
        return SingleConsumer(self.table, request) if request.is_single else WildcardConsumer(self.table, request)

    def when_subscribed(self, head: Head, call: Callable[[], None]) -> bool:
        """Make a call when a SUBSCRIBE frame that was taken is done; False if it is already."""
        consumer = self._by_id.get(head.headers.get("id", head.headers["destination"]))
        return consumer is not None and consumer.when_started(call)

    def is_unstored(self, head: Head) -> bool:
        """Whether a SUBSCRIBE frame has made a durable subscription or a group that is not stored yet."""
        consumer = self._by_id.get(head.headers.get("id", head.headers["destination"]))
        return consumer is not None and consumer.is_unstored

    def unsubscribe(self, head: Head) -> None:
        """An UNSUBSCRIBE frame; one that names a durable subscription removes it."""
        headers = head.headers
        id = headers.get("id", headers.get("destination", ""))
        consumer = self._by_id.get(id)
        self._selectors.pop(id, None)
        durable = durable_name(headers, of_queue=consumer is not None and consumer.is_of_queue)
        if consumer is not None:
            ending = [self._by_id.pop(id), *[namesake for namesake in self._namesakes if namesake.id == id]]
            self._namesakes = [namesake for namesake in self._namesakes if namesake.id != id]
            for consumer in ending:
                consumer.unsubscribe()
        elif durable is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r}", id=id[:60])
        if durable is not None:
            client_id = required_client_id(self._session)
            known = self._broker.durables.existing(client_id, durable)
            self._session.guard.check_durable(known.definition.owner, known.topic.destination, durable)
            self._broker.durables.remove(client_id, durable)

    def leave(self, cause: str, *, lost: bool) -> None:
        """All consumers go; ``lost`` if they vanished without a word."""
        consumers = list(self._all())
        self._by_id.clear()
        self._namesakes.clear()
        self.table.rolled_back.forget(set(self.subscriptions.values()))
        for consumer in consumers:
            consumer.leave(cause, lost=lost)

    def wake(self) -> None:
        """The connection takes output again: consumers may be given messages."""
        for consumer in self._all():
            consumer.wake()

    def look_again(self) -> None:
        """Consumers of wildcards may have other destinations now."""
        for consumer in self._all():
            if isinstance(consumer, WildcardConsumer):
                consumer.look_again()

    def pull(self, head: Head) -> None:
        """A SEND frame to ``/pull/ID``: a consumer with prefetch 0 asks for messages."""
        headers = head.headers
        id = headers["destination"].removeprefix(PULL)
        consumer = self._by_id.get(id)
        if consumer is None:
            raise UnknownSubscription(f"there is no subscription {id[:60]!r} to pull for", id=id[:60])
        quantity = whole_number(headers, "quantity", 1, 1, 1_000_000)
        timeout = whole_number(headers, "timeout", 0, -1, MAX_WAIT)
        consumer.pull(quantity, timeout)
