"""A cluster that moves only when a test says so: stepped brokers, each with a shard, joined by links in memory.

The shards, their sessions and their links are the real ones; only sockets, threads and the database are not there. So
a test decides which shard is gone while something is under way, and the same steps give the same history::

    cluster = SteppedCluster(3)
    client = cluster.connect(0)         # a client whose entry is shard 0
    client.send("orders", b"one", {"receipt": "r"})
    cluster.run()
    cluster.kill(cluster.shard_of("orders"))
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, ClusterMap, Peer, Pin, PinRow, Placement
from quire.cluster.link import Link
from quire.destination import Destination, written
from quire.errors import BrokerStopping, ShardMoved
from quire.server.cluster.cluster_session import makes_cluster_session
from quire.server.cluster.kept_pins import KeptPins
from quire.server.cluster.link_server import VirtualClients
from quire.server.cluster.links import Links
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.verb_door import VerbDoors
from quire.server.listener import Accepted, Admission
from quire.server.stomp.stomp_door import StompDoor, StompDoors
from quire.sessions.session import LocalSession
from quire.settings import LimitSettings, Settings
from quire.store.base import Store
from quire.store.memory import MemoryStore
from quire.testing.stepped import MAX_STEPS, RecordingConnection, SteppedBroker, SteppedClient

SECRET = b"the secret of a cluster of tests"


class MemoryPort:
    """One side of a link in memory.

    Attributes:
        link: whose side.
        other: the other side; None if nothing answers there.
        is_cut: whether nothing comes through: the network fails, and neither side is told.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        link.port = self
        self.other: MemoryPort | None = None
        self.is_cut = False
        self.wants = True
        self.is_closing = self.is_closed = False

    def wants_output(self) -> None:
        """There is output to take."""
        self.wants = True

    def close(self) -> None:
        """The link is over."""
        self.is_closing = self.wants = True

    def pump(self, piece: int) -> bool:
        """Carry what there is to the other side, in pieces of so many bytes; whether there was something to do."""
        if self.is_closed or not self.wants or self.is_cut:
            return False
        self.wants = False
        data = self.link.take_output()
        other = self.other
        if other is None:
            self.is_closed = True
            self.link.lost(ShardMoved("no process answers"))
            return True
        for start in range(0, len(data), piece):
            other.link.receive(data[start : start + piece])
        if self.is_closing:
            self.is_closed = other.is_closed = True
            other.link.lost(ShardMoved("the other side has closed the link"))
        return True

    def lose(self) -> None:
        """The connection is lost; both sides are told."""
        for port in (self, self.other):
            if port is not None and not port.is_closed:
                port.is_closed = True
                port.link.lost(ShardMoved("the connection is lost"))


class Surroundings(Protocol):
    """The cluster, as one of its processes sees it.

    Attributes:
        shards: how many shards it has.
    """

    shards: int

    def connect_link(self, peer: Peer, link: Link) -> None:
        """Connect a link to the process of a shard."""

    def publish_pin(self, row: PinRow) -> None:
        """Have the database of the cluster told of a pin."""


class SteppedShard(SteppedBroker):
    """A shard, or a front, in a process of its own.

    Attributes:
        cluster_map: what it knows of the cluster.
        pins: those that its store keeps.
        links: to the shards.
        shared: its parts in transactions over several shards.
        virtual_clients: the clients of other processes.
        entry_doors: STOMP for its own clients.
    """

    def __init__(
        self, cluster: Surroundings, number: int, epoch: int, settings: Settings, store: Store, clock: ManualClock
    ) -> None:  # fmt: skip
        super().__init__(settings, store, clock)
        self.cluster_map = ClusterMap(number, cluster.shards, Placement(settings))
        self.cluster_map.epoch = epoch
        self.links = Links(self.cluster_map, SECRET, self.broker.core, cluster.connect_link)
        shared = self.shared = ShardTransactions(self.broker, self.links)
        self.session_of = makes_cluster_session(self.broker, self.gate, self.links, shared)
        self.entry_doors = StompDoors(self.broker, self.gate, self.session_of)
        doors = VerbDoors(self.broker, self.gate, partial(LocalSession, self.broker), self.cluster_map, shared)
        self.admission = Admission(LimitSettings())
        self.pins = KeptPins(self.cluster_map, cluster.publish_pin)
        if number != FRONT:
            self.broker.routing.temporaries.is_own = self.cluster_map.is_own
            self.pins.attach(self.broker)
        self.cluster_map.listen(self._map_changed)
        self.virtual_clients = VirtualClients(
            self.broker, self.security, self.admission, SECRET, self.cluster_map, doors, self.sessions,
            shared.outcomes,
        )  # fmt: skip

    def _map_changed(self, shards: frozenset[int]) -> None:
        self.broker.destinations.moved()
        self.gate.recheck_permissions()

    def new_session(self, connection: RecordingConnection) -> StompDoor:
        """The broker's half of a new client."""
        return self.entry_doors.session(connection)


class SteppedCluster:
    """A cluster of stepped brokers.

    Args:
        shards: how many shards it has.
        settings: of all brokers; the defaults if None.
        fronts: how many processes without a shard it has.
        piece: how many bytes of a link come at once: small ones cut frames in all places.

    Attributes:
        process: what its processes are made of.
        shards: as given.
        clock: the time of all.
        members: the processes, by the numbers of their shards; those that are down are not there.
        fronts: the processes without a shard.
    """

    process: type[SteppedShard] = SteppedShard

    def __init__(
        self, shards: int = 3, settings: Settings | None = None, fronts: int = 0, piece: int = 1 << 20
    ) -> None:
        self.shards = shards
        self.clock = ManualClock()
        self.members: dict[int, SteppedShard] = {}
        self.fronts: list[SteppedShard] = []
        self._settings = settings or Settings()
        self._piece = piece
        self._stores: dict[int, Store] = {}
        self._epochs = dict.fromkeys(range(shards), 0)
        self._pins: dict[str, Pin] = {}
        self._ports: list[MemoryPort] = []
        for number in range(shards):
            self._stores[number] = MemoryStore()
            self._stores[number].open()
            self._start(number)
        for _ in range(fronts):
            store = MemoryStore()
            store.open()
            self.fronts.append(self.process(self, FRONT, 0, self._settings, store, self.clock))
        self.publish()

    # Where things are.

    def shard_of(self, destination: str) -> int:
        """The shard of a destination: ``orders``, ``topic://news``."""
        return next(iter(self.members.values())).cluster_map.shard_of(written(destination))

    def owner(self, destination: str) -> SteppedShard:
        """The process that has a destination."""
        return self.members[self.shard_of(destination)]

    def name_at(self, shard: int, prefix: str = "q") -> str:
        """The name of a queue that a shard has."""
        return next(name for n in range(10_000) if self.shard_of(name := f"{prefix}{n}") == shard)

    def pin(self, destination: Destination, shard: int) -> None:
        """Have all processes see that a destination is at another shard, whether something is where it was or not."""
        cluster_map = next(iter(self.members.values())).cluster_map
        before = cluster_map.newest_pin(key := cluster_map.key_of(destination))
        self._pins[key] = Pin(shard, before.version + 1 if before else 1)
        self.publish()

    def publish_pin(self, row: PinRow) -> None:
        """The database is told of a pin; processes see it with the next change."""
        known = self._pins.get(row.key)
        if known is None or known.version < row.version:
            self._pins[row.key] = Pin(row.shard, row.version)

    # Processes.

    def connect(self, number: int, version: str = "1.2", headers: Mapping[str, str] | None = None) -> SteppedClient:
        """A client that has connected to the process of a shard."""
        return self._connected(self.members[number], version, headers)

    def connect_to_front(
        self, index: int = 0, version: str = "1.2", headers: Mapping[str, str] | None = None
    ) -> SteppedClient:
        """A client that has connected to a process without a shard."""
        return self._connected(self.fronts[index], version, headers)

    def _connected(self, member: SteppedShard, version: str, headers: Mapping[str, str] | None) -> SteppedClient:
        client = member.connect(version, headers)
        self.run()
        client.version = client.session.version
        return client

    def kill(self, number: int, *, publishes: bool = True) -> None:
        """The process of a shard vanishes; what its commit under way had is not stored.

        Args:
            publishes: whether all others see at once that the shard has no owner.
        """
        member = self.members.pop(number)
        for client in member.clients:
            client.connection.closed = True
        for port in self._ports:
            if port.link in member.virtual_clients.links or port.link in member.links.all():
                port.lose()
        if publishes:
            self.publish()

    def start(self, number: int) -> SteppedShard:
        """A process takes a shard over that has no owner."""
        member = self._start(number)
        self.publish()
        return member

    def stop(self, number: int) -> None:
        """The process of a shard stops cleanly."""
        member = self.members[number]
        self.run()
        for session in list(member.sessions.values()):
            session.stop(BrokerStopping("the broker is going down"))
        self.run()
        member.broker.stop()
        self.run()
        member.shared.outcomes.stop()
        member.virtual_clients.stop()
        member.links.stop()
        self.run()
        self.kill(number)

    def cut(self, number: int) -> None:
        """Nothing comes through to and from the process of a shard any more, and nothing is told."""
        member = self.members[number]
        for port in self._ports:
            if port.link in member.virtual_clients.links or port.link in member.links.all():
                port.is_cut = True
                if port.other is not None:
                    port.other.is_cut = True

    def _start(self, number: int) -> SteppedShard:
        self._epochs[number] += 1
        member = self.process(self, number, self._epochs[number], self._settings, self._stores[number], self.clock)
        self.members[number] = member
        return member

    def publish(self) -> None:
        """All processes see what there is."""
        peers = {number: Peer(f"shard-{number}", self._epochs[number]) for number in self.members}
        for member in [*self.members.values(), *self.fronts]:
            member.cluster_map.update(peers, self._pins)

    def connect_link(self, peer: Peer, link: Link) -> None:
        """Connect a link to the process of a shard."""
        port = MemoryPort(link)
        self._ports.append(port)
        owner = self.members.get(int(peer.address.removeprefix("shard-")))
        if owner is not None:
            accepted = Accepted(owner.admission, "link", "127.0.0.1")
            port.other = MemoryPort(owner.virtual_clients.link(accepted))
            port.other.other = port
            self._ports.append(port.other)

    # Steps.

    def step(self) -> bool:
        """One step of each process and each link; whether there was something to do."""
        self._ports = [port for port in self._ports if not port.is_closed]
        busy = [port.pump(self._piece) for port in list(self._ports)]
        busy += [member.step() for member in [*self.members.values(), *self.fronts]]
        return any(busy)

    def run(self) -> None:
        """Steps until there is nothing left to do at this time; a ``RuntimeError`` if there always is."""
        for _ in range(MAX_STEPS):
            if not self.step():
                return
        raise RuntimeError(f"the cluster is still busy after {MAX_STEPS} steps")

    def advance(self, seconds: float, step: float = 0.5) -> None:
        """Let time go by in steps of so many seconds, and have everything done that is due."""
        left = seconds
        while left > 0:
            self.clock.advance(min(step, left))
            left -= step
            for member in [*self.members.values(), *self.fronts]:
                member.scheduler.run_due()
            self.run()
