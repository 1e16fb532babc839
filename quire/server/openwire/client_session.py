"""An OpenWire client's session as its consumers, sends and transactions see it."""

from abc import abstractmethod

from quire.destination import DestinationKind
from quire.errors import QuireError
from quire.protocols.openwire.commands import ConnectionControl
from quire.protocols.openwire.structures import ConsumerId
from quire.protocols.openwire.wire_fields import Structure
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.connected_session import ConnectedSession
from quire.server.openwire.openwire_destinations import JAVAX


class ClientSession(ConnectedSession):
    """One client.

    Attributes:
        connection_id: the name that it gave its connection; empty before ``ConnectionInfo``.
        is_fault_tolerant: whether it connects again by itself and repeats what was not answered.
        package: the package in which it has the classes of JMS.
        format: how frames look.
        temporaries: the temporary destinations that it has made, by name.
        is_announced: whether advisories tell of its connection; those of a client of another process do so there.
    """

    format: WireFormat
    temporaries: dict[str, DestinationKind]

    connection_id: str = ""
    is_fault_tolerant: bool = False
    package: str = JAVAX
    is_announced: bool = True

    @abstractmethod
    def frame(self, command: Structure) -> bytes:
        """A command as it goes over this connection."""

    def send_command(self, command: Structure) -> None:
        """Have a command written at the end of the turn."""
        self.write(self.frame(command))

    def control(self) -> ConnectionControl:
        """What a client that has connected is told of the brokers that it may use."""
        return ConnectionControl()

    def is_part(self, id: ConsumerId) -> bool:
        """Whether other shards of a cluster have parts of a consumer too: their relay numbers its messages."""
        return False

    @abstractmethod
    def report(self, error: QuireError) -> None:
        """Tell the client of an error that answers no command of its own; the connection stays."""

    @abstractmethod
    def identified(self, connection_id: str) -> None:
        """The client has said who it is. Another socket with the same id is its old one, and goes."""

    @abstractmethod
    def removed(self, last_seen: int) -> None:
        """The client has taken its connection back; it may introduce itself anew over the same socket (ActiveMQ)."""

    @abstractmethod
    def end_soon(self) -> None:
        """Close, when the client has had the time to read why."""

    @abstractmethod
    def leave(self, cause: str, last_seen: int = -2) -> None:
        """The client goes: its transactions, its consumers, what belongs to its connection."""
