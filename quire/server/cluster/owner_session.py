"""The session of another process's STOMP client, at the owner of a shard."""

from quire.broker.broker import Broker
from quire.broker.routing.addresses import Scope, read_destination
from quire.cluster.cluster_map import ClusterMap, lost_to_another
from quire.destination import Destination
from quire.errors import QuireError
from quire.protocols.stomp.frames import Head
from quire.server.cluster.front_temporaries import NAME
from quire.server.cluster.relay_acknowledgements import ack_prefix
from quire.server.cluster.stomp_relay import CLAIMS
from quire.server.connection import Connection
from quire.server.gate import Gate
from quire.server.stomp.stomp_consumers import PULL
from quire.server.stomp.stomp_session import StompSession

_WITH_DESTINATION = (b"SEND", b"SUBSCRIBE")


class OwnerSession(StompSession):
    """One client. Its entry tells of its connection, so here nothing is told; its client id is taken if asked for."""

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, cluster_map: ClusterMap) -> None:
        super().__init__(broker, gate, connection)
        self.ack_prefix = ack_prefix(cluster_map.own)
        self._map = cluster_map

    def _other(self, head: Head, receipt: bytes | None, body: bytes | bytearray, receipts: list[bytes]) -> bool:
        """Do what a frame says. One about a destination that this shard has not, or not any more, is refused."""
        if head.command in _WITH_DESTINATION:
            self._check_own(head.headers.get("destination", ""), head.headers.get(NAME, ""))
        return super()._other(head, receipt, body, receipts)

    def _check_own(self, text: str, temporary: str) -> None:
        """See that destinations are this shard's own; a temporary one of a front's client gets its name."""
        if text.startswith(PULL):
            return
        for address in read_destination(text)[0]:
            kind, name, scope = address
            error = lost_to_another(self._map, Destination(kind, temporary if scope is Scope.OWN else name))
            if error is not None:
                raise error
            if scope is Scope.OWN:
                self.temporaries.remote(address, temporary)

    def _lost(self, destination: Destination) -> QuireError | None:
        return super()._lost(destination) or lost_to_another(self._map, destination)

    def _claim(self, client_id: str, head: Head) -> None:
        if CLAIMS in head.headers:
            super()._claim(client_id, head)

    def _tell_started(self) -> None:
        """The entry has told it."""

    def _tell_stopped(self) -> None:
        """The entry tells it."""
