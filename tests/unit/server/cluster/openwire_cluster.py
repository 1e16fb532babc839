"""A stepped cluster with clients of OpenWire."""

from typing import Any

from quire.destination import Destination, DestinationKind
from quire.protocols.openwire.commands import ActiveMQQueue, ActiveMQTopic
from quire.server.openwire.openwire_door import OpenWireDoors
from quire.testing.stepped_cluster import SteppedCluster, SteppedShard
from tests.unit.broker.harness import settings as changed_settings
from tests.unit.server.openwire.rig import OpenWireClient, OpenWireClients


class OpenWireShard(OpenWireClients, SteppedShard):
    """A process of a cluster, whose clients speak OpenWire."""

    def __init__(self, cluster: SteppedCluster, *arguments: Any) -> None:
        super().__init__(cluster, *arguments)
        self._cluster = cluster
        self.doors = OpenWireDoors(self.broker, self.gate, self.session_of, self.cluster_map)

    def run(self) -> None:
        self._cluster.run()


class OpenWireCluster(SteppedCluster):
    """Shards 0, 1, ... and processes without one.

    Args:
        **changes: as those of ``tests.unit.broker.harness.settings``.
    """

    process = OpenWireShard

    def __init__(self, shards: int = 2, fronts: int = 0, piece: int = 1 << 20, **changes: Any) -> None:
        super().__init__(shards, changed_settings(**changes), fronts, piece)

    def client(self, shard: int = 0, name: str = "", **named: Any) -> OpenWireClient:
        member = self.members[shard]
        assert isinstance(member, OpenWireShard)
        return member.client(name or f"{shard}-{len(member.clients) + 1}", **named)

    def client_of_front(self, name: str = "", **named: Any) -> OpenWireClient:
        """A client that has connected to a process without a shard."""
        front = self.fronts[0]
        assert isinstance(front, OpenWireShard)
        return front.client(name or f"front-{len(front.clients) + 1}", **named)

    def queue(self, shard: int, prefix: str = "q") -> ActiveMQQueue:
        return ActiveMQQueue(self.name_at(shard, prefix))

    def topic(self, shard: int, prefix: str = "t") -> ActiveMQTopic:
        at = self.members[0].cluster_map.shard_of
        names = (f"{prefix}{number}" for number in range(10_000))
        return ActiveMQTopic(next(name for name in names if at(Destination(DestinationKind.TOPIC, name)) == shard))

    def depth(self, shard: int, queue: ActiveMQQueue) -> int:
        found = self.members[shard].broker.destinations.queues.get(queue.physical_name)
        return found.depth if found else 0
