"""OpenWire in a cluster: the sessions of clients that have connected here, with relays."""

from quire.broker.broker import Broker
from quire.server.cluster.links import Links
from quire.server.cluster.openwire_relay_session import OpenWireRelaySession
from quire.server.connection import Connection
from quire.server.gate import Gate
from quire.server.openwire.openwire_doors import OpenWireDoors
from quire.server.openwire.openwire_session import OpenWireSession


class VirtualOpenWireDoors(OpenWireDoors):
    """The OpenWire clients of other processes."""

    def session(self, connection: Connection) -> OpenWireSession:
        """The session of a client that has connected to another process."""
        session = super().session(connection)
        session.is_announced = False
        return session


class OpenWireRelayDoors(OpenWireDoors):
    """The OpenWire clients of a process in a cluster.

    Args:
        links: lead to the other shards.

    Attributes:
        virtual: makes the sessions of clients that have connected to other processes.
    """

    def __init__(self, broker: Broker, gate: Gate, links: Links) -> None:
        super().__init__(broker, gate)
        self._links = links
        self.virtual = VirtualOpenWireDoors(broker, gate, self._by_id)
        links.cluster_map.listen(self._map_changed)

    def session(self, connection: Connection) -> OpenWireSession:
        """The session of a new connection."""
        return OpenWireRelaySession(
            self._broker, self._gate, connection, self._format, self._greeting, self._by_id, self._links
        )

    def _map_changed(self, _: frozenset[int]) -> None:
        for session in list(self._by_id.values()):
            if isinstance(session, OpenWireRelaySession):
                session.map_changed()
