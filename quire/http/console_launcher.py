"""Starts a broker's console beside it, starts it again when it dies, and ends it with the broker."""

import asyncio
import contextlib
import importlib.util
import logging
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from pathlib import Path

import msgspec

from quire.errors import AddressInUse, BrokerBusy, IllegalState, UnsupportedEnvironment
from quire.logs import event
from quire.server.background import child_environment
from quire.settings import Settings, local_host, split_address

START_LIMIT = 60.0  # how long the start of the console may take, in seconds: it is at a low priority
STOP_LIMIT = 5.0  # how long its end may take; then it is killed

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How long it stays away after it died, in seconds: twice as long each time, up to a minute."""

TRIES = 3  # so often its address is in use, by the console before it perhaps, until it takes a free port


class Announcement(msgspec.Struct, frozen=True):
    """What the console says when it has started, or has not."""

    address: str = ""
    error: str = ""
    code: str = ""


class ConsoleLauncher:
    def __init__(self, settings: Settings, module: str = "quire.console") -> None:
        self._settings = settings
        self._module = module
        self._certificate = b""  # what it was started with
        self._is_renewed = False
        self._process: Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._address = ""
        self._in_use = 0  # so often its address was
        self._told = ""  # why it did not start, as the log has it already

    def start(self, http_address: str) -> None:
        """Have it run from now on, beside the HTTP API that listens at an address; nothing waits for it."""
        if not self._settings.console.enabled:
            return
        if importlib.util.find_spec("nicegui") is None:
            event("console.missing", "there is no console: pip install 'quire[console]'")
            return
        self._keeping = asyncio.create_task(self._keep(http_address))

    def reload(self, settings: Settings) -> None:
        """The files of TLS were read again: a certificate that has changed is taken by a new process."""
        self._settings = replace(self._settings, tls=settings.tls)
        process = self._process
        if process is not None and process.returncode is None and _certificate(settings) != self._certificate:
            assert process.stdin is not None
            self._is_renewed = True
            process.stdin.close()

    def url(self, host: str) -> str:
        if not self._settings.console.enabled:
            raise IllegalState("the console is switched off: set console.enabled")
        if self._keeping is None:
            raise UnsupportedEnvironment("the console is not installed: pip install quire[console]")
        if not self._address:
            raise BrokerBusy("the console is not there yet: try again in a moment")
        bound, port = split_address(self._address)
        return _url(self._scheme, bound if local_host(bound) == bound else host, port) + "/"

    @property
    def _scheme(self) -> str:
        """How browsers reach the console: with TLS where clients must come with TLS too."""
        return self._scheme_at(split_address(self._settings.console.address)[0])

    def _scheme_at(self, host: str) -> str:
        return "http" if self._settings.tls.takes_plain(host) else "https"

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_LIMIT)
            return
        _kill(process)
        await process.wait()

    async def _keep(self, http_address: str) -> None:
        bound, port = split_address(http_address)
        host = local_host(bound)
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._run(_url(self._scheme_at(host), host, port))
            if self._is_renewed or loop.time() - began > LONGEST_PAUSE:
                pause, self._is_renewed = FIRST_PAUSE, False
            else:
                pause = min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _run(self, url: str) -> None:
        settings = self._settings
        wanted = settings.console.address
        asked = wanted if self._in_use < TRIES else f"{wanted.rpartition(':')[0]}:0"
        arguments = ["--address", asked, "--url", url, "--log-format", settings.log.format]
        arguments += ["--log-level", settings.log.level] + ["--insecure"] * settings.insecure
        arguments += ["--names", settings.http.names]
        arguments += ["--pinned", settings.tls.certificate]
        self._certificate = _certificate(settings)
        if self._scheme == "https":
            arguments += ["--certificate", settings.tls.certificate, "--key", settings.tls.key]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", self._module, *arguments, stdin=PIPE, stdout=PIPE, env=child_environment()
        )
        self._process = process
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_LIMIT)
        except TimeoutError:
            _kill(process)
            line = b""
        announcement = _read(line)
        self._address = announcement.address
        if not announcement.address:
            self._in_use += announcement.code == AddressInUse.code
            self._tell(announcement.error or "see its lines above in the log")
            await process.wait()  # it ends by itself when it cannot start
            return
        text = f"the console is at {self._scheme}://{announcement.address}/" + f", since {wanted} is in use" * (
            asked != wanted
        )
        event("console.started", text, pid=process.pid, address=announcement.address)
        self._told = ""
        status = await process.wait()
        self._address = ""
        if not self._is_renewed:
            self._tell(f"it ended with status {status}")

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            event("console.down", f"there is no console, the broker starts it again: {reason}", logging.WARNING)


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        process.kill()


def _certificate(settings: Settings) -> bytes:
    with contextlib.suppress(OSError):  # the process that needs it says so
        return Path(settings.tls.certificate).read_bytes() if settings.tls.certificate else b""
    return b""


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _read(line: bytes) -> Announcement:
    try:
        return msgspec.json.decode(line, type=Announcement)
    except msgspec.MsgspecError:
        return Announcement()
