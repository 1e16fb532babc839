"""The processes of a broker's shards, as the broker has them forked; what both tell each other: lines of JSON."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from quire.cluster.cluster_map import LivingBroker, Peer, Pin
from quire.cluster.view import PinRow
from quire.logs import event
from quire.server.background import child_environment


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Broker to process, first: what it needs before it knows its shard; ``broker`` is a name in the cluster."""

    file: str
    flags: dict[str, Any]
    broker: str
    shards: int
    secret: bytes
    local_token: str


class Serve(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: wait for a shard (``FRONT``: for none), then run it. The flags say its store and directory."""

    shard: int
    flags: dict[str, Any]
    link: str
    http: str


class Map(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: who owns which shard now, the pins by placement key, the brokers (``ClusterMap.update``)."""

    peers: dict[int, Peer]
    pins: dict[str, Pin]
    brokers: tuple[LivingBroker, ...]


class Reload(msgspec.Struct, frozen=True, tag=True):
    """Broker to process: read the settings again."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """Process to broker, first: it is there."""

    pid: int


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: another process has its shard, and it takes the shard as soon as that one stops."""

    pid: int


class Running(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: it owns its shard and serves clients. ``address`` and ``http`` are for other processes."""

    pid: int
    address: str
    http: str
    epoch: int


class Given(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: its store says that it has given a placement key to another shard; all are to know."""

    row: PinRow


Order = Prepare | Serve | Map | Reload
News = Waiting | Running | Given
Report = Started | News

read_order = msgspec.json.Decoder(Order).decode
read_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode


def line(message: Order | Report) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class ForkServer:
    """Forks processes. Its own process is started when one is wanted, and again if it has died."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def fork(self, channel: socket.socket) -> None:
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


def serve_forks(channel: socket.socket) -> socket.socket | None:
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
        with socket.socket(fileno=descriptors[0]) as forked:
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                channel.close()
                return socket.socket(fileno=forked.detach())


STOP_LIMIT = 20.0
"""How long the clean end of a process may take that serves clients, in seconds; then it is killed."""

START_STOP_LIMIT = 3.0
"""The same of a process that does not serve any yet: it has confirmed nothing."""


class Child:
    """One process: it is told ``prepare`` first."""

    def __init__(
        self, fork_server: ForkServer, prepare: Prepare, serve: Callable[[int], Serve],
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
        self._begin(self._run(fork_server))

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

    async def _run(self, fork_server: ForkServer) -> None:
        """Have it forked, hear what it says, and wait for its end: the end of what it says."""
        ours, theirs = socket.socketpair()
        with theirs:
            await fork_server.fork(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        self._writer = writer
        writer.writelines([line(order) for order in self._waiting])
        self._waiting.clear()
        if self._is_stopping:
            self._begin(self._end(writer))
        with contextlib.suppress(ConnectionError):
            async for text in reader:
                match report := read_report(text):
                    case Started():
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
