"""The session: makes producers and consumers, and decides when messages are acknowledged."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from quire.client.ack_mode import AckMode
from quire.client.arguments import check_text, refused, seconds, seconds_to_wait
from quire.client.browser import Browser
from quire.client.consumer import Consumer, Listener
from quire.client.consumer_request import ConsumerRequest
from quire.client.destinations import (
    ClientDestination,
    Queue,
    Stream,
    TemporaryQueue,
    TemporaryTopic,
    client_destination,
)
from quire.client.message import Body, Message
from quire.client.outgoing import Outgoing
from quire.client.producer import WINDOW, Producer
from quire.client.received_message import ReceivedMessage
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.client.session_consumers import SessionConsumers
from quire.client.session_core import SessionCore
from quire.client.session_owner import SessionOwner
from quire.client.wire_destinations import to_wire
from quire.errors import IllegalState, InvalidDestination, QuireError, TransactionRolledBack
from quire.protocols.openwire.commands import ProducerInfo, RemoveInfo, SessionInfo
from quire.protocols.openwire.structures import ProducerId


class Session:
    """A session of a connection; ``connection.session(...)`` makes one. As a context manager it closes itself.

    One task uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge and reject. Consumers of
    a session either all have a listener, or all use ``receive``.

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
            listener: a coroutine function, or a plain one that is quick; it is called with each message, one after the
                other. Without one, use ``receive`` or ``async for``.
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
