"""A STOMP client's session as its consumers and transactions see it."""

from quire.broker.routing.route import NOT_STORED
from quire.broker.routing.temporary import OwnTemporaries
from quire.protocols.stomp.versions import Version
from quire.server.connected_session import ConnectedSession


class ClientSession(ConnectedSession):
    """One client.

    Attributes:
        version: of the protocol.
        temporaries: its temporary destinations.
        ack_prefix: what the ids begin with by which it acknowledges; not empty if another process passes them on.
        dropped: the headers of what it sends that are not stored.
    """

    version: Version
    temporaries: OwnTemporaries
    ack_prefix = b""
    dropped = NOT_STORED
