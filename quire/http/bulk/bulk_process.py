"""One process of the bulk server."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

import msgspec

from quire.client.remote_error import remote_error
from quire.errors import AddressInUse, QuireError
from quire.http.bulk.handshake import Announcement, Instructions, News, Question, Reply
from quire.logs import event
from quire.server.child_environment import child_environment

START_LIMIT = 30.0
"""How long the start of a process may take, in seconds."""

MAX_LINE = 4 << 20
"""How long a line of a process may be, in bytes: a question with the longest names fits."""

STOP_LIMIT = 5.0
"""How long its end may take; then it is killed."""


class BulkProcess:
    """One process, as the broker sees it: it runs, or it does not run yet, or not any more.

    Args:
        wanted: where it listens, ``host:port``; port 0 for a free one.
        reply: answers what it asks.
    """

    def __init__(self, wanted: str, reply: Callable[[Question], Reply]) -> None:
        self.address = ""  # where it listens, or did before it ended
        self._wanted = wanted
        self._reply = reply
        self._process: Process | None = None
        self._replying: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, instructions: Instructions) -> None:
        """Have it run, at the address where it ran before: clients know that one."""
        if self.is_running:
            return
        if self.address and self.address != self._wanted:
            with contextlib.suppress(AddressInUse):
                await self._start(instructions, self.address)
                return
        await self._start(instructions, self._wanted)

    async def _start(self, instructions: Instructions, address: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "quire.http.bulk", stdin=PIPE, stdout=PIPE, env=child_environment(),
            limit=MAX_LINE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(msgspec.structs.replace(instructions, address=address)) + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), START_LIMIT)
        except TimeoutError:
            process.kill()
            line = b""
        answer = msgspec.json.decode(line or b"{}", type=Announcement)
        if answer.error is not None:
            raise remote_error(answer.error.code, answer.error.text, answer.error.data)
        if not answer.address:
            raise QuireError("the bulk server did not start: see the broker's log")
        self._process, self.address = process, answer.address
        self._replying = asyncio.create_task(self._answer(process))
        event("bulk.started", f"the bulk server listens on {answer.address}", pid=process.pid, address=answer.address)

    def tell(self, news: News) -> None:
        """Tell it something, if it runs."""
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(msgspec.json.encode(news) + b"\n")

    async def _answer(self, process: Process) -> None:
        """Answer what it asks, until it ends."""
        assert process.stdin is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            reply = self._reply(msgspec.json.decode(line, type=Question))
            process.stdin.write(msgspec.json.encode(reply) + b"\n")

    async def stop(self) -> None:
        """The broker goes down, and it does too."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        assert self._replying is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_LIMIT)
        except TimeoutError:
            process.kill()
            await process.wait()
        await self._replying
