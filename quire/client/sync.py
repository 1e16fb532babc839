"""The client without asyncio: the same names, each call waits. Every connection has a thread with an event loop.

That thread sends and checks heart-beats, so a handler may be busy for as long as it likes. Listeners are called in a
thread of their session. One thread uses a session at a time.
"""

import asyncio
import concurrent.futures
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from quire.client import openwire_connection
from quire.client.ack_mode import AckMode
from quire.client.browser import Browser as AsyncBrowser
from quire.client.consumer import Consumer as AsyncConsumer
from quire.client.consumer import Listener as AsyncListener
from quire.client.destinations import ClientDestination, Queue, TemporaryQueue, TemporaryTopic
from quire.client.event_loop_thread import EventLoopThread
from quire.client.message import Body, Message, PropertyValue
from quire.client.openwire_connection import Connection as AsyncConnection
from quire.client.openwire_connection import OnError
from quire.client.producer import Producer as AsyncProducer
from quire.client.received_message import ReceivedMessage as AsyncReceivedMessage
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.client.session import Session as AsyncSession


class SendOptions(TypedDict, total=False):
    """The options of ``Producer.send``; see ``quire.client.Producer.send``."""

    destination: ClientDestination | None
    properties: Mapping[str, PropertyValue] | None
    persistent: bool | None
    priority: int | None
    time_to_live: float | None
    reply_to: ClientDestination | None
    correlation_id: str | None
    type: str | None


class ProducerOptions(TypedDict, total=False):
    """The options of ``Session.producer``; see ``quire.client.Session.producer``."""

    persistent: bool
    priority: int
    time_to_live: float
    window: int


class ConsumerOptions(TypedDict, total=False):
    """The options of ``Session.consumer``; see ``quire.client.Session.consumer``."""

    selector: str
    name: str
    no_local: bool
    prefetch: int | None
    exclusive: bool
    policy: RedeliveryPolicy | None


class ConnectOptions(TypedDict, total=False):
    """The options of ``connect``; see ``quire.client.connect``."""

    user: str
    password: str
    client_id: str
    policies: Mapping[ClientDestination, RedeliveryPolicy] | None
    on_error: OnError | None
    tls: ssl.SSLContext | None


def connect(url: str = "tcp://127.0.0.1:61616", **options: Unpack[ConnectOptions]) -> "Connection":
    """Make a connection to a broker, for ``with``: it connects when it is entered.

    Args:
        url: the broker, as for ``quire.client.connect``.
        options: those of ``quire.client.connect``. ``on_error`` is called in the connection's thread.

    Raises:
        InvalidArgument: the URL cannot be read.
    """
    return Connection(openwire_connection.connect(url, **options))


class ReceivedMessage:
    """A message that was received: the attributes of ``quire.client.ReceivedMessage``, and ``acknowledge``."""

    def __init__(self, loop: EventLoopThread, message: AsyncReceivedMessage) -> None:
        self._loop = loop
        self.message = message

    def acknowledge(self) -> None:
        """Acknowledge it, as ``quire.client.ReceivedMessage.acknowledge`` does."""
        self._loop.run(self.message.acknowledge())

    @property
    def body(self) -> Any:
        """The body: str, bytes, dict (map), list (stream), None, ``JavaObject`` or ``Blob``."""
        return self.message.body

    @property
    def properties(self) -> dict[str, Any]:
        """The application's properties."""
        return self.message.properties

    @property
    def id(self) -> str:
        """The message's id."""
        return self.message.id

    @property
    def destination(self) -> ClientDestination | None:
        """Where it was sent to."""
        return self.message.destination

    @property
    def reply_to(self) -> ClientDestination | None:
        """Where an answer is expected."""
        return self.message.reply_to

    @property
    def correlation_id(self) -> str | None:
        """What ties it to another message."""
        return self.message.correlation_id

    @property
    def type(self) -> str | None:
        """Its type, a word of the application."""
        return self.message.type

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.message.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self.message.redelivered


Listener = Callable[[ReceivedMessage], None]
"""What a session calls with each message, one after the other, in a thread of the session."""


class Producer:
    """A producer of a session; see ``quire.client.Producer``."""

    def __init__(self, loop: EventLoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, body: Body | Message = None, **options: Unpack[SendOptions]) -> str:
        """Send a message, and wait until the broker has it; see ``quire.client.Producer.send``.

        Returns:
            The message's id.
        """
        return self._loop.run(self._producer.send(body, **options))

    def submit(self, body: Body | Message = None, **options: Unpack[SendOptions]) -> "concurrent.futures.Future[None]":
        """Send a message without waiting for its confirmation; see ``quire.client.Producer.submit``.

        Returns:
            Done when the broker has confirmed it.
        """
        confirmed: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def submitted() -> None:
            answer = await self._producer.submit(body, **options)
            answer.add_done_callback(lambda done: _settle(confirmed, done.exception()))

        self._loop.run(submitted())
        return confirmed

    def flush(self) -> None:
        """Wait until everything that was submitted is confirmed; see ``quire.client.Producer.flush``."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """Wait for the confirmations, and close."""
        self._loop.run(self._producer.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Consumer:
    """A consumer of a session; see ``quire.client.Consumer``."""

    def __init__(self, loop: EventLoopThread, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def receive(self, timeout: float | None = None) -> ReceivedMessage | None:
        """Take the next message; see ``quire.client.Consumer.receive``.

        Args:
            timeout: how long to wait for one, in seconds; 0: take one that is there; None: without a limit.

        Returns:
            The message; None when the time is over, or when the consumer is closed meanwhile.
        """
        message = self._loop.run(self._consumer.receive(timeout))
        return None if message is None else ReceivedMessage(self._loop, message)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages as they come, until the consumer is closed."""
        while not self._consumer.is_closed and (message := self.receive()) is not None:
            yield message

    def close(self) -> None:
        """Close it; see ``quire.client.Consumer.close``."""
        self._loop.run(self._consumer.close())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class Browser:
    """The messages of a queue as they are, once each; see ``quire.client.Browser``."""

    def __init__(self, loop: EventLoopThread, browser: AsyncBrowser) -> None:
        self._loop = loop
        self._browser = browser

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages."""
        return self

    def __next__(self) -> ReceivedMessage:
        """The next message."""

        async def next_one() -> ReceivedMessage | None:
            # A coroutine cannot raise StopIteration to its caller, nor its asynchronous kind through a future.
            async for message in self._browser:
                return ReceivedMessage(self._loop, message)
            return None

        found = self._loop.run(next_one())
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Stop browsing."""
        self._loop.run(self._browser.close())


class Session:
    """A session of a connection; see ``quire.client.Session``."""

    def __init__(self, loop: EventLoopThread, session: AsyncSession) -> None:
        self._loop = loop
        self._session = session
        self._listeners: concurrent.futures.ThreadPoolExecutor | None = None

    def producer(self, destination: ClientDestination | None = None, **options: Unpack[ProducerOptions]) -> Producer:
        """Make a producer; see ``quire.client.Session.producer``."""
        return Producer(self._loop, self._loop.call(lambda: self._session.producer(destination, **options)))

    def consumer(
        self, destination: ClientDestination, *, listener: Listener | None = None, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """Make a consumer; see ``quire.client.Session.consumer``.

        Args:
            destination: a queue or topic.
            listener: called with each message in a thread of the session.
            options: those of ``quire.client.Session.consumer``.
        """
        called = None if listener is None else self._called(listener)
        made = self._loop.run(self._session.consumer(destination, listener=called, **options))
        return Consumer(self._loop, made)

    def browser(self, queue: Queue, *, selector: str = "") -> Browser:
        """Look at the messages of a queue without taking them; see ``quire.client.Session.browser``."""
        return Browser(self._loop, self._session.browser(queue, selector=selector))

    def request(
        self, destination: ClientDestination, body: Body | Message = None, *, timeout: float = 30.0
    ) -> ReceivedMessage:
        """Send a request, and wait for its answer; see ``quire.client.Session.request``."""
        answer = self._loop.run(self._session.request(destination, body, timeout=timeout))
        return ReceivedMessage(self._loop, answer)

    def temporary_queue(self) -> TemporaryQueue:
        """Make a temporary queue; it ends with the connection."""
        return self._loop.run(self._session.temporary_queue())

    def temporary_topic(self) -> TemporaryTopic:
        """Make a temporary topic; it ends with the connection."""
        return self._loop.run(self._session.temporary_topic())

    def delete_temporary(self, destination: TemporaryQueue | TemporaryTopic) -> None:
        """Delete a temporary destination; see ``quire.client.Session.delete_temporary``."""
        self._loop.run(self._session.delete_temporary(destination))

    def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription; see ``quire.client.Session.unsubscribe``."""
        self._loop.run(self._session.unsubscribe(name))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end of the block, or roll back what it raised; see ``quire.client.Session.transaction``."""
        self._session.check_transacted()
        try:
            yield self
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def commit(self) -> None:
        """Commit; see ``quire.client.Session.commit``."""
        self._loop.run(self._session.commit())

    def rollback(self) -> None:
        """Roll back; see ``quire.client.Session.rollback``."""
        self._loop.run(self._session.rollback())

    def acknowledge(self) -> None:
        """Acknowledge everything that was delivered; see ``quire.client.Session.acknowledge``."""
        self._loop.run(self._session.acknowledge())

    def recover(self) -> None:
        """Deliver again what is not acknowledged; see ``quire.client.Session.recover``."""
        self._loop.run(self._session.recover())

    def close(self) -> None:
        """Close it with its consumers and producers; an open transaction is rolled back."""
        self._loop.run(self._session.close())
        if self._listeners is not None:
            self._listeners.shutdown(wait=False)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _called(self, listener: Listener) -> AsyncListener:
        if self._listeners is None:
            self._listeners = concurrent.futures.ThreadPoolExecutor(1, "quire-listener")
        thread = self._listeners

        async def called(message: AsyncReceivedMessage) -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(thread, listener, ReceivedMessage(self._loop, message))

        return called


class Connection:
    """A connection to a broker; see ``quire.client.Connection``. It connects when it is entered or opened."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._thread: EventLoopThread | None = None

    def open(self) -> Self:
        """Connect; see ``quire.client.Connection.open``."""
        thread = EventLoopThread("quire-client")
        try:
            thread.run(self._connection.open())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def session(self, ack: AckMode = AckMode.AUTO) -> Session:
        """Make a session; see ``quire.client.Connection.session``."""
        if self._thread is None:
            # It says what is wrong.
            self._connection.session(ack)
        assert self._thread is not None
        return Session(self._thread, self._thread.call(lambda: self._connection.session(ack)))

    @property
    def client_id(self) -> str:
        """Whose durable subscriptions it may use."""
        return self._connection.client_id

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self._connection.broker_name

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket to a broker at present."""
        return self._connection.is_connected

    @property
    def unanswered(self) -> int:
        """How many commands wait for the broker's answer."""
        return self._connection.unanswered

    def close(self) -> None:
        """Close it with its sessions, and end its thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._connection.close())
        finally:
            thread.stop()

    def __enter__(self) -> Self:
        """Connect."""
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _settle(confirmed: "concurrent.futures.Future[None]", error: BaseException | None) -> None:
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)
