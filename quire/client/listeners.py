"""The task of a session that gives messages to its listeners, one after the other."""

import asyncio
from collections.abc import Callable, Mapping

from quire.client.consumer import Consumer


class Listeners:
    """Calls the listeners of a session's consumers.

    Args:
        consumers: the session's; it changes.
        report: called with errors that no listener raised.
    """

    def __init__(self, consumers: Mapping[int, Consumer], report: Callable[[Exception], None]) -> None:
        self._consumers = consumers
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._work = asyncio.Event()

    @property
    def is_started(self) -> bool:
        """Whether the session has listeners."""
        return self._task is not None

    def start(self) -> None:
        """There is a listener."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There may be a message for a listener."""
        self._work.set()

    def cancel(self) -> None:
        """End, in the middle of a listener if need be."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End, and wait for that; a listener that calls this itself ends when it returns."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            self._work.clear()
            has_worked = False
            for consumer in list(self._consumers.values()):
                if not consumer.is_closed and (delivery := consumer.take_for_listener()) is not None:
                    has_worked = True
                    try:
                        await consumer.listen(delivery)
                    except Exception as error:
                        self._report(error)
            await asyncio.sleep(0) if has_worked else await self._work.wait()
