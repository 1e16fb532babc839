"""What ``quire.client.sync`` is made of: a call waits in its thread, and the connection's thread does the work.

The rest of it is generated from the client for asyncio, by ``scripts/sync_client.py``.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from quire.client.arguments import check_plain_function, refused
from quire.client.connection import Connection, Session
from quire.client.consumer import Listener
from quire.client.message import ReceivedMessage
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

    def next(self, items: AsyncIterator[T]) -> T:
        """The next of some items; StopIteration says that there is none: no coroutine may raise it."""

        async def next_one() -> T | None:
            return await anext(items, None)

        item = self.run(next_one())
        if item is None:
            raise StopIteration
        return item

    def confirmation(self, submission: Coroutine[Any, Any, Awaitable[object]]) -> "concurrent.futures.Future[None]":
        """Run what submits something, and return without waiting for its confirmation."""
        confirmed: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def submitted() -> None:
            answer = asyncio.ensure_future(await submission)
            answer.add_done_callback(confirm)

        def confirm(answer: "asyncio.Future[object]") -> None:
            error = answer.exception()
            confirmed.set_result(None) if error is None else confirmed.set_exception(error)

        self.run(submitted())
        return confirmed

    def stop(self) -> None:
        """End the loop and the thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class InThread(Generic[T]):
    """An object of the client for asyncio, used from other threads.

    Args:
        loop: where it is used.
        inner: the object.
    """

    def __init__(self, loop: EventLoopThread, inner: T) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


class MessageInThread(InThread[ReceivedMessage]):
    """A message that was received."""

    @property
    def message(self) -> ReceivedMessage:
        """The message, as the client for asyncio has it."""
        return self._inner


class SessionInThread(InThread[Session]):
    """A session; its listeners are called in a thread of their own."""

    def __init__(self, loop: EventLoopThread, inner: Session) -> None:
        super().__init__(loop, inner)
        self._listeners: concurrent.futures.ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Close the session."""
        self._loop.run(self._inner.close())
        if self._listeners is not None:
            self._listeners.shutdown(wait=False)

    def _called(
        self, listener: Callable[[T], object] | None, wrapped: Callable[[EventLoopThread, ReceivedMessage], T]
    ) -> Listener | None:
        if listener is None:
            return None
        check_plain_function("listener", listener, "a plain function of a message; coroutine functions are for asyncio")
        if self._listeners is None:
            self._listeners = concurrent.futures.ThreadPoolExecutor(1, "quire-listener")
        thread = self._listeners

        async def called(message: ReceivedMessage) -> None:
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(thread, listener, wrapped(self._loop, message))
            if asyncio.iscoroutine(done):
                done.close()
                raise refused("listener", listener, "a plain function of a message; it made a coroutine")

        return called


class ConnectionInThread:
    """A connection; it has its thread while it is open."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self._thread: EventLoopThread | None = None

    @property
    def _loop(self) -> EventLoopThread:
        if self._thread is None:
            raise IllegalState("the connection is not open: use `with sync.connect(...)`, or call its open()")
        return self._thread

    def open(self) -> Self:
        """Connect; ``with`` does it too."""
        thread = EventLoopThread("quire-client")
        try:
            thread.run(self._inner.open())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def close(self) -> None:
        """Close it with its sessions, and end its thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._inner.close())
        finally:
            thread.stop()
