"""The acknowledgements of one consumer: which are sent when, in each mode. It knows no socket and no event loop.

It follows ActiveMQ's Java client: brokers count on its numbers. Every method returns the commands to send, in order.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from quire.client.ack_mode import AckMode
from quire.client.delivery import Delivery
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.clock import Clock
from quire.protocols.openwire.commands import AckType, MessageAck
from quire.protocols.openwire.structures import LocalTransactionId
from quire.protocols.openwire.throwable import Throwable

THROWABLE = "java.lang.Throwable"


@dataclass(frozen=True, slots=True)
class AckSettings:
    """What decides about the acknowledgements of a consumer.

    Attributes:
        mode: the session's mode.
        prefetch: the consumer's prefetch.
        topic: the destination is a topic.
        optimize: an ``AUTO`` consumer acknowledges in batches.
        optimize_time_out: after how many ms the next message sends the batch; 0: never.
        individual_in_transaction: each message of a transaction is acknowledged by itself, when it is delivered.
        policy: for what is rolled back.
    """

    mode: AckMode
    prefetch: int
    topic: bool = False
    optimize: bool = False
    optimize_time_out: int = 300
    individual_in_transaction: bool = False
    policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)

    @property
    def acks_each(self) -> bool:
        """Whether every message is acknowledged when it was delivered."""
        return self.mode is AckMode.AUTO or (self.mode is AckMode.DUPS_OK and not self.topic)

    @property
    def acks_batch(self) -> bool:
        """Whether messages are acknowledged in batches, and not kept until then."""
        return self.mode is AckMode.DUPS_OK and self.topic


class Rollback(NamedTuple):
    """What a rollback comes to.

    Attributes:
        acks: what to send.
        again: the messages that are to be delivered again, oldest first; empty if they are poison.
        delay: after how many ms.
    """

    acks: list[MessageAck]
    again: list[Delivery]
    delay: int


class Acknowledging:
    """The state of a consumer's acknowledgements.

    Args:
        settings: what decides about them.
        clock: for the time-out of optimized acknowledgements.
        random: for the delays of redeliveries.

    Attributes:
        delivered: what was delivered and not acknowledged, oldest first.
        last_delivered: the broker's sequence of the message that was delivered last; -1 if none was.
    """

    def __init__(self, settings: AckSettings, clock: Clock, random: Random) -> None:
        self.settings = settings
        self._clock = clock
        self._random = random
        self._optimize = settings.optimize and settings.mode is AckMode.AUTO
        self.delivered: dict[Delivery, None] = {}
        self.last_delivered = -1
        self._pending: MessageAck | None = None
        self._counted = 0  # delivered messages that `_pending` covers: they extend the window when it is sent
        self._optimized = 0  # processed messages whose acknowledgement waits
        self._sent_at = clock.monotonic()

    def before(self, delivery: Delivery, transaction: LocalTransactionId | None) -> list[MessageAck]:
        """A message is about to be given to the application, in a transaction of a transacted session."""
        self._note(delivery)
        self.delivered[delivery] = None
        if self.settings.mode is not AckMode.SESSION_TRANSACTED:
            return []
        if self.settings.individual_in_transaction:
            return [_ack(delivery, AckType.INDIVIDUAL, transaction=transaction)]
        return self._later(delivery, AckType.DELIVERED, transaction)

    def after(self, delivery: Delivery) -> list[MessageAck]:
        """The application has it: ``receive`` returns it next, or the listener has returned."""
        settings = self.settings
        if settings.acks_each:
            return self._optimized_acks() if self._optimize else self._range(AckType.STANDARD)
        if settings.mode is AckMode.SESSION_TRANSACTED or delivery not in self.delivered:
            return []
        if settings.acks_batch:
            del self.delivered[delivery]
            return self._later(delivery, AckType.STANDARD)
        return self._later(delivery, AckType.DELIVERED)

    def expired(self, delivery: Delivery) -> list[MessageAck]:
        """A message expired before it was given to the application."""
        self._note(delivery)
        return [_ack(delivery, AckType.EXPIRED, delivery)]

    def duplicate(self, delivery: Delivery) -> list[MessageAck]:
        """A message was finished before: its acknowledgement was lost."""
        return [_ack(delivery, AckType.INDIVIDUAL)]

    def poison(self, delivery: Delivery, cause: str) -> list[MessageAck]:
        """A message is not given to the application: it goes to the broker's dead letters."""
        ack = _ack(delivery, AckType.POISON, delivery)
        ack.poison_cause = Throwable(THROWABLE, cause)
        return [ack]

    def acknowledge(self, transaction: LocalTransactionId | None = None) -> list[MessageAck]:
        """Acknowledge everything that was delivered; inside a transaction it is kept until ``committed``."""
        if self.settings.acks_batch:
            return self._take_pending()
        if not self.delivered or (transaction is not None and self.settings.individual_in_transaction):
            return []
        self._pending = None
        self._counted = max(0, self._counted - len(self.delivered))
        return self._range(AckType.STANDARD, transaction)

    def acknowledge_one(self, delivery: Delivery) -> list[MessageAck]:
        """Acknowledge one message; nothing if that was done before."""
        if delivery not in self.delivered:
            return []
        del self.delivered[delivery]
        return [_ack(delivery, AckType.INDIVIDUAL)]

    def outstanding(self) -> list[MessageAck]:
        """What is to be sent at a close: a listener that closes its consumer has processed its message."""
        if self.settings.acks_each and self.delivered:
            self._optimized = 0
            return self._range(AckType.STANDARD)
        return self.processed()

    def processed(self) -> list[MessageAck]:
        """What waits to be sent for messages that were processed, without what a listener is at work on."""
        if self._pending is not None and self._pending.ack_type == AckType.STANDARD:
            return self._take_pending()
        return self._taken_as_processed()

    def switch_optimizing_off(self) -> list[MessageAck]:
        """Acknowledge each message from now on."""
        acks = self.processed()
        self._optimize = False
        return acks

    def change_prefetch(self, prefetch: int) -> list[MessageAck]:
        """The broker changes the prefetch."""
        self.settings = replace(self.settings, prefetch=prefetch)
        return self.processed()

    def committed(self) -> None:
        """The transaction was committed."""
        self.delivered.clear()

    def forget(self) -> None:
        """The connection is lost or the consumer closes: nothing that was delivered can be acknowledged any more."""
        self.delivered.clear()
        self._pending = None
        self._counted = self._optimized = 0

    def rollback(self) -> Rollback:
        """Deliver again what was delivered; beyond the maximum of redeliveries all of it is poison."""
        acks = self._taken_as_processed()
        found = list(self.delivered)
        if found:
            self._pending = None
            self._counted = max(0, self._counted - len(found))
        return self._rolled_back(acks, found)

    def reject(self, delivery: Delivery) -> Rollback:
        """Deliver one message again that failed, or give it up; nothing if it was acknowledged or rejected before."""
        acks = self._take_pending() if self.settings.acks_batch else self._taken_as_processed()
        return self._rolled_back(acks, [delivery] if delivery in self.delivered else [])

    def _rolled_back(self, acks: list[MessageAck], found: list[Delivery]) -> Rollback:
        if not found:
            return Rollback(acks, [], 0)
        for delivery in found:
            del self.delivered[delivery]
            delivery.redeliveries += 1
        first, last = found[0], found[-1]
        policy = self.settings.policy
        if policy.is_exceeded(last.redeliveries):
            poison = _ack(last, AckType.POISON, first, len(found))
            poison.poison_cause = _poison_cause(last, policy)
            return Rollback([*acks, poison], [], 0)
        acks.append(_ack(last, AckType.REDELIVERED, first, len(found)))
        return Rollback(acks, found, policy.delay(last.redeliveries, self._random))

    def _taken_as_processed(self) -> list[MessageAck]:
        # What is optimized is processed: only its acknowledgement waits to be sent.
        processed = list(self.delivered)[: self._optimized] if self._optimize else []
        for delivery in processed:
            del self.delivered[delivery]
        self._optimized = 0
        return [_ack(processed[-1], AckType.STANDARD, processed[0], len(processed))] if processed else []

    def _note(self, delivery: Delivery) -> None:
        message_id = delivery.message.message_id
        if message_id is not None:
            self.last_delivered = message_id.broker_sequence_id

    def _optimized_acks(self) -> list[MessageAck]:
        if not self.delivered:
            return []
        self._optimized += 1
        limit = self.settings.optimize_time_out
        overdue = limit > 0 and self._clock.monotonic() >= self._sent_at + limit / 1000
        if self._optimized < self.settings.prefetch * 0.65 and not overdue:
            return []
        self._optimized = 0
        self._sent_at = self._clock.monotonic()
        return self._range(AckType.STANDARD)

    def _range(self, ack_type: AckType, transaction: LocalTransactionId | None = None) -> list[MessageAck]:
        if not self.delivered:
            return []
        last, first = next(reversed(self.delivered)), next(iter(self.delivered))
        ack = _ack(last, ack_type, first, len(self.delivered), transaction)
        if transaction is None:
            self.delivered.clear()
        return [ack]

    def _later(
        self, delivery: Delivery, ack_type: AckType, transaction: LocalTransactionId | None = None
    ) -> list[MessageAck]:
        """Extend the range that waits, and send it when it is half of the prefetch."""
        self._counted += 1
        if self._pending is None:
            self._pending = _ack(delivery, ack_type, delivery, self._counted, transaction)
        else:
            pending = self._pending
            pending.last_message_id, pending.message_count = delivery.message.message_id, self._counted
            pending.transaction_id = transaction
        return self._take_pending() if 0.5 * self.settings.prefetch <= self._counted else []

    def _take_pending(self) -> list[MessageAck]:
        pending, self._pending = self._pending, None
        self._counted = 0
        return [] if pending is None else [pending]


def _ack(
    last: Delivery, ack_type: AckType, first: Delivery | None = None, count: int = 1,
    transaction: LocalTransactionId | None = None,
) -> MessageAck:  # fmt: skip
    return MessageAck(
        destination=last.dispatch.destination, transaction_id=transaction, consumer_id=last.dispatch.consumer_id,
        ack_type=int(ack_type), first_message_id=None if first is None else first.message.message_id,
        last_message_id=last.message.message_id, message_count=count,
    )  # fmt: skip


def _poison_cause(last: Delivery, policy: RedeliveryPolicy) -> Throwable:
    cause = None if last.cause is None else Throwable(THROWABLE, f"{type(last.cause).__name__}: {last.cause}")
    text = f"Delivery[{last.redeliveries}] exceeds the maximum of redeliveries: {policy.maximum_redeliveries}"
    return Throwable(THROWABLE, text, (), cause)
