"""A process that runs a shard: started, told what to do by lines, heard, stopped."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from quire.logs import event
from quire.server.child_environment import child_environment
from quire.server.cluster.shard_messages import Map, Order, Prepare, Reload, Running, Serve, line, read_report

STOP_LIMIT = 20.0
"""How long the clean end of a process may take, in seconds; then it is killed."""


class Child:
    """One process.

    Args:
        module: what is run.
        prepare: what it is told first.
        serve: what it is told for a shard.
        reported: called when it serves clients.
        ended: called when it has ended, with its status.
    """

    def __init__(
        self, module: str, prepare: Prepare, serve: Callable[[int], Serve],
        reported: Callable[["Child", Running], None], ended: Callable[["Child", int], None],
    ) -> None:  # fmt: skip
        self.pid = 0
        self._module = module
        self._serve = serve
        self._reported = reported
        self._ended = ended
        self._process: Process | None = None
        self._waiting: list[Order] = [prepare]  # until the process is there
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(self._run())

    def serve(self, shard: int) -> None:
        self._tell(self._serve(shard))

    def tell_map(self, map: Map) -> None:
        self._tell(map)

    def reload(self) -> None:
        self._tell(Reload())

    def stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            if self._process is not None:
                self._begin(self._end(self._process))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, order: Order) -> None:
        if self._process is None:
            self._waiting.append(order)
        elif self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line(order))

    async def _run(self) -> None:
        """Start it, hear what it says, and wait for its end."""
        command = [sys.executable, "-P", "-m", self._module]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=child_environment())
        assert process.stdout is not None
        self._process, self.pid = process, process.pid
        for order in self._waiting:
            self._tell(order)
        self._waiting.clear()
        if self._is_stopping:
            self._begin(self._end(process))
        async for text in process.stdout:
            self._hear(text)
        status = await process.wait()
        self._is_stopping = True
        self._ended(self, status)

    def _hear(self, text: bytes) -> None:
        try:
            report = read_report(text)
        except msgspec.MsgspecError:
            event("cluster.unread", f"process {self.pid} wrote {text[:200]!r}", pid=self.pid)
            return
        self._reported(self, report)

    async def _end(self, process: Process) -> None:
        """The end of its input tells it to stop."""
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_LIMIT)
            return
        event("cluster.killed", f"process {process.pid} did not stop within {STOP_LIMIT:g} s: it is killed")
        process.kill()
