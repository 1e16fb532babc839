"""The process from which those of shards are forked: it has imported what they need, so they are there at once."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

from quire.server.child_environment import child_environment


class Nursery:
    """Forks processes. Its own process is started when one is wanted, and again if it has died.

    Args:
        module: what it runs; it calls ``wait_for_birth``.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def fork(self, channel: socket.socket) -> None:
        """Have a process forked that gets a socket."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
            assert self._channel is not None
            socket.send_fds(self._channel, [b"."], [channel.fileno()])

    async def stop(self) -> None:
        """End it, also while it imports; the processes that it has forked end by themselves."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _start(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", self._module, str(theirs.fileno())]
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, env=child_environment(), pass_fds=[theirs.fileno()]
            )


def wait_for_birth(channel: socket.socket) -> socket.socket | None:
    """Fork whenever one is asked for; returns in each child with its socket, and at the end with None."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they come to the whole group: the broker decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so the system forgets children that end
    gc.collect()
    gc.freeze()  # what all share is not copied by the collector
    while True:
        asked, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not asked:
            return None
        with socket.socket(fileno=descriptors[0]) as born:
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                channel.close()
                return socket.socket(fileno=born.detach())
