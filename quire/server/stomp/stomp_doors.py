"""STOMP as a transport sees it."""

from quire.broker.broker import Broker
from quire.errors import QuireError
from quire.protocols.stomp.encoder import error_frame
from quire.protocols.stomp.versions import Version
from quire.server.connection import Connection
from quire.server.protocol_doors import ProtocolDoors
from quire.server.stomp.stomp_session import StompSession
from quire.sessions.rights import Gate


class StompDoors(ProtocolDoors):
    """The STOMP clients of a broker."""

    name = "stomp"

    def __init__(self, broker: Broker, gate: Gate) -> None:
        super().__init__()
        settings = broker.core.settings.stomp
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout
        self._broker = broker
        self._gate = gate

    def session(self, connection: Connection) -> StompSession:
        """The session of a new connection."""
        return StompSession(self._broker, self._gate, connection)

    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""
        return error_frame(error, Version.V1_2, None)
