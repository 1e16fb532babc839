"""A thread with an event loop, for the face of the client without asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
