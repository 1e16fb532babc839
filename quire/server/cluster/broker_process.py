"""The process of a broker that has shards, one in a cluster or alone on its machine.

It tells the database that it lives, keeps the processes of its shards, and has its signals and its ports.
"""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar

from quire import __version__
from quire.clock import Clock, SystemClock
from quire.cluster.cluster_map import (
    FRONT,
    BrokerRow,
    ClusterFacts,
    LivingBroker,
    Peer,
    Pin,
    PinRow,
    Placement,
    ShardRow,
    View,
)
from quire.cluster.directory import LEASE, Directory
from quire.cluster.plan import ShardState, plan
from quire.errors import InvalidSettings, QuireError, StoreLocked, StoreUnreachable
from quire.logs import configure, event
from quire.security.accounts import ALWAYS, LOCAL, LOCAL_USER, make_token, write_secret
from quire.server.cluster.shard_places import EMBEDDED, serve_shard
from quire.server.cluster.shard_process import Child, ForkServer, Given, Map, News, Prepare, Running, Waiting
from quire.server.listener import address_of, advertised, bound
from quire.server.process import ServiceManager, allow_connections, loop_factory, write_whole
from quire.server.service import telling_of_files
from quire.settings import Settings, broker_file, local_host, local_token_file, split_address
from quire.store.disk import PRIVATE, FileLock

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""How long a shard is left alone whose process ended by itself, in seconds: twice as long each time."""

CALM = 60.0
"""A process that has lived so long, in seconds, was sound."""


class ProcessState:
    def __init__(self, process: Child, shard: int, now: float) -> None:
        self.process = process
        self.shard = shard
        self.state = ShardState.WAITING
        self.stands_by = False
        self.running: Running | None = None
        self.is_announced = False
        self.began = now


class ShardProcesses:
    """All processes of a broker: which shards they run or wait for. It is driven by calls, and waits for nothing.

    A broker that may be without a shard (``has_front``) serves clients meanwhile by a process that has none. One that
    has all shards needs no such process, which would reset the connections it has not accepted when the shards come.
    """

    def __init__(
        self, name: str, shards: int, clock: Clock, spawn: Callable[[], Child], *, has_front: bool = True
    ) -> None:
        self.name = name
        self._may_have_front = has_front
        self.is_ending = False
        self._shards = shards
        self._clock = clock
        self._spawn = spawn
        self._entries: dict[int, ProcessState] = {}
        self._gone: list[tuple[int, int]] = []  # shards and epochs whose processes ended
        self._given: dict[str, PinRow] = {}  # by placement key, what shards have given away
        self._pauses: dict[int, tuple[float, float]] = {}  # until when a shard is left alone, and how long that is
        self._map = Map({}, {}, ())
        self._is_leaving = False  # the broker: clients find another one
        self._gives_last = False  # the last shard that runs here is to be given up

    # What the supervisor tells the database.

    @property
    def standing_by(self) -> frozenset[int]:
        """The shards that processes wait for. Those that are just started may need seconds until they do."""
        waiting = self._in_state(ShardState.WAITING)
        return frozenset([shard for shard in waiting if self._entries[shard].stands_by]) - {FRONT}

    @property
    def running(self) -> list[int]:
        return [shard for shard in self._in_state(ShardState.RUNNING) if shard != FRONT]

    @property
    def is_giving_up(self) -> bool:
        return ShardState.STOPPING in [entry.state for entry in self._entries.values()]

    @property
    def is_empty(self) -> bool:
        return not self._entries

    def to_announce(self) -> list[ShardRow]:
        """The shards whose new owner the database does not know yet."""
        return [
            ShardRow(shard, self.name, at.epoch, at.address, at.http, at.pid, 0.0)
            for shard, entry in self._entries.items()
            if (at := entry.running) is not None and not entry.is_announced and shard != FRONT
        ]

    def announced(self, row: ShardRow, accepted: bool) -> None:
        """The database has taken a row, or knows a later owner: then this one has lost its lock."""
        entry = self._entries.get(row.shard)
        if entry is None or entry.running is None or entry.running.epoch != row.epoch:
            return
        entry.is_announced = True
        if not accepted:
            event("cluster.fenced", f"shard {row.shard} has a later owner than this process: it stops", shard=row.shard)
            self._stop(entry)

    def to_withdraw(self) -> list[tuple[int, int]]:
        """The shards with the epochs of processes that ended, until ``withdrawn``."""
        return list(self._gone)

    def withdrawn(self, shard: int, epoch: int) -> None:
        self._gone.remove((shard, epoch))

    def to_publish(self) -> list[PinRow]:
        """The pins that shards have stored, until ``published``."""
        return list(self._given.values())

    def published(self, row: PinRow) -> None:
        if self._given.get(row.key) == row:
            del self._given[row.key]

    # What happens.

    def take(self, view: View) -> None:
        self._tell_map(view)
        for shard, row in view.shards.items():  # another process announced itself although this one has the lock
            entry = self._entries.get(shard)
            if entry is not None and entry.running is not None and entry.running.epoch > row.epoch:
                entry.is_announced = False
        if self.is_ending:
            return
        own = {shard: entry.state for shard, entry in self._entries.items() if shard != FRONT}
        todo = plan(view, self._shards, self.name, own)
        ours, running = view.brokers.get(self.name), self.running
        self._is_leaving = ours is not None and ours.leaving
        self._gives_last = bool(running) and set(running) <= set(todo.stop) and not self._is_leaving
        for shard in todo.stop:
            if own[shard] is ShardState.WAITING or not self._gives_last or self._has_front:
                self._stop(self._entries[shard])
        for shard in todo.start:
            if self._may_start(shard):
                self._start(shard)
        self._keep_front()

    def reported(self, process: Child, report: Waiting | Running) -> None:
        entry = self._entry_of(process)
        if entry is None or entry.state is ShardState.STOPPING:
            return
        if isinstance(report, Waiting):
            entry.stands_by = True
            return
        entry.state, entry.running, running = ShardState.RUNNING, report, report
        if entry.shard != FRONT:
            text = f"shard {entry.shard} runs here, epoch {running.epoch}, process {running.pid}"
            event("cluster.shard-running", text, shard=entry.shard, epoch=running.epoch, pid=running.pid)
        self._keep_front()

    def given(self, row: PinRow) -> None:
        known = self._given.get(row.key)
        if known is None or known.version < row.version:
            self._given[row.key] = row

    def ended(self, process: Child) -> None:
        entry = self._entry_of(process)
        if entry is None:
            return
        del self._entries[entry.shard]
        if entry.running is not None and entry.shard != FRONT:
            self._gone.append((entry.shard, entry.running.epoch))
        if entry.state is ShardState.STOPPING:
            return
        now = self._clock.monotonic()
        last = self._pauses.get(entry.shard, (0.0, FIRST_PAUSE / 2))[1]
        pause = FIRST_PAUSE if now - entry.began > CALM else min(last * 2, LONGEST_PAUSE)
        self._pauses[entry.shard] = (now + pause, pause)
        what = "the process without a shard" if entry.shard == FRONT else f"the process of shard {entry.shard}"
        event("cluster.process-ended", f"{what} has ended: another one is started", shard=entry.shard)

    def stop_rest(self) -> None:
        """Stop all processes, whether others take their shards or not."""
        self.is_ending = True
        for entry in list(self._entries.values()):
            self._stop(entry)

    def reload(self) -> None:
        for entry in self._entries.values():
            entry.process.reload()

    # Inside.

    @property
    def _has_front(self) -> bool:
        front = self._entries.get(FRONT)
        return front is not None and front.state is ShardState.RUNNING

    def _in_state(self, state: ShardState) -> list[int]:
        return [shard for shard, entry in self._entries.items() if entry.state is state]

    def _entry_of(self, process: Child) -> ProcessState | None:
        return next((entry for entry in self._entries.values() if entry.process is process), None)

    def _may_start(self, shard: int) -> bool:
        return self._pauses.get(shard, (0.0, 0.0))[0] <= self._clock.monotonic()

    def _start(self, shard: int) -> None:
        process = self._spawn()
        self._entries[shard] = ProcessState(process, shard, self._clock.monotonic())
        process.tell_map(self._map)
        process.serve(shard)

    def _stop(self, entry: ProcessState) -> None:
        if entry.state is not ShardState.STOPPING:
            entry.state = ShardState.STOPPING
            entry.process.stop()

    def _keep_front(self) -> None:
        """Have a process without a shard before no other one serves clients, and as long as that is so."""
        front = self._entries.get(FRONT)
        if self.running and not self._gives_last:
            if front is not None:
                self._stop(front)
        elif self._may_have_front and front is None and not self._is_leaving and self._may_start(FRONT):
            self._start(FRONT)

    def _tell_map(self, view: View) -> None:
        peers = {
            row.shard: Peer(row.address, row.epoch, row.broker, row.http)
            for row in view.shards.values()
            if row.address and row.broker in view.brokers
        }
        pins = {row.key: Pin(row.shard, row.version) for row in view.pins.values()}
        rows = [view.brokers[name] for name in sorted(view.brokers)]
        brokers = tuple([LivingBroker(row.name, row.stomp, row.openwire, row.http) for row in rows])
        if (map := Map(peers, pins, brokers)) != self._map:
            self._map = map
            for entry in self._entries.values():
                entry.process.tell_map(map)


LOOK = 0.5
"""How often the broker looks at the database, in seconds."""

HURRY = 0.1
"""The same while a shard is without an owner, or is about to get another one: clients wait for it."""

RENEWAL = 1.0
"""How often it tells that it lives, in seconds."""

HANDOVER_LIMIT = 15.0
"""How long a broker that stops waits until others stand by for its next shard, in seconds."""

T = TypeVar("T")


async def waited_for(
    call: Callable[[], Awaitable[T]], clock: Clock, patience: float, sleep: Callable[[float], Awaitable[None]]
) -> T:  # fmt: skip
    """What a call of the directory returns, once the database of the cluster answers, within ``patience`` seconds."""
    ends, is_told = clock.monotonic() + patience, False
    while True:
        try:
            return await call()
        except StoreUnreachable as error:
            if clock.monotonic() >= ends:
                raise
            if not is_told:
                text = f"the broker waits up to {patience:g} s for the database of the cluster: {error}"
                event("store.waited-for", text, logging.WARNING, code=error.code)
            is_told = True
        await sleep(LOOK)


class Ask(Protocol):
    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


class Supervisor:
    """One broker of a cluster. It sets ``run``, ``standing_by`` and ``leaving`` in its row."""

    def __init__(self, directory: Directory, processes: ShardProcesses, row: BrokerRow, clock: Clock, ask: Ask) -> None:
        self._directory = directory
        self._processes = processes
        self._row = row._replace(run=secrets.token_hex(8))
        self._clock = clock
        self._renewed = -RENEWAL
        self._renewed_row: BrokerRow | None = None
        self._ends_at: float | None = None  # it leaves; then it waits for others no longer
        self._had = 0  # so many shards run when it was looked last, while it leaves
        self._is_moving = False  # whether a shard is without an owner, or is about to get another one
        self._waits_until = inf  # for its name, which the process before it may still have
        self._is_unreachable = False
        self._wake = asyncio.Event()
        self._ask = ask

    def wake(self) -> None:
        self._wake.set()

    def leave(self) -> None:
        """Give up all shards and stop; the second time at once."""
        now = self._clock.monotonic()
        if self._ends_at is None:
            event("cluster.leaving", "the broker leaves: it stops when others have taken its shards")
            self._ends_at, self._had = now + HANDOVER_LIMIT, len(self._processes.running)
        else:
            self._ends_at = now
        self._wake.set()

    async def run(self) -> None:
        """Until it has left. It may raise what makes it impossible to go on."""
        while not (self._processes.is_ending and self._processes.is_empty):
            self._wake.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.pause)
        await self._tell_end()

    @property
    def pause(self) -> float:
        """How long it is until the next look, in seconds, if nothing happens to a process."""
        return HURRY if self._is_moving else LOOK

    async def look(self) -> None:
        try:
            await self._tell()
            view = await self._ask(self._directory.read)
        except StoreUnreachable as error:
            if not self._is_unreachable:
                event("cluster.unreachable", f"{error}; shards that run go on", logging.WARNING)
            self._is_unreachable = True
        else:
            if self._is_unreachable:
                event("cluster.reached", "the database of the cluster answers again")
            self._is_unreachable = False
            if self._renewed_row is not None:
                self._take(view)
        self._end_when_left()

    def _take(self, view: View) -> None:
        ours = view.brokers.get(self._row.name)
        if ours is not None and ours.leaving and self._ends_at is None:  # an operator asked for it
            self.leave()
        self._is_moving = any([not row.address for row in view.shards.values()]) or any(
            [row.standing_by for row in view.brokers.values()]
        )
        self._processes.take(view)
        others = [row for row in view.brokers.values() if row.name != self._row.name and not row.leaving]
        if self._ends_at is not None and not others:
            self._ends_at = self._clock.monotonic()

    def _end_when_left(self) -> None:
        if self._ends_at is None or self._processes.is_ending:
            return
        now, has = self._clock.monotonic(), len(self._processes.running)
        if has < self._had and now < self._ends_at:  # it gets on
            self._had, self._ends_at = has, now + HANDOVER_LIMIT
        has_left = not has and not self._processes.is_giving_up
        if has_left or now >= self._ends_at:
            self._processes.stop_rest()

    async def _tell(self) -> None:
        processes, directory = self._processes, self._directory
        for shard, epoch in processes.to_withdraw():
            await self._ask(partial(directory.withdraw, shard, epoch))
            processes.withdrawn(shard, epoch)
        for row in processes.to_announce():
            processes.announced(row, await self._ask(partial(directory.announce, row)))
        for pin in processes.to_publish():
            await self._ask(partial(directory.pin, pin))
            processes.published(pin)
        ours = self._row._replace(standing_by=processes.standing_by, leaving=self._ends_at is not None)
        now = self._clock.monotonic()
        if ours != self._renewed_row or now - self._renewed >= RENEWAL:
            if await self._ask(partial(directory.renew, ours)):
                self._renewed, self._renewed_row = now, ours
            else:
                self._name_is_taken(now)

    def _name_is_taken(self, now: float) -> None:
        """Another process has the name. After a crash that is the one before, until its lease ends."""
        name = self._row.name
        if self._renewed_row is None:
            if self._waits_until == inf:
                text = f"a process of the name {name!r} was heard of less than {LEASE:g} s ago: the broker waits"
                event("cluster.name-taken", text)
                self._waits_until = now + LEASE + RENEWAL
            if now < self._waits_until:
                return
        text = f"another broker of the cluster has the name {name!r}: set another cluster.name"
        raise InvalidSettings(text, key="cluster.name", value=name)

    async def _tell_end(self) -> None:
        """The broker is no more: others need not wait until its lease ends."""
        try:
            for shard, epoch in self._processes.to_withdraw():
                await self._ask(partial(self._directory.withdraw, shard, epoch))
            await self._ask(partial(self._directory.remove, self._row))
        except QuireError as error:
            event("cluster.unreachable", f"{error}; the others see by themselves that it stopped", logging.WARNING)


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
                self._name, facts.shards, clock, lambda: self._spawn(facts, processes, supervisor),
                has_front=not self._is_local,
            )  # fmt: skip
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
