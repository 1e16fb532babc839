"""The client without asyncio: the same names, each call waits. Every connection has a thread with an event loop.

That thread sends and checks heart-beats, so a handler may be busy for as long as it likes. Listeners are called in a
thread of their session. One thread uses a session at a time; in mode ``INDIVIDUAL`` several may receive, acknowledge
and reject.
"""

import asyncio
import concurrent.futures
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from quire.client import connection as connection_module
from quire.client.arguments import check_plain_function, refused
from quire.client.connection import Connection as AsyncConnection
from quire.client.connection import OnError
from quire.client.consumer import Browser as AsyncBrowser
from quire.client.consumer import Consumer as AsyncConsumer
from quire.client.consumer import Listener as AsyncListener
from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic
from quire.client.message import Body, Message, PropertyValue
from quire.client.message import ReceivedMessage as AsyncReceivedMessage
from quire.client.options import PoliciesByDestination, RedeliveryPolicy
from quire.client.producer import Producer as AsyncProducer
from quire.client.session import Session as AsyncSession
from quire.client.session_core import AckMode
from quire.errors import IllegalState

T = TypeVar("T")


class EventLoopThread:
    """Runs an event loop in a thread of its own, so that a busy caller keeps nothing from it.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for what it returns; an interrupt of the caller cancels it.

        Raises:
            IllegalState: the caller is in that thread, and would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalState("this is the thread of the connection, as in on_error: call from another thread")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a function there and wait for what it returns."""

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """End the loop and the thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ReceivedMessage:
    """A message that was received, with the names of ``quire.client.ReceivedMessage``."""

    def __init__(self, loop: EventLoopThread, message: AsyncReceivedMessage) -> None:
        self._loop = loop
        self.message = message

    def acknowledge(self) -> None:
        """Acknowledge it, as ``quire.client.ReceivedMessage.acknowledge`` does."""
        self._loop.run(self.message.acknowledge())

    def reject(self, delay: float | timedelta | None = None) -> None:
        """Say that the work on it failed; see ``quire.client.ReceivedMessage.reject``.

        Args:
            delay: when it is delivered again, in seconds or as a timedelta; None: as the redelivery policy says.
        """
        self._loop.run(self.message.reject(delay))

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
    def partition(self) -> int | None:
        """The partition of the stream that it came from; None if it came from no stream."""
        return self.message.partition

    @property
    def offset(self) -> int | None:
        """Its offset in the partition; None if it came from no stream."""
        return self.message.offset

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
    def group_id(self) -> str | None:
        """Its message group."""
        return self.message.group_id

    @property
    def group_sequence(self) -> int:
        """Its place in the group."""
        return self.message.group_sequence

    @property
    def persistent(self) -> bool:
        """Whether it outlives the broker."""
        return self.message.persistent

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self.message.priority

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970; 0 if it does not say."""
        return self.message.timestamp

    @property
    def expiration(self) -> int:
        """When it expires, in ms since 1970; 0: never."""
        return self.message.expiration

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.message.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self.message.redelivered

    def to_send(self) -> Message:
        """The message as one to send."""
        return self.message.to_send()

    def __repr__(self) -> str:
        return repr(self.message)


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


class Consumer:
    """A consumer of a session; see ``quire.client.Consumer``."""

    def __init__(self, loop: EventLoopThread, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def receive(self, timeout: float | timedelta | None = None) -> ReceivedMessage | None:
        """Take the next message; see ``quire.client.Consumer.receive``.

        Args:
            timeout: how long to wait for one, in seconds or as a timedelta; 0: take one that is there; None: without a
                limit.

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


class SendOptions(TypedDict, total=False):
    """The options of ``Producer.send``; see ``quire.client.Producer.send``."""

    destination: ClientDestination | str | None
    properties: Mapping[str, PropertyValue] | None
    persistent: bool | None
    priority: int | None
    time_to_live: float | timedelta | None
    reply_to: ClientDestination | str | None
    correlation_id: str | None
    type: str | None


class Producer:
    """A producer of a session; see ``quire.client.Producer``."""

    def __init__(self, loop: EventLoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def send(self, body: Body | Message | ReceivedMessage = None, **options: Unpack[SendOptions]) -> str:
        """Send a message, and wait until the broker has it; see ``quire.client.Producer.send``.

        Returns:
            The message's id.
        """
        return self._loop.run(self._producer.send(_plain(body), **options))

    def submit(
        self, body: Body | Message | ReceivedMessage = None, **options: Unpack[SendOptions]
    ) -> "concurrent.futures.Future[None]":
        """Send a message without waiting for its confirmation; see ``quire.client.Producer.submit``.

        Returns:
            Done when the broker has confirmed it.
        """
        confirmed: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def submitted() -> None:
            answer = await self._producer.submit(_plain(body), **options)
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


def _settle(confirmed: "concurrent.futures.Future[None]", error: BaseException | None) -> None:
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)


def _plain(body: Body | Message | ReceivedMessage) -> Body | Message:
    return body.to_send() if isinstance(body, ReceivedMessage) else body


Listener = Callable[[ReceivedMessage], None]
"""What a session calls with each message, one after the other, in a thread of the session."""


class ProducerOptions(TypedDict, total=False):
    """The options of ``Session.producer``; see ``quire.client.Session.producer``."""

    persistent: bool
    priority: int
    time_to_live: float | timedelta
    window: int


class ConsumerOptions(TypedDict, total=False):
    """The options of ``Session.consumer``; see ``quire.client.Session.consumer``."""

    selector: str
    name: str
    no_local: bool
    prefetch: int | None
    exclusive: bool
    group: str
    start: str
    policy: RedeliveryPolicy | None


class Session:
    """A session of a connection; see ``quire.client.Session``."""

    def __init__(self, loop: EventLoopThread, session: AsyncSession) -> None:
        self._loop = loop
        self._session = session
        self._listeners: concurrent.futures.ThreadPoolExecutor | None = None

    def producer(
        self, destination: ClientDestination | str | None = None, **options: Unpack[ProducerOptions]
    ) -> Producer:  # fmt: skip
        """Make a producer; see ``quire.client.Session.producer``."""
        return Producer(self._loop, self._loop.call(lambda: self._session.producer(destination, **options)))

    def consumer(
        self, destination: ClientDestination | str, *, listener: Listener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:  # fmt: skip
        """Make a consumer; see ``quire.client.Session.consumer``.

        Args:
            destination: a queue, topic or stream, or the text of one.
            listener: called with each message in a thread of the session.
            options: those of ``quire.client.Session.consumer``.
        """
        called = None if listener is None else self._called(listener)
        made = self._loop.run(self._session.consumer(destination, listener=called, **options))
        return Consumer(self._loop, made)

    def browser(self, queue: Queue | Stream | str, *, selector: str = "") -> Browser:
        """Look at messages without taking them; see ``quire.client.Session.browser``."""
        return Browser(self._loop, self._session.browser(queue, selector=selector))

    def request(
        self, destination: ClientDestination | str, body: Body | Message = None, *,
        timeout: float | timedelta | None = 30.0,
    ) -> ReceivedMessage:  # fmt: skip
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

    def unsubscribe(self, name: str, stream: Stream | str | None = None) -> None:
        """Delete a durable subscription or a consumer group; see ``quire.client.Session.unsubscribe``."""
        self._loop.run(self._session.unsubscribe(name, stream))

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
        check_plain_function("listener", listener, "a plain function of a message; coroutine functions are for asyncio")
        if self._listeners is None:
            self._listeners = concurrent.futures.ThreadPoolExecutor(1, "quire-listener")
        thread = self._listeners

        async def called(message: AsyncReceivedMessage) -> None:
            loop = asyncio.get_running_loop()
            done: object = await loop.run_in_executor(thread, listener, ReceivedMessage(self._loop, message))
            if asyncio.iscoroutine(done):
                done.close()
                raise refused("listener", listener, "a plain function of a message; it made a coroutine")

        return called


class ConnectOptions(TypedDict, total=False):
    """The options of ``connect``; see ``quire.client.connect``."""

    user: str
    password: str
    client_id: str
    policies: PoliciesByDestination | None
    on_error: OnError | None
    tls: ssl.SSLContext | None


def connect(url: str = "tcp://127.0.0.1:61616", **options: Unpack[ConnectOptions]) -> "Connection":
    """Make a connection to a broker, for ``with``: it connects when it is entered.

    Args:
        url: the broker, as for ``quire.client.connect``.
        options: those of ``quire.client.connect``. ``on_error`` is called in the connection's thread, and gets a
            message as ``quire.client.ReceivedMessage``: read its attributes only.

    Raises:
        InvalidArgument: the URL cannot be read, or another argument is not what it should be.
    """
    return Connection(connection_module.connect(url, **options))


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
            raise IllegalState("the connection is not open: use `with sync.connect(...)`, or call its open()")
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

    @property
    def suppressed_duplicates(self) -> int:
        """How many messages came again that the application had finished, and were acknowledged again."""
        return self._connection.suppressed_duplicates

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
