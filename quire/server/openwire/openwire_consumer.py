"""A consumer of one queue, topic, durable subscription or temporary destination, as OpenWire has it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from quire.broker.acknowledgement import AckType, Pull, acknowledged
from quire.broker.broker import Broker
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import DUPLICATE
from quire.broker.queues.lane_dispatch import Departure, LaneDispatch
from quire.broker.routing.addresses import Address, Scope
from quire.broker.routing.temporary import TemporaryQueue, TemporaryTopic
from quire.broker.topics.topic import Topic
from quire.destination import DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination
from quire.message import Message
from quire.protocols.openwire.commands import ConsumerInfo, MessageAck, MessageDispatch
from quire.protocols.openwire.structures import ActiveMQQueue
from quire.selectors import Selector, selector
from quire.server.openwire.client_session import ClientSession
from quire.server.openwire.dispatch_frames import DispatchFrames
from quire.server.openwire.openwire_destinations import openwire_destination
from quire.server.openwire.subscription_table import SubscriptionTable

MAX_PREFETCH = 1_000_000
"""The most messages a consumer may ask to have in flight."""

UNKNOWN, NONE = -2, -1
"""What a client says instead of the last message that its application has seen: it does not know, or there is none."""

Covered = list[tuple[Subscription, list[int]]]
"""What an acknowledgement is about: messages, by subscription."""


class OpenWireConsumer:
    """A consumer of one destination.

    Args:
        info: what the client asks for.
        addresses: what it consumes.

    Attributes:
        is_part: whether other shards of a cluster have parts of it too.
        acknowledges_alone: whether it acknowledges each message for itself, so that earlier ones may have been seen.
    """

    acknowledges_alone = False

    def __init__(
        self, broker: Broker, session: ClientSession, table: SubscriptionTable, info: ConsumerInfo,
        addresses: tuple[Address, ...],
    ) -> None:  # fmt: skip
        self.info = info
        self.id = str(info.consumer_id)
        self.is_part = info.consumer_id is not None and session.is_part(info.consumer_id)
        self.prefetch = min(max(info.prefetch_size, 0), MAX_PREFETCH)
        self._broker = broker
        self._session = session
        self._table = table
        self._addresses = addresses
        self._selector: Selector | None = selector(info.selector) if info.selector and info.selector.strip() else None
        self._pull: Pull | None = None
        self._had_before: dict[int, None] = {}
        self._subscribe()

    # It subscribes.

    def _subscribe(self) -> None:
        self._subscription = self._subscription_to(self._addresses[0])

    def _subscription_to(self, address: Address) -> Subscription:
        broker, name = self._broker, self.info.subscription_name
        if address.scope is not Scope.COMMON:
            return self._of_temporary(address)
        if address.kind is DestinationKind.QUEUE:
            return self._of_queue(broker.queue(address.name))
        topic = broker.topic(address.name)
        return self._of_topic(topic) if name is None else self._of_durable(name, topic)

    def _of_queue(self, queue: LaneDispatch, kind: Callable[..., Subscription] = Subscription) -> Subscription:
        info = self.info
        subscription = kind(
            self._session, queue, id=self.id, number=self._table.next_number(), ack=AckMode.INDIVIDUAL,
            prefetch=self.prefetch, priority=info.priority, exclusive=info.exclusive, selector=self._selector,
        )  # fmt: skip
        self._enter(subscription)
        queue.add(subscription)
        self._broker.advisories.consumer_started(subscription, queue.consumer_count)
        return subscription

    def _of_topic(self, topic: Topic, kind: Callable[..., Subscription] = Subscription) -> Subscription:
        info = self.info
        limit = info.maximum_pending_message_limit
        subscription = topic.subscribe(
            self._session, id=self.id, number=self._table.next_number(), ack=AckMode.INDIVIDUAL,
            prefetch=self.prefetch,
            selector=self._selector, no_local=info.no_local, priority=info.priority, retroactive=info.retroactive,
            maximum_pending=limit if limit > 0 else None, kind=kind,
        )  # fmt: skip
        self._enter(subscription)
        self._broker.advisories.consumer_started(subscription, topic.consumer_count)
        return subscription

    def _of_durable(self, name: str, topic: Topic, kind: Callable[..., Subscription] = Subscription) -> Subscription:
        info = self.info
        subscription = self._broker.durables.subscribe(
            self._session.client_id or "", name, topic, self._session, id=self.id, number=self._table.next_number(),
            prefetch=self.prefetch, selector=self._selector, no_local=info.no_local, priority=info.priority,
            retroactive=info.retroactive, kind=kind,
        )  # fmt: skip
        self._enter(subscription)
        self._broker.advisories.consumer_started(subscription, topic.consumer_count)
        return subscription

    def _of_temporary(self, address: Address) -> Subscription:
        source = self._own_temporary(address)
        return self._of_topic(source) if isinstance(source, Topic) else self._of_queue(source)

    def _own_temporary(self, address: Address) -> TemporaryQueue | TemporaryTopic:
        """A temporary destination of the connection's own.

        Raises:
            InvalidDestination: it is another connection's.
        """
        if address.name not in self._session.temporaries:
            text = f"{str(address)[:100]!r} belongs to another connection: only that one may consume it"
            raise InvalidDestination(text, destination=str(address)[:100])
        return self._broker.routing.temporaries.find(address)

    def _enter(self, subscription: Subscription) -> None:
        destination = subscription.source.destination
        scope = next((a.scope for a in self._addresses if a.name == destination.name), Scope.COMMON)
        shown = openwire_destination(destination.kind, destination.name, scope)
        assert self.info.consumer_id is not None
        self._table.enter(subscription, DispatchFrames(self._session, self.info.consumer_id, shown))

    # Its messages.

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions of the core."""
        return [self._subscription]

    @property
    def single(self) -> Subscription | None:
        """Its subscription of the core; None if it has several, here or at other shards."""
        return None if self.is_part else self._subscription

    def when_started(self, call: Callable[[], None]) -> bool:
        """Make a call when it is subscribed to everything; False if it is already."""
        return False

    def given(self, subscription: Subscription, messages: list[Message]) -> None:
        """It is given messages."""

    def covered(self, ack: MessageAck, type: AckType, first: int | None) -> Covered:
        """What an acknowledgement is about: one message, or a range in the order in which the client had them.

        A client that has failed over says of each message that its application had before that it has it again. It
        has these before all others, in whatever order they came now.

        Args:
            first: the first message; None for the first that is in flight.

        Raises:
            UnknownMessage: an end of the range is not in flight.
            InvalidArgument: the range is not what the client says.
        """
        assert ack.last_message_id is not None
        subscription, last = self._subscription, ack.last_message_id.broker_sequence_id
        self.acknowledges_alone |= type is AckType.INDIVIDUAL
        if type is AckType.DELIVERED and first is None and ack.message_count == 1:
            self._had_before[last] = None
            return [(subscription, [last])]
        if first in self._had_before and type is not AckType.INDIVIDUAL:
            self._had_before = {s: None for s in self._had_before if s in subscription.in_flight}
            others = [] if last in self._had_before else subscription.up_to(last)
            both = [*self._had_before, *[sequence for sequence in others if sequence not in self._had_before]]
            return [(subscription, both or [last])]
        count = ack.message_count if type is AckType.STANDARD and first is not None else None
        transacted = ack.transaction_id is not None
        return [(subscription, acknowledged(subscription, type, first, last, None if transacted else count))]

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages it may have in flight from now on."""
        self.prefetch = self._subscription.prefetch = min(max(prefetch, 0), MAX_PREFETCH)
        if self.prefetch:
            self._end_pull()
        self.wake()

    def wake(self) -> None:
        """It may be given messages: the connection takes output again, or it has credit."""
        self._subscription.source.wake()

    def pull(self, timeout_ms: int) -> None:
        """It asks for a message. One with a prefetch is given messages anyway."""
        if not self.prefetch:
            self._end_pull()
            self._pull = Pull(self._broker.core, self._subscription, 1, max(timeout_ms, -1), self._pull_ended)

    def _pull_ended(self, left: int) -> None:
        if left:
            self._session.send_command(self.nothing())

    def _end_pull(self) -> None:
        if self._pull is not None:
            self._pull.cancel()

    def nothing(self) -> MessageDispatch:
        """A dispatch without a message: a pull found nothing, or a browser has shown everything."""
        return MessageDispatch(consumer_id=self.info.consumer_id, destination=self.info.destination)

    # Its end.

    def leave(self, cause: str, last_seen: int = UNKNOWN) -> None:
        """It goes. What it has of a queue or a durable subscription comes back in steps.

        Args:
            last_seen: the number of the last message that the application has seen, ``UNKNOWN`` or ``NONE``. Those
                behind it come back as if they had not been given out.
        """
        self._end_pull()
        subscription, source = self._subscription, self._subscription.source
        self._table.remove(subscription)
        if isinstance(source, LaneDispatch):
            return_unseen(subscription, source, last_seen, alone=self.acknowledges_alone)
            gone = partial(self._tell_gone, subscription)
            Departure(self._broker.core, source, subscription, cause, gone, lost=False).begin()
        else:
            source.remove(subscription, cause, lost=False)
            self._tell_gone(subscription)

    def _tell_gone(self, subscription: Subscription) -> None:
        destinations, destination = self._broker.destinations, subscription.source.destination
        named: Any = destinations.queues if destination.kind is DestinationKind.QUEUE else destinations.topics
        left = named.get(destination.name)
        self._broker.advisories.consumer_stopped(subscription, left.consumer_count if left else 0)


def return_unseen(subscription: Subscription, source: LaneDispatch, last_seen: int, *, alone: bool = False) -> None:
    """A consumer's messages that its application has not seen come back as if they had not been given out.

    If the last one that it has seen is not in flight, it was acknowledged, and none of these was seen (ActiveMQ).
    If it was acknowledged ``alone``, earlier ones may have been seen.
    """
    if last_seen == UNKNOWN:
        return
    sequences = list(subscription.in_flight)
    if last_seen in subscription.in_flight:
        seen = sequences.index(last_seen) + 1
    elif alone:
        seen = max([place for place, sequence in enumerate(sequences, 1) if sequence < last_seen], default=0)
    else:
        seen = 0
    if unseen := sequences[seen:]:
        source.give_back(subscription.take(unseen))


def cause_of(ack: MessageAck) -> str:
    """Why a client could not process a message, or took it for a duplicate."""
    if ack.poison_cause is None:
        return "the client could not process it"
    cause = f"{ack.poison_cause.class_name}: {ack.poison_cause.message}"
    # So do ActiveMQ's clients say it, which remember what they were given and not what became of it.
    return f"{DUPLICATE}: {cause}" if "suppressing duplicate delivery" in cause.lower() else cause


def check_single(info: ConsumerInfo, addresses: tuple[Address, ...]) -> None:
    """See that what is asked for makes sense with these destinations."""
    kinds = {address.kind for address in addresses}
    wrong = ""
    if DestinationKind.STREAM in kinds:
        wrong = _wrong_with_stream(info, addresses)
    elif info.subscription_name is not None and (kinds != {DestinationKind.TOPIC} or len(addresses) > 1):
        wrong = "a durable subscription is to one topic"
    elif info.browser and (kinds != {DestinationKind.QUEUE} or len(addresses) > 1):
        wrong = "a browser shows one queue"
    if wrong:
        raise InvalidArgument(wrong, argument="destination")


def _wrong_with_stream(info: ConsumerInfo, addresses: tuple[Address, ...]) -> str:
    if len(addresses) > 1 or Pattern(addresses[0].name).is_wildcard:
        return "a stream is consumed alone, by its name: give it a consumer of its own"
    if isinstance(info.destination, ActiveMQQueue) and not info.browser:
        return "a stream is consumed as a topic: a durable subscription is a group, any other consumer reads everything"
    return "noLocal is not for streams: a group's messages come from all connections" if info.no_local else ""
