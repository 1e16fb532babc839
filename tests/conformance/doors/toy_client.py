"""A driver of the toy protocol, in memory and over a socket."""

import socket
from collections.abc import Callable

from quire.testing.door_suite import PASSWORD, USER, Delivery, DoorClient, Refused
from quire.testing.stepped import RecordingConnection, SteppedBroker
from tests.conformance.doors.toy_door import ToyDoors

LOOK = 0.05
"""How long to wait for something to come, in seconds."""

LOOKS = 1000
"""How often to look for an answer, on a busy machine."""


class ToyClient(DoorClient):
    """One client.

    Args:
        say: writes bytes to the broker.
        hear: what the broker has said since it was asked last; it waits a little if that is nothing.
        ends: loses the connection.
    """

    def __init__(
        self, say: Callable[[bytes], None], hear: Callable[[], bytes], ends: Callable[[], None], password: str
    ) -> None:
        self._say, self._hear, self._ends = say, hear, ends
        self._count = 0
        self._rest = b""
        self._messages: list[Delivery] = []
        self._ask(f"hello {USER} {password}")

    def _ask(self, *words: str) -> None:
        """Say a line, and wait for its answer."""
        self._count += 1
        self._say(" ".join([word for word in words if word]).encode() + b"\n")
        for _ in range(LOOKS):
            for line in self._lines():
                match line.split():
                    case ["ok", number] if int(number) == self._count:
                        return
                    case ["error", _, code]:
                        raise Refused(code)
        raise TimeoutError(words)

    def _lines(self) -> list[str]:
        """What has come beside messages."""
        *lines, self._rest = (self._rest + self._hear()).split(b"\n")
        answers = []
        for line in lines:
            if line.startswith(b"message "):
                _, _, sequence, attempt, body = line.decode().split()
                self._messages.append(Delivery(body, int(attempt), sequence))
            else:
                answers.append(line.decode())
        return answers

    def send(self, destination: str, body: str, tx: str = "") -> None:
        self._ask("send", destination, body, tx and f"in {tx}")

    def consume(self, destination: str, credit: int = 100) -> None:
        self._ask("subscribe", "c", destination, str(credit))

    def take(self, count: int) -> list[Delivery]:
        for _ in range(LOOKS):
            if len(self._messages) >= count:
                break
            assert self._lines() == []
        assert self._lines() == []  # nothing more
        taken, self._messages = self._messages, []
        return taken

    def ack(self, delivery: Delivery, tx: str = "") -> None:
        self._ask("ack", "c", delivery.name, tx and f"in {tx}")

    def reject(self, delivery: Delivery) -> None:
        self._ask("reject", "c", delivery.name)

    def begin(self, tx: str) -> None:
        self._ask("begin", tx)

    def commit(self, tx: str) -> None:
        self._ask("commit", tx)

    def abort(self, tx: str) -> None:
        self._ask("abort", tx)

    def lose(self) -> None:
        self._ends()


def stepped_client(stepped: SteppedBroker, password: str = PASSWORD) -> ToyClient:
    """A client of a stepped broker."""
    connection = RecordingConnection("toy")
    door = ToyDoors(stepped.broker, stepped.gate, stepped.session_of).session(connection)
    stepped.sessions[door] = door

    def hear() -> bytes:
        stepped.run()
        output = bytes(connection.output)
        connection.output.clear()
        return output

    return ToyClient(door.receive, hear, door.closed, password)


class Sockets:
    """Clients of brokers that run; they are closed together."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def client(self, address: tuple[str, int], password: str) -> ToyClient:
        """A client that has connected."""
        connection = socket.create_connection(address)
        self._open.append(connection)
        connection.settimeout(LOOK)

        def hear() -> bytes:
            try:
                return connection.recv(1 << 16)
            except TimeoutError:
                return b""

        return ToyClient(connection.sendall, hear, connection.close, password)

    def close(self) -> None:
        """Close them."""
        for connection in self._open:
            connection.close()
