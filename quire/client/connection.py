"""The connection and its sessions, over one socket to a broker, or to one broker after the other.

A session makes producers and consumers, and decides when messages are acknowledged. The id of a connection is unique,
and in the form of ActiveMQ's, which brokers and tools read. One temporary queue takes the answers to all its requests.
"""

import asyncio
import contextlib
import inspect
import itertools
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from random import Random, SystemRandom
from types import TracebackType
from typing import Self

from quire import logs
from quire.client.arguments import (
    check_flag,
    check_plain_function,
    check_text,
    check_whole,
    refused,
    seconds,
    seconds_to_wait,
)
from quire.client.channel import Channel, LocalTransaction, error_of
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
from quire.client.message_audit import ConnectionAudit
from quire.client.options import (
    PoliciesByDestination,
    RedeliveryPolicies,
    RedeliveryPolicy,
    checked_prefetch,
    consumer_options,
    read_url,
)
from quire.client.producer import WINDOW, Producer
from quire.client.session_core import AckMode, SessionCore, ack_mode
from quire.clock import Clock, SystemClock
from quire.errors import (
    BrokerUnreachable,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    QuireError,
    RequestUnanswered,
    TransactionRolledBack,
    UnknownSubscription,
)
from quire.protocols.openwire.commands import (
    BaseCommand,
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerControl,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    LocalTransactionId,
    MessageDispatch,
    ProducerAck,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
)
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


class SessionConsumers:
    """All consumers of one session.

    Args:
        core: the parts that consumers and producers of the session share.
        owner: the connection.
        random: for delays of redeliveries.
    """

    def __init__(self, core: SessionCore, owner: "Connection", random: Random) -> None:
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

    def __init__(self, core: SessionCore, owner: "Connection", random: Random) -> None:
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


_NUMBERS = itertools.count(1)


def connection_id(clock: Clock, prefix: str = "") -> str:
    """A new id.

    Args:
        clock: for the time in it.
        prefix: what it begins with; ``ID`` by default.
    """
    host = socket.gethostname().encode("ascii", "ignore").decode().replace(":", "") or "localhost"
    return f"{prefix or 'ID'}:{host}-{secrets.randbelow(10**9)}-{clock.now_ms()}-{next(_NUMBERS)}:1"


class Requestor:
    """Sends requests, and gives each answer to who waits for it.

    Args:
        session: a session of its own, in mode ``AUTO``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._answers: TemporaryQueue | None = None
        self._producer: Producer | None = None
        self._lock = asyncio.Lock()

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Send a request, and wait for its answer.

        Args:
            destination: who answers there.
            body: the request.
            timeout: how long the answer may take, in seconds; None: without a limit.

        Raises:
            RequestUnanswered: no answer came in time.
        """
        answers, producer = await self._opened()
        correlation_id = f"{answers.name}:{next(self._numbers)}"
        answer: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        try:
            async with asyncio.timeout(timeout):
                await producer.send(body, destination=destination, persistent=False, time_to_live=timeout,
                                    reply_to=answers, correlation_id=correlation_id)  # fmt: skip
                return await answer
        except TimeoutError as error:
            text = f"no answer from {destination} within {timeout:g} s"
            raise RequestUnanswered(text, destination=str(destination), timeout=timeout) from error
        finally:
            del self._waiting[correlation_id]

    async def _opened(self) -> tuple[TemporaryQueue, Producer]:
        async with self._lock:
            if self._answers is None or self._producer is None:
                answers = await self._session.temporary_queue()
                await self._session.consumer(answers, listener=self._answered)
                self._answers, self._producer = answers, self._session.producer()
            return self._answers, self._producer

    async def _answered(self, message: ReceivedMessage) -> None:
        waiting = self._waiting.get(message.correlation_id or "")
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


OnError = Callable[[Exception], object] | Callable[[Exception, ReceivedMessage | None], object]
"""What is called with errors that no call raises; if it takes a second argument, it gets the message of a listener."""


def connect(
    url: str = "tcp://127.0.0.1:61616", *, user: str = "", password: str = "", client_id: str = "",
    policies: PoliciesByDestination | None = None, on_error: OnError | None = None,
    tls: ssl.SSLContext | None = None, clock: Clock | None = None,
) -> "Connection":  # fmt: skip
    """Make a connection to a broker, for ``async with``: it connects when it is entered.

    Args:
        url: ``tcp://HOST:PORT``, ``ssl://HOST:PORT`` or ``failover:(tcp://A:1,tcp://B:2)``, with ActiveMQ's options.
        user: the user, if the broker has users.
        password: the user's password.
        client_id: whose durable subscriptions the connection may use.
        policies: redelivery policies by destination, or by its text; names may have wildcards.
        on_error: called with errors that no call raises: of a listener, of a command that is not answered, or of a
            connection that is lost for good. It gets the error, and if it takes a second argument, the message whose
            listener raised it, or None. With ``quire.client.sync`` it is called in the connection's thread: of the
            message, read the attributes only.
        tls: for ``ssl://``; None: the authorities of the file that QUIRE_TLS_CA names, or the system's.
        clock: for expirations and limits.

    Raises:
        InvalidArgument: the URL cannot be read, or another argument is not what it should be.
    """
    return Connection(url, user, password, client_id, policies, on_error, tls, clock or SystemClock())


class Connection:
    """A connection to a broker; ``connect`` makes one.

    Heart-beats are sent and checked by the event loop. Work that keeps the loop busy for longer than the time of
    inactivity (30 s) makes the broker close the connection: give such work to a thread, or use ``quire.client.sync``,
    whose connections have a loop of their own.

    Attributes:
        client_id: whose durable subscriptions it may use; one that is unique if none was given.
        broker_name: the name of the broker, once it has said it.
    """

    def __init__(
        self, url: str, user: str, password: str, client_id: str,
        policies: PoliciesByDestination | None, on_error: OnError | None, tls: ssl.SSLContext | None,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._url = read_url(url)
        for argument, value in (("user", user), ("password", password), ("client_id", client_id)):
            check_text(argument, value)
        if not isinstance(tls, ssl.SSLContext | None):
            raise refused("tls", tls, "an ssl.SSLContext; for ssl:// without one, None")
        given = {"user_name": user, "password": password, "client_id": client_id}
        self._options = replace(self._url.options, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]
        self._tls = tls
        self._clock = clock
        self._on_error = None if on_error is None else _reporter(on_error)
        self._random: Random = SystemRandom()
        self._id = ConnectionId(connection_id(clock, self._options.connection_id_prefix))
        self.client_id = self._options.client_id or connection_id(clock, self._options.client_id_prefix)
        self.broker_name = ""
        self.policies = RedeliveryPolicies(self._options.redelivery_policy, policies)
        self.may_optimize = self._options.optimize_acknowledge
        options = self._options
        self._audit = ConnectionAudit(
            options.audit_depth, options.audit_maximum_producer_number, options.check_for_duplicates
        )
        self._sessions: dict[int, Session] = {}
        self._session_numbers = itertools.count(1)
        self._transaction_numbers = itertools.count(1)
        self._temporary_numbers = itertools.count(1)
        self._channel: Channel | None = None
        self._requestor: Requestor | None = None
        self._last_delivered = -1

    async def open(self) -> Self:
        """Connect; ``async with`` does it too.

        Raises:
            BrokerUnreachable: no broker answers.
            AccessRefused: the broker refused the user.
            QuireError: the broker refused the connection, since the ``client_id`` is in use say.
        """
        if self._channel is not None:
            raise IllegalState("the connection was opened before: make a new one with connect")
        self._channel = Channel(replace(self._url, options=self._options), self, self._clock, self._random, self._tls)
        await self._channel.open(ConnectionInfo(
            connection_id=self._id, client_id=self.client_id, user_name=self._options.user_name or None,
            password=self._options.password or None, manageable=True, client_master=True,
            fault_tolerant=self._url.failover is not None,
        ))  # fmt: skip
        return self

    def session(self, ack: AckMode = AckMode.AUTO) -> Session:
        """Make a session.

        Args:
            ack: when messages are acknowledged.

        Raises:
            IllegalState: the connection is not open.
            InvalidArgument: it is none of the modes.
        """
        channel, mode = self._opened(), ack_mode(ack)
        number = next(self._session_numbers)
        transaction = LocalTransaction(channel, self._id, self._transaction_numbers)
        core = SessionCore(
            SessionId(self._id.value, number), mode, channel, self._audit, self._options, self._clock, transaction
        )
        session = Session(core, self, self._random)
        self._sessions[number] = session
        return session

    @property
    def unanswered(self) -> int:
        """How many commands wait for the broker's answer: while it holds sends, this does not fall."""
        return 0 if self._channel is None else len(self._channel.unanswered)

    @property
    def oldest_unanswered_age(self) -> float:
        """For how long the oldest of those has been waiting, in seconds."""
        return 0.0 if self._channel is None else self._channel.unanswered.oldest_age()

    @property
    def suppressed_duplicates(self) -> int:
        """How many messages came again that the application had finished, and were acknowledged again."""
        return self._audit.suppressed

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket to a broker at present."""
        return self._channel is not None and self._channel.is_connected

    @property
    def address(self) -> str | None:
        """The address of the present broker."""
        return None if self._channel is None or self._channel.address is None else str(self._channel.address)

    async def close(self) -> None:
        """Close it with its sessions. Open transactions are rolled back."""
        channel = self._channel
        if channel is None or channel.is_ended:
            return
        if not channel.is_connected:
            # Between two brokers nothing can be said to either; what is unanswered fails.
            error = BrokerUnreachable("the connection was closed while no broker answered")
            for session in list(self._sessions.values()):
                session.failed(error)
            await channel.close()
            return
        for session in list(self._sessions.values()):
            try:
                await session.close()
            except QuireError as error:
                self.report(error)
        removal = RemoveInfo(object_id=self._id, last_delivered_sequence_id=self._last_delivered)
        try:
            await channel.request(removal, self._options.close_timeout / 1000)
        except QuireError as error:
            self.report(error)
        finally:
            await channel.close()

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def temporary(self, kind: type[ClientDestination]) -> ClientDestination:
        """Of the session: a new temporary destination."""
        made = kind(f"{self._id}:{next(self._temporary_numbers)}")
        await self._change_destination(made, DestinationOperation.ADD)
        return made

    async def delete_temporary(self, destination: ClientDestination) -> None:
        """Of the session: delete a temporary destination."""
        if not destination.is_temporary:
            raise InvalidArgument(f"{destination} is not temporary", argument="destination")
        await self._change_destination(destination, DestinationOperation.REMOVE)

    async def unsubscribe(self, name: str) -> None:
        """Of the session: delete a durable subscription."""
        info = RemoveSubscriptionInfo(connection_id=self._id, subscription_name=name, client_id=self.client_id)
        try:
            await self._opened().request(info)
        except InvalidDestination as error:
            # So does ActiveMQ say it.
            raise UnknownSubscription(str(error), **error.data) from error

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Of the session: send a request and wait for its answer."""
        if self._requestor is None:
            self._requestor = Requestor(self.session())
        return await self._requestor.ask(destination, body, timeout)

    def session_closed(self, core: SessionCore) -> None:
        """Of the session: it is closed."""
        self._sessions.pop(core.id.value, None)
        self._last_delivered = max(self._last_delivered, core.last_delivered)

    def report(self, error: Exception, message: ReceivedMessage | None = None) -> None:
        """Of the session: an error that no call raises, and the message whose listener raised it."""
        if self._on_error is None:
            if message is None:  # else it is in the log
                logs.event("client.error", f"{type(error).__name__}: {error}", logging.WARNING)
            return
        try:
            self._on_error(error, message)
        except Exception as defect:
            logs.failure("client.error", f"on_error raised {defect!r}", defect)

    def dispatched(self, command: BaseCommand) -> None:
        """Of the channel: a command came that is no answer."""
        if isinstance(command, MessageDispatch):
            consumer_id = command.consumer_id
            session = None if consumer_id is None else self._sessions.get(consumer_id.session_id)
            if session is not None and consumer_id is not None:
                consumer = session.consumers.get(consumer_id.value)
                if consumer is not None:
                    consumer.dispatched(command)
        elif isinstance(command, ConsumerControl):
            self._controlled(command)
        elif isinstance(command, ProducerAck) and command.producer_id is not None:
            session = self._sessions.get(command.producer_id.session_id)
            producer = None if session is None else session.producers.get(command.producer_id.value)
            if producer is not None:
                producer.acknowledged(command.size)
        elif isinstance(command, BrokerInfo):
            self._introduced(command)
        elif isinstance(command, ConnectionErrorCommand):
            self.report(error_of(command.exception))

    def interrupted(self) -> None:
        """Of the channel: the socket is lost, and will be replaced."""
        self._audit.interrupted()
        error = BrokerUnreachable("the connection to the broker was lost")
        for session in list(self._sessions.values()):
            session.interrupted(error)

    def resumed(self) -> None:
        """Of the channel: there is a socket again."""
        for session in list(self._sessions.values()):
            session.resumed()

    def failed(self, error: QuireError) -> None:
        """Of the channel: the connection is lost for good."""
        for session in list(self._sessions.values()):
            session.failed(error)
        self.report(error)

    def _introduced(self, info: BrokerInfo) -> None:
        self.broker_name = info.broker_name or ""
        if info.fault_tolerant_configuration:
            # Acknowledgements that wait would be lost with the broker that another one takes over from.
            self.may_optimize = False
            for session in self._sessions.values():
                session.switch_optimizing_off()

    def _controlled(self, control: ConsumerControl) -> None:
        consumer_id: ConsumerId | None = control.consumer_id
        session = None if consumer_id is None else self._sessions.get(consumer_id.session_id)
        consumer = None if session is None or consumer_id is None else session.consumers.get(consumer_id.value)
        if consumer is not None:
            consumer.controlled(control)

    async def _change_destination(self, destination: ClientDestination, operation: DestinationOperation) -> None:
        await self._opened().request(DestinationInfo(
            connection_id=self._id, destination=to_wire(destination), operation_type=int(operation)
        ))  # fmt: skip

    def _opened(self) -> Channel:
        if self._channel is None:
            raise IllegalState("the connection is not open: use `async with connect(...)`, or await its open()")
        return self._channel


def _reporter(on_error: Callable[..., object]) -> Callable[[Exception, ReceivedMessage | None], object]:
    """A function of an error and a message, from one that may take the error only."""
    check_plain_function("on_error", on_error, "a plain function of an error, and of a message if you like")
    with contextlib.suppress(ValueError):  # what is not written in Python may have no signature
        parameters = inspect.signature(on_error).parameters.values()
        positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
        if len(positional) > 1 and (positional[1].default is positional[1].empty or positional[1].name == "message"):
            return on_error
    return lambda error, message: on_error(error)
