"""A blocking STOMP 1.2 connection, for the command line, for tests and for examples.

One thread uses it at a time. It asks for no heart-beats. Every call that waits has a limit.
"""

import itertools
import socket
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from quire.client.remote_error import remote_error
from quire.clock import Clock, SystemClock
from quire.errors import BrokerUnreachable
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.encoder import encode_frame
from quire.protocols.stomp.frames import SERVER_COMMANDS

LIMITS = Limits(max_headers=10_000, max_line=1024 * 1024, max_body=2**31)
"""A client chose its broker: these only bound what a broken one can do."""


class Frame(NamedTuple):
    """What the broker sent.

    Attributes:
        command: ``MESSAGE`` say.
        headers: unescaped; of a repeated header the first counts.
        body: the body.
    """

    command: str
    headers: dict[str, str]
    body: bytes


class Channel(Protocol):
    """What a connection needs of a socket."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def recv(self, size: int, /) -> bytes:
        """Receive some; nothing when the other side closed."""

    def settimeout(self, seconds: float, /) -> None:
        """How long ``sendall`` and ``recv`` may take before they raise TimeoutError."""

    def close(self) -> None:
        """Close."""


def connect(
    host: str, port: int, login: str = "", passcode: str = "", limit: float = 60.0, client_id: str = ""
) -> "Connection":
    """Connect to a broker.

    Args:
        host: its name or address.
        port: its STOMP port.
        login: the user, if the broker has users.
        passcode: the user's password.
        limit: how long the broker may take for any answer, in seconds. It holds the receipt of a send while it is over
            a limit of its own, for ``producer.hold_limit`` at the most.
        client_id: whose durable subscriptions this connection may use.

    Raises:
        BrokerUnreachable: no broker answers.
        QuireError: the broker refused.
    """
    try:
        channel = socket.create_connection((host, port), limit)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise BrokerUnreachable(f"no broker answers at {host}:{port}: {error}", host=host, port=port) from error
    connection = Connection(channel, limit)
    try:
        connection.open(host, login, passcode, client_id)
    except BaseException:
        connection.close()
        raise
    return connection


class Connection:
    """A connection to a broker; made by ``connect``. As a context manager it closes itself.

    Every method raises ``BrokerUnreachable`` when the connection is lost or an answer does not come, and what the
    broker says in an ERROR frame as the error it had there.

    Args:
        channel: a connected socket.
        limit: how long an answer may take, in seconds.
        clock: measures that.
    """

    def __init__(self, channel: Channel, limit: float, clock: Clock | None = None) -> None:
        self._channel = channel
        self._limit = limit
        self._clock = clock or SystemClock()
        self._decoder = Decoder(LIMITS, SERVER_COMMANDS)
        self._decoded: deque[Frame] = deque()
        self._messages: deque[Frame] = deque()
        self._numbers = itertools.count(1)

    def open(self, host: str, login: str, passcode: str, client_id: str = "") -> None:
        """Send CONNECT and wait for CONNECTED."""
        headers = {"accept-version": "1.2", "host": host, "heart-beat": "0,0"}
        if login:
            headers |= {"login": login, "passcode": passcode}
        if client_id:
            headers["client-id"] = client_id
        self._send(b"CONNECT", headers)
        self._wait(lambda frame: frame.command == "CONNECTED")

    def send(
        self, destination: str, body: bytes, headers: Mapping[str, str] | None = None, receipt: bool = True
    ) -> None:
        """Send a message.

        Args:
            destination: ``/queue/orders`` say.
            body: the body.
            headers: more headers, ``persistent`` or a property say.
            receipt: wait until the broker confirms it: a persistent message is on disk then.
        """
        self._send(b"SEND", {**(headers or {}), "destination": destination}, body, receipt)

    def subscribe(
        self, destination: str, prefetch: int = 1000, ack: str = "client-individual",
        headers: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Subscribe, and wait until the broker confirms it.

        Args:
            destination: ``/queue/orders`` say.
            prefetch: how many unacknowledged messages the broker may give.
            ack: ``client-individual``, ``client`` or ``auto`` (STOMP 1.2, "SUBSCRIBE ack Header").
            headers: more headers, ``selector`` say.

        Returns:
            The subscription's id.
        """
        subscription = str(next(self._numbers))
        own = {"id": subscription, "destination": destination, "ack": ack, "activemq.prefetchSize": str(prefetch)}
        self._send(b"SUBSCRIBE", {**(headers or {}), **own}, receipt=True)
        return subscription

    def receive(self, timeout: float) -> Frame | None:
        """Take the next message.

        Args:
            timeout: how long to wait for it, in seconds; 0 for one that has come already.

        Returns:
            A MESSAGE frame, or None when the time is over.
        """
        deadline = self._clock.monotonic() + timeout
        while not self._messages:
            frame = self._next_frame(deadline)
            if frame is None:
                return None
            if frame.command == "MESSAGE":
                self._messages.append(frame)
        return self._messages.popleft()

    def ack(self, message: Frame) -> None:
        """Acknowledge a message; what follows it on the connection confirms that."""
        self._send(b"ACK", {"id": message.headers["ack"]})

    def nack(self, message: Frame) -> None:
        """Give a message back; the broker delivers it again, or makes it a dead letter."""
        self._send(b"NACK", {"id": message.headers["ack"]})

    def disconnect(self) -> None:
        """Say goodbye, wait until the broker has done all that was sent, and close."""
        self._send(b"DISCONNECT", {}, receipt=True)
        self.close()

    def close(self) -> None:
        """Close at once. Messages not acknowledged go back to their queues."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, command: bytes, headers: Mapping[str, str], body: bytes = b"", receipt: bool = False) -> None:
        number = str(next(self._numbers))
        sent = {**headers, "receipt": number} if receipt else headers
        try:
            self._channel.settimeout(self._limit)
            self._channel.sendall(encode_frame(command, sent, body))
        except OSError as error:
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error
        if receipt:
            self._wait(lambda frame: frame.command == "RECEIPT" and frame.headers.get("receipt-id") == number)

    def _wait(self, wanted: Callable[[Frame], bool]) -> None:
        deadline = self._clock.monotonic() + self._limit
        while frame := self._next_frame(deadline):
            if wanted(frame):
                return
            if frame.command == "MESSAGE":
                self._messages.append(frame)
        raise BrokerUnreachable(f"the broker did not answer within {self._limit:g} s")

    def _next_frame(self, deadline: float) -> Frame | None:
        while not self._decoded:
            for head, _, body in self._decoder.next_events():
                self._decoded.append(Frame(head.command.decode(), head.headers, bytes(body)))
            if not self._decoded:
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0 or not self._read(remaining):
                    return None
        frame = self._decoded.popleft()
        if frame.command == "ERROR":
            raise _error(frame)
        return frame

    def _read(self, seconds: float) -> bool:
        try:
            self._channel.settimeout(seconds)
            data = self._channel.recv(65536)
        except TimeoutError:
            return False
        except OSError as error:
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error
        if not data:
            raise BrokerUnreachable("the broker closed the connection")
        self._decoder.receive(data)
        return True


def _error(frame: Frame) -> Exception:
    code = frame.headers.get("code", "protocol-violation")
    text = frame.headers.get("message", "the broker sent an error").removeprefix(f"{code}: ")
    return remote_error(code, text, {})
