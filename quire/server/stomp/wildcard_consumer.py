"""Consumers of several destinations: of all that match wildcards, or of a list."""

from collections.abc import Callable
from typing import Any

from quire.broker.core.shared_prefetch import ChildSubscription
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.routing.addresses import Address, Scope
from quire.broker.routing.wildcard import WildcardSubscription
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidDestination, QuireError
from quire.message import Message
from quire.server.stomp.common_consumer import CommonConsumer
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.stomp_consumer import Covered
from quire.server.stomp.stomp_subscribe import SubscribeRequest


class WildcardConsumer(CommonConsumer):
    """A consumer of all destinations that match."""

    def __init__(self, table: ConsumerTable, request: SubscribeRequest) -> None:
        super().__init__(table, request)
        for address in request.addresses:
            if address.scope is not Scope.COMMON:
                raise InvalidDestination(
                    f"{str(address)[:100]!r} is a temporary destination: subscribe to it alone",
                    destination=str(address)[:100],
                )
        self._whole = WildcardSubscription(
            self._broker.core,
            self._broker.destinations,
            request.addresses,
            self._prefetch(),
            self._made,
            self._session.fail,
            self._session.guard.may_read,
        )
        try:
            self._whole.start()
        except QuireError:
            self.leave("it could not be subscribed to everything", lost=False)
            raise

    def _made(self, destination: Destination, _: WildcardSubscription) -> ChildSubscription:
        written = str(Address(destination.kind, destination.name))
        if destination.kind is DestinationKind.QUEUE:
            made = self._of_queue(self._broker.queue(destination.name), written, self._child)
        else:
            made = self._of_topic(self._broker.topic(destination.name), written, self._child)
        assert isinstance(made, ChildSubscription)
        return made

    def _child(self, *arguments: Any, **named: Any) -> ChildSubscription:
        child = ChildSubscription(*arguments, **named)
        child.parent = self._whole
        return child

    def _prefetch(self) -> int:
        """What the client asks for, or the policy says for the first destination or its pattern."""
        if self._request.prefetch is not None:
            return self._request.prefetch
        kind, name, _ = self._request.addresses[0]
        policy = self._broker.core.settings.policies.of(Destination(kind, name))
        return policy.queue_prefetch if kind is DestinationKind.QUEUE else policy.topic_prefetch

    def when_started(self, call: Callable[[], None]) -> bool:
        """Make a call when it is subscribed to everything; False if it is already."""
        return self._whole.when_started(call)

    def look_again(self) -> None:
        """The client may read other destinations now."""
        self._whole.look_again()

    def leave(self, cause: str, *, lost: bool) -> None:
        """It goes: its parts are entered no more, and go in steps."""
        children = self._whole.children.values()
        self._table.rolled_back.forget(set(children))
        for child in children:
            self._table.remove(child)
        self._whole.end(cause, self._tell_gone, lost=lost)

    def wake(self) -> None:
        """The connection takes output again."""
        self._whole.wake()

    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages; they take of the prefetch of all parts."""
        if subscription.ack is not AckMode.AUTO:
            self._whole.given(subscription, messages)
        return super().frames(subscription, messages, extra)

    def _up_to(self, subscription: Subscription, sequence: int) -> Covered:
        return [(self, child, sequences) for child, sequences in self._whole.up_to(subscription, sequence)]
