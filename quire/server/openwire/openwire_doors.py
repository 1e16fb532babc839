"""OpenWire as a transport sees it, and which connection has which id."""

from quire import __version__
from quire.broker.broker import Broker
from quire.errors import QuireError
from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import ConnectionErrorCommand
from quire.protocols.openwire.negotiation import info_of
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.connection import Connection
from quire.server.openwire.openwire_destinations import JAVAX, throwable
from quire.server.openwire.openwire_session import OpenWireSession
from quire.server.protocol_doors import ProtocolDoors
from quire.sessions.rights import Gate


class OpenWireDoors(ProtocolDoors):
    """The OpenWire clients of a broker.

    Args:
        by_id: the sessions of clients by the ids of their connections, if other doors of the broker have some too.
    """

    name = "openwire"

    def __init__(self, broker: Broker, gate: Gate, by_id: dict[str, OpenWireSession] | None = None) -> None:
        super().__init__()
        settings = broker.core.settings.openwire
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout
        self._broker = broker
        self._gate = gate
        self._by_id: dict[str, OpenWireSession] = {} if by_id is None else by_id
        self._format = WireFormat(
            max_frame_size=settings.max_frame_size, inactivity_ms=round(settings.max_inactivity * 1000)
        )
        self._greeting = Encoder().encode(info_of(self._format, provider_name="Quire", provider_version=__version__))
        Decoder(1)  # the code of decoders is made with the first one: not while a client waits

    def session(self, connection: Connection) -> OpenWireSession:
        """The session of a new connection."""
        return OpenWireSession(self._broker, self._gate, connection, self._format, self._greeting, self._by_id)

    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""
        return Encoder().encode(ConnectionErrorCommand(exception=throwable(error, JAVAX)))
