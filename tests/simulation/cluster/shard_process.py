"""A process of the cluster: a stepped broker on the store of its shard, with links to the other processes."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial

from quire.broker.core.turn import Lock
from quire.broker.queues.queue import Queue
from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, Peer
from quire.cluster.link import Link
from quire.cluster.view import PinRow
from quire.destination import Destination
from quire.errors import BrokerStopping, QuireError
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.verb_door import VerbDoors
from quire.server.connection import ClientTransport
from quire.server.listener import Accepted
from quire.server.stomp.stomp_door import StompDoors
from quire.settings import Settings
from tests.simulation.cluster.doors import telling
from tests.simulation.cluster.network import LinkEnd, Network
from tests.simulation.cluster.shard_database import ShardStore
from tests.simulation.cluster.stepped_shard import DatabaseShard, EntryClient
from tests.simulation.crash import Crash, CrashingStore, CrashPoints

RENEWAL = 1.0
"""How often a process renews the lease of its shard, in seconds."""

STAGES = 20
"""A process that ends cleanly has done so after so many commits, if its store takes them."""


class State(StrEnum):
    """What a process does."""

    RUNNING = "runs"
    STOPPED = "is stopped"  # by SIGSTOP: it does nothing, and is there
    DEAD = "has ended"


class _Lease(Lock):
    """For how long a process is sure of its shard."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store

    @property
    def until(self) -> float:  # type: ignore[override]
        """On the monotonic clock."""
        return self._store.lock_until()


class ShardProcess:
    """One process. It is not the owner of its shard any more when another one is, and may not know that.

    Args:
        store: of the shard, locked; that of a front is empty and nobody else's.
        crashed: is called when it reaches the point where it is to crash.
        gave: is told what it gives to clients: its epoch, the name of the connection, the id of the message.
        publish: has the database of the cluster told of a pin.

    Attributes:
        shard: its number; ``FRONT`` for a process without a shard.
        epoch: in which it has got its shard; 0 for a front.
        shards: how many there are.
        stepped: the broker.
        state: what it does.
        ends: its ends of connections to other processes.
    """

    def __init__(
        self, address: str, shard: int, shards: int, settings: Settings, clock: ManualClock, store: CrashingStore,
        points: CrashPoints, network: Network, crashed: "Callable[[ShardProcess], None]",
        gave: Callable[[int, str, str], None], publish: Callable[[PinRow], None],
    ) -> None:  # fmt: skip
        self.address = address
        self.shard = shard
        self.store = store
        self.epoch = store.epoch if isinstance(store, ShardStore) else 0
        self.state = State.RUNNING
        self.is_silent = False
        self._is_acting = False
        self.ends: dict[LinkEnd, None] = {}
        self._points = points
        self._network = network
        self._crashed = crashed
        self._renewed = clock.monotonic()
        self._leaving: Iterator[None] | None = None
        self._publish = publish
        self.shards = shards
        self.stepped = DatabaseShard(self, shard, self.epoch, settings, store, clock)
        self.scheduler = self.stepped.scheduler
        if isinstance(store, ShardStore):
            self.stepped.broker.core.dispatch.lock = _Lease(store)
        broker, gate, shared = self.stepped.broker, self.stepped.gate, self.stepped.shared
        local = telling(partial(gave, self.epoch))
        session_of = makes_cluster_session(broker, gate, self.stepped.links, shared, local)
        self.stepped.entry_doors = StompDoors(broker, gate, session_of)
        verbs = VerbDoors(broker, gate, partial(local, broker), self.stepped.cluster_map, shared)
        self.stepped.virtual_clients.doors = verbs
        network.hosts[address] = self

    def __repr__(self) -> str:
        return self.address

    @property
    def is_running(self) -> bool:
        """Whether it does anything."""
        return self.state is State.RUNNING

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        return self.state is State.DEAD

    @property
    def is_leaving(self) -> bool:
        """Whether it is asked to end."""
        return self._leaving is not None

    # The network calls these.

    def accept(self) -> Link:
        """The link of a process that connects."""
        return self.stepped.virtual_clients.link(Accepted(self.stepped.admission, "link", "127.0.0.1"))

    def connect_link(self, peer: Peer, link: Link) -> None:
        """Connect a link to another process."""
        self._network.connect(self, peer, link)

    def publish_pin(self, row: PinRow) -> None:
        """Have the database of the cluster told of a pin, as its broker does."""
        self._publish(row)

    # What it does.

    def act(self, call: Callable[[], object]) -> None:
        """Do something, if it runs; then say what there is to say. A commit that was refused ends it."""
        if self._is_acting:
            call()
        elif self.is_running:
            self._do(call)

    def _do(self, call: Callable[[], object]) -> None:
        self._is_acting = True
        try:
            call()
            if self._leaving is not None:
                next(self._leaving, None)
        except Crash:
            self._crashed(self)
            return
        finally:
            self._is_acting = False
        if self.stepped.is_fenced and self.is_running:
            self._abandon()
        for end in list(self.ends):
            end.flush()

    def turn(self) -> None:
        """One turn, if it wants one."""
        self.act(self.stepped.turn)

    def write(self) -> None:
        """The database carries out the commit under way; the process does not hear of it yet, or never."""
        with self._points.muted():
            self.stepped.write()

    def finish(self, *, fails: bool) -> None:
        """The process hears what has become of its commit."""
        if self.stepped.writer.batch is not None:
            self.act(lambda: self.stepped.finish(fails=fails))

    def run(self) -> None:
        """Do all there is to do at this time."""
        self.act(self.stepped.run)
        if self.is_leaving:
            for _ in range(STAGES):
                self.act(self.stepped.run)

    def tick(self) -> None:
        """Time has gone by: do what is due, and renew the lease."""
        self.act(self._tick)

    def _tick(self) -> None:
        now = self.stepped.clock.monotonic()
        if self.shard != FRONT and now >= self._renewed + RENEWAL:
            self._renewed = now
            if not self.store.check_lock():
                self.stepped.is_fenced = True
                return
            self.stepped.broker.core.ask_turn()
        self.scheduler.run_due()

    def has(self, destination: Destination) -> bool:
        """Whether it runs, and believes to have a destination."""
        return self.is_running and self.shard != FRONT and self.stepped.cluster_map.is_own(destination)

    def pin(self, destination: Destination, shard: int, done: Callable[[QuireError | None], None]) -> None:
        """Give a queue to another shard, as an operator does who deletes it before if it is empty and not used."""
        self.run()
        self.act(lambda: self._pin(destination, shard, done))

    def _pin(self, destination: Destination, shard: int, done: Callable[[QuireError | None], None]) -> None:
        broker = self.stepped.broker
        queue = broker.queues.get(destination.name)
        if queue is not None and not (queue.depth or queue.subscriptions or self._is_in_commits(queue)):
            broker.destinations.delete_queue(queue)
        self.stepped.pins.give(destination, shard, done)

    def _is_in_commits(self, queue: Queue) -> bool:
        core = self.stepped.broker.core
        return queue in core.open.parts or bool(core.parts_of(queue))

    # Its end.

    def _abandon(self) -> None:
        """Another process has the shard: send the clients away, as the service does, and end."""
        away = BrokerStopping("this broker has lost its store")
        for client, session in list(self.stepped.sessions.items()):
            if isinstance(client, ClientTransport):
                client.send_away()
            elif not session.is_closed:
                session.send_away(away)
        for end in list(self.ends):
            end.flush()
        self.end()

    def end(self, *, silently: bool = False) -> None:
        """It is gone; what it has not sent is lost.

        Args:
            silently: its machine is gone too.
        """
        self.state, self.is_silent = State.DEAD, silently
        for end in list(self.ends):
            end.vanish() if silently else end.hang_up()
        for client in self.stepped.clients:
            client.connection.closed = True

    def leave(self) -> None:
        """Begin to end cleanly, as the service does."""
        if self.is_running and self._leaving is None:
            self._leaving = self._leave()
            self.act(lambda: None)

    def _leave(self) -> Iterator[None]:
        stepped = self.stepped
        stepped.virtual_clients.close_doors()
        for session in list(stepped.sessions.values()):
            session._connection.pause_reading("stopping")
        yield from self._commit()
        for session in list(stepped.sessions.values()):
            if not session.is_closed:
                session.stop(BrokerStopping("the broker is going down"))
        while stepped.broker.core.leaving:
            yield from self._commit()
        stepped.shared.outcomes.stop()
        stepped.virtual_clients.stop()
        stepped.links.stop()
        stepped.broker.stop()
        yield from self._commit()
        for end in list(self.ends):
            end.flush()
        self.store.unlock()
        self.end()

    def _commit(self) -> Iterator[None]:
        """Until everything that has gathered is durable, or has failed."""
        for _ in range(2):  # what the first commit set off may need a second
            done: list[bool] = []
            self.stepped.broker.core.after_commit(lambda done=done: done.append(True))  # type: ignore[misc]
            while not done:
                yield

    # Its clients.

    def connect(self, name: str, client_id: str | None, *, gathers: bool) -> EntryClient:
        """A client connects here, under a name that no other connection has."""
        client = EntryClient(self.stepped, name, self.act, gathers=gathers)
        self.stepped.clients.append(client)
        client.log_in(client_id)
        return client
