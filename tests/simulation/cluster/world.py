"""The world of a cluster: its database, its processes, the network between them, and their clients."""

from collections.abc import Callable
from functools import partial
from typing import Any

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, Peer, Pin
from quire.cluster.view import PinRow
from quire.destination import queue as queue_destination
from tests.simulation.checks import check_links
from tests.simulation.client import Note
from tests.simulation.cluster.checks import check_answered, check_commits, check_consumed, check_empty, check_places
from tests.simulation.cluster.client import ClusterClient
from tests.simulation.cluster.network import Network
from tests.simulation.cluster.promises import ClusterPromises, ClusterSent
from tests.simulation.cluster.setup import ALL_QUEUES, DURABLE, TOPIC, ClusterSetup
from tests.simulation.cluster.shard_database import ShardDatabase, ShardStore
from tests.simulation.cluster.shard_process import ShardProcess, State
from tests.simulation.cluster.subscribed import AckMode, ClusterSubscribed
from tests.simulation.crash import Crash, CrashingStore, CrashPoints
from tests.simulation.queues.checks import check_counts, check_memory
from tests.simulation.rules import Broken, Rule

PASSES = 1000
"""A cluster that has not come to rest after so many passes over all processes never will."""

TICK = 0.5
"""How often processes look at their timers and at the map, in seconds."""

LONG_TICK = 1.0
"""The same while nothing fails any more."""

LONG = 14.0
"""In so many seconds without faults whatever waits for a time has come: leases, links, producers that are held."""


class ClusterWorld:
    """Everything that a step may act on."""

    def __init__(self, setup: ClusterSetup, note: Note = lambda text: None) -> None:
        self.setup = setup
        self.note = note
        self.clock = ManualClock()
        self.points = CrashPoints()
        self.promises = ClusterPromises()
        self.network = Network(setup.packet)
        self.databases = [ShardDatabase(self.clock) for _ in range(setup.shards)]
        self.clients: dict[str, ClusterClient] = {}
        self._processes: dict[int, ShardProcess] = {}  # by shard, the one that took it last
        self._replaced: list[ShardProcess] = []  # stopped ones that do not know that they are not owners any more
        self._rows: dict[int, Peer] = {}
        self._pins: dict[str, Pin] = {}  # what the database of the cluster says
        self._seen_pins: dict[str, Pin] = {}  # what it said when brokers looked at it last
        self._strays: list[str] = []
        self._started = self._connected = 0
        self._written = False
        self._unconfirmed: dict[str, dict[ClusterSent, None]] = {name: {} for name in setup.numbered}
        self._keep_started()
        self._tell_all()

    # A step.

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done to this world, and look at what comes of it."""
        act(self)
        self._keep_started()
        self.observe()

    def observe(self) -> None:
        """Look at what clients got since the last time, and at which processes have ended."""
        for shard, process in self._processes.items():
            if process.is_dead and process.is_leaving:
                self._rows.pop(shard, None)
        for client in self.clients.values():
            client.listen()
            if client.is_gone:
                client.closed()
        self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
        check_commits(self.databases)
        if self._strays:
            raise Broken(Rule.OWNER, self._strays[0])

    # Processes.

    @property
    def processes(self) -> list[ShardProcess]:
        """All that have not ended."""
        known = [*self._processes.values(), *self._replaced]
        return [process for process in known if not process.is_dead]

    def process(self, shard: int) -> ShardProcess | None:
        """The process that took a shard last, if it has not ended; ``FRONT`` for the one without a shard."""
        process = self._processes.get(shard)
        return None if process is None or process.is_dead else process

    def processes_of(self, shard: int) -> list[ShardProcess]:
        """All that have a shard, or had it and may not know that they have it no more."""
        return [process for process in self.processes if process.shard == shard]

    def _keep_started(self) -> None:
        """What stands by takes the shards that it can take."""
        for shard, database in enumerate(self.databases):
            if database.is_free:
                self._start(shard)
        if self.process(FRONT) is None:
            self._start(FRONT)

    def _start(self, shard: int) -> None:
        """Have a process take a shard, if it can."""
        self._started += 1
        address = f"process-{self._started}:1"
        store = CrashingStore(self.points) if shard == FRONT else ShardStore(self.databases[shard], self.points)
        if shard != FRONT and not store.try_lock(address):
            return
        try:
            process = ShardProcess(
                address, shard, self.setup.shards, self.setup.settings(), self.clock, store, self.points, self.network,
                self._crash, partial(self._gave, shard), self._published,
            )  # fmt: skip
        except Crash:
            self.note(f"{address} crashes while it begins with shard {shard}")
            return
        self.note(f"{address} has {f'shard {shard}, epoch {process.epoch}' if shard != FRONT else 'no shard'}")
        if (before := self.process(shard)) is not None:
            self._replaced.append(before)
        self._processes[shard] = process
        if shard != FRONT:
            self._rows[shard] = Peer(address, process.epoch)
        self.tell(process)

    def _gave(self, shard: int, epoch: int, connection: str, message_id: str) -> None:
        """A process gives a message to a client; one that is not the owner is found out at the end of the step."""
        if shard != FRONT and epoch != self.databases[shard].epoch:
            self._strays.append(f"{message_id} of shard {shard} was given out by epoch {epoch}")
        self.promises.gave(epoch, connection, message_id)

    def tell(self, process: ShardProcess) -> None:
        """A process looks at who owns what."""
        process.act(lambda: process.stepped.cluster_map.update(dict(self._rows), self._seen_pins))

    def _tell_all(self) -> None:
        self._seen_pins = dict(self._pins)
        for process in self.processes:
            self.tell(process)

    # Pins.

    def pin(self, queue: str, shard: int, pick: int) -> None:
        """An operator has a queue be at a shard: one of the processes that believe to have it is asked."""
        destination = queue_destination(queue)
        owners = [process for process in self.processes if process.has(destination)]
        if owners and (owner := owners[pick % len(owners)]).shard != shard:
            self.note(f"{owner} is asked to give {queue} to shard {shard}")
            owner.pin(destination, shard, lambda error: self.note(f"{owner} gives {queue}: {error or 'done'}"))

    def _published(self, row: PinRow) -> None:
        """The database of the cluster is told of a pin; processes see it when they look at it."""
        known = self._pins.get(row.key)
        if known is None or known.version < row.version:
            self._pins[row.key] = Pin(row.shard, row.version)

    # Faults.

    def stop(self, shard: int) -> None:
        """A process does nothing any more, and is there."""
        if (process := self.process(shard)) is not None and process.is_running:
            self.note(f"{process} is stopped")
            process.state = State.STOPPED

    def go_on(self, shard: int) -> None:
        """What was stopped goes on: the owner of a shard, and those that were its owners. Their writers are first."""
        for process in self.processes_of(shard):
            if process.state is State.STOPPED:
                self.note(f"{process} goes on")
                process.state = State.RUNNING
                if process in self._replaced:
                    process.finish(fails=False)

    def kill(self, shard: int, *, written: bool, silently: bool) -> None:
        """A process ends without a word."""
        if (process := self.process(shard)) is not None:
            self._written = written
            self._crash(process, silently=silently)

    def plan_crash(self, at: int, *, written: bool) -> None:
        """Have the process crash that makes one of the next calls of a store, or the first one now."""
        self._written = written
        self.points.arm(at)
        if at == 0:
            self.kill(0, written=written, silently=False)

    def _crash(self, process: ShardProcess, *, silently: bool = False) -> None:
        self.note(f"{process} crashes")
        if self._written and process.stepped.writer.batch is not None:
            self.note("the commit under way is made, unless the shard has another owner")
            process.write()
        process.end(silently=silently)

    # Clients.

    def client(self, name: str, entry: int = 0) -> ClusterClient:
        """A client; it connects if it is not connected.

        Args:
            name: its name.
            entry: to which of the processes it connects, counted around.
        """
        client = self.clients.get(name)
        if client is not None and client.is_gone:
            client.listen()
            client.closed()
            client = None
        if client is None:
            process = self._entry(entry)
            self._connected += 1
            self.note(f"{name} connects to {process}")
            client_id = DURABLE if name == DURABLE else None
            connection = process.connect(f"{name}.{self._connected}", client_id, gathers=self.setup.gathers)
            client = self.clients[name] = ClusterClient(
                name, connection, self.promises, self.note, self._unconfirmed.get(name)
            )
        return client

    def _entry(self, pick: int) -> ShardProcess:
        """One of the processes that take clients."""
        open_ones = [process for process in self.processes if not process.is_leaving]
        if not open_ones:
            with self.points.muted():
                self._start(FRONT)
            return self._processes[FRONT]
        return open_ones[pick % len(open_ones)]

    def subscribed(self, queue: str, ack: AckMode = "client", prefetch: int = 100) -> ClusterSubscribed:
        """A new subscription."""
        return ClusterSubscribed(queue, ack, prefetch, self.setup.shards)

    # Time and rest.

    def wait(self, seconds: float, *, delivering: bool = True, tick: float = TICK) -> None:
        """Let time go by.

        Args:
            delivering: whether what processes send to each other comes, and commits end.
            tick: how often processes look at their timers and at the map, in seconds.
        """
        for _ in range(round(seconds / tick)):
            if delivering:
                self._run()
            self.clock.advance(tick)
            for process in self.processes:
                process.tick()
            self._keep_started()
            self._tell_all()
            self.observe()

    def _run(self) -> None:
        """Let all processes do all they can."""
        for _ in range(PASSES):
            for process in self.processes:
                try:
                    process.run()
                except RuntimeError as error:
                    raise Broken(Rule.REST, str(error)) from error
            if not self.network.deliver():
                return
            while self.network.deliver():
                pass
        raise Broken(Rule.REST, "the processes always have something to tell each other")

    def rest(self, *, verify: bool) -> None:
        """Let all processes do all they can, and check that they did."""
        self._run()
        self.observe()
        with self.points.muted():
            for process in self._owners():
                check_memory(process.stepped)
                if process.is_running:
                    check_counts(process.stepped)
                if verify:
                    check_links(process.store)

    def rest_now(self) -> None:
        """Come to rest, as a step."""
        self.do(lambda world: world.rest(verify=False))

    # The end.

    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left."""
        self.note("settling down")
        self.points.arm(0)
        for shard in (*range(self.setup.shards), FRONT):
            self.go_on(shard)
        for client in self.clients.values():
            client.read(on=True)
        self.pass_time()
        while any([client.settle_all() for client in self.clients.values()]):
            self.rest_now()
        check_answered(self.clients.values())
        check_consumed(self._owners(), self.clients.values())
        check_places(self._owners())
        self.promises.resolve_doubts()
        for name, unconfirmed in self._unconfirmed.items():
            if unconfirmed:
                self.client(name)
        self.rest_now()
        for client in list(self.clients.values()):
            client.leave("disconnect")
        self._drain()

    def _consume_all(self, name: str, destination: str) -> None:
        client = self.client(name)
        client.subscribe(self.subscribed(destination))
        self.rest_now()
        while client.settle_all():
            self.rest_now()
        client.leave("disconnect")
        self.rest_now()

    def pass_time(self) -> None:
        """Long enough for whatever waits for a time."""
        self.do(lambda world: world.wait(LONG, tick=LONG_TICK))
        self.rest_now()

    def _owners(self) -> list[ShardProcess]:
        processes = [self.process(shard) for shard in range(self.setup.shards)]
        return [process for process in processes if process is not None]

    def _drain(self) -> None:
        """Consume everything, by one consumer of all queues and the durable one, until nothing is left."""
        self.pass_time()
        if len(self._owners()) < self.setup.shards:
            raise Broken(Rule.STALL, "a shard has no owner")
        self._consume_all("drain", ALL_QUEUES)
        if self.promises.kept is not False:
            self._consume_all(DURABLE, TOPIC)
        self.promises.check_nothing_lost()
        with self.points.muted():
            for process in self._owners():
                check_links(process.store)
                check_empty(process)
