"""A protocol as a transport sees it: who takes its connections, and how many there may be."""

from abc import ABC, abstractmethod

from quire.errors import QuireError
from quire.server.connected_door import ConnectedDoor
from quire.server.connection import Connection


class ProtocolDoors(ABC):
    """One protocol.

    Attributes:
        name: as the audit log has it.
        max_connections: how many connections it may have.
        patience: how many seconds a connection may be silent at first.
        open: those it has.
        opened: how many it has had.
        away: why it takes none now; None while it does.
    """

    name: str
    max_connections: int
    patience: float

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self.opened = 0
        self.away: QuireError | None = None

    @abstractmethod
    def session(self, connection: Connection) -> ConnectedDoor:
        """The session of a new connection."""

    @abstractmethod
    def refusal(self, error: QuireError) -> bytes:
        """What a connection is told that is refused."""
