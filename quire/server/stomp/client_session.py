"""A STOMP client's session as its consumers and transactions see it."""

from quire.broker.routing.own_temporaries import OwnTemporaries
from quire.protocols.stomp.versions import Version
from quire.server.connected_session import ConnectedSession


class ClientSession(ConnectedSession):
    """One client."""

    version: Version
    temporaries: OwnTemporaries
