"""A process of a shard is stopped at any moment of its start: its broker does not wait for what is not there."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from quire.server.cluster import shard_process as shard_process_module
from quire.server.cluster.shard_process import Child, ForkServer, News, Prepare, Running, Serve, Started, line

pytestmark = pytest.mark.slow

LIMIT = 15.0
"""How long the end may take on a busy machine, in seconds: less than a process that serves clients has for it."""


class Forks(ForkServer):
    """Starts a process that sleeps in the place of each shard's; or none yet.

    Attributes:
        asked: the sockets of those that it was asked for.
        processes: those that it has started.
    """

    def __init__(self, *says: News | Started, is_late: bool = False) -> None:
        super().__init__("")
        self.asked: list[socket.socket] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._says = says
        self._is_late = is_late

    async def fork(self, channel: socket.socket) -> None:
        self.asked.append(channel.dup())
        if self._is_late:
            return
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        process = subprocess.Popen(command, pass_fds=[channel.fileno()])
        self.processes.append(process)
        for said in self._says:
            said = said if not isinstance(said, Started) else Started(process.pid)
            channel.send(line(said))
        self.asked.pop().close()


async def ended(fork_server: Forks, before: Callable[[Child], Awaitable[None]]) -> None:
    """Stop a child after something has happened; returns when it has ended."""
    has_ended = asyncio.Event()
    serve = Serve(0, {}, "127.0.0.1:0", "127.0.0.1:0")
    prepare = Prepare("", {}, "athens", 1, b"", "")
    child = Child(fork_server, prepare, lambda _: serve, lambda _child, _news: None, lambda _: has_ended.set())
    child.serve(0)
    await before(child)
    child.stop()
    try:
        await asyncio.wait_for(has_ended.wait(), LIMIT)
    finally:
        for process in fork_server.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for channel in fork_server.asked:
            channel.close()


async def until_started(child: Child) -> None:
    while not child.pid:
        await asyncio.sleep(0.01)


def test_a_process_that_is_not_forked_yet_is_not_waited_for() -> None:
    asyncio.run(ended(Forks(is_late=True), lambda _: asyncio.sleep(0.05)))


def test_a_process_that_does_not_end_its_start_is_killed_soon() -> None:
    fork_server = Forks(Started(0))
    asyncio.run(ended(fork_server, until_started))
    assert fork_server.processes[0].returncode == -9


def test_a_process_that_serves_clients_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_process_module, "START_STOP_LIMIT", 0.0)
    monkeypatch.setattr(shard_process_module, "STOP_LIMIT", 1.0)

    async def work() -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        await ended(Forks(Started(0), Running(1, "link", "http", 1)), until_started)
        return clock() - began

    assert asyncio.run(work()) >= 1.0


def test_a_nursery_that_still_imports_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_fork_server.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def work() -> None:
        fork_server = ForkServer("slow_fork_server")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await fork_server.fork(theirs)
            await asyncio.wait_for(fork_server.stop(), LIMIT)

    asyncio.run(work())
