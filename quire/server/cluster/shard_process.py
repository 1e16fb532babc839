"""A process that runs a shard: a whole broker on the shard's store, forked and told by its broker what to do.

The two tell each other lines of JSON. The process from which those of shards are forked has imported what they need, so
they are there at once.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from quire import migrations
from quire.cluster.cluster_map import ClusterMap, LivingBroker, Peer, Pin, PinRow, Placement
from quire.errors import InvalidSettings, QuireError
from quire.logs import configure, event
from quire.server.background import child_environment
from quire.server.cluster.kept_pins import ClusterContext, KeptPins
from quire.server.cluster.link_server import LinkServer
from quire.server.listener import address_of, advertised, listen
from quire.server.process import allow_connections, loop_factory
from quire.server.service import HttpServer, Service, telling_of_files
from quire.settings import Settings, load, store_url
from quire.store.base import Store, Sync
from quire.store.urls import store_for_url


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


class Reload(msgspec.Struct, frozen=True, tag=True): ...


class Started(msgspec.Struct, frozen=True, tag=True):
    pid: int


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """Process to broker: another process has its shard, and it takes the shard as soon as that one stops."""


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
        """Have it wait for a shard, then run it; ``FRONT`` for one without a shard."""
        self._tell(self._serve(shard))

    def tell_map(self, map: Map) -> None:
        self._tell(map)

    def reload(self) -> None:
        self._tell(Reload())

    def stop(self) -> None:
        """Have it end cleanly; it is killed if that takes too long."""
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


HttpServerMaker = Callable[[socket.socket, ClusterContext], HttpServer]
"""Makes what serves the HTTP API, for the socket where other processes reach it."""

ANY_STORE = "postgresql://quire@localhost/quire"
"""A store as those of shards are; nothing connects to it."""

LONGEST_LINE = 64 * 2**20
"""The longest line that the supervisor writes, in bytes: a map with many pins."""


class ShardProcess:
    """One process: first it is prepared, then told its shard; it ends with its input."""

    def __init__(self, channel: socket.socket, http: HttpServerMaker) -> None:
        self._channel = channel
        self._http = http
        self._prepared: Prepare | None = None
        self._serve: Serve | None = None
        self._last_map: Map | None = None
        self._map: ClusterMap | None = None
        self._service: Service | None = None
        self._told = asyncio.Event()

    async def run(self) -> int:
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=LONGEST_LINE)
        hearing = asyncio.create_task(self._hear(reader))
        await self._told.wait()
        try:
            if self._serve is not None:
                await self._run_shard(self._serve)
        except QuireError as error:
            event("broker.failed", f"{error.code}: {error}", code=error.code)
            return error.entry.exit
        finally:
            hearing.cancel()
        return 0

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        async for text in reader:
            match read_order(text):
                case Prepare() as prepared:
                    self._prepared = prepared
                    self._report(Started(os.getpid()))
                    settings = self._settings({})
                    configure(settings.log.format, settings.log.level)
                case Serve() as serve:
                    self._serve = serve
                    self._told.set()
                case Map() as map:
                    self._last_map = map
                    self._take_map()
                case Reload():
                    if self._service is not None:
                        self._service.reload()
        self._told.set()
        if self._service is None:
            self._serve = None
        else:
            self._service.ask_stop()

    def _settings(self, flags: dict[str, object]) -> Settings:
        assert self._prepared is not None
        file = Path(self._prepared.file) if self._prepared.file else None
        return load(file, os.environ, self._prepared.flags | flags)

    def _take_map(self) -> None:
        if self._map is not None and self._last_map is not None:
            self._map.update(self._last_map.peers, self._last_map.pins, self._last_map.brokers)

    async def _run_shard(self, serve: Serve) -> None:
        settings = self._settings(serve.flags)
        store = store_for_url(store_url(settings), Sync(settings.store.sync))
        with closing(store), listen(serve.http) as internal:
            links, service = self._make_service(serve, settings, store, internal)
            with telling_of_files():
                waits = partial(self._report, Waiting())
                if not await service.take_store(standby=True, waits=waits) or service.is_stopping:
                    await service.lock.stop()
                    return
                links.cluster_map.epoch = store.lock_epoch
                await service.start()
            try:
                listener = listen(serve.link)
                await links.start(listener)
                self._report(Running(os.getpid(), _reached(listener), _reached(internal), store.lock_epoch))
                await service.wait()
            finally:
                await service.stop()

    def _make_service(
        self, serve: Serve, settings: Settings, store: Store, internal: socket.socket
    ) -> tuple[LinkServer, Service]:
        assert self._prepared is not None
        prepared = self._prepared
        map = self._map = ClusterMap(serve.shard, prepared.shards, Placement(settings))
        self._take_map()

        def reload() -> Settings:
            settings = self._settings(serve.flags)
            if Placement(settings).digest != map.placement_digest:
                text = (
                    "[virtual], [[composites]] and the policies of dead letters say which destinations lie together:"
                    " to change them, stop all brokers of the cluster"
                )
                raise InvalidSettings(text, key="virtual")
            return settings

        pins = KeptPins(map, lambda row: self._report(Given(row)))
        links = LinkServer(map, prepared.secret, pins)
        http = self._http(internal, ClusterContext(map, pins, prepared.secret, prepared.broker, settings.cluster.store))
        self._service = Service(settings, store, http, reload=reload, shares_ports=True, member=links)
        self._service.security.accounts.use_local_token(prepared.local_token)
        return links, self._service

    def _report(self, report: Report) -> None:
        self._writer.write(line(report))


def _reached(listener: socket.socket) -> str:
    return advertised(address_of(listener))


def run(channel: socket.socket, http: HttpServerMaker) -> int:
    """Fork processes of shards, and run one in each: the exit code."""
    migrations.warm_up(ANY_STORE)  # so that what is forked has imported everything
    store_for_url(ANY_STORE).close()
    forked = serve_forks(channel)
    if forked is None:
        return 0
    allow_connections()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(ShardProcess(forked, http).run())
