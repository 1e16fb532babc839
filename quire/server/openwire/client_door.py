"""An OpenWire client, as its consumers, sends and transactions see it: how it is answered, and how frames look."""

import struct
from abc import abstractmethod
from typing import Any

from quire.broker.broker import Broker
from quire.errors import QuireError
from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import ConnectionErrorCommand, RemoveInfo, Response
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.structures import BaseCommand, ConnectionId, ProducerId, Structure
from quire.server.connected_door import ConnectedDoor
from quire.server.connection import Connection
from quire.server.openwire.openwire_destinations import JAVAX, throwable
from quire.sessions.rights import Gate

_RESPONSE = struct.Struct(">iBi?i")
_RESPONSE_SIZE = _RESPONSE.size - 4


class Answer(bytes):
    """The response to a command, encoded: what a client gets if the command succeeds and has no result.

    Attributes:
        command: the command.
    """

    command: Any


def response_to(command: BaseCommand) -> bytes:
    """The response to a command that has succeeded, and has no result."""
    return _RESPONSE.pack(_RESPONSE_SIZE, Response.TYPE, 0, False, command.command_id)


def answered_by(token: bytes) -> int | None:
    """The number of the command that a frame is the response to; None if it is none."""
    return _RESPONSE.unpack(token)[-1] if token[4] == Response.TYPE else None


class ClientDoor(ConnectedDoor):
    """One client.

    Args:
        format: what the broker can do.

    Attributes:
        connection_id: the name that it gave its connection; empty before ``ConnectionInfo``.
        is_fault_tolerant: whether it connects again by itself and repeats what was not answered.
        package: the package in which it has the classes of JMS.
        format: how frames look.
    """

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, format: WireFormat) -> None:
        self._decoder = Decoder(broker.core.settings.openwire.max_frame_size, plain=True)
        super().__init__(broker, gate, connection, self._decoder)
        self._encoder = Encoder()
        self.format = format
        self.connection_id = ""
        self.is_fault_tolerant = False
        self.package = JAVAX

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""
        return self._core.clock.now_ms()

    @abstractmethod
    def window(self, id: ProducerId) -> int:
        """How many bytes a producer sends ahead; 0 if it does not wait for ``ProducerAck``."""

    @abstractmethod
    def look_at_session(self) -> None:
        """What is asked of the session once for many commands may have changed."""

    @abstractmethod
    def remove_connection(self, info: RemoveInfo) -> bool:
        """The client has taken its connection back; False if that has to wait."""

    # What it is told.

    def frame(self, command: Structure) -> bytes:
        """A command as it goes over this connection."""
        return self._encoder.encode(command)  # type: ignore[arg-type]

    def send_command(self, command: Structure) -> None:
        """Have a command written at the end of the turn."""
        self.write(self.frame(command))

    def report(self, error: QuireError) -> None:
        """Tell the client of an error that answers no command of its own; the connection stays."""
        id = ConnectionId(self.connection_id) if self.connection_id else None
        self.send_command(ConnectionErrorCommand(exception=throwable(error, self.package), connection_id=id))

    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""
        if not self.is_closed:
            self.report(error)
            self.end(error.code)

    def token(self, command: Any) -> Answer | None:
        """The answer to a command, to be given to the client when the command is done; None if it does not wait."""
        if not command.response_required:
            return None
        answer = Answer(response_to(command))
        answer.command = command
        return answer

    def answer_at_once(self, command: Any) -> None:
        """Answer a command that is done and has nothing to be stored."""
        if (answer := self.token(command)) is not None:
            self.write(answer)

    def answer_in_order(self, command: Any) -> None:
        """Answer a command that needs no verb, when everything before it is durable."""
        if (answer := self.token(command)) is not None:
            if self.is_logged_in:
                self.session.confirm(answer)
            else:
                self.write(answer)
