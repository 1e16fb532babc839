"""Starts a broker's console beside it, starts it again when it dies, and ends it with the broker."""

import asyncio
import contextlib
import importlib.util
import logging
import sys
from asyncio.subprocess import PIPE, Process

import msgspec

from quire.errors import BrokerBusy, IllegalState, UnsupportedEnvironment
from quire.logs import event
from quire.server.child_environment import child_environment
from quire.settings import Settings, is_loopback, split_address

START_LIMIT = 60.0
"""How long the start of the console may take, in seconds: it is at a low priority."""

STOP_LIMIT = 5.0
"""How long its end may take; then it is killed."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""How long it stays away after it died, in seconds: twice as long each time, up to a minute."""

ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class Announcement(msgspec.Struct, frozen=True):
    """What the console says when it has started, or has not."""

    address: str = ""
    error: str = ""
    code: str = ""


class ConsoleLauncher:
    """The console of one broker.

    Args:
        settings: those of the broker.
        module: what is run; tests run something smaller.
    """

    def __init__(self, settings: Settings, module: str = "quire.console") -> None:
        self._settings = settings
        self._module = module
        self._process: Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._address = ""
        self._told = ""  # why it did not start, as the log has it already

    def start(self, http_address: str) -> None:
        """Have it run from now on; nothing waits for it.

        Args:
            http_address: where the broker's HTTP API listens.
        """
        if not self._settings.console.enabled:
            return
        if importlib.util.find_spec("nicegui") is None:
            event("console.missing", "there is no console: pip install 'quire[console]'")
            return
        host, port = split_address(http_address)
        reached = "127.0.0.1" if host in ANYWHERE else f"[{host}]" if ":" in host else host
        scheme = "http" if self._takes_plain(host) else "https"
        self._keeping = asyncio.create_task(self._keep(f"{scheme}://{reached}:{port}"))

    def _takes_plain(self, host: str) -> bool:
        """Whether an address on this machine takes connections without TLS from this machine."""
        tls = self._settings.tls
        near = tls.plain == "loopback" and (host in ANYWHERE or is_loopback(host))
        return not tls.certificate or tls.plain == "everywhere" or near

    def url(self, host: str) -> str:
        """Where the console is, for one who reached the broker under a host name.

        Raises:
            QuireError: there is none, or not yet.
        """
        if not self._settings.console.enabled:
            raise IllegalState("the console is switched off: set console.enabled")
        if self._keeping is None:
            raise UnsupportedEnvironment("the console is not installed: pip install quire[console]")
        if not self._address:
            raise BrokerBusy("the console is not there yet: try again in a moment")
        bound, port = split_address(self._address)
        name = host if bound in ANYWHERE else bound
        return f"{self._scheme}://[{name}]:{port}/" if ":" in name else f"{self._scheme}://{name}:{port}/"

    @property
    def _scheme(self) -> str:
        """How browsers reach the console: with TLS where clients must come with TLS too."""
        tls, host = self._settings.tls, split_address(self._settings.console.address)[0]
        is_plain = tls.plain == "everywhere" or (tls.plain == "loopback" and is_loopback(host))
        return "http" if is_plain or not tls.certificate else "https"

    async def stop(self) -> None:
        """The broker goes down, and it does too."""
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
        process.kill()
        await process.wait()

    async def _keep(self, url: str) -> None:
        """Have it run, again and again."""
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._run(url)
            pause = FIRST_PAUSE if loop.time() - began > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _run(self, url: str) -> None:
        """Start it, and wait for its end."""
        settings = self._settings
        arguments = ["--address", settings.console.address, "--url", url, "--log-format", settings.log.format]
        arguments += ["--log-level", settings.log.level] + ["--insecure"] * settings.insecure
        arguments += ["--pinned", settings.tls.certificate]
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
            process.kill()
            line = b""
        announcement = _read(line)
        self._address = announcement.address
        if not announcement.address:
            self._tell(announcement.error or "see its lines above in the log")
            await process.wait()  # it ends by itself when it cannot start
            return
        text = f"the console is at {self._scheme}://{announcement.address}/"
        event("console.started", text, pid=process.pid, address=announcement.address)
        self._told = ""
        status = await process.wait()
        self._address = ""
        self._tell(f"it ended with status {status}")

    def _tell(self, reason: str) -> None:
        """Log why there is none, once for each reason."""
        if reason != self._told:
            self._told = reason
            event("console.down", f"there is no console, the broker starts it again: {reason}", logging.WARNING)


def _read(line: bytes) -> Announcement:
    try:
        return msgspec.json.decode(line, type=Announcement)
    except msgspec.MsgspecError:
        return Announcement()
