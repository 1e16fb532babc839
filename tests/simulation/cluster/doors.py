"""The doors of a process: they tell what it gives to clients, at the moment in which the broker decides that."""

from collections.abc import Callable

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.cluster.cluster_map import ClusterMap
from quire.message import Message
from quire.server.cluster.links import Links
from quire.server.cluster.owner_session import OwnerSession
from quire.server.cluster.relay_session import RelaySession
from quire.server.cluster.shard_transactions import ShardTransactions
from quire.server.cluster.stomp_cluster_doors import StompEntryDoors, StompOwnerDoors
from quire.server.connection import Connection
from quire.sessions.rights import Gate

Gave = Callable[[str, str], None]
"""Is told that a client, by the name of its connection, is given a message, by its id."""


class EntryDoors(StompEntryDoors):
    """The doors of the clients of a process."""

    def __init__(self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions, gave: Gave) -> None:
        super().__init__(broker, gate, links, shared)
        self._gave = gave

    def session(self, connection: Connection) -> RelaySession:
        """The session of a new connection."""
        return _EntrySession(self._broker, self._gate, connection, self._links, self._shared, self._gave)


class OwnerDoors(StompOwnerDoors):
    """The doors of the clients of other processes."""

    def __init__(self, broker: Broker, gate: Gate, links: Links, shared: ShardTransactions, gave: Gave) -> None:
        super().__init__(broker, gate, links, shared)
        self._gave = gave

    def session(self, connection: Connection) -> OwnerSession:
        """The session of a new virtual connection."""
        return _OwnerSession(
            self._broker, self._gate, connection, self._links.cluster_map, self._shared, self._by_client_id, self._gave
        )


class _EntrySession(RelaySession):
    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, links: Links, shared: ShardTransactions, gave: Gave
    ) -> None:  # fmt: skip
        super().__init__(broker, gate, connection, links, shared)
        self._gave = gave

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        for message in messages:
            self._gave(self.name, message.id)
        super().deliver(subscription, messages, first)


class _OwnerSession(OwnerSession):
    def __init__(
        self, broker: Broker, gate: Gate, connection: Connection, cluster_map: ClusterMap, shared: ShardTransactions,
        by_client_id: dict[str, OwnerSession], gave: Gave,
    ) -> None:  # fmt: skip
        super().__init__(broker, gate, connection, cluster_map, shared, by_client_id)
        self._gave = gave

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        for message in messages:
            self._gave(self.name, message.id)
        super().deliver(subscription, messages, first)
