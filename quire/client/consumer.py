"""The consumer: what the broker dispatches waits here until the application takes it.

``Acknowledging`` says which acknowledgements are sent when, in each mode. It knows no socket and no event loop. It
follows ActiveMQ's Java client: brokers count on its numbers. Every method returns the commands to send, in order.

The messages of listeners are given out by one task of the session, one after the other (``Listeners``). A browser looks
at the messages of a queue without taking them.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from quire import logs
from quire.client.arguments import seconds_to_wait
from quire.client.destinations import ClientDestination, from_wire
from quire.client.message import Delivery, ReceivedMessage
from quire.client.options import RedeliveryPolicy
from quire.client.session_core import PROVIDER, AckMode, SessionCore
from quire.clock import Clock
from quire.errors import BrokerUnreachable, IllegalState, QuireError
from quire.protocols.openwire.commands import (
    AckType,
    ConsumerControl,
    ConsumerInfo,
    LocalTransactionId,
    Message,
    MessageAck,
    MessageDispatch,
    MessagePull,
    RemoveInfo,
    Throwable,
)

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


CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Makes a call after a delay in seconds."""


class WaitingMessages:
    """The messages in the order in which they are given out.

    Args:
        blocks: what was rolled back holds everything behind it until its delay is over, if the call does not say
            otherwise; else that goes on.
        call_later: makes the calls at the end of delays.
        wake: called when there may be a message again.
    """

    def __init__(
        self,
        blocks: bool,
        call_later: CallLater,
        wake: Callable[[], None],
    ) -> None:
        self._blocks = blocks
        self._call_later = call_later
        self._wake = wake
        self._waiting: deque[Delivery] = deque()
        self._delayed: dict[int, asyncio.TimerHandle] = {}
        self._number = 0
        self._holding = 0

    @property
    def is_paused(self) -> bool:
        """Whether everything waits for the end of a delay."""
        return self._holding > 0

    def __bool__(self) -> bool:
        return bool(self._waiting) and not self._holding

    def add(self, delivery: Delivery) -> None:
        """A message came."""
        self._waiting.append(delivery)

    def take(self) -> Delivery | None:
        """The next message; None if there is none at present."""
        return self._waiting.popleft() if self._waiting and not self._holding else None

    def come_again(self, deliveries: list[Delivery], delay: float, *, blocks: bool | None = None) -> None:
        """Give out rolled back messages again after a delay in seconds.

        Args:
            deliveries: the messages.
            delay: in seconds.
            blocks: whether they hold what is behind them; None: as all others.
        """
        self._number += 1
        number = self._number
        holds = self._blocks if blocks is None else blocks
        if delay <= 0:
            self._put_back(deliveries, holds)
            return

        self._holding += holds

        def end_of_delay() -> None:
            del self._delayed[number]
            self._holding -= holds
            self._put_back(deliveries, holds)

        self._delayed[number] = self._call_later(delay, end_of_delay)

    def clear(self) -> None:
        """Forget all messages."""
        self._waiting.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._holding = 0

    def _put_back(self, deliveries: list[Delivery], holds: bool) -> None:
        if holds:
            self._waiting.extendleft(reversed(deliveries))
        else:
            self._waiting.extend(deliveries)
        self._wake()


Listener = Callable[[ReceivedMessage], object]
"""What a session calls with each message, one after the other: a coroutine function, or a plain one that is quick."""

PULL_GRACE = 5.0
"""How many seconds longer than its time-out a pull waits for the broker's answer."""

TURN = 0.01
"""After how many seconds of messages that were there already ``receive`` lets the event loop do other work."""

INSTEAD = {
    AckMode.AUTO: "raise in the listener",
    AckMode.DUPS_OK: "raise in the listener",
    AckMode.CLIENT: "session.recover() delivers again all that is not acknowledged",
    AckMode.SESSION_TRANSACTED: "session.rollback() delivers again what the transaction received",
}
"""What to do in the other modes with a message that failed."""


class ConsumerOwner(Protocol):
    """What a consumer asks of its session."""

    async def acknowledge(self) -> None:
        """Acknowledge everything that the session delivered."""

    def check_no_listener(self) -> None:
        """Raise an error if the session has a listener."""

    def close_after_transaction(self, consumer: "Consumer") -> None:
        """Close the consumer when the transaction ends."""

    def removed(self, consumer: "Consumer") -> None:
        """The consumer is closed."""

    def wake_listeners(self) -> None:
        """There may be a message for a listener."""

    def listener_failed(self, message: ReceivedMessage, error: Exception) -> None:
        """A listener raised an error."""


class Consumer:
    """A consumer of a session; ``session.consumer(...)`` makes one. As a context manager it closes itself.

    Args:
        session: the parts that the session shares.
        owner: the consumers of the session.
        info: as the broker was told.
        acks: the state of its acknowledgements.
        listener: called with each message; None if the application calls ``receive``.

    Attributes:
        info: as the broker was told.
        destination: what it consumes.
        is_closed: whether it was closed, by the application or by the broker.
    """

    def __init__(
        self, session: SessionCore, owner: ConsumerOwner, info: ConsumerInfo, acks: Acknowledging,
        listener: Listener | None = None,
    ) -> None:  # fmt: skip
        assert info.destination is not None
        self.info = info
        self.destination: ClientDestination = from_wire(info.destination)
        self.acks = acks
        self.listener = listener
        self.is_closed = False
        self._session = session
        self._owner = owner
        self._acknowledge = {AckMode.CLIENT: self._acknowledge_all, AckMode.INDIVIDUAL: self._acknowledge_one}.get(
            session.mode
        )
        self._finishes_each = not info.browser and (acks.settings.acks_each or acks.settings.acks_batch)
        self._turn_began = session.clock.monotonic()
        self._topic_place = str(info.consumer_id) if self.destination.is_topic else None
        blocks = not session.options.non_blocking_redelivery
        self._waiting = WaitingMessages(blocks, asyncio.get_running_loop().call_later, self._wake)
        self._is_browsed = False
        self._has_told = False
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._is_answered = False
        self._failure: QuireError | None = None
        self._ack_timer: asyncio.TimerHandle | None = None
        self._start_ack_timer()

    async def receive(self, timeout: float | timedelta | None = None) -> ReceivedMessage | None:
        """Take the next message.

        Args:
            timeout: how long to wait for one, in seconds or as a timedelta; 0: take one that is there; None: without a
                limit.

        Returns:
            The message; None when the time is over, or when the consumer is closed meanwhile.

        Raises:
            IllegalState: the consumer is closed, or a consumer of the session has a listener.
            QuireError: the connection is lost.
        """
        self._owner.check_no_listener()
        await self._take_turns()
        self._check_open()
        left = seconds_to_wait("timeout", timeout)
        deadline = None if left is None else self._session.clock.monotonic() + left
        while not self.is_closed:
            delivery = self._waiting.take()
            if delivery is None:
                is_asked = self.acks.settings.prefetch == 0 and not self._waiting.is_paused
                if not await (self._ask(left, deadline) if is_asked else self._wait(deadline)):
                    return None
            elif self._is_dropped(delivery):
                # A pull that brought it goes on for what is left of the time.
                left = self._left(deadline)
            else:
                return await self._deliver(delivery)
        return None

    async def browse(self) -> ReceivedMessage | None:
        """Take the next message of a browse; None at its end."""
        await self._take_turns()
        while True:
            self._check_open()
            delivery = self._waiting.take()
            if delivery is not None:
                return await self._deliver(delivery)
            if self._is_browsed:
                return None
            limit = self._session.options.request_timeout / 1000
            if not await self._woken(limit or None):
                raise BrokerUnreachable(f"the broker did not go on with the browse within {limit:g} s")

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """The messages as they come, until the consumer is closed; each is taken as ``receive`` does."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message."""
        if (self.is_closed and self._failure is None) or (message := await self.receive()) is None:
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Close it; within a transaction that it took part in, that is done when the transaction ends."""
        if not self.is_closed and self.acks.delivered and self._session.transaction.id is not None:
            self._owner.close_after_transaction(self)
        else:
            self.close_now()

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def close_now(self) -> None:
        """Send what waits to be acknowledged, and tell the broker; nothing is awaited."""
        if self.is_closed:
            return
        if not self._session.is_transacted:
            self._session.post(self.acks.outstanding())
        self.end()
        self._session.post([RemoveInfo(object_id=self.info.consumer_id,
                                       last_delivered_sequence_id=self.acks.last_delivered)])  # fmt: skip

    def end(self) -> None:
        """The consumer is no more: what it holds may come again to another one."""
        self.is_closed = True
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._forget()
        self._session.last_delivered = max(self._session.last_delivered, self.acks.last_delivered)
        self._owner.removed(self)
        self._wake_all()

    def dispatched(self, dispatch: MessageDispatch) -> None:
        """The broker gave a message, or said that there is none."""
        message = dispatch.message
        if message is None:
            self.nothing_there()
            return
        self._is_answered = True
        self._waiting.add(Delivery(dispatch, message))
        self._wake()

    def nothing_there(self) -> None:
        """The answer to a pull that found nothing, or the end of a browse."""
        self._is_answered = True
        self._is_browsed = self.info.browser
        self._wake_all()

    def controlled(self, control: ConsumerControl) -> None:
        """The broker changes the consumer."""
        if control.close:
            self.end()
        elif not control.start and not control.stop and not control.flush:
            self.info.prefetch_size = control.prefetch
            self._session.post(self.acks.change_prefetch(control.prefetch))

    def interrupted(self) -> bool:
        """The connection is lost: what was not processed comes again.

        Returns:
            Whether messages were delivered that are not acknowledged now.
        """
        had_delivered = bool(self.acks.delivered)
        self._forget()
        return had_delivered

    def resumed(self) -> None:
        """The connection is there again: what waits for the answer to a pull asks again."""
        self._wake_all()

    def rollback(self) -> None:
        """Deliver again what was delivered, or give it up, as the redelivery policy says."""
        self._come_again(self.acks.rollback())

    def note_finished(self, deliveries: Iterable[Delivery]) -> None:
        """The application has finished messages: if their acknowledgements are lost, and they come again, they go."""
        for delivery in deliveries:
            self._session.audit.finished(self._place(delivery.message), delivery.message)

    def take_for_listener(self) -> Delivery | None:
        """The next message for the listener; None if there is none at present."""
        while (delivery := self._waiting.take()) is not None:
            if not self._is_dropped(delivery):
                return delivery
        return None

    async def listen(self, delivery: Delivery) -> None:
        """Give a message to the listener; what it raises rolls the message back, or is the transaction's to decide."""
        assert self.listener is not None
        before = self.acks.before(delivery, self._session.transaction_id())
        if before:
            await self._session.settle(before)
        message = ReceivedMessage(delivery, self._acknowledge, self._reject)
        try:
            await self._call(self.listener, message)
        except Exception as error:
            delivery.cause = error
            self._owner.listener_failed(message, error)
            if self.acks.settings.mode in (AckMode.SESSION_TRANSACTED, AckMode.CLIENT):
                await self._session.settle(self.acks.after(delivery))
            else:
                self._come_again(self.acks.reject(delivery))
        else:
            if self._finishes_each:
                self.note_finished((delivery,))
            elif self._acknowledge is not None and not self._has_told and delivery in self.acks.delivered:
                self._tell_unacknowledged(delivery)
            await self._session.settle(self.acks.after(delivery))

    async def _call(self, listener: Listener, message: ReceivedMessage) -> None:
        try:
            if self._session.tracing is None:
                if isinstance(done := listener(message), Awaitable):
                    await done
            else:
                with self._session.tracing.processing(message):
                    if isinstance(done := listener(message), Awaitable):
                        await done
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("something that the listener awaited was cancelled") from error

    async def _deliver(self, delivery: Delivery) -> ReceivedMessage:
        acks = self.acks.before(delivery, None if self.info.browser else self._session.transaction_id())
        acks += self.acks.after(delivery)
        if acks:
            await self._session.settle(acks)
        if self._finishes_each:
            self.note_finished((delivery,))
        if self._waiting and self._receivers:
            self._wake()
        return ReceivedMessage(delivery, self._acknowledge, self._reject)

    async def _take_turns(self) -> None:
        """Let acknowledgements and heart-beats leave between two messages, however many are here already."""
        if (now := self._session.clock.monotonic()) >= self._turn_began + TURN:
            self._turn_began = now
            await asyncio.sleep(0)

    async def _acknowledge_all(self, delivery: Delivery) -> None:
        self.note_finished((delivery,))
        await self._owner.acknowledge()

    async def _acknowledge_one(self, delivery: Delivery) -> None:
        self._session.check_open()
        self.note_finished((delivery,))
        await self._session.settle(self.acks.acknowledge_one(delivery))

    async def _reject(self, delivery: Delivery, delay: float | None) -> None:
        self._session.check_open()
        mode = self._session.mode
        if self.info.browser or mode is not AckMode.INDIVIDUAL:
            instead = "it was only looked at" if self.info.browser else INSTEAD[mode]
            raise IllegalState(f"only messages of INDIVIDUAL sessions are rejected one by one: {instead}")
        self._come_again(self.acks.reject(delivery), delay)

    def _come_again(self, done: Rollback, delay: float | None = None) -> None:
        """Deliver messages again; with a delay of their own, in seconds, they hold nothing that is behind them."""
        self._session.post(done.acks)
        if not done.again or self.is_closed:
            return
        if delay is None:
            self._waiting.come_again(done.again, done.delay / 1000)
        else:
            self._waiting.come_again(done.again, delay, blocks=False)

    def _tell_unacknowledged(self, delivery: Delivery) -> None:
        self._has_told = True
        logs.event(
            "client.unacknowledged",
            f"the listener of {self.destination} returned and has not acknowledged {delivery.message.message_id}; the "
            f"session is {self._session.mode.name}: call message.acknowledge() when the work is done, or use AUTO",
            logging.WARNING, destination=str(self.destination),
        )  # fmt: skip

    def _place(self, message: Message) -> str:
        """Where the audit knows a message: the copies of a composite send share one id in several queues."""
        return self._topic_place or str(message.destination)

    def _is_dropped(self, delivery: Delivery) -> bool:
        """Whether a message is not for the application: it was finished, it expired, or came back too often."""
        message, settings = delivery.message, self.acks.settings
        # Quire flags everything that was given out before: what is not flagged is another message with the same id.
        may_be_known = delivery.redeliveries > 0 or self._session.channel.provider != PROVIDER
        if may_be_known and self._session.audit.is_duplicate(self._place(message), message):
            self._session.post(self.acks.duplicate(delivery))
            return True
        if (
            0 < message.expiration <= self._session.clock.now_ms()
            and self._session.options.consumer_expiry_check_enabled
        ):
            self._session.post(self.acks.expired(delivery))
            return True
        if (
            settings.mode is AckMode.SESSION_TRANSACTED and settings.policy.pre_dispatch_check
            and settings.policy.is_exceeded(delivery.redeliveries)
            and "redeliveryDelay" not in ReceivedMessage(delivery).properties
        ):  # fmt: skip
            cause = f"dispatch[{delivery.redeliveries}] to {self.info.consumer_id} exceeds the maximum of redeliveries"
            self._session.post(self.acks.poison(delivery, cause))
            return True
        return False

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._session.clock.monotonic())

    async def _wait(self, deadline: float | None) -> bool:
        """Wait until there may be a message; False when the time is over."""
        left = self._left(deadline)
        if left == 0:
            # What the socket has already is read first, and a loop of such calls lets others work.
            await asyncio.sleep(0)
            return bool(self._waiting)
        return await self._woken(left)

    async def _ask(self, timeout: float | None, deadline: float | None) -> bool:
        """Ask the broker for a message, and wait for its answer; False if it has none."""
        self._is_answered = False
        while not self._is_answered and not self._waiting and not self.is_closed:
            await self._session.channel.ready()
            wait_ms = 0 if timeout is None else int(timeout * 1000) or -1
            self._session.post(
                [MessagePull(consumer_id=self.info.consumer_id, destination=self.info.destination, timeout=wait_ms)]
            )
            if not await self._woken(None if timeout is None else timeout + PULL_GRACE):
                return False
            # Woken without an answer: the connection is a new one.
            timeout = self._left(deadline)
        return bool(self._waiting)

    async def _woken(self, seconds: float | None) -> bool:
        self._session.check_open()
        receiver: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receivers.append(receiver)
        try:
            async with asyncio.timeout(seconds):
                await receiver
        except TimeoutError:
            return False
        finally:
            if receiver in self._receivers:
                self._receivers.remove(receiver)
        return True

    def _wake(self) -> None:
        if self.listener is not None:
            self._owner.wake_listeners()
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                receiver.set_result(None)
                return

    def _wake_all(self) -> None:
        for receiver in list(self._receivers):
            if not receiver.done():
                receiver.set_result(None)

    def fail(self, error: QuireError) -> None:
        """The connection is lost for good: who waits gets the error."""
        self.is_closed = True
        self._failure = error
        for receiver in list(self._receivers):
            if not receiver.done():
                receiver.set_exception(error)

    def _forget(self) -> None:
        """Everything here may come again."""
        self.acks.forget()
        self._waiting.clear()

    def _start_ack_timer(self) -> None:
        interval = self._session.options.optimized_ack_scheduled_ack_interval / 1000
        if interval > 0 and self.acks.settings.optimize:

            def flush() -> None:
                with contextlib.suppress(QuireError):
                    self._session.post(self.acks.processed())
                self._start_ack_timer()

            self._ack_timer = asyncio.get_running_loop().call_later(interval, flush)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._session.check_open()
        if self.is_closed:
            raise IllegalState(f"the consumer of {self.destination} is closed")


class Browser:
    """The messages of a queue as they are, once each: ``async for message in browser``.

    ``session.browser(...)`` makes one. The browse begins with the first message that is asked for. It closes itself at
    the end; as a context manager also before the end.

    Args:
        begin: makes a consumer of the browsing kind.
    """

    def __init__(self, begin: Callable[[], Awaitable[Consumer]]) -> None:
        self._begin = begin
        self._consumer: Consumer | None = None
        self._is_done = False

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Itself."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message."""
        if self._consumer is None:
            self._consumer = await self._begin()
        message = None if self._is_done else await self._consumer.browse()
        if message is None:
            await self.close()
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Stop browsing."""
        self._is_done = True
        if self._consumer is not None:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()


class Listeners:
    """Calls the listeners of a session's consumers.

    Args:
        consumers: the session's; it changes.
        report: called with errors that no listener raised.
    """

    def __init__(self, consumers: Mapping[int, Consumer], report: Callable[[Exception], None]) -> None:
        self._consumers = consumers
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._work = asyncio.Event()

    @property
    def is_started(self) -> bool:
        """Whether the session has listeners."""
        return self._task is not None

    def start(self) -> None:
        """There is a listener."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There may be a message for a listener."""
        self._work.set()

    def cancel(self) -> None:
        """End, in the middle of a listener if need be."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End, and wait for that; a listener that calls this itself ends when it returns."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            self._work.clear()
            has_worked = False
            for consumer in list(self._consumers.values()):
                if not consumer.is_closed and (delivery := consumer.take_for_listener()) is not None:
                    has_worked = True
                    try:
                        await consumer.listen(delivery)
                    except Exception as error:
                        self._report(error)
            await asyncio.sleep(0) if has_worked else await self._work.wait()
