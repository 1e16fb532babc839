"""The session: makes producers and consumers, and decides when messages are acknowledged."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import Protocol, Self

from quire import logs
from quire.client.arguments import check_flag, check_text, check_whole, refused, seconds, seconds_to_wait
from quire.client.consumer import Acknowledging, AckSettings, Browser, Consumer, Listener, Listeners
from quire.client.destinations import (
    ClientDestination,
    Queue,
    Stream,
    TemporaryQueue,
    TemporaryTopic,
    client_destination,
    to_wire,
)
from quire.client.message import Body, Message, Outgoing, ReceivedMessage
from quire.client.options import RedeliveryPolicies, RedeliveryPolicy, checked_prefetch, consumer_options
from quire.client.producer import WINDOW, Producer
from quire.client.session_core import AckMode, SessionCore
from quire.errors import IllegalState, InvalidArgument, InvalidDestination, QuireError, TransactionRolledBack
from quire.protocols.openwire.commands import ConsumerInfo, ProducerInfo, RemoveInfo, SessionInfo
from quire.protocols.openwire.structures import ConsumerId, LocalTransactionId, ProducerId
from quire.selectors.message_selector import selector as checked_selector


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """The arguments of ``Session.consumer`` and ``Session.browser`` that the broker is told."""

    destination: ClientDestination
    selector: str = ""
    name: str = ""
    no_local: bool = False
    prefetch: int | None = None
    exclusive: bool = False
    group: str = ""
    start: str = ""
    browser: bool = False

    def check(self) -> None:
        """See that the arguments are what they should be, and fit each other.

        Raises:
            InvalidDestination: the destination has no durable subscriptions.
            InvalidArgument: an argument is not what it should be, or not for this kind of destination.
        """
        for text in ("selector", "name", "group", "start"):
            check_text(text, getattr(self, text))
        for flag in ("no_local", "exclusive"):
            check_flag(flag, getattr(self, flag))
        if self.prefetch is not None:
            check_whole("prefetch", self.prefetch, 0)
        if isinstance(self.destination, Stream):
            if self.name:
                raise InvalidArgument(f"{self.destination} has no durable subscriptions: give a group", argument="name")
        elif self.group or self.start:
            text = f"{self.destination} is no stream: only streams have consumer groups and a start"
            raise InvalidArgument(text, argument="group" if self.group else "start")
        elif self.name and not self.destination.is_topic:
            raise InvalidDestination(f"{self.destination} is no topic: only topics have durable subscriptions")

    def info(self, core: SessionCore, number: int, client_id: str, *, optimize: bool) -> ConsumerInfo:
        """What the broker is told.

        Args:
            core: the session.
            number: of the consumer in the session.
            client_id: the connection's.
            optimize: whether acknowledgements are optimized.

        Raises:
            InvalidSelector: the selector cannot be read.
            InvalidArgument: an option or the prefetch is invalid.
        """
        given, options = consumer_options(self.destination), core.options
        wanted = self.selector or given.selector
        if wanted:
            checked_selector(wanted)
        name = self.group or self.name
        prefetch = self.prefetch
        if prefetch is None:
            prefetch = given.prefetch_size if given.prefetch_size >= 0 else options.prefetch_policy.prefetch(
                self.destination.is_topic, self.browser, bool(name), optimize
            )  # fmt: skip
        return ConsumerInfo(
            consumer_id=ConsumerId(core.id.connection_id, core.id.value, number), browser=self.browser,
            destination=to_wire(self.destination, start=self.start), prefetch_size=checked_prefetch(prefetch),
            dispatch_async=given.dispatch_async, maximum_pending_message_limit=given.maximum_pending_message_limit,
            selector=wanted or None, client_id=client_id, subscription_name=name or None,
            no_local=self.no_local or given.no_local,
            exclusive=self.exclusive or given.exclusive or options.exclusive_consumer,
            retroactive=given.retroactive or options.use_retroactive_consumer, priority=given.priority,
            optimized_acknowledge=optimize,
        )  # fmt: skip


class SessionOwner(Protocol):
    """The connection, as its sessions see it."""

    client_id: str
    policies: RedeliveryPolicies
    may_optimize: bool

    async def temporary(self, kind: type[ClientDestination]) -> ClientDestination:
        """A new temporary destination."""

    async def delete_temporary(self, destination: ClientDestination) -> None:
        """Delete a temporary destination."""

    async def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription."""

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Send a request and wait for its answer."""

    def session_closed(self, core: SessionCore) -> None:
        """The session is closed."""

    def report(self, error: Exception, message: ReceivedMessage | None = None) -> None:
        """An error that no call raises, and the message whose listener raised it."""


class SessionConsumers:
    """All consumers of one session.

    Args:
        core: the parts that consumers and producers of the session share.
        owner: the connection.
        random: for delays of redeliveries.
    """

    def __init__(self, core: SessionCore, owner: SessionOwner, random: Random) -> None:
        self._core = core
        self._owner = owner
        self._random = random
        self._consumers: dict[int, Consumer] = {}
        self._closing: list[Consumer] = []
        self._listeners = Listeners(self._consumers, owner.report)

    def __iter__(self) -> Iterator[Consumer]:
        """All of them; one may close itself meanwhile."""
        return iter(list(self._consumers.values()))

    def get(self, number: int) -> Consumer | None:
        """The consumer of that number."""
        return self._consumers.get(number)

    async def make(
        self, number: int, request: ConsumerRequest, listener: Listener | None = None,
        policy: RedeliveryPolicy | None = None,
    ) -> Consumer:  # fmt: skip
        """Make a consumer, with a number that no other part of the session has; raises what the broker refuses."""
        core, destination, browser = self._core, request.destination, request.browser
        core.check_open()
        core.check_takes(destination)
        self._check_listener(listener, browser)
        optimize = self._owner.may_optimize and core.mode is AckMode.AUTO and not browser
        info = request.info(core, number, self._owner.client_id, optimize=optimize)
        if listener is not None and info.prefetch_size == 0:
            raise IllegalState("a listener needs a prefetch of 1 or more: with 0, each message is asked for by receive")
        settings = AckSettings(
            AckMode.AUTO if browser else core.mode, info.prefetch_size, destination.is_topic, optimize,
            core.options.optimize_acknowledge_time_out, core.options.acks_individually_in_transactions,
            policy or self._owner.policies.policy(destination),
        )  # fmt: skip
        consumer = Consumer(core, self, info, Acknowledging(settings, core.clock, self._random), listener)
        self._consumers[number] = consumer
        if listener is not None:
            self._listeners.start()
        try:
            await core.channel.request(info)
        except BaseException:
            consumer.end()
            raise
        return consumer

    def _check_listener(self, listener: Listener | None, browser: bool) -> None:
        if browser:
            return
        has_receivers = any(other.listener is None and not other.info.browser for other in self._consumers.values())
        if (listener is None and self._listeners.is_started) or (listener is not None and has_receivers):
            raise IllegalState("consumers of one session either all have a listener or none has: use another session")

    # Of a consumer.

    async def acknowledge(self) -> None:
        """Acknowledge everything that the session delivered."""
        for consumer in self:
            consumer.note_finished(consumer.acks.delivered)
            await self._core.settle(consumer.acks.acknowledge())

    def check_no_listener(self) -> None:
        """Raise an error if a consumer has a listener: then it takes all messages of the session."""
        if self._listeners.is_started:
            raise IllegalState("a consumer of the session has a listener: receive with another session")

    def close_after_transaction(self, consumer: Consumer) -> None:
        """It took part in the open transaction, and is closed when that ends."""
        self._closing.append(consumer)

    def removed(self, consumer: Consumer) -> None:
        """It is closed."""
        assert consumer.info.consumer_id is not None
        self._consumers.pop(consumer.info.consumer_id.value, None)

    def wake_listeners(self) -> None:
        """It may have a message for its listener."""
        self._listeners.wake()

    def listener_failed(self, message: ReceivedMessage, error: Exception) -> None:
        """Its listener raised an error."""
        where, count = str(message.destination), message.delivery_count
        logs.failure(
            "client.listener-failed",
            f"the listener of {where} raised {error!r} for message {message.id}, delivery {count}", error,
            destination=where, message_id=message.id, delivery_count=count,
        )  # fmt: skip
        self._owner.report(error, message)

    # Of the session.

    def acknowledge_in(self, transaction: LocalTransactionId) -> None:
        """Acknowledge in the transaction that is about to be committed what was delivered."""
        for consumer in self:
            self._core.post(consumer.acks.acknowledge(transaction))

    def committed(self) -> None:
        """The transaction is committed."""
        for consumer in self:
            consumer.note_finished(consumer.acks.delivered)
            consumer.acks.committed()
        self._close_waiting()

    def rolled_back(self) -> None:
        """The transaction is rolled back."""
        if self._core.error is None:
            self.deliver_again()
        self._close_waiting()

    def deliver_again(self) -> None:
        """Deliver again what was delivered and not acknowledged."""
        for consumer in self:
            consumer.rollback()

    def _close_waiting(self) -> None:
        waiting, self._closing = self._closing, []
        for consumer in waiting:
            consumer.close_now()

    async def stop_listeners(self) -> None:
        """No listener is called any more."""
        await self._listeners.stop()

    def close(self) -> None:
        """Close all of them."""
        for consumer in self:
            consumer.close_now()

    # Of the connection.

    def interrupted(self, error: QuireError) -> None:
        """The socket is lost, and will be replaced."""
        for consumer in self:
            if consumer.info.browser:
                consumer.fail(error)
            elif consumer.interrupted() and self._core.transaction.id is not None:
                self._core.transaction.is_lost = True

    def resumed(self) -> None:
        """There is a socket again."""
        for consumer in self:
            consumer.resumed()

    def switch_optimizing_off(self) -> None:
        """Acknowledge each message at once from now on."""
        for consumer in self:
            self._core.post(consumer.acks.switch_optimizing_off())

    def failed(self, error: QuireError) -> None:
        """The connection is lost for good."""
        for consumer in self:
            consumer.fail(error)
        self._listeners.cancel()


class Session:
    """A session of a connection; ``connection.session(...)`` makes one. As a context manager it closes itself.

    One task uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge and reject. Consumers
    of a session either all have a listener, or all use ``receive``.

    Args:
        core: the parts that its consumers and producers share.
        owner: the connection.
        random: for delays of redeliveries.
    """

    def __init__(self, core: SessionCore, owner: SessionOwner, random: Random) -> None:
        self._core = core
        self._owner = owner
        self._numbers = itertools.count(1)
        self.consumers = SessionConsumers(core, owner, random)
        self.producers: dict[int, Producer] = {}
        core.channel.send(SessionInfo(session_id=core.id))

    @property
    def ack(self) -> AckMode:
        """When messages are acknowledged."""
        return self._core.mode

    def producer(
        self, destination: ClientDestination | str | None = None, *, persistent: bool = True, priority: int = 4,
        time_to_live: float | timedelta = 0.0, window: int = WINDOW,
    ) -> Producer:  # fmt: skip
        """Make a producer.

        Args:
            destination: where its messages go; a text is the name of a queue, or begins with ``topic://`` or
                ``stream://``. None if each send says so.
            persistent: whether messages outlive the broker, if a send does not say.
            priority: 0 to 9, if a send does not say.
            time_to_live: after how many seconds messages expire, or a timedelta, if a send does not say; 0: never.
            window: how many messages ``submit`` may have unconfirmed.

        Raises:
            IllegalState: the session is closed.
            InvalidArgument: an argument is not what it should be.
            InvalidDestination: the destination is none, or a stream, and the broker is not Quire.
        """
        core, options = self._core, self._core.options
        core.check_open()
        target = None if destination is None else client_destination(destination)
        if target is not None:
            core.check_takes(target)
        defaults = Outgoing(persistent, priority, seconds("time_to_live", time_to_live), options.use_compression,
                            not options.disable_time_stamps_by_default)  # fmt: skip
        number = next(self._numbers)
        info = ProducerInfo(
            producer_id=ProducerId(core.id.connection_id, core.id.value, number),
            destination=None if target is None else to_wire(target),
            dispatch_async=options.dispatch_async, window_size=options.producer_window_size,
        )  # fmt: skip
        producer = Producer(core, info, target, defaults, window, partial(self.producers.pop, number, None))
        self.producers[number] = producer
        core.post([info])
        return producer

    async def consumer(
        self, destination: ClientDestination | str, *, selector: str = "", name: str = "", no_local: bool = False,
        prefetch: int | None = None, exclusive: bool = False, group: str = "", start: str = "",
        listener: Listener | None = None, policy: RedeliveryPolicy | None = None,
    ) -> Consumer:  # fmt: skip
        """Make a consumer.

        Args:
            destination: a queue, topic or stream, or a text: the name of a queue, or one that begins with ``topic://``
                or ``stream://``. Its name may have options, of queues and topics also wildcards and several names.
            selector: which messages it wants, in the language of JMS.
            name: of a durable subscription of a topic; the connection needs a ``client_id`` for it.
            no_local: without messages of the same connection.
            prefetch: how many messages the broker may give ahead; None: as the options say; 0: each is asked for.
            exclusive: the only one that gets messages while it is there.
            group: of a stream: the consumer group that it is a member of; without one it reads all messages by itself.
            start: of a stream: where it begins, or the group if it is new: ``earliest``, ``latest`` (if empty),
                ``offset=N``, ``timestamp=2026-01-31T12:00:00Z`` or ``ago=30m``.
            listener: called with each message, one after another: a coroutine function, or a plain one that is quick.
                Without one, use ``receive`` or ``async for``.
            policy: for messages that are rolled back; None: the connection's for the destination.

        Raises:
            InvalidSelector: the selector cannot be read.
            InvalidDestination: a stream, and the broker is not Quire.
            InvalidArgument: an argument is not what it should be, or not for this kind of destination.
            GroupMismatch: the group has another selector.
            IllegalState: a listener with a prefetch of 0, or both ways of consuming in one session.
            QuireError: the broker refused it.
        """
        target = client_destination(destination)
        request = ConsumerRequest(target, selector, name, no_local, prefetch, exclusive, group, start)
        request.check()
        if listener is not None and not callable(listener):
            raise refused("listener", listener, "a function of a message")
        if policy is not None and not isinstance(policy, RedeliveryPolicy):
            raise refused("policy", policy, "a RedeliveryPolicy")
        return await self.consumers.make(next(self._numbers), request, listener, policy)

    def browser(self, queue: Queue | Stream | str, *, selector: str = "") -> Browser:
        """Look at messages without taking them: ``async for message in session.browser(queue)``.

        Args:
            queue: a queue, or a stream, which is shown from its first message to its last.
            selector: which messages.
        """
        request = ConsumerRequest(client_destination(queue, "queue"), selector, browser=True)
        request.check()
        return Browser(lambda: self.consumers.make(next(self._numbers), request))

    async def request(
        self,
        destination: ClientDestination | str,
        body: Body | Message = None,
        *,
        timeout: float | timedelta | None = 30.0,
    ) -> ReceivedMessage:
        """Send a request, and wait for the message that answers it; outside of any transaction.

        Args:
            destination: who answers there sends to the ``reply_to`` with the ``correlation_id`` of the request.
            body: the request.
            timeout: how long the answer may take, in seconds or as a timedelta; None: without a limit.

        Raises:
            RequestUnanswered: no answer came in time; it is a ``TimeoutError``.
            QuireError: the broker refused the request.
        """
        self._core.check_open()
        target = client_destination(destination)
        return await self._owner.ask(target, body, seconds_to_wait("timeout", timeout))

    async def temporary_queue(self) -> TemporaryQueue:
        """Make a temporary queue; it ends with the connection."""
        made = await self._owner.temporary(TemporaryQueue)
        assert isinstance(made, TemporaryQueue)
        return made

    async def temporary_topic(self) -> TemporaryTopic:
        """Make a temporary topic; it ends with the connection."""
        made = await self._owner.temporary(TemporaryTopic)
        assert isinstance(made, TemporaryTopic)
        return made

    async def delete_temporary(self, destination: TemporaryQueue | TemporaryTopic) -> None:
        """Delete a temporary destination of this connection before the connection ends.

        Raises:
            DestinationInUse: it has consumers.
        """
        await self._owner.delete_temporary(client_destination(destination))

    async def unsubscribe(self, name: str, stream: Stream | str | None = None) -> None:
        """Delete a durable subscription that has no consumer, or a consumer group that has no member.

        Args:
            name: of the durable subscription, or of the group.
            stream: the stream of the group.

        Raises:
            UnknownSubscription: there is none of that name.
            UnknownConsumerGroup: the stream has no such group.
            DestinationInUse: it has a consumer, or a member.
        """
        check_text("name", name)
        if not name:
            raise refused("name", name, "the name of a durable subscription, or of a group")
        if stream is not None:
            is_name = isinstance(stream, str) and "://" not in stream
            target = client_destination(f"{Stream.prefix}{stream}" if is_name else stream, "stream")
            if not isinstance(target, Stream):
                raise InvalidDestination(f"{stream!r} is no stream: only streams have consumer groups")
            self._core.check_takes(target)
            name = to_wire(target, group=name).physical_name
        await self._owner.unsubscribe(name)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commit at the end of the block, or roll back what it raised: ``async with session.transaction(): ...``.

        Raises:
            IllegalState: the session has no transactions.
            TransactionRolledBack: the commit came to a rollback.
        """
        self.check_transacted()
        try:
            yield self
        except BaseException:
            await self.rollback()
            raise
        await self.commit()

    async def commit(self) -> None:
        """Commit what was sent and received since the last commit or rollback.

        Raises:
            IllegalState: the session has no transactions.
            TransactionRolledBack: the connection was lost meanwhile. Everything is rolled back, or, when the answer to
                the commit itself was lost, in doubt.
            QuireError: the broker refused it, and everything is rolled back.
        """
        self.check_transacted()
        transaction = self._core.transaction
        if transaction.is_lost:
            await self.rollback()
            raise TransactionRolledBack("the connection was lost while messages were delivered in the transaction")
        if transaction.id is not None:
            self.consumers.acknowledge_in(transaction.id)
        try:
            await transaction.commit()
        except QuireError:
            self.consumers.rolled_back()
            raise
        self.consumers.committed()

    async def rollback(self) -> None:
        """Undo what was sent since the last commit or rollback, and deliver again what was received.

        Raises:
            IllegalState: the session has no transactions.
        """
        self.check_transacted()
        try:
            await self._core.transaction.rollback()
        finally:
            self.consumers.rolled_back()

    async def acknowledge(self) -> None:
        """In a ``CLIENT`` session: acknowledge everything that was delivered so far.

        Raises:
            IllegalState: the session is closed, or has another mode.
        """
        self._core.check_open()
        if self._core.mode is not AckMode.CLIENT:
            raise IllegalState(f"the session is {self._core.mode.name}: only CLIENT sessions acknowledge so")
        await self.consumers.acknowledge()

    async def recover(self) -> None:
        """Deliver again what was delivered and not acknowledged.

        Raises:
            IllegalState: the session is transacted; roll back instead.
        """
        self._core.check_open()
        if self._core.is_transacted:
            raise IllegalState("the session is transacted: use rollback")
        self.consumers.deliver_again()

    async def close(self) -> None:
        """Close it with its consumers and producers; an open transaction is rolled back.

        Raises:
            QuireError: of a message that was submitted and is not confirmed.
        """
        if self._core.is_closed:
            return
        await self.consumers.stop_listeners()
        try:
            for producer in list(self.producers.values()):
                await producer.flush()
            if self._core.transaction.id is not None and self._core.error is None:
                await self._core.transaction.rollback()
        finally:
            self.consumers.close()
            self._core.is_closed = True
            self._core.post([RemoveInfo(object_id=self._core.id)])
            self._owner.session_closed(self._core)

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def interrupted(self, error: QuireError) -> None:
        """Of the connection: the socket is lost, and will be replaced."""
        self.consumers.interrupted(error)

    def resumed(self) -> None:
        """Of the connection: there is a socket again."""
        self.consumers.resumed()
        for producer in self.producers.values():
            producer.resumed()

    def switch_optimizing_off(self) -> None:
        """Of the connection: acknowledge each message at once from now on."""
        self.consumers.switch_optimizing_off()

    def failed(self, error: QuireError) -> None:
        """Of the connection: it is lost for good."""
        self._core.error = error
        self.consumers.failed(error)
        for producer in self.producers.values():
            producer.resumed()

    def check_transacted(self) -> None:
        """Raise an error if the session has no transactions."""
        self._core.check_open()
        if not self._core.is_transacted:
            raise IllegalState(f"the session is {self._core.mode.name}: transactions need SESSION_TRANSACTED")
