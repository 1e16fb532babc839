"""Starts the processes of a broker's bulk server when it is asked for it, and ends them with the broker."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import asdict, replace

import msgspec

from quire.client.remote import remote_error
from quire.errors import AddressInUse, InvalidArgument, QuireError
from quire.http.bulk.readers import Announcement, Instructions, News, Question, Readers, Reply, RightsChanged, TlsRead
from quire.logs import event
from quire.server.background import child_environment
from quire.settings import Settings, split_address

START_LIMIT = 30.0  # how long the start of a process may take, in seconds
MAX_LINE = 4 << 20  # how long a line of a process may be, in bytes: a question with the longest names fits
STOP_LIMIT = 5.0  # how long its end may take; then it is killed


class BulkProcess:
    def __init__(self, wanted: str, reply: Callable[[Question], Reply]) -> None:
        self.address = ""  # where it listens, or did before it ended
        self._wanted = wanted
        self._reply = reply
        self._process: Process | None = None
        self._replying: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
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
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(msgspec.json.encode(news) + b"\n")

    async def _answer(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            reply = self._reply(msgspec.json.decode(line, type=Question))
            process.stdin.write(msgspec.json.encode(reply) + b"\n")

    async def stop(self) -> None:
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


class Launcher:
    def __init__(self, store: str, settings: Settings) -> None:
        self.readers = Readers()
        self._store = store
        self._settings = settings
        self._processes = [BulkProcess(address, self.readers.reply) for address in _addresses(settings)]
        self._starting = asyncio.Lock()

    @property
    def addresses(self) -> list[str]:
        return [process.address for process in self._processes]

    async def start(self) -> None:
        if self._store == "memory:":
            raise InvalidArgument(
                "the store is in the broker's memory, and no other process can read it: set store.url to read in bulk"
            )
        async with self._starting:
            instructions = self._instructions()
            starts = [process.start(instructions) for process in self._processes if not process.is_running]
            results = await asyncio.gather(*starts, return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    def _instructions(self) -> Instructions:
        settings = self._settings
        return Instructions(
            self._store, settings.bulk.address, self.readers.secret, settings.bulk.idle_limit, settings.log.format,
            settings.log.level, asdict(settings.tls), asdict(settings.limits),
        )  # fmt: skip

    def reload(self, settings: Settings) -> None:
        self._settings = replace(self._settings, tls=settings.tls)
        for process in self._processes:
            process.tell(TlsRead(asdict(settings.tls)))

    def rights_changed(self) -> None:
        for process in self._processes:
            process.tell(RightsChanged())

    async def stop(self) -> None:
        await asyncio.gather(*[process.stop() for process in self._processes])


def _addresses(settings: Settings) -> list[str]:
    """An address for each process: of a fixed port the ports behind it as well."""
    host, _, _ = settings.bulk.address.rpartition(":")
    port = split_address(settings.bulk.address)[1]
    return [f"{host}:{port + number if port else 0}" for number in range(settings.bulk.processes)]
