"""Where other processes of the cluster connect: a port that only takes links."""

from quire.broker.core.turn import TurnMeter
from quire.cluster.link_frames import Closing, Kind, encode_struct
from quire.errors import QuireError
from quire.server.cluster.link_transport import LinkTransport
from quire.server.cluster.virtual_clients import VirtualClients
from quire.server.entrance.entrance import Door
from quire.server.entrance.tls_contexts import TlsContexts
from quire.server.entrance.visitor import Visitor

SILENT_AT_FIRST = 5.0
"""How many seconds a connection of another process may be silent at first."""


def link_door(clients: VirtualClients, tls: TlsContexts, meter: TurnMeter) -> Door:
    """The door of links, as the entrance of a connection sees it."""

    def opened(visitor: Visitor) -> LinkTransport:
        link = clients.link(visitor)
        if visitor.is_encrypted:
            link.handshake.binding = tls.fingerprint
        return LinkTransport(link, meter, visitor.left)

    return Door("link", SILENT_AT_FIRST, opened, _refusal)


def _refusal(error: QuireError) -> bytes:
    return encode_struct(Kind.CLOSE, 0, Closing(error.code, str(error)))
