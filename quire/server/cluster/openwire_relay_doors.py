"""OpenWire in a cluster: clients that have connected to this process, and those of other processes."""

from functools import partial

from quire.broker.broker import Broker
from quire.cluster.cluster_map import ClusterMap
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_owner_session import OpenWireOwnerSession
from quire.server.cluster.openwire_relay_session import OpenWireRelaySession
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.connection import Connection
from quire.server.openwire.openwire_doors import OpenWireDoors
from quire.server.openwire.openwire_session import OpenWireSession
from quire.sessions.rights import Gate


class OpenWireOwnerDoors(OpenWireDoors):
    """The OpenWire clients of other processes.

    Args:
        cluster: says which destinations this shard has.
    """

    def __init__(
        self,
        broker: Broker,
        gate: Gate,
        by_id: dict[str, OpenWireSession],
        cluster: ClusterMap,
        shared: ShardTransactions,
    ) -> None:
        super().__init__(broker, gate, by_id)
        self._cluster = cluster
        self._shared = shared

    def session(self, connection: Connection) -> OpenWireSession:
        """The session of a client that has connected to another process."""
        return OpenWireOwnerSession(
            self._broker, self._gate, connection, self._format, self._greeting, self._by_id, self._cluster, self._shared
        )


class OpenWireRelayDoors(OpenWireDoors):
    """The OpenWire clients of a process in a cluster.

    Args:
        links: lead to the other shards.

    Attributes:
        owner_doors: makes the sessions of clients that have connected to other processes.
    """

    def __init__(self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions) -> None:
        super().__init__(broker, gate)
        self._links = links
        self._shared = shared
        self.owner_doors = OpenWireOwnerDoors(broker, gate, self._by_id, links.cluster_map, shared)
        links.cluster_map.listen(self._map_changed)

    def session(self, connection: Connection) -> OpenWireSession:
        """The session of a new connection."""
        return OpenWireRelaySession(
            self._broker, self._gate, connection, self._format, self._greeting, self._by_id, self._links, self._shared
        )

    def _map_changed(self, _: frozenset[int]) -> None:
        relayed = [session for session in self._by_id.values() if isinstance(session, OpenWireRelaySession)]
        for session in relayed:
            session.map_changed()
        missing = [session for session in relayed if session.misses_shards]
        if missing:
            step = partial(_one_joins, missing)
            self._broker.core.steps.add(step, "consumers of advisories join shards", stores=False)


def _one_joins(sessions: list[OpenWireRelaySession]) -> bool:
    """Subscribe the consumers of one client; whether there are more."""
    sessions.pop().join_shards()
    return bool(sessions)
