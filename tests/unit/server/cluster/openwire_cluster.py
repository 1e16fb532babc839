"""Shards in one test process, joined by links in memory, with clients of OpenWire; time goes by when a test says so."""

from typing import Any

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, ClusterMap, Peer
from quire.cluster.link import Link
from quire.cluster.placement import Placement
from quire.destination import Destination, DestinationKind
from quire.protocols.openwire.structures import ActiveMQQueue, ActiveMQTopic
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_relay_doors import OpenWireRelayDoors
from quire.server.cluster.virtual_clients import VirtualClients
from quire.server.entrance.admission import Admission
from quire.settings import Settings
from tests.unit.broker.harness import settings as changed_settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig

SECRET = bytes(32)


class Pipe:
    """One side of a connection between two processes, in memory."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.other: Pipe
        self.is_closed = False
        self._wants = False

    @classmethod
    def pair(cls, entry: Link, owner: Link) -> "tuple[Pipe, Pipe]":
        """The two sides of a new connection."""
        sides = cls(entry), cls(owner)
        for side, other in (sides, sides[::-1]):
            side.other, side.link.port, side._wants = other, side, True
        return sides

    def wants_output(self) -> None:
        """There is output to take."""
        self._wants = True

    def close(self) -> None:
        """Take the last output, and close."""
        self.pump()
        self.is_closed = True

    def pump(self) -> bool:
        """Pass on what there is; returns whether there was something."""
        if not self._wants or self.is_closed:
            return False
        self._wants = False
        data = self.link.take_output()
        if data:
            self.other.link.receive(data)
        return True


class Shard(Rig):
    """A process of a cluster."""

    def __init__(self, cluster: "Cluster", own: int, settings: Settings) -> None:
        super().__init__(settings, clock=cluster.clock)
        self._cluster = cluster
        self.own = own
        self.map = ClusterMap(own, cluster.count, Placement(settings))
        self.map.epoch = 1
        core = self.broker.core
        self.links = Links(self.map, SECRET, self.scheduler, core.steps, cluster.join)
        self.doors = self.relay_doors = OpenWireRelayDoors(self.broker, self.gate, self.links)
        self.by_id = self.doors._by_id
        doors = {"openwire": self.relay_doors.virtual}
        self.transports: dict[Any, Any] = {}
        self.virtual = VirtualClients(
            self.broker, self.security, Admission(settings.limits), SECRET, self.map, doors, self.transports
        )

    def run(self) -> None:
        """Let the whole cluster come to rest."""
        self._cluster.run()

    def run_alone(self) -> None:
        """Let this process come to rest."""
        super().run()


class Cluster:
    """Shards 0, 1, ... and, if it is asked for, a process without one.

    Attributes:
        shards: the processes.
        front: the process without a shard.
    """

    def __init__(self, count: int = 2, *, front: bool = False, **changes: Any) -> None:
        self.count = count
        self.clock = ManualClock()
        settings = changed_settings(**changes)
        self._pipes: list[Pipe] = []
        self.shards = [Shard(self, own, settings) for own in range(count)]
        self.front = Shard(self, FRONT, settings) if front else None
        self.peers = {own: Peer(f"shard:{own}", 1) for own in range(count)}
        self.update()

    @property
    def processes(self) -> list[Shard]:
        """All processes."""
        return [*self.shards, *([self.front] if self.front else [])]

    def update(self) -> None:
        """All processes see where the shards are."""
        for process in self.processes:
            process.map.update(self.peers, {})

    def join(self, peer: Peer, link: Link) -> None:
        """Connect a link to the process of a peer."""
        own = int(peer.address.partition(":")[2])
        self._pipes += Pipe.pair(link, self.shards[own].virtual.link())

    def run(self) -> None:
        """Let all processes come to rest."""
        while True:
            for process in self.processes:
                process.run_alone()
            is_busy = any([pipe.pump() for pipe in self._pipes])
            if not is_busy and not any([p.is_turn_wanted or p.writer.batch for p in self.processes]):
                return

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.advance(seconds)
        for process in self.processes:
            process.scheduler.run_due()
        self.run()

    def break_links_to(self, own: int) -> None:
        """The process of a shard is gone, as its peers see it."""
        for process in self.processes:
            link = process.links._links.get(own)
            if link is not None:
                link.lost(RuntimeError("the connection was reset"))  # type: ignore[arg-type]
        self.run()

    def name_at(self, shard: int, kind: DestinationKind = DestinationKind.QUEUE, start: str = "d") -> str:
        """The name of a destination that lies at a shard."""
        known = self.shards[0].map
        return next(
            name for number in range(1000) if known.shard_of(Destination(kind, name := f"{start}{number}")) == shard
        )

    def queue_at(self, shard: int, start: str = "d") -> ActiveMQQueue:
        """A queue that lies at a shard."""
        return ActiveMQQueue(self.name_at(shard, start=start))

    def topic_at(self, shard: int, start: str = "d") -> ActiveMQTopic:
        """A topic that lies at a shard."""
        return ActiveMQTopic(self.name_at(shard, DestinationKind.TOPIC, start))

    def client(self, shard: int = 0, **named: Any) -> OpenWireClient:
        """A client that has connected to the process of a shard."""
        return self.shards[shard].client(**named)

    def depth(self, shard: int, queue: ActiveMQQueue) -> int:
        """How many messages a queue has at a shard; 0 if it is not there."""
        found = self.shards[shard].broker.destinations.queues.get(queue.physical_name)
        return found.depth if found else 0
