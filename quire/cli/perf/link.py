"""A STOMP connection for load: it counts what comes instead of decoding it, so that it costs little beside a broker."""

import select
import socket
import ssl

from quire.cli.perf.load import Target
from quire.client.remote_error import remote_error
from quire.client.tls_trust import client_context
from quire.errors import BrokerUnreachable, QuireError

ANSWER_LIMIT = 60.0
"""How long a broker may take for an answer, in seconds."""

_CHUNK = 1 << 20


class Link:
    """A connection to any STOMP 1.2 broker; every method may raise ``BrokerUnreachable``.

    Args:
        headers: more header lines of CONNECT, each with its newline.
    """

    def __init__(self, target: Target, headers: str = "") -> None:
        try:
            self._socket = socket.create_connection((target.host, target.port), ANSWER_LIMIT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tls:
                self._socket = client_context().wrap_socket(self._socket, server_hostname=target.host)
        except OSError as error:
            raise BrokerUnreachable(f"no broker answers at {target.host}:{target.port}: {error}") from error
        self._rest = b""
        login = f"login:{target.login}\npasscode:{target.passcode}\n" if target.passcode else ""
        self.send(f"CONNECT\naccept-version:1.2\nhost:/\n{login}{headers}\n\0".encode())
        self.receive_until(b"CONNECTED\n")

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            # A broker that closes says why before: that is the better error.
            while self.receive(0.1) is not None:
                pass
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error

    def receive(self, seconds: float) -> bytes | None:
        """Take the whole frames that have come: none if the first is not whole yet; None if no bytes came in time."""
        is_there = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not is_there and not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise BrokerUnreachable(f"the connection to the broker is lost: {error}") from error
        if not chunk:
            raise BrokerUnreachable("the broker closed the connection")
        data = self._rest + chunk
        end = data.rfind(b"\0") + 1
        whole, self._rest = data[:end], data[end:]
        if b"ERROR\n" in whole:
            raise refusal(whole)
        return whole

    def receive_until(self, wanted: bytes) -> None:
        """Take frames until these bytes are among them; nothing may last longer than ``ANSWER_LIMIT``."""
        data: bytes | None = b""
        while data is not None:
            data = self.receive(ANSWER_LIMIT)
            if data and wanted in data:
                return
        raise BrokerUnreachable(f"the broker did not answer within {ANSWER_LIMIT:g} s")

    def disconnect(self) -> None:
        """Say goodbye and wait until the broker has done all that was sent."""
        self.send(b"DISCONNECT\nreceipt:bye\n\n\0")
        self.receive_until(b"receipt-id:bye\n")

    def close(self) -> None:
        self._socket.close()


def refusal(data: bytes) -> QuireError:
    head = data[data.index(b"ERROR\n") :].partition(b"\n\n")[0].decode("utf-8", "replace")
    headers = dict(line.split(":", 1) for line in head.split("\n")[1:] if ":" in line)
    text = headers.get("message", "the broker sent an error without a message")
    return remote_error(headers.get("code", "protocol-violation"), text, {})
