"""The session, for threads."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self, TypedDict, Unpack

from quire.client.arguments import check_plain_function, refused
from quire.client.consumer import Listener as AsyncListener
from quire.client.destinations import ClientDestination, Queue, Stream, TemporaryQueue, TemporaryTopic
from quire.client.event_loop_thread import EventLoopThread
from quire.client.message import Body, Message
from quire.client.received_message import ReceivedMessage as AsyncReceivedMessage
from quire.client.redelivery_policy import RedeliveryPolicy
from quire.client.session import Session as AsyncSession
from quire.client.sync.browser import Browser
from quire.client.sync.consumer import Consumer
from quire.client.sync.producer import Producer
from quire.client.sync.received_message import ReceivedMessage

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
