"""STOMP in a process of a cluster: for its own clients, and for those of other processes."""

from quire.broker.broker import Broker
from quire.server.cluster.links import Links
from quire.server.cluster.owner_session import OwnerSession
from quire.server.cluster.relay_session import RelaySession
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.connection import Connection
from quire.server.stomp.stomp_doors import StompDoors
from quire.sessions.rights import Gate


class StompEntryDoors(StompDoors):
    """The STOMP clients that are connected to this process."""

    def __init__(self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions) -> None:
        super().__init__(broker, gate)
        self._links = links
        self._shared = shared

    def session(self, connection: Connection) -> RelaySession:
        """The session of a new connection."""
        return RelaySession(self._broker, self._gate, connection, self._links, self._shared)


class StompOwnerDoors(StompDoors):
    """The STOMP clients of other processes."""

    def __init__(self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions) -> None:
        super().__init__(broker, gate)
        self._links = links
        self._shared = shared
        self._by_client_id: dict[str, OwnerSession] = {}

    def session(self, connection: Connection) -> OwnerSession:
        """The session of a new virtual connection."""
        return OwnerSession(
            self._broker, self._gate, connection, self._links.cluster_map, self._shared, self._by_client_id
        )
