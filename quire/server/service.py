"""The broker as a service: takes the store, opens the ports, runs until it is told to stop, and stops cleanly."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quire import migrations
from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause
from quire.broker.dead_letter import dead_letter_names
from quire.clock import Clock, SystemClock
from quire.cluster.cluster_map import ClusterMap
from quire.cursors.spool import Spool
from quire.errors import AddressInUse, QuireError, StoreLocked, UnsupportedEnvironment
from quire.logs import event
from quire.scheduler import Scheduler
from quire.security import Security
from quire.server.background import BackgroundThread, Backups
from quire.server.connection import ClientTransport, ConnectedDoor, MakesDoors, MakesSession, ProtocolDoors
from quire.server.event_loop import GarbageCollection, Ticker
from quire.server.listener import (
    BACKLOG,
    Accepted,
    Acceptor,
    AcceptorContext,
    Admission,
    ListenerConfig,
    address_of,
    listen,
)
from quire.server.openwire.openwire_door import OpenWireDoors
from quire.server.stomp.stomp_door import StompDoors
from quire.server.store_lock import LeaseWatch, StoreLock
from quire.server.tls import TlsContexts
from quire.sessions.rights import Gate
from quire.sessions.session import LocalSession
from quire.settings import Settings, local_host, split_address
from quire.store.base import Store, Sync, WriteBatch
from quire.store.disk import Disk, file_failure
from quire.store.urls import shown, store_for_url
from quire.store.writer import GroupCommitWriter

if TYPE_CHECKING:
    from quire.server.otel_tracer import OtelTracer

MOST_HASHES = 64
"""How many logins may wait until their passwords are checked: about two seconds."""

HASHES_NICENESS = 10
"""How much the thread gives way that checks passwords: those who guess may keep it busy."""

MOST_WRITES = 1000
"""How many writes of files may wait."""

EXPORT_LIMIT = 3.0
"""How long a collector may take to take spans, in seconds; a stop waits for the last ones."""

AWAY_LIMIT = 1.0
"""How long clients may take to read that the broker has lost its store, in seconds."""


PROTOCOLS: dict[str, MakesDoors] = {"stomp": StompDoors, "openwire": OpenWireDoors}
"""What clients may speak, by the section of the settings that has the address where it is spoken."""


class HttpServer(Protocol):
    """What serves the HTTP API; the layer above hands it in."""

    async def open(self, service: "Service", listener: socket.socket) -> None:
        """Answer probes on a bound socket: there is no broker yet."""
        ...

    async def start(self) -> None: ...

    def reload(self, settings: Settings) -> None: ...

    async def stop(self) -> None: ...


class Member(Protocol):
    """What makes a process one of a cluster; it is handed in."""

    cluster_map: ClusterMap

    def join(self, service: "Service") -> MakesSession:
        """Be one of the cluster; what makes the sessions of the process's own clients."""
        ...

    def close_doors(self) -> None: ...

    async def stop(self) -> None: ...


class Service:
    """One broker process; ``member`` makes it one of a cluster.

    ``tunes_collector`` sets Python's collector of cycles for a broker: not in a process of others. With
    ``shares_ports`` other processes listen at the same addresses: those of other shards.

    Attributes:
        uses_store: whether it has begun to use the store, which may fail and mend from then on.
    """

    broker: Broker

    def __init__(
        self, settings: Settings, store: Store, http: HttpServer | None = None, clock: Clock | None = None,
        reload: Callable[[], Settings] | None = None, tunes_collector: bool = True,
        shares_ports: bool = False, member: Member | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.store = store
        self.store_url = shown(store.url)
        self.clock = clock or SystemClock()
        self.scheduler = Scheduler(self.clock)
        self.connections: dict[ClientTransport, ConnectedDoor] = {}
        self.ticker = Ticker(self.scheduler, self.clock)
        self.backups = Backups(settings.backup, store.url, self.clock, self.scheduler)
        self._doors: list[ProtocolDoors] = []
        self.acceptors = AcceptorContext(
            Admission(settings.limits), TlsContexts(settings.tls), self.clock, self.scheduler
        )
        self._servers: list[asyncio.Server] = []
        self.stomp_address = self.openwire_address = self.http_address = ""  # host:port, once they are open
        self.uses_store = False
        self.started_at = self.clock.now_ms()
        self._started = self.clock.monotonic()
        self._http = http
        self._member = member
        self._reload = reload
        self._reload_at_start = False  # asked while it waited for the store or started
        self._tunes_collector = tunes_collector
        self._shares_ports = shares_ports
        self._listen = partial(listen, is_shared=shares_ports)
        self._disks: dict[HoldCause, Disk] = {}
        self._stopped = asyncio.Event()
        self._failure: QuireError | None = None
        self._is_standby = False
        self.lock = StoreLock(store, _owner(), self.store_url)
        self.lock.lost = self.ask_stop
        self.lease: LeaseWatch | None = None
        hashing = BackgroundThread("quire-passwords", MOST_HASHES, HASHES_NICENESS)
        files, network = BackgroundThread("quire-files", MOST_WRITES), BackgroundThread("quire-keys", MOST_WRITES)
        self._threads = (hashing, files, network)
        self._is_dead_letter = dead_letter_names(settings.policies)
        self.security = Security(
            settings, self.clock, self.scheduler, hashing, files, network,
            lambda destination: self._is_dead_letter(destination),
        )  # fmt: skip
        self._tracer = started_tracer(settings, self.clock) if settings.tracing.enabled else None

    async def take_store(self, *, standby: bool, waits: Callable[[], None] = lambda: None) -> bool:
        """Become the store's only broker, or False if it is to stop; a standby waits while another broker has it."""
        self._is_standby = standby
        if standby:
            migrations.warm_up(self.store.url)
            self.security.load()
        if standby and not self._shares_ports:  # those who share them serve clients
            await self._open_http(is_needed=False)
        return await self.lock.take(standby=standby, waits=waits, patience=self.settings.store.connect_timeout)

    async def _open_http(self, *, is_needed: bool) -> None:
        """Listen for HTTP, if that is not done. A standby may find its address taken by the broker before it."""
        if self._http is None or self.http_address:
            return
        try:
            listener = self._listen(self.settings.http.address)
        except AddressInUse as error:
            if is_needed:
                raise
            text = f"standby: {error}: probes are answered when this broker takes over"
            event("broker.standby-unprobed", text, logging.WARNING)
            return
        self.http_address = address_of(listener)
        self.ticker.begin()
        await self._http.open(self, listener)

    async def start(self, opened: Callable[[], None] = lambda: None) -> None:
        """Open the store and the ports: first HTTP, then those of clients; between them ``opened`` is called."""
        loop = self._loop = asyncio.get_running_loop()
        self._use_disk(HoldCause.STORE_DISK, self.store)
        spool = self._open_spool()  # first: it may be refused for reasons that another try would meet again
        self.uses_store = True
        report = migrations.prepare(self.store.url)
        if report:
            event("store.migrated", report.sentence("migrated"), **report._asdict())
        self.store.open()
        self.security.load()
        self.first_password = self.security.make_first_user()  # for the process to tell, once
        self.broker = Broker(
            self.settings, self.store, spool, self.clock, self.scheduler,
            self._turn_soon, self._turn_later, self._tracer,
        )  # fmt: skip
        self.ticker.meter = self.broker.core.meter
        self._writer = GroupCommitWriter(
            self.store, Sync(self.settings.store.sync), self.clock, self._committed_on_thread(loop)
        )
        self.broker.turns.writer = self._writer
        self.broker.disks.watch(self._disks)
        self._writer.start()
        self.gate = Gate(self.broker, self.security, self.connections.values)
        self._doors = self._made_doors()
        self._stomp = self._doors[0]
        listeners = [self._listen(getattr(self.settings, section).address) for section in PROTOCOLS]
        self.stomp_address, self.openwire_address = [address_of(listener) for listener in listeners[:2]]
        self._garbage = GarbageCollection(self.scheduler, lambda: self.broker.core.ended)
        if self._tunes_collector:
            self._garbage.start()
        self.lease = LeaseWatch(self.lock, self.broker.core, self._doors, self.connections, self._is_standby)
        self.ticker.look = self.lease.look
        self.ticker.begin()
        self.backups.start()
        await self._open_http(is_needed=True)
        if self._http:
            await self._http.start()
        opened()
        self._servers = [await self._serve(*each) for each in zip(self._doors, listeners, strict=True)]
        if self._reload_at_start:
            self.reload()

    def _made_doors(self) -> list[ProtocolDoors]:
        member = self._member
        cluster: ClusterMap | None = None
        session_of: MakesSession = partial(LocalSession, self.broker)
        if member is not None:
            cluster, session_of = member.cluster_map, member.join(self)
        return [make(self.broker, self.gate, session_of, cluster) for make in PROTOCOLS.values()]

    async def _serve(self, doors: ProtocolDoors, listener: socket.socket) -> asyncio.Server:
        config = ListenerConfig(
            doors.name, doors.patience, partial(ClientTransport, self.broker, doors, self.connections), doors.refusal
        )
        return await self._loop.create_server(partial(Acceptor, self.acceptors, config), sock=listener, backlog=BACKLOG)

    @property
    def http_scheme(self) -> str:
        """How the HTTP API is reached on this machine: ``https`` if clients must speak TLS here too."""
        if not self.http_address:  # nothing is asked over HTTP
            return "http"
        host = local_host(split_address(self.http_address)[0])
        return "http" if self.acceptors.tls.settings.takes_plain(host) else "https"

    def stomp_client(self, accepted: Accepted) -> ClientTransport:
        return ClientTransport(self.broker, self._stomp, self.connections, accepted)

    def _turn_soon(self) -> None:
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.broker.turns.turn()  # there is none yet when the turn is asked for while it is made

    def _turn_later(self, delay: float) -> None:
        self._loop.call_later(delay, self.broker.turns.planned_turn)

    def _committed_on_thread(self, loop: asyncio.AbstractEventLoop) -> Callable[[WriteBatch, QuireError | None], None]:
        def completed(batch: WriteBatch, error: QuireError | None) -> None:
            loop.call_soon_threadsafe(self.broker.turns.committed, batch, error)
            if isinstance(error, StoreLocked):
                loop.call_soon_threadsafe(self.ask_stop, error)

        return completed

    def _open_spool(self) -> Spool:
        """A fresh spool beside the store; in memory if the store is."""
        limit = self.settings.spool.limit
        if self.store.url == "memory:":
            store = store_for_url("memory:", Sync.NEVER)
            store.open()
            return Spool(store, limit)
        directory = Path(self.settings.store.data).absolute() / "spool"
        store = store_for_url(directory.as_uri().replace("file:", "lmdb:", 1), Sync.NEVER)

        @telling_of_files()
        def renew() -> None:
            store.close()
            if not store.try_lock(_owner()):  # another broker has another store, and writes its spool here
                data = self.settings.store.data
                raise StoreLocked(f"{store.lock_owner()} uses the data directory {data}: choose another", data=data)
            for old in directory.glob("*.mdb"):
                old.unlink()
            if HoldCause.SPOOL_DISK not in self._disks:
                self._use_disk(HoldCause.SPOOL_DISK, store)
            store.open()

        renew()
        return Spool(store, limit, renew)

    def _use_disk(self, cause: HoldCause, store: Store) -> None:
        """A store is locked and about to be opened: if its disk is full, the space for that comes from the reserve."""
        if store.reserve_file is None or not self.settings.store.disk_free_limit:
            return
        disk = self._disks[cause] = Disk(store, self.settings.store.disk_free_limit)
        if released := disk.prepare():
            text = f"the disk of {disk.directory} is full: {released} bytes of reserve are used for the start"
            event("disk.reserve-used", text, logging.WARNING, directory=str(disk.directory), bytes=released)

    def ask_stop(self, failure: QuireError | None = None) -> None:
        """Have ``wait`` return, or raise why it stops if it is not by order."""
        self._failure = failure or self._failure
        self._stopped.set()
        self.lock.give_up()

    def reload(self) -> None:
        """Read the settings again, once it has started: policies, users, rules; an unreadable file changes nothing."""
        if self._reload is None:
            return
        if not self._servers:
            self._reload_at_start = True
            return
        try:
            settings = self._reload()
        except QuireError as error:
            event("settings.refused", f"the settings stay as they are: {error}", logging.ERROR, code=error.code)
            return
        self.broker.reload(settings)
        self.acceptors.tls.reload(settings.tls)
        if self._http:
            self._http.reload(settings)
        self._is_dead_letter = dead_letter_names(settings.policies)
        self.security.reload(settings)
        ours = self.settings
        others = ours != replace(
            settings,
            policies=ours.policies,
            users=ours.users,
            rules=ours.rules,
            security=ours.security,
            jwt=ours.jwt,
            tls=ours.tls,
        )
        text = "the policies, users and rules were read again" + (
            "; other settings that changed wait for the next start" * others
        )
        event("settings.reloaded", text, restart_needed=others)

    @property
    def uptime(self) -> float:
        return self.clock.monotonic() - self._started

    @property
    def connections_opened(self) -> int:
        """How many connections clients have opened, those that ended included."""
        return sum([doors.opened for doors in self._doors])

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    async def wait(self) -> None:
        await self._stopped.wait()
        if self._failure:
            raise self._failure

    async def stop(self) -> None:
        """Close the ports, finish what was read, say good-bye, and leave a store that needs no recovery."""
        await self.backups.stop()
        self._close_doors()
        await self._commit()
        for transport in list(self.connections):
            transport.stop()
        if self._http:  # requests that wait end, and give back what they were given
            await self._http.stop()
        while self.broker.core.leaving:
            await self._commit()
        if self._member is not None:
            await self._member.stop()
        self.broker.stop()
        await self._commit()
        self.ticker.end()
        if self._tunes_collector:
            self._garbage.stop()
        for thread in self._threads:
            await thread.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._writer.stop)
        self.broker.core.spool.close()
        if self._tracer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._tracer.stop)
        await self.lock.stop()

    async def abandon(self) -> None:
        """Another broker has the store: write nothing more, and send the clients there. The process is to end."""
        for server in self._servers:
            server.close()
        if self.lease is not None:
            self.lease.disconnect_for_failover()
        ends = self.clock.monotonic() + AWAY_LIMIT
        while self.connections and self.clock.monotonic() < ends:
            await asyncio.sleep(0.01)
        self.ticker.end()

    def _close_doors(self) -> None:
        """Take no more clients, and nothing more of those that there are."""
        for server in self._servers:
            server.close()
        if self._member is not None:
            self._member.close_doors()
        for transport in list(self.connections):
            transport.pause_reading("stopping")

    async def _commit(self) -> None:
        for _ in range(2):  # what the first commit set off may need a second
            done = asyncio.Event()
            self.broker.core.after_commit(done.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), timeout=30)


@contextlib.contextmanager
def telling_of_files() -> Iterator[None]:
    """Say which file or directory the system refused."""
    try:
        yield
    except OSError as error:
        raise file_failure(error) from error


def started_tracer(settings: Settings, clock: Clock) -> "OtelTracer":
    """The tracer that exports to the collector of the settings; its libraries are an extra of Quire."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from quire.server.otel_tracer import OtelTracer
    except ImportError as error:
        text = f"tracing.enabled needs the extra `otel`: pip install 'quire[otel]' ({error})"
        raise UnsupportedEnvironment(text) from error
    return OtelTracer(settings, clock, OTLPSpanExporter(settings.tracing.endpoint, timeout=EXPORT_LIMIT))


def _owner() -> str:
    return f"process {os.getpid()} on host {socket.gethostname()}"
