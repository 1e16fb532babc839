"""What the consumers of queues and topics have in common."""

from collections.abc import Callable

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.topics.topic import Topic
from quire.destination import DestinationKind
from quire.errors import InvalidHeader, UnknownMessage
from quire.message import Message
from quire.protocols.stomp.versions import Version
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.message_frames import USUAL_STAMPS, frame_start, old_message_frames, redelivery, stamps
from quire.server.stomp.stomp_consumer import Covered, StompConsumer
from quire.server.stomp.stomp_rejection import Rejection
from quire.server.stomp.stomp_subscribe import SubscribeRequest


class CommonConsumer(StompConsumer):
    """A consumer of one destination or several."""

    def __init__(self, table: ConsumerTable, request: SubscribeRequest) -> None:
        self.id = request.id
        self.takes_runs = request.ack is AckMode.INDIVIDUAL
        self._table = table
        self._broker = table.broker
        self._session = table.session
        self._request = request

    # Its subscriptions of the core.

    def _of_queue(
        self, queue: LaneDispatch, destination: str, kind: Callable[..., Subscription] = Subscription
    ) -> Subscription:
        request = self._request
        subscription = kind(
            self._session, queue, id=request.id, number=self._number(), ack=request.ack,
            prefetch=queue.policy.queue_prefetch if request.prefetch is None else request.prefetch,
            priority=request.priority, exclusive=request.exclusive, selector=request.selector,
        )  # fmt: skip
        self._enter(subscription, destination)
        queue.add(subscription)
        self._broker.advisories.consumer_started(subscription, queue.consumer_count)
        return subscription

    def _of_topic(
        self, topic: Topic, destination: str, kind: Callable[..., Subscription] = Subscription
    ) -> Subscription:
        request = self._request
        subscription = topic.subscribe(
            self._session, id=request.id, number=self._number(), ack=request.ack,
            prefetch=topic.policy.topic_prefetch if request.prefetch is None else request.prefetch,
            selector=request.selector, no_local=request.no_local, priority=request.priority,
            retroactive=request.retroactive, maximum_pending=request.maximum_pending, kind=kind,
        )  # fmt: skip
        self._enter(subscription, destination)
        self._broker.advisories.consumer_started(subscription, topic.consumer_count)
        return subscription

    def _number(self) -> int:
        self._table.check_room(1)
        return self._table.next_number()

    def _enter(self, subscription: Subscription, destination: str) -> None:
        """Enter a subscription, with what all its MESSAGE frames begin with; in 1.2 up to the sequence in ``ack``."""
        version = self._session.version
        start = frame_start(self.id if self._request.named else None, destination, version)
        subscription.writer = start + b"ack:" + self._session.ack_prefix if version is Version.V1_2 else start
        self._table.enter(subscription, self)

    def _tell_gone(self, subscription: Subscription) -> None:
        destinations, destination = self._broker.destinations, subscription.source.destination
        named = destinations.queues if destination.kind is DestinationKind.QUEUE else destinations.topics
        left = named.get(destination.name)
        self._broker.advisories.consumer_stopped(subscription, left.consumer_count if left else 0)

    # Its messages.

    def frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The MESSAGE frames of messages that it is given, in pieces to be joined."""
        own = self._session.temporaries
        if self._session.version is not Version.V1_2:
            return self._old_frames(subscription, messages, extra)
        between = b"\0" + subscription.writer
        end_of_id = b"\n" if subscription.number == 0 else b"-%d\n" % subscription.number
        usual = end_of_id + USUAL_STAMPS + extra
        pieces = [subscription.writer]
        append = pieces.append
        for message in messages:
            if message.priority == 4 and not message.expiration:
                append(b"%d" % message.sequence + usual)
            else:
                append(b"%d" % message.sequence + end_of_id + stamps(message) + extra)
            if message.redelivered:
                append(redelivery(message))
            append(message.content)
            append(between)
        pieces[-1] = b"\0"
        return [own.localized(piece) for piece in pieces] if own.lines else pieces

    def _old_frames(self, subscription: Subscription, messages: list[Message], extra: bytes) -> list[bytes]:
        """The frames of 1.0 and 1.1."""
        own, version = self._session.temporaries, self._session.version
        if subscription.ack is not AckMode.AUTO:
            self._table.message_ids.note(self, subscription, messages)
        pieces = []
        for message in messages:
            content = own.localized(message.content) if own.lines else message.content
            pieces += old_message_frames(subscription.writer, message, content, extra, version)
        return pieces

    def covered(self, subscription: Subscription, sequence: int, id: str, *, acknowledges: bool) -> Covered:
        """What an ACK or NACK of a message is about."""
        if sequence not in subscription.in_flight:
            late = self._table.rolled_back.covered(subscription, sequence)
            if not late:
                raise unknown_message(id)
            return [(self, subscription, late)]
        if subscription.ack is not AckMode.CLIENT:
            return [(self, subscription, [sequence])]
        return self._up_to(subscription, sequence)

    def _up_to(self, subscription: Subscription, sequence: int) -> Covered:
        return [(self, subscription, subscription.up_to(sequence))]

    def acknowledge(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle messages as done; those that a rollback gave back too, if they still wait."""
        messages = self._table.take(subscription, sequences)
        subscription.source.acknowledge(messages)
        if len(messages) < len(sequences):
            self._table.rolled_back.settle(subscription, sequences)

    def reject(self, subscription: Subscription, sequences: list[int], rejection: Rejection) -> None:
        """Settle messages as failed."""
        if rejection.extend_ms is not None:
            raise InvalidHeader("extend is for members of a group: a queue has no leases", header="extend")
        messages, cause = self._table.take(subscription, sequences), "rejected by the consumer"
        if rejection.dead_letter:
            subscription.source.dead_letter(messages, "failed", cause)
        else:
            subscription.source.redeliver(messages, len(messages), cause, at_once=False, delay_ms=rejection.delay_ms)


def unknown_message(id: str) -> UnknownMessage:
    """The error of an acknowledgement of what is not in flight."""
    return UnknownMessage(f"{id[:60]!r} is not in flight on this connection: acknowledge a message once", id=id[:60])
