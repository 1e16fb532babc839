"""The process of a broker that has shards, one in a cluster or alone on its machine: its signals and its ports."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from quire import __version__
from quire.clock import Clock, SystemClock
from quire.cluster.directory import Directory
from quire.cluster.placement import Placement
from quire.cluster.view import BrokerRow, ClusterFacts
from quire.errors import InvalidSettings, StoreLocked
from quire.logs import configure, event
from quire.security.accounts import ALWAYS, LOCAL, LOCAL_USER, make_token, write_secret
from quire.server.cluster.processes import Child, ForkServer, Given, News, Prepare, Running
from quire.server.cluster.shard_places import EMBEDDED, serve_shard
from quire.server.cluster.supervisor import ShardProcesses, Supervisor, waited_for
from quire.server.listener import address_of, advertised, bound
from quire.server.process import ServiceManager, allow_connections, loop_factory, write_whole
from quire.server.service import telling_of_files
from quire.settings import Settings, broker_file, local_host, local_token_file, split_address
from quire.store.disk import PRIVATE, FileLock

PORTS = ("stomp.address", "openwire.address", "http.address")


class Console(Protocol):
    """The web console of the broker; the layer above hands it in."""

    def start(self, http_address: str) -> None: ...

    async def stop(self) -> None: ...


class BrokerProcess:
    """A broker of a cluster; ``module`` is what its shards run, ``flags`` are values of the command line, by key."""

    def __init__(
        self, settings: Settings, file: Path | None, flags: dict[str, Any], module: str, console: Console
    ) -> None:
        if settings.security.enabled and not settings.users and not settings.jwt.issuer:
            text = "the users of a broker with shards are in the settings file: write [[users]], or set jwt.issuer"
            raise InvalidSettings(text, key="users")
        self._settings = settings
        self._is_local = settings.cluster.store.startswith("sqlite:")
        self._file = file
        self._flags = flags
        self._fork_server = ForkServer(module)
        self._console = console
        self._name = settings.cluster.name or socket.gethostname()
        self._manager = ServiceManager(os.environ)
        _, self._local_token = make_token(LOCAL_USER, 0, ALWAYS, id=LOCAL)
        self._addresses: dict[str, str] = {}
        self._is_announced = False
        self._shards = 0

    async def run(self) -> None:
        settings, clock = self._settings, SystemClock()
        with ExitStack() as closing:
            if self._is_local:
                closing.callback(_locked(settings).release)
            directory = Directory(settings.cluster.store)
            closing.callback(directory.close)
            if (facts := await self._formed(directory, clock)) is None:
                return
            self._shards = facts.shards
            for key, address in zip(PORTS, self._written_addresses(), strict=True):
                port = bound(address, is_shared=True)  # kept for the processes of shards, which listen there
                closing.callback(port.close)
                self._addresses[key] = address_of(port)
            thread = closing.enter_context(ThreadPoolExecutor(1, thread_name_prefix="quire-directory"))
            ask = partial(asyncio.get_running_loop().run_in_executor, thread)
            processes = ShardProcesses(
                self._name, facts.shards, clock, lambda: self._spawn(facts, processes, supervisor)
            )
            supervisor = Supervisor(directory, processes, self._row(), clock, ask)
            self._take_signals(supervisor, processes)
            self._manager.tell("STATUS=Joining the cluster.")
            try:
                await supervisor.run()
            finally:
                self._manager.tell("STOPPING=1")
                await self._console.stop()
                await self._fork_server.stop()
                self._manager.end()
                broker_file(settings.store.data).unlink(missing_ok=True)
                local_token_file(settings.store.data).unlink(missing_ok=True)
        event("broker.stopped", "Stopped. Everything confirmed is stored.")

    async def _formed(self, directory: Directory, clock: Clock) -> ClusterFacts | None:
        """What the cluster has, once its database answers; None if the broker is to stop meanwhile."""
        form, patience = partial(asyncio.to_thread, self._form, directory), self._settings.store.connect_timeout
        forming = asyncio.create_task(waited_for(form, clock, patience, asyncio.sleep))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, forming.cancel)
        try:
            return await forming
        except asyncio.CancelledError:
            return None

    def _form(self, directory: Directory) -> ClusterFacts:
        cluster = self._settings.cluster
        stores = (EMBEDDED,) if self._is_local else tuple(cluster.stores.split()) or (cluster.store,)
        facts = directory.form(cluster.shards, stores)
        if self._is_local and self._settings.broker.shards not in (0, facts.shards):
            text = f"{self._settings.store.data} has {facts.shards} shards: leave broker.shards out, or set it to that"
            raise InvalidSettings(text, key="broker.shards", value=self._settings.broker.shards)
        if not self._is_local and (cluster.shards, stores) != (facts.shards, facts.stores):
            text = f"the cluster was formed with {facts.shards} shards in {len(facts.stores)} databases: that stays"
            event("cluster.formed-otherwise", text, shards=facts.shards)
        return facts

    def _written_addresses(self) -> tuple[str, ...]:
        settings = self._settings
        return settings.stomp.address, settings.openwire.address, settings.http.address

    def _row(self) -> BrokerRow:
        stomp, openwire, http = map(advertised, self._addresses.values())
        return BrokerRow(self._name, "", stomp, openwire, http, __version__, Placement(self._settings).digest)

    def _spawn(self, facts: ClusterFacts, processes: ShardProcesses, supervisor: Supervisor) -> Child:
        flags = {key: value for key, value in self._flags.items() if value is not None}
        file = str(self._file.absolute()) if self._file else ""
        prepare = Prepare(file, flags, self._name, facts.shards, facts.secret, self._local_token)

        def reported(child: Child, report: News) -> None:
            if isinstance(report, Given):
                processes.given(report.row)
            else:
                processes.reported(child, report)
                if isinstance(report, Running):
                    self._announce()
            supervisor.wake()

        def ended(child: Child) -> None:
            processes.ended(child)
            supervisor.wake()

        def serve(shard: int) -> Any:
            return serve_shard(self._settings, facts.stores, facts.shards, shard, self._addresses)

        return Child(self._fork_server, prepare, serve, reported, ended)

    def _take_signals(self, supervisor: Supervisor, processes: ShardProcesses) -> None:
        loop = asyncio.get_running_loop()
        calls: dict[int, Callable[[], None]] = {
            signal.SIGTERM: supervisor.leave, signal.SIGINT: supervisor.leave, signal.SIGHUP: processes.reload
        }  # fmt: skip
        for number, call in calls.items():
            loop.add_signal_handler(number, call)

    def _announce(self) -> None:
        """Say where clients come, once the first of them can, and in files that the command line reads."""
        if self._is_announced:
            return
        self._is_announced = True
        stomp, openwire, http = self._addresses.values()
        data, host = self._settings.store.data, local_host(split_address(http)[0])
        scheme = "http" if self._settings.tls.takes_plain(host) else "https"
        write_secret(local_token_file(data), self._local_token.encode())
        facts = {"pid": os.getpid(), "stomp": stomp, "openwire": openwire, "http": http, "scheme": scheme}
        write_whole(broker_file(data), json.dumps(facts))
        self._console.start(http)
        what = f"with {self._shards} shards" if self._is_local else f"broker {self._name} of a cluster"
        event(
            "broker.started",
            f"Quire {__version__} is running, {what}.\n"
            f"  STOMP     {stomp}\n"
            f"  OpenWire  {openwire}\n"
            f"  HTTP      {scheme}://{http}\n"
            "Ctrl-C stops it.",
            version=__version__, broker=self._name, pid=os.getpid(), stomp=stomp, openwire=openwire, http=http,
        )  # fmt: skip
        self._manager.tell("READY=1", f"STATUS=Serving STOMP on {stomp}.")
        self._manager.beat()


def _locked(settings: Settings) -> FileLock:
    """The lock of a data directory with shards, taken."""
    data = Path(settings.store.data)
    with telling_of_files():
        data.mkdir(parents=True, exist_ok=True)
        lock = FileLock(data / "shards.lock")
        if not lock.acquire(f"process {os.getpid()} on host {socket.gethostname()}"):
            raise StoreLocked(f"{lock.owner()} uses the data directory {data}", owner=lock.owner(), url=str(data))
    return lock


def run(settings: Settings, file: Path | None, flags: dict[str, Any], module: str, console: Console) -> int:
    """Run a broker of a cluster until SIGTERM or SIGINT; SIGHUP makes its processes read their settings again."""
    configure(settings.log.format, settings.log.level)
    allow_connections()
    os.umask(PRIVATE)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(BrokerProcess(settings, file, flags, module, console).run())
    return 0
