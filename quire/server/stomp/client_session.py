"""A STOMP client's session as its consumers, transactions and heart-beats see it."""

from abc import abstractmethod

from quire.broker.core.subscription import Session
from quire.broker.routing.own_temporaries import OwnTemporaries
from quire.protocols.stomp.versions import Version


class ClientSession(Session):
    """One client."""

    version: Version
    client_id: str | None
    temporaries: OwnTemporaries
    held: bool  # whether its input waits, for room or for its turn

    @property
    @abstractmethod
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn."""
