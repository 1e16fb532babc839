"""Consumers of one destination."""

from functools import partial

from quire.broker.core.subscription import Subscription
from quire.broker.pull import Pull
from quire.broker.queues.lane_dispatch import Departure, LaneDispatch
from quire.broker.routing.addresses import Address, Scope
from quire.broker.routing.temporary import TemporaryQueue, TemporaryTopic
from quire.broker.topics.durable import DurableSubscription
from quire.broker.topics.topic import Topic
from quire.destination import DestinationKind
from quire.errors import InvalidDestination, InvalidHeader
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.common_consumer import CommonConsumer
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.message_frames import marker
from quire.server.stomp.stomp_subscribe import SubscribeRequest


class SingleConsumer(CommonConsumer):
    """A consumer of one queue, topic or durable subscription."""

    def __init__(self, table: ConsumerTable, request: SubscribeRequest) -> None:
        super().__init__(table, request)
        self._pull: Pull | None = None
        self._subscription = self._subscribed(request.addresses[0])
        self.is_of_queue = self._subscription.source.destination.kind is DestinationKind.QUEUE

    def _subscribed(self, address: Address) -> Subscription:
        broker, durable = self._broker, self._request.durable
        if address.scope is not Scope.COMMON:
            return self._of_temporary(address)
        if address.kind is DestinationKind.QUEUE:
            return self._of_queue(broker.queue(address.name), str(address))
        if durable is not None:
            return self._of_durable(durable, address)
        return self._of_topic(broker.topic(address.name), str(address))

    def _of_durable(self, name: str, address: Address) -> Subscription:
        topic, request = self._broker.topic(address.name), self._request
        subscription = self._broker.durables.subscribe(
            required_client_id(self._session), name, topic, self._session, id=request.id, number=self._number(),
            ack=request.ack, selector=request.selector, no_local=request.no_local, priority=request.priority,
            prefetch=topic.policy.durable_topic_prefetch if request.prefetch is None else request.prefetch,
            retroactive=request.retroactive,
        )  # fmt: skip
        self._enter(subscription, str(address))
        self._broker.advisories.consumer_started(subscription, topic.consumer_count)
        return subscription

    @property
    def is_unstored(self) -> bool:
        """Whether it is the consumer of a durable subscription that is not stored yet."""
        source = self._subscription.source
        return isinstance(source, DurableSubscription) and not source.has_been_stored

    def _of_temporary(self, address: Address) -> Subscription:
        own, source = self._own_temporary(address)
        return self._of_topic(source, str(own)) if isinstance(source, Topic) else self._of_queue(source, str(own))

    def _own_temporary(self, address: Address) -> tuple[Address, TemporaryQueue | TemporaryTopic]:
        """The connection's name for a temporary destination of its own, and what it is.

        Raises:
            InvalidDestination: it is another connection's.
        """
        remote = self._session.temporaries.remote(address)
        own = self._session.temporaries.own(remote)
        if own is None:
            raise InvalidDestination(
                f"{str(address)[:100]!r} belongs to another connection: only that one may consume it",
                destination=str(address)[:100],
            )
        return own, self._broker.routing.temporaries.find(remote)

    def leave(self, cause: str, *, lost: bool) -> None:
        """It goes. What it has of a queue or a durable subscription comes back in steps."""
        subscription = self._subscription
        if self._pull is not None:
            self._pull.cancel()
        self._table.remove(subscription)
        source = subscription.source
        if isinstance(source, LaneDispatch):
            gone = partial(self._tell_gone, subscription)
            Departure(self._broker.core, source, subscription, cause, gone, lost=lost).begin()
        else:
            source.remove(subscription, cause, lost=lost)
            self._tell_gone(subscription)
        self._table.rolled_back.forget({subscription})

    def wake(self) -> None:
        """The connection takes output again."""
        self._subscription.source.wake()

    def pull(self, quantity: int, timeout_ms: int) -> None:
        """Ask for messages."""
        if self._subscription.prefetch:
            super().pull(quantity, timeout_ms)
        if self._pull is not None:
            self._pull.cancel()
        self._pull = Pull(self._broker.core, self._subscription, quantity, timeout_ms, partial(self._ended, quantity))

    def _ended(self, quantity: int, left: int) -> None:
        """A pull has ended; say so if nothing came: a MESSAGE frame without a message, marked by a header."""
        if left == quantity:
            self._session.write(marker(self._subscription, b"pull:end\n", self._session.version))


def required_client_id(session: ClientSession) -> str:
    """The client id that a durable subscription needs."""
    if session.client_id is None:
        text = "a durable subscription belongs to a client: send the header client-id with CONNECT"
        raise InvalidHeader(text, header="client-id")
    return session.client_id
