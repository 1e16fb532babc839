"""Acknowledgements and pulls in the words of JMS brokers (ActiveMQ's ``MessageAck`` and ``MessagePull``).

A STOMP session settles through shorter ways; it is the same as STANDARD for a range and INDIVIDUAL for one message.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import DUPLICATE, is_dead_letter_queue
from quire.broker.transactions.transaction import Transaction
from quire.errors import InvalidArgument, UnknownMessage
from quire.scheduler import Timer

LOOKS = 2
"""How many commits a pull that does not wait sees through: before it is given anything, a consumer that has just come
may need one that settles what others gave back, and then one that stores the dispatch mark."""


class AckType(IntEnum):
    """What a consumer says of messages; the numbers are ActiveMQ's."""

    DELIVERED = 0
    """The client has it, and may be given another one; it will say more."""
    POISON = 1
    """The client has given up on it: it becomes a dead letter."""
    STANDARD = 2
    """Done, and so is everything of the range."""
    REDELIVERED = 3
    """The client delivers it again itself, and counts that."""
    INDIVIDUAL = 4
    """Done, this one only."""
    UNMATCHED = 5
    """The client's own selector did not match: done, and not counted as consumed."""
    EXPIRED = 6
    """The client found that it has expired."""


def acknowledge(
    subscription: Subscription, type: AckType, first: int | None, last: int, *, count: int | None = None,
    transaction: Transaction | None = None, cause: str = "the client could not process it",
) -> None:  # fmt: skip
    """Take an acknowledgement.

    In a transaction, STANDARD, INDIVIDUAL and UNMATCHED wait for its commit. DELIVERED, REDELIVERED and EXPIRED say
    what is so whatever becomes of the transaction; they take effect at once.

    Args:
        first: the first sequence of the range; None for the first that is in flight, or with INDIVIDUAL for ``last``.
        last: the last one, in the order they were given out.
        count: how many messages the client says there are; None if it does not say. In a transaction it is not checked
            (nor does ActiveMQ): messages that were acknowledged in it before may lie between.

    Raises:
        UnknownMessage: an end of the range is not in flight.
        InvalidArgument: the range is not what the client says, or a POISON one is in a transaction.
    """
    sequences = acknowledged(subscription, type, first, last, count if transaction is None else None)
    acknowledge_these(subscription, type, sequences, transaction=transaction, cause=cause)


def acknowledged(
    subscription: Subscription, type: AckType, first: int | None, last: int, count: int | None
) -> list[int]:  # fmt: skip
    """The messages that an acknowledgement is about; arguments and errors are those of ``acknowledge``."""
    if type is AckType.DELIVERED:
        return _range(subscription, first if first in subscription.in_flight else None, last)
    sequences = _one(first, last) if type is AckType.INDIVIDUAL else _range(subscription, first, last)
    _check_count(sequences, count)
    return sequences


def acknowledge_these(
    subscription: Subscription, type: AckType, sequences: list[int], *, transaction: Transaction | None = None,
    cause: str = "the client could not process it",
) -> None:  # fmt: skip
    """As ``acknowledge``, of messages that are known, in the order the client had them.

    Of a DELIVERED range some may be done with: the client tells of deliveries in lots. They take no credit any more.
    """
    if type is AckType.POISON and transaction is not None:
        raise InvalidArgument("POISON cannot be part of a transaction: send it outside of it", argument="type")
    for sequence in (sequences[0], sequences[-1]):
        if sequence not in subscription.in_flight:
            raise UnknownMessage(f"message {sequence} is not in flight on {subscription.id!r}", sequence=sequence)
    if type is AckType.DELIVERED:
        if subscription.source.policy.use_prefetch_extension:
            subscription.extend(sequences)
    elif type is AckType.REDELIVERED:  # it stays in flight; the client counts, until it gives it back
        return
    elif transaction is not None and type is not AckType.EXPIRED:
        transaction.acknowledge(subscription, sequences)
    else:
        _settle(subscription, type, sequences, cause)


def _settle(subscription: Subscription, type: AckType, sequences: list[int], cause: str) -> None:
    source, messages = subscription.source, subscription.take(sequences)
    if type is AckType.EXPIRED:
        source.dead_letter(messages, "expired", "expired before the consumer could process it")
    elif type is not AckType.POISON:
        source.acknowledge(messages)
        if type is AckType.UNMATCHED:
            source.dequeued -= len(messages)
    elif is_dead_letter_queue(source.destination, source.policy):  # what fails there stays there
        source.redeliver(messages, len(messages), cause, at_once=False)
    else:
        source.dead_letter(messages, "duplicate" if cause.startswith(DUPLICATE) else "failed", cause)


# Ranges.


def _one(first: int | None, last: int) -> list[int]:
    if first is not None and first != last:
        raise InvalidArgument(f"INDIVIDUAL acknowledges one message, not {first} to {last}", argument="first")
    return [last]


def _range(subscription: Subscription, first: int | None, last: int) -> list[int]:
    """The sequences from one to another in the order they were given out."""
    if first == last:
        return [last]
    covered = subscription.up_to(last)
    if first is None:
        return covered or [last]
    if covered and first not in covered and first in subscription.in_flight:
        raise InvalidArgument(f"message {first} was dispatched after message {last}", argument="first")
    return covered[covered.index(first) :] if first in covered else [first, last]


def _check_count(sequences: list[int], count: int | None) -> None:
    """See that a range has as many messages as the client says."""
    if count is not None and count != len(sequences):
        text = f"{sequences[0]} to {sequences[-1]} are {len(sequences)} messages, and the client sent {count}"
        raise InvalidArgument(text, argument="count", found=len(sequences))


class Puller(Protocol):
    """A consumer that asks for messages: a ``Subscription``, or one with several parts.

    Attributes:
        prefetch: 0.
        pulled: how many messages it may still be given of those it asked for.
    """

    prefetch: int
    pulled: int

    def grant(self, count: int) -> None:
        """It may be given so many messages more."""

    @property
    def id(self) -> str:
        """Its name."""

    def wake(self) -> None:
        """It may be given messages at the end of this turn."""

    def look(self) -> None:
        """Be given now what there is."""


class Pull:
    """A consumer without prefetch asks for messages (JMS ``receive`` and ``receiveNoWait``).

    Its session cancels it when the consumer leaves or pulls again.

    Args:
        timeout_ms: how long it waits, in milliseconds; 0 for ever, -1 not at all. What has not come when the time is
            up does not come any more.
        ended: told once when it is over, with how many have not come.
    """

    def __init__(
        self, core: Core, puller: Puller, quantity: int, timeout_ms: int, ended: Callable[[int], None]
    ) -> None:  # fmt: skip
        if puller.prefetch:
            raise InvalidArgument(f"{puller.id!r} has a prefetch and cannot pull", argument="prefetch")
        if quantity < 1:
            raise InvalidArgument(f"{quantity} messages cannot be pulled: request at least one", argument="quantity")
        if timeout_ms < -1:
            raise InvalidArgument(f"a timeout of {timeout_ms} ms: -1 not to wait, 0 for ever", argument="timeout")
        self._core = core
        self._puller = puller
        self._wanted = quantity
        puller.grant(quantity)
        self._looks = 0
        self._ended: Callable[[int], None] | None = ended
        self._timer: Timer | None = None
        if timeout_ms > 0:
            self._timer = core.scheduler.call_later(timeout_ms / 1000, self._end)
        elif timeout_ms < 0:
            core.after_commit(self._look_soon)
        puller.wake()

    def cancel(self) -> None:
        """It is to bring nothing more, and to say nothing."""
        if self._ended is not None:
            self._ended = None
            self._puller.grant(0)
        if self._timer is not None:
            self._timer.cancel()

    def came(self) -> None:
        """Messages came: it is over if they were the last."""
        if self._puller.pulled <= 0:
            self._tell()

    def _look_soon(self) -> None:
        """A commit is done: see in this turn whether there is anything now. While commits fail, there is not."""
        core = self._core
        if core.store_error is not None:
            self._tell()
        else:
            core.steps.add(self._look, f"a pull for {self._puller.id}")

    def _look(self) -> bool:
        """Is there anything? If not it is looked at again after the next commit; this step is done."""
        if self._ended is not None:
            self._looks += 1
            self._puller.look()
            if self._looks < LOOKS and self._puller.pulled == self._wanted:
                self._core.after_commit(self._look_soon)
            else:
                self._tell()
        return False

    def _end(self) -> None:
        """The time is up."""
        self._puller.look()
        self._tell()

    def _tell(self) -> None:
        """It is over: say so."""
        ended, left = self._ended, self._puller.pulled
        if ended is not None:
            self.cancel()
            ended(left)
