"""A process that runs a shard: forked, told what to do by lines, heard, stopped."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from quire.logs import event
from quire.server.cluster.nursery import Nursery
from quire.server.cluster.shard_messages import (
    Born,
    Map,
    News,
    Order,
    Prepare,
    Reload,
    Running,
    Serve,
    line,
    read_report,
)

STOP_LIMIT = 20.0
"""How long the clean end of a process may take that serves clients, in seconds; then it is killed."""

START_STOP_LIMIT = 3.0
"""The same of a process that does not serve any yet: it has confirmed nothing."""


class Child:
    """One process.

    Args:
        prepare: what it is told first.
        serve: what it is told for a shard.
        reported: called with what it says.
        ended: called when it has ended.
    """

    def __init__(
        self, nursery: Nursery, prepare: Prepare, serve: Callable[[int], Serve],
        reported: Callable[["Child", News], None], ended: Callable[["Child"], None],
    ) -> None:  # fmt: skip
        self.pid = 0
        self._serve = serve
        self._reported = reported
        self._ended = ended
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: list[Order] = [prepare]  # until the process is there
        self._is_stopping = self._serves = False
        self._has_ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(self._run(nursery))

    def serve(self, shard: int) -> None:
        self._tell(self._serve(shard))

    def tell_map(self, map: Map) -> None:
        self._tell(map)

    def reload(self) -> None:
        self._tell(Reload())

    def stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            if self._writer is not None:
                self._begin(self._end(self._writer))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, order: Order) -> None:
        if self._writer is None:
            self._waiting.append(order)
        elif not self._is_stopping:
            self._writer.write(line(order))

    async def _run(self, nursery: Nursery) -> None:
        """Have it forked, hear what it says, and wait for its end: the end of what it says."""
        ours, theirs = socket.socketpair()
        with theirs:
            await nursery.fork(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        self._writer = writer
        writer.writelines([line(order) for order in self._waiting])
        self._waiting.clear()
        if self._is_stopping:
            self._begin(self._end(writer))
        with contextlib.suppress(ConnectionError):
            async for text in reader:
                match report := read_report(text):
                    case Born():
                        self.pid = report.pid
                        continue
                    case Running():
                        self._serves = True
                self._reported(self, report)
        self._is_stopping = True
        self._has_ended.set()
        writer.close()
        self._ended(self)

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        """The end of its input tells it to stop. One that has said nothing is about to be forked: it ends by itself."""
        if not self.pid:
            writer.close()
            return
        writer.write_eof()
        limit = STOP_LIMIT if self._serves else START_STOP_LIMIT
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), limit)
            return
        event("cluster.killed", f"process {self.pid} did not stop within {limit:g} s: it is killed", pid=self.pid)
        os.kill(self.pid, signal.SIGKILL)
