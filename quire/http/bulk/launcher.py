"""Starts a broker's bulk server when it is asked for it, and ends it with the broker."""

import asyncio
import contextlib
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict, replace

import msgspec

from quire.client.remote_error import remote_error
from quire.errors import InvalidArgument, QuireError
from quire.http.bulk.handshake import Announcement, Instructions
from quire.logs import event
from quire.server.child_environment import child_environment
from quire.settings import Settings

START_LIMIT = 30.0
"""How long the start of the bulk server may take, in seconds."""

STOP_LIMIT = 5.0
"""How long its end may take; then it is killed."""


class Launcher:
    """The bulk server of one broker, as the broker sees it: it runs, or it does not run yet, or not any more."""

    def __init__(self, store: str, settings: Settings) -> None:
        self.address = ""  # where the bulk server listens, ``host:port``; of use if it runs
        self.token = secrets.token_urlsafe(24)  # who has it may read
        self._store = store
        self._settings = settings
        self._process: Process | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Have it run."""
        if self._store == "memory:":
            raise InvalidArgument(
                "the store is in the broker's memory, and no other process can read it: set store.url to read in bulk"
            )
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()

    async def _start(self) -> None:
        settings = self._settings
        instructions = Instructions(
            self._store, settings.bulk.address, self.token, settings.bulk.idle_limit, settings.log.format,
            settings.log.level, asdict(settings.tls), asdict(settings.limits),
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "quire.http.bulk", stdin=PIPE, stdout=PIPE, env=child_environment()
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(instructions) + b"\n")
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
        event("bulk.started", f"the bulk server listens on {answer.address}", pid=process.pid, address=answer.address)

    def reload(self, settings: Settings) -> None:
        """The settings were read again: so are the certificates."""
        self._settings = replace(self._settings, tls=settings.tls)
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(msgspec.json.encode(asdict(settings.tls)) + b"\n")

    async def stop(self) -> None:
        """The broker goes down, and it does too."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_LIMIT)
            return
        process.kill()
        await process.wait()
