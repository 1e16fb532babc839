"""Consumers of several destinations, as OpenWire has them: of all that match wildcards, or of a list (``A,B``)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from quire.broker.acknowledgement import AckType
from quire.broker.core.shared_prefetch import ChildSubscription
from quire.broker.core.subscription import Subscription
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.routing.addresses import Scope
from quire.broker.routing.wildcard import WildcardSubscription
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument, InvalidDestination, QuireError, UnknownMessage
from quire.message import Message
from quire.protocols.openwire.commands import MessageAck
from quire.server.openwire.openwire_consumer import (
    MAX_PREFETCH,
    NONE,
    UNKNOWN,
    Covered,
    OpenWireConsumer,
    return_unseen,
)
from quire.server.openwire.openwire_destinations import plain


class OpenWireWildcard(OpenWireConsumer):
    """A consumer of all destinations that match."""

    _is_awaited = False  # whether the client waits until it is subscribed to everything

    def _subscribe(self) -> None:
        for address in self._addresses:
            if address.scope is not Scope.COMMON:
                text = f"{str(address)[:100]!r} is a temporary destination: consume it alone"
                raise InvalidDestination(text, destination=str(address)[:100])
        if self.info.subscription_name is not None:
            self._broker.durable_patterns.keep(
                self._session.client_id or "", self.info.subscription_name, self._addresses[0].name,
                selector=None if self._selector is None else self._selector.text, no_local=self.info.no_local,
                owner=self._session.user,
            )  # fmt: skip
        self._whole = WildcardSubscription(
            self._broker.core, self._broker.destinations, self._addresses, self.prefetch, self._made,
            self._failed, self._session.guard.may_read,
        )  # fmt: skip
        try:
            self._whole.start()
        except QuireError:
            self.leave("it could not be subscribed to everything")
            raise

    def when_started(self, call: Callable[[], None]) -> bool:
        """Make a call when it is subscribed to everything; False if it is already."""
        self._is_awaited = self._whole.when_started(partial(self._started, call))
        return self._is_awaited

    def _started(self, call: Callable[[], None]) -> None:
        self._is_awaited = False
        call()

    def _failed(self, error: QuireError) -> None:
        """It cannot be subscribed to one of them. A client that still waits for its consumer is told so by the end."""
        if self._is_awaited:
            self._session.fail(error)
        else:
            self._session.report(error)

    def _made(self, destination: Destination, _: WildcardSubscription) -> ChildSubscription:
        if destination.kind is DestinationKind.QUEUE:
            made = self._of_queue(self._broker.queue(destination.name), self._child)
        elif (name := self.info.subscription_name) is not None:
            child = self._broker.durable_patterns.child(name, destination.name)
            made = self._of_durable(child, self._broker.topic(destination.name), self._child)
        else:
            made = self._of_topic(self._broker.topic(destination.name), self._child)
        assert isinstance(made, ChildSubscription)
        return made

    def _child(self, *arguments: Any, **named: Any) -> ChildSubscription:
        child = ChildSubscription(*arguments, **named)
        child.parent = self._whole
        return child

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions of the core."""
        return list(self._whole.children.values())

    @property
    def single(self) -> Subscription | None:
        """It has several."""
        return None

    def given(self, subscription: Subscription, messages: list[Message]) -> None:
        """It is given messages; they take of the prefetch of all parts."""
        self._whole.given(subscription, messages)

    def covered(self, ack: MessageAck, type: AckType, first: int | None) -> Covered:
        """What an acknowledgement is about: a range covers what any part was given in between."""
        assert ack.last_message_id is not None
        last = ack.last_message_id.broker_sequence_id
        child = None if ack.destination is None else self._whole.children.get(plain(ack.destination))
        if child is None or last not in child.in_flight:
            raise UnknownMessage(f"message {last} is not in flight on {self.id}", sequence=last)
        if type is AckType.INDIVIDUAL or ack.message_count == 1:
            return [(child, [last])]
        covered: dict[Subscription, list[int]] = {}
        for part, sequence in self._whole.last_given(child, last, ack.message_count):
            covered.setdefault(part, []).append(sequence)
        return list(covered.items())

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages it may have in flight from now on."""
        self.prefetch = self._whole.prefetch = min(max(prefetch, 0), MAX_PREFETCH)
        self.wake()

    def wake(self) -> None:
        """It may be given messages."""
        self._whole.wake()

    def look_again(self) -> None:
        """The client may read other destinations now."""
        self._whole.look_again()

    def pull(self, timeout_ms: int) -> None:
        """It asks for a message."""
        if not self.prefetch:
            text = "a consumer of several destinations cannot pull: give it a prefetch of 1 or more"
            raise InvalidArgument(text, argument="prefetch")

    def leave(self, cause: str, last_seen: int = UNKNOWN) -> None:
        """It goes: its parts are entered no more, and go in steps."""
        for child in self._whole.children.values():
            self._table.remove(child)
            if isinstance(child.source, LaneDispatch) and last_seen == NONE:  # a number says nothing of other lanes
                return_unseen(child, child.source, last_seen)
        self._whole.end(cause, self._tell_gone, lost=False)
