"""What the command line does with real sockets: HTTP requests and STOMP connections, over loopback."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from quire.cli.api import Api, exchange
from quire.client.connection import connect
from quire.errors import BrokerUnreachable, UnsupportedVersion
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.encoder import encode_frame, error_frame
from quire.protocols.stomp.versions import Version
from tests.fuzz.stomp_decoder import decode


class EchoHandler(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = {"path": self.path, "body": json.loads(body), "type": self.headers["content-type"]}
        content = json.dumps(answer).encode()
        self.send_response(201)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def running(target: object) -> Iterator[None]:
    assert callable(target)
    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_http_request_arrives_and_its_answer_comes_back() -> None:
    with HTTPServer(("127.0.0.1", 0), EchoHandler) as server, running(server.handle_request):
        api = Api(f"http://127.0.0.1:{server.server_port}")
        answer = api.call("POST", "/queues/a%2Fb/move", {"to": "ü"}, limit=3)
    assert answer == {"path": "/api/v1/queues/a%2Fb/move?limit=3", "body": {"to": "ü"}, "type": "application/json"}


def test_http_without_a_listener_is_an_unreachable_broker(closed_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        exchange("GET", f"http://127.0.0.1:{closed_port}/api/v1/health", None)


def test_http_from_something_else_is_an_unreachable_broker() -> None:
    def answer() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(65536)
            accepted.sendall(b"SSH-2.0-something\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, running(answer):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/health"
        with pytest.raises(BrokerUnreachable, match="no broker answers"):
            exchange("GET", url, None)


def serve_stomp(listener: socket.socket, refuse: bool = False) -> None:
    """Serve one connection: confirm everything, and give one message to a subscriber."""
    accepted, _ = listener.accept()
    decoder = Decoder(Limits())
    with accepted:
        while data := accepted.recv(65536):
            for head, receipt, _ in decode(decoder, data):
                if refuse:
                    accepted.sendall(error_frame(UnsupportedVersion("no"), Version.V1_2, None))
                    return
                if head.command == b"CONNECT":
                    accepted.sendall(encode_frame(b"CONNECTED", {"version": "1.2"}))
                if head.command == b"SUBSCRIBE":
                    accepted.sendall(encode_frame(b"MESSAGE", {"message-id": "ID:1", "ack": "1"}, bytes(200_000)))
                if receipt is not None:
                    accepted.sendall(encode_frame(b"RECEIPT", {"receipt-id": receipt.decode()}))


def test_stomp_connection_sends_and_receives() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        running(lambda: serve_stomp(listener)),
        connect("127.0.0.1", listener.getsockname()[1], limit=10.0) as connection,
    ):
        connection.send("/queue/q", b"body")
        connection.subscribe("/queue/q", prefetch=1)
        frame = connection.receive(10.0)
        assert frame is not None
        assert frame.body == bytes(200_000)
        assert connection.receive(0.01) is None
        connection.ack(frame)
        connection.disconnect()


def test_stomp_connection_that_is_refused_is_closed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        running(lambda: serve_stomp(listener, refuse=True)),
        pytest.raises(UnsupportedVersion),
    ):
        connect("127.0.0.1", listener.getsockname()[1], limit=10.0)


def test_stomp_without_a_listener_is_an_unreachable_broker(closed_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        connect("127.0.0.1", closed_port, limit=10.0)
