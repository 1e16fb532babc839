"""Acknowledgements and pulls in the words of JMS brokers: types, ranges, transactions (activemq-client, MessageAck).

A STOMP session settles through shorter ways; it is the same as STANDARD for a range and INDIVIDUAL for one message.
"""

from enum import IntEnum

from quire.broker.subscription import Subscription
from quire.broker.transaction import Transaction
from quire.errors import InvalidArgument, UnknownMessage
from quire.scheduler import Timer
from quire.store.base import Delivery


class AckType(IntEnum):
    """What a consumer says of messages; the numbers are ActiveMQ's."""

    DELIVERED = 0
    """The client has it, and may be given another one; it will say more."""
    POISON = 1
    """The client has given up on it: it becomes a dead letter."""
    STANDARD = 2
    """Done, and so is everything of the range."""
    REDELIVERED = 3
    """The client delivers it again itself; it counts as a failed delivery."""
    INDIVIDUAL = 4
    """Done, this one only."""
    UNMATCHED = 5
    """The client's own selector did not match: done, and not counted as consumed."""
    EXPIRED = 6
    """The client found that it has expired."""


def acknowledge(
    subscription: Subscription, type: AckType, first: int, last: int, *, count: int | None = None,
    transaction: Transaction | None = None, cause: str = "the client gave up on it",
) -> None:  # fmt: skip
    """Take an acknowledgement.

    Args:
        subscription: whose messages.
        type: what is said of them.
        first: the first sequence of the range; of an INDIVIDUAL one both are the same.
        last: the last one, in the order they were given out.
        count: how many messages the client says there are; None if it does not say.
        transaction: the transaction it is part of.
        cause: of a POISON one, for the dead letter.

    Raises:
        UnknownMessage: an end of the range is not in flight.
        InvalidArgument: the range is not what the client says, or the type cannot be in a transaction.
    """
    sequences = _range(subscription, first, last, count)
    if type is AckType.DELIVERED:
        _extend(subscription, sequences)
    elif type is AckType.REDELIVERED:
        _count_redelivery(subscription, sequences)
    elif transaction is not None:
        if type not in (AckType.STANDARD, AckType.INDIVIDUAL, AckType.UNMATCHED):
            raise InvalidArgument(f"{type.name} cannot be part of a transaction", argument="type")
        transaction.acknowledge(subscription, sequences)
    else:
        _settle(subscription, type, sequences, cause)


def _settle(subscription: Subscription, type: AckType, sequences: list[int], cause: str) -> None:
    queue, messages = subscription.source, subscription.take(sequences)
    if type is AckType.POISON:
        queue.bury(messages, "failed", cause)
    elif type is AckType.EXPIRED:
        queue.bury(messages, "expired", "expired before the consumer could process it")
    else:
        queue.acknowledge(messages)
        if type is AckType.UNMATCHED:
            queue.dequeued -= len(messages)


def _range(subscription: Subscription, first: int, last: int, count: int | None) -> list[int]:
    """The sequences from one to another in the order they were given out, checked against what the client says."""
    in_flight = subscription.in_flight
    for sequence in (first, last):
        if sequence not in in_flight:
            raise UnknownMessage(f"message {sequence} is not in flight on {subscription.id!r}", sequence=sequence)
    if first == last:
        sequences = [first]
    else:
        covered = subscription.up_to(last)
        if first not in covered:
            raise InvalidArgument(f"message {first} was given out after message {last}", argument="first")
        sequences = covered[covered.index(first) :]
    if count is not None and count != len(sequences):
        text = f"the range from {first} to {last} has {len(sequences)} messages, the client says {count}"
        raise InvalidArgument(text, argument="count", found=len(sequences))
    return sequences


def _extend(subscription: Subscription, sequences: list[int]) -> None:
    if subscription.source.policy.use_prefetch_extension:
        subscription.extended.update(sequences)
        subscription.source.wake()


def _count_redelivery(subscription: Subscription, sequences: list[int]) -> None:
    for sequence in sequences:
        message = subscription.in_flight[sequence]
        message.redelivered = True
        message.deliveries += 1
        message.failures += 1
        state = Delivery(message.deliveries, message.failures, 0, "the client delivers it again")
        subscription.source.note_delivery(message, state)


class Pull:
    """A consumer without prefetch asks for messages (JMS receive, receiveNoWait).

    Args:
        subscription: the consumer; its prefetch is 0.
        quantity: how many messages it wants.
        timeout_ms: how long it waits for the first one, in milliseconds; 0 for ever, -1 for not at all.
    """

    def __init__(self, subscription: Subscription, quantity: int = 1, timeout_ms: int = 0) -> None:
        self._subscription = subscription
        self._wanted = subscription.pulled = quantity
        self._timer: Timer | None = None
        queue = subscription.source
        if timeout_ms > 0:
            self._timer = queue.broker.scheduler.call_later(timeout_ms / 1000, self._end)
        elif timeout_ms < 0:
            queue.broker.after_commit(self._end)  # what is there is given out by then: a mark may have to be written
        queue.wake()

    def cancel(self) -> None:
        """The consumer goes, or pulls again."""
        self._subscription.pulled = 0
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        """The time is up: say so if nothing came."""
        subscription = self._subscription
        subscription.source.dispatch()
        came = self._wanted - subscription.pulled
        subscription.pulled = 0
        if not came:
            subscription.session.nothing_came(subscription)
