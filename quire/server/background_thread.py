"""A thread for work that takes long or waits; its results come back to the event loop."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundThread:
    """One thread with a queue (``quire.security.principal.Background``); the event loop gives it work.

    Args:
        name: what the thread is called.
        limit: how much work may wait.
        niceness: how much the thread gives way to others (nice(2)), where the system knows that of a thread.
    """

    def __init__(self, name: str, limit: int, niceness: int = 0) -> None:
        self._limit = limit
        self._pending = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_give_way, initargs=(niceness,))
        self._idle = asyncio.Event()
        self._idle.set()

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do some work, and call with its result or its exception; false if too much waits."""
        if self._pending >= self._limit:
            return False
        loop = asyncio.get_running_loop()
        self._pending += 1
        self._idle.clear()

        def job() -> None:
            result: Any
            try:
                result = work()
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(finished, result)

        def finished(result: T | Exception) -> None:
            self._pending -= 1
            if not self._pending:
                self._idle.set()
            done(result)

        self._executor.submit(job)
        return True

    async def stop(self) -> None:
        """Do what waits, and end the thread."""
        while self._pending:
            await self._idle.wait()
        self._executor.shutdown()


def _give_way(niceness: int) -> None:
    """Lower the priority of this thread; on Linux threads have their own."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
