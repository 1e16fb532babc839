"""A process of a cluster on a stepped broker: its store with a lease, its links to others, and how it ends."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from quire.broker.core.core import Lock
from quire.broker.core.subscription import Subscription
from quire.broker.queues.queue import Queue
from quire.clock import Clock, ManualClock
from quire.cluster.cluster_map import FRONT, Peer, PinRow
from quire.cluster.link import Link
from quire.destination import Destination
from quire.errors import BrokerStopping, QuireError, ShardMoved, StoreFull, StoreLocked
from quire.message import Message
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.verb_door import VerbDoors
from quire.server.connection import ClientTransport
from quire.server.listener import Accepted
from quire.server.stomp.stomp_door import StompDoors
from quire.sessions.session import LocalSession
from quire.settings import Settings
from quire.store.base import WriteBatch
from quire.store.memory import MemoryStore, empty_tables
from quire.testing.stepped import SteppedClient
from quire.testing.stepped_cluster import SteppedShard
from tests.simulation.life import BrokerCrash, CrashingStore, CrashPoints

Gave = Callable[[str, str], None]
"""Is told that a client, by the name of its connection, is given a message, by its id."""


def telling(gave: Gave) -> type[LocalSession]:
    class TellingSession(LocalSession):
        def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
            for message in messages:
                gave(self.name, message.id)
            super().deliver(subscription, messages, first)

    return TellingSession


CONNECT_LIMIT = 3.0
"""After how many seconds without an answer a process gives up to connect."""

LOST = None
"""What comes at the end of a connection, in place of bytes."""


class LinkEnd:
    """One end of a connection between two processes (``quire.cluster.link.LinkPort``)."""

    def __init__(self, host: "ShardProcess", link: Link | None, packet: int) -> None:
        self.host = host
        self.other: LinkEnd | None = None  # the other end; None if no process answers
        self.inbox: deque[bytes | None] = deque()  # what has been sent to this end and has not come yet
        self._link = link  # whose bytes it carries; None for one that has not been accepted yet
        self._packet = packet
        self._wants_output = link is not None
        self._is_closing = False
        host.ends[self] = None

    # The link calls these.

    def wants_output(self) -> None:
        self._wants_output = True

    def close(self) -> None:
        self._wants_output = self._is_closing = True

    # The process and the network call these.

    @property
    def can_deliver(self) -> bool:
        return bool(self.inbox) and self.host.is_running

    def flush(self) -> None:
        while self._wants_output and self._link is not None:
            self._wants_output = False
            data = self._link.take_output()
            if self.other is not None:
                self.other.inbox.extend([data[at : at + self._packet] for at in range(0, len(data), self._packet)])
        if self._is_closing:
            self.hang_up()

    def hang_up(self) -> None:
        self.host.ends.pop(self, None)
        self.inbox.clear()
        if self.other is not None:
            self.other.inbox.append(LOST)
            self.other.other = None
            self.other = None

    def vanish(self) -> None:
        """The machine of this end is gone: the other one hears nothing."""
        self.host.ends.pop(self, None)
        self.inbox.clear()
        if self.other is not None:
            self.other.other = None

    def cut(self, kept: int) -> None:
        """The connection breaks: of what is under way so many packets come yet, then this end hears of it."""
        while len(self.inbox) > kept:
            self.inbox.pop()
        self.inbox.append(LOST)
        self.other = None

    def take(self) -> None:
        """Take the next packet."""
        data = self.inbox.popleft()
        if self._link is None:
            self._link = self.host.accept()
            self._link.port = self
        if data is LOST:
            self.host.ends.pop(self, None)
            self.inbox.clear()
            self._link.lost(ShardMoved("the connection is lost"))
        else:
            self._link.receive(data)


class Network:
    def __init__(self, packet: int) -> None:
        self.hosts: dict[str, ShardProcess] = {}
        self._packet = packet  # how many bytes come at once at the most

    def connect(self, host: "ShardProcess", peer: Peer, link: Link) -> None:
        end = LinkEnd(host, link, self._packet)
        link.port = end
        other = self.hosts.get(peer.address)
        if other is not None and not other.is_dead:
            end.other = LinkEnd(other, None, self._packet)
            end.other.other = end
        elif other is not None and other.is_silent:
            host.scheduler.call_later(CONNECT_LIMIT, lambda: link.lost(ShardMoved("nothing answers")))
        else:
            end.inbox.append(LOST)

    @property
    def ends(self) -> list[LinkEnd]:
        return [end for host in self.hosts.values() for end in host.ends]

    def deliver(self, pick: int = 0) -> bool:
        ready = [end for end in self.ends if end.can_deliver]
        if ready:
            end = ready[pick % len(ready)]
            end.host.act(end.take)
        return bool(ready)

    def cut(self, pick: int, kept: int) -> bool:
        ends = [end for end in self.ends if end.other is not None]
        if ends:
            end = ends[pick % len(ends)]
            assert end.other is not None
            end.other.cut(kept)
            end.cut(kept)
        return bool(ends)


LEASE = 3.0
"""How long a lease lasts, in seconds of the server's clock."""


class Commit(NamedTuple):
    """A commit as the server has it on record."""

    epoch: int  # of the process that made it
    owner: int  # the epoch of the shard's owner at that time


class ShardDatabase:
    """The tables of one shard. The processes of the shard, one after the other, open a ``ShardStore`` on it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tables = empty_tables()
        self.epoch = 0  # how often the shard had a new owner
        self.owner = ""  # the address of the owner; empty while there is none
        self.expires = 0.0  # when its lease is over, by the server's clock
        self.commits: list[Commit] = []  # every commit that was made

    @property
    def is_free(self) -> bool:
        return not self.owner or self.clock.monotonic() >= self.expires


class ShardStore(CrashingStore):
    """The store of one process of a shard, with the lease and the epoch that the store for PostgreSQL has."""

    def __init__(self, database: ShardDatabase, points: CrashPoints) -> None:
        super().__init__(points)
        self.epoch = 0
        self._database = database
        self.tables = database.tables
        self._until = -math.inf

    def apply(self, batch: WriteBatch) -> None:
        self._points.reach()
        self.fence()
        MemoryStore.apply(self, batch)
        self._database.commits.append(Commit(self.epoch, self._database.epoch))
        self._points.reach()

    def fence(self) -> None:
        if self._database.epoch != self.epoch:
            raise StoreLocked("another process has taken the shard: nothing was stored")

    def try_lock(self, owner: str) -> bool:
        database = self._database
        if not database.is_free:
            return False
        database.epoch += 1
        database.owner, self.epoch = owner, database.epoch
        self._renew()
        return True

    def check_lock(self) -> bool:
        """Renew the lease, if no other process has taken the shard."""
        if self._database.epoch != self.epoch or not self._database.owner:
            return False
        self._renew()
        return True

    def lock_until(self) -> float:
        """Until when no other process can have taken the shard."""
        return self._until

    def unlock(self) -> None:
        if self._database.epoch == self.epoch:
            self._database.owner = ""
        self._until = -math.inf

    def _renew(self) -> None:
        self._until = self._database.expires = self._database.clock.monotonic() + LEASE


class DatabaseShard(SteppedShard):
    """A stepped broker that may not be the owner of its store any more."""

    is_fenced = False  # whether a commit was refused because another process has the store
    _written = False
    _refusal: QuireError | None = None

    def write(self) -> None:
        """Carry out the commit under way, if there is one; the broker does not hear of it."""
        if self.writer.batch is None or self._written:
            return
        self._written = True
        try:
            self.store.apply(self.writer.batch)
        except QuireError as error:
            self._refusal = error

    def finish(self, *, fails: bool) -> None:
        """Have the broker hear what has become of the commit under way."""
        if not (fails or self._written):
            self.write()
        error = self._refusal if self._written else StoreFull("no space")
        self._written, self._refusal = False, None
        self.is_fenced = self.is_fenced or isinstance(error, StoreLocked)
        self.broker.turns.committed(self.writer.drop(), error)

    def commit(self, error: QuireError | None = None) -> None:
        self.finish(fails=error is not None)


class EntryClient(SteppedClient):
    """A client at the process that it has connected to."""

    def __init__(
        self, stepped: DatabaseShard, name: str, act: Callable[[Callable[[], object]], None], *, gathers: bool
    ) -> None:  # fmt: skip
        super().__init__(stepped, name)
        self._act = act  # has that process do something, if it runs
        self._gathers = gathers  # whether what it sends is read in the next turn, all at once
        self._knows_end = False

    def log_in(self, client_id: str | None) -> None:
        own = {} if client_id is None else {"client-id": client_id}
        self.frame("CONNECT", {"accept-version": "1.2", "host": "/", **own})

    def feed(self, data: bytes) -> None:
        self._unread += data
        if not self._gathers:
            self.pump()

    def pump(self) -> bool:
        """Let the process read what waits, or hear that the connection is gone; returns whether it did anything."""
        if self.connection.closed:
            if not self._knows_end:
                self._act(self._end)
            return False
        if not self._unread or self.connection.paused:
            return False
        before = self._unread
        self._act(super().pump)
        return self._unread != before

    def reads(self, *, on: bool) -> None:
        self.connection.is_writable = on
        if on:
            self._act(self.session.output_drained)

    def vanish(self) -> None:
        """Lose the connection without a word. A process that is stopped hears of it when it goes on."""
        self.pump()
        self.connection.closed = True
        self.pump()

    def _end(self) -> None:
        self._knows_end = True
        self.session.closed()


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
        return self._store.lock_until()


class ShardProcess:
    """One process. It is not the owner of its shard any more when another one is, and may not know that.

    Args:
        gave: is told what it gives to clients: its epoch, the name of the connection, the id of the message.
    """

    def __init__(
        self, address: str, shard: int, shards: int, settings: Settings, clock: ManualClock, store: CrashingStore,
        points: CrashPoints, network: Network, crashed: "Callable[[ShardProcess], None]",
        gave: Callable[[int, str, str], None], publish: Callable[[PinRow], None],
    ) -> None:  # fmt: skip
        self.address = address
        self.shard = shard  # its number; ``FRONT`` for a process without a shard
        self.store = store  # of the shard, locked; that of a front is empty and nobody else's
        self.epoch = store.epoch if isinstance(store, ShardStore) else 0  # in which it has got its shard; 0 for a front
        self.state = State.RUNNING  # what it does
        self.is_silent = False
        self._is_acting = False
        self.ends: dict[LinkEnd, None] = {}  # its ends of connections to other processes
        self._points = points
        self._network = network
        self._crashed = crashed  # is called when it reaches the point where it is to crash
        self._renewed = clock.monotonic()
        self._leaving: Iterator[None] | None = None
        self._publish = publish  # has the database of the cluster told of a pin
        self.shards = shards  # how many there are
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
        return self.state is State.RUNNING

    @property
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    @property
    def is_leaving(self) -> bool:
        return self._leaving is not None

    # The network calls these.

    def accept(self) -> Link:
        return self.stepped.virtual_clients.link(Accepted(self.stepped.admission, "link", "127.0.0.1"))

    def connect_link(self, peer: Peer, link: Link) -> None:
        self._network.connect(self, peer, link)

    def publish_pin(self, row: PinRow) -> None:
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
        except BrokerCrash:
            self._crashed(self)
            return
        finally:
            self._is_acting = False
        if self.stepped.is_fenced and self.is_running:
            self._abandon()
        for end in list(self.ends):
            end.flush()

    def turn(self) -> None:
        self.act(self.stepped.turn)

    def write(self) -> None:
        """The database carries out the commit under way; the process does not hear of it yet, or never."""
        with self._points.muted():
            self.stepped.write()

    def finish(self, *, fails: bool) -> None:
        if self.stepped.writer.batch is not None:
            self.act(lambda: self.stepped.finish(fails=fails))

    def run(self) -> None:
        self.act(self.stepped.run)
        if self.is_leaving:
            for _ in range(STAGES):
                self.act(self.stepped.run)

    def tick(self) -> None:
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
                client.disconnect_for_failover()
            elif not session.is_closed:
                session.disconnect_for_failover(away)
        for end in list(self.ends):
            end.flush()
        self.end()

    def end(self, *, silently: bool = False) -> None:
        self.state, self.is_silent = State.DEAD, silently
        for end in list(self.ends):
            end.vanish() if silently else end.hang_up()
        for client in self.stepped.clients:
            client.connection.closed = True

    def leave(self) -> None:
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
        client = EntryClient(self.stepped, name, self.act, gathers=gathers)
        self.stepped.clients.append(client)
        client.log_in(client_id)
        return client
