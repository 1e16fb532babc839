"""The client without asyncio: the same names, each call waits. Every connection has a thread with an event loop.

That thread sends and checks heart-beats, so a handler may be busy for as long as it likes. Listeners are called in a
thread of their session. One thread uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge
and reject.

``scripts/sync_client.py`` writes this module: do not edit it.
"""

import concurrent.futures
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from quire.client.connection import OnError
from quire.client.connection import connect as async_connect
from quire.client.consumer import Browser as AsyncBrowser
from quire.client.consumer import Consumer as AsyncConsumer
from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic
from quire.client.message import Body, Message, PropertyValue
from quire.client.options import PoliciesByDestination, RedeliveryPolicy
from quire.client.producer import WINDOW
from quire.client.producer import Producer as AsyncProducer
from quire.client.session_core import AckMode
from quire.client.threads import ConnectionInThread, InThread, MessageInThread, SessionInThread
from quire.clock import Clock

Listener = Callable[["ReceivedMessage"], None]
"""What a session calls with each message, one after the other, in a thread of the session."""


class ReceivedMessage(MessageInThread):
    """A message that was received."""

    def acknowledge(self) -> None:
        """Acknowledge it: in a ``CLIENT`` session with everything delivered before it, in an ``INDIVIDUAL`` one alone.

        In other sessions it does nothing: they acknowledge by themselves.

        Raises:
            IllegalState: the session is closed.
        """
        self._loop.run(self._inner.acknowledge())

    def reject(self, delay: float | timedelta | None = None) -> None:
        """Say that the work on it failed, in an ``INDIVIDUAL`` session: it is delivered again to the same consumer.

        That is counted; beyond the maximum of the redelivery policy it becomes a dead letter. It does nothing for a
        message that was acknowledged or rejected before.

        Args:
            delay: when it is delivered again, in seconds or as a timedelta. Other messages do not wait for it; the
                consumer holds it meanwhile, and gives it back at once when it closes. None: as the redelivery policy
                says.

        Raises:
            IllegalState: the session has another mode, or is closed.
            InvalidArgument: the delay is none.
        """
        self._loop.run(self._inner.reject(delay))

    @property
    def body(self) -> Any:
        """The body: str, bytes, dict (map), list (stream), None, ``JavaObject`` or ``Blob``.

        Raises:
            QuireError: it cannot be read, or is too large when inflated.
        """
        return self._inner.body

    @property
    def properties(self) -> dict[str, Any]:
        """The application's properties.

        Raises:
            QuireError: they cannot be read.
        """
        return self._inner.properties

    @property
    def id(self) -> str:
        """The message's id."""
        return self._inner.id

    @property
    def destination(self) -> ClientDestination | None:
        """Where it was sent to."""
        return self._inner.destination

    @property
    def partition(self) -> int | None:
        """The partition of the stream that it came from; None if it came from no stream."""
        return self._inner.partition

    @property
    def offset(self) -> int | None:
        """Its offset in the partition; None if it came from no stream."""
        return self._inner.offset

    @property
    def reply_to(self) -> ClientDestination | None:
        """Where an answer is expected."""
        return self._inner.reply_to

    @property
    def correlation_id(self) -> str | None:
        """What ties it to another message."""
        return self._inner.correlation_id

    @property
    def type(self) -> str | None:
        """Its type, a word of the application."""
        return self._inner.type

    @property
    def group_id(self) -> str | None:
        """Its message group."""
        return self._inner.group_id

    @property
    def group_sequence(self) -> int:
        """Its place in the group."""
        return self._inner.group_sequence

    @property
    def persistent(self) -> bool:
        """Whether it outlives the broker."""
        return self._inner.persistent

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self._inner.priority

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970; 0 if it does not say."""
        return self._inner.timestamp

    @property
    def expiration(self) -> int:
        """When it expires, in ms since 1970; 0: never."""
        return self._inner.expiration

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self._inner.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self._inner.redelivered

    def to_send(self) -> Message:
        """The message as one to send."""
        return self._inner.to_send()


class Browser(InThread[AsyncBrowser]):
    """The messages of a queue as they are, once each: ``for message in browser``.

    ``session.browser(...)`` makes one. The browse begins with the first message that is asked for. It closes itself at
    the end; as a context manager also before the end.
    """

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Itself."""
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message."""
        return ReceivedMessage(self._loop, self._loop.next(self._inner))

    def close(self) -> None:
        """Stop browsing."""
        self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Consumer(InThread[AsyncConsumer]):
    """A consumer of a session; ``session.consumer(...)`` makes one. As a context manager it closes itself."""

    @property
    def destination(self) -> ClientDestination:
        """What it consumes."""
        return self._inner.destination

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by the application or by the broker."""
        return self._inner.is_closed

    def receive(self, timeout: float | timedelta | None = None) -> ReceivedMessage | None:
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
        message = self._loop.run(self._inner.receive(timeout))
        return None if message is None else ReceivedMessage(self._loop, message)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages as they come, until the consumer is closed; each is taken as ``receive`` does."""
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message."""
        return ReceivedMessage(self._loop, self._loop.next(self._inner))

    def close(self) -> None:
        """Close it; within a transaction that it took part in, that is done when the transaction ends."""
        self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Producer(InThread[AsyncProducer]):
    """A producer of a session; ``session.producer(...)`` makes one. As a context manager it closes itself."""

    @property
    def destination(self) -> ClientDestination | None:
        """Where its messages go."""
        return self._inner.destination

    def send(
        self, body: Body | Message | ReceivedMessage = None, *, destination: ClientDestination | str | None = None,
        properties: Mapping[str, PropertyValue] | None = None, persistent: bool | None = None,
        priority: int | None = None, time_to_live: float | timedelta | None = None,
        reply_to: ClientDestination | str | None = None, correlation_id: str | None = None, type: str | None = None,
    ) -> str:  # fmt: skip
        """Send a message. A persistent one outside of a transaction is stored when this returns.

        Args:
            body: str for a text message, bytes, dict (map), list (stream), None, or a whole message.
            destination: where to, for a producer without a destination; a text is the name of a queue, or begins with
                ``topic://`` or ``stream://``.
            properties: the application's properties.
            persistent: whether it outlives the broker; True by default.
            priority: 0 to 9, 4 by default.
            time_to_live: after how many seconds it expires, or a timedelta; 0: never.
            reply_to: where an answer is expected.
            correlation_id: what ties it to another message.
            type: its type, a word of the application.

        Returns:
            The message's id.

        Raises:
            InvalidArgument: a value has no form in a message.
            QuireError: the broker refused it, or did not answer in time: then it may have it.
        """
        return self._loop.run(
            self._inner.send(
                body.to_send() if isinstance(body, ReceivedMessage) else body,
                destination=destination,
                properties=properties,
                persistent=persistent,
                priority=priority,
                time_to_live=time_to_live,
                reply_to=reply_to,
                correlation_id=correlation_id,
                type=type,
            )
        )

    def submit(
        self, body: Body | Message | ReceivedMessage = None, *, destination: ClientDestination | str | None = None,
        properties: Mapping[str, PropertyValue] | None = None, persistent: bool | None = None,
        priority: int | None = None, time_to_live: float | timedelta | None = None,
        reply_to: ClientDestination | str | None = None, correlation_id: str | None = None, type: str | None = None,
    ) -> "concurrent.futures.Future[None]":  # fmt: skip
        """Send a message without waiting for its confirmation; waits only while the window is full.

        The arguments are those of ``send``. ``flush`` waits for all of them.

        Returns:
            Done when the broker has confirmed it; its exception is why the broker refused it.
        """
        return self._loop.confirmation(
            self._inner.submit(
                body.to_send() if isinstance(body, ReceivedMessage) else body,
                destination=destination,
                properties=properties,
                persistent=persistent,
                priority=priority,
                time_to_live=time_to_live,
                reply_to=reply_to,
                correlation_id=correlation_id,
                type=type,
            )
        )

    def flush(self) -> None:
        """Wait until everything that was submitted is confirmed.

        Raises:
            QuireError: of the first message that was not; the others are done too.
        """
        self._loop.run(self._inner.flush())

    def close(self) -> None:
        """Wait for the confirmations, and close."""
        self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Session(SessionInThread):
    """A session of a connection; ``connection.session(...)`` makes one. As a context manager it closes itself.

    One thread uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge and reject. Consumers
    of a session either all have a listener, or all use ``receive``.
    """

    @property
    def ack(self) -> AckMode:
        """When messages are acknowledged."""
        return self._inner.ack

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
        return Producer(
            self._loop,
            self._loop.call(
                lambda: self._inner.producer(
                    destination, persistent=persistent, priority=priority, time_to_live=time_to_live, window=window
                )
            ),
        )

    def consumer(
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
            listener: called with each message, one after another: a plain function, in the session's thread.
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
        return Consumer(
            self._loop,
            self._loop.run(
                self._inner.consumer(
                    destination,
                    selector=selector,
                    name=name,
                    no_local=no_local,
                    prefetch=prefetch,
                    exclusive=exclusive,
                    group=group,
                    start=start,
                    listener=self._called(listener, ReceivedMessage),
                    policy=policy,
                )
            ),
        )

    def browser(self, queue: Queue | Stream | str, *, selector: str = "") -> Browser:
        """Look at messages without taking them: ``for message in session.browser(queue)``.

        Args:
            queue: a queue, or a stream, which is shown from its first message to its last.
            selector: which messages.
        """
        return Browser(self._loop, self._loop.call(lambda: self._inner.browser(queue, selector=selector)))

    def request(
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
        return ReceivedMessage(self._loop, self._loop.run(self._inner.request(destination, body, timeout=timeout)))

    def temporary_queue(self) -> TemporaryQueue:
        """Make a temporary queue; it ends with the connection."""
        return self._loop.run(self._inner.temporary_queue())

    def temporary_topic(self) -> TemporaryTopic:
        """Make a temporary topic; it ends with the connection."""
        return self._loop.run(self._inner.temporary_topic())

    def delete_temporary(self, destination: TemporaryQueue | TemporaryTopic) -> None:
        """Delete a temporary destination of this connection before the connection ends.

        Raises:
            DestinationInUse: it has consumers.
        """
        self._loop.run(self._inner.delete_temporary(destination))

    def unsubscribe(self, name: str, stream: Stream | str | None = None) -> None:
        """Delete a durable subscription that has no consumer, or a consumer group that has no member.

        Args:
            name: of the durable subscription, or of the group.
            stream: the stream of the group.

        Raises:
            UnknownSubscription: there is none of that name.
            UnknownConsumerGroup: the stream has no such group.
            DestinationInUse: it has a consumer, or a member.
        """
        self._loop.run(self._inner.unsubscribe(name, stream))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end of the block, or roll back what it raised: ``with session.transaction(): ...``.

        Raises:
            IllegalState: the session has no transactions.
            TransactionRolledBack: the commit came to a rollback.
        """
        self._inner.check_transacted()
        try:
            yield self
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def commit(self) -> None:
        """Commit what was sent and received since the last commit or rollback.

        Raises:
            IllegalState: the session has no transactions.
            TransactionRolledBack: the connection was lost meanwhile. Everything is rolled back, or, when the answer to
                the commit itself was lost, in doubt.
            QuireError: the broker refused it, and everything is rolled back.
        """
        self._loop.run(self._inner.commit())

    def rollback(self) -> None:
        """Undo what was sent since the last commit or rollback, and deliver again what was received.

        Raises:
            IllegalState: the session has no transactions.
        """
        self._loop.run(self._inner.rollback())

    def acknowledge(self) -> None:
        """In a ``CLIENT`` session: acknowledge everything that was delivered so far.

        Raises:
            IllegalState: the session is closed, or has another mode.
        """
        self._loop.run(self._inner.acknowledge())

    def recover(self) -> None:
        """Deliver again what was delivered and not acknowledged.

        Raises:
            IllegalState: the session is transacted; roll back instead.
        """
        self._loop.run(self._inner.recover())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Connection(ConnectionInThread):
    """A connection to a broker; ``connect`` makes one."""

    @property
    def client_id(self) -> str:
        """Whose durable subscriptions it may use; one that is unique if none was given."""
        return self._inner.client_id

    @property
    def broker_name(self) -> str:
        """The name of the broker, once it has said it."""
        return self._inner.broker_name

    def session(self, ack: AckMode = AckMode.AUTO) -> Session:
        """Make a session.

        Args:
            ack: when messages are acknowledged.

        Raises:
            IllegalState: the connection is not open.
            InvalidArgument: it is none of the modes.
        """
        return Session(self._loop, self._loop.call(lambda: self._inner.session(ack)))

    @property
    def unanswered(self) -> int:
        """How many commands wait for the broker's answer: while it holds sends, this does not fall."""
        return self._inner.unanswered

    @property
    def oldest_unanswered_age(self) -> float:
        """For how long the oldest of those has been waiting, in seconds."""
        return self._inner.oldest_unanswered_age

    @property
    def suppressed_duplicates(self) -> int:
        """How many messages came again that the application had finished, and were acknowledged again."""
        return self._inner.suppressed_duplicates

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket to a broker at present."""
        return self._inner.is_connected

    @property
    def address(self) -> str | None:
        """The address of the present broker."""
        return self._inner.address

    def __enter__(self) -> Self:
        """Connect."""
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


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
    return Connection(
        async_connect(
            url,
            user=user,
            password=password,
            client_id=client_id,
            policies=policies,
            on_error=on_error,
            tls=tls,
            clock=clock,
        )
    )
