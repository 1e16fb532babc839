"""A process that runs a shard: a whole broker on the shard's store, told by the supervisor what to do."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from quire import migrations
from quire.cluster.cluster_map import ClusterMap
from quire.cluster.placement import Placement
from quire.errors import InvalidSettings, QuireError
from quire.logs import configure, event
from quire.server.cluster.kept_pins import ClusterContext, KeptPins
from quire.server.cluster.link_server import LinkServer
from quire.server.cluster.processes import (
    Given,
    Map,
    Prepare,
    Reload,
    Report,
    Running,
    Serve,
    Started,
    Waiting,
    line,
    read_order,
    serve_forks,
)
from quire.server.listener import address_of, advertised, listen
from quire.server.process import allow_connections, loop_factory
from quire.server.service import HttpServer, Service, telling_of_files
from quire.settings import Settings, load, store_url
from quire.store.base import Store, Sync
from quire.store.urls import store_for_url

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
        """Until the input ends, or the broker does: the exit code."""
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
                waits = partial(self._report, Waiting(os.getpid()))
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
