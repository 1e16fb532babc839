"""What the command line does with real sockets, over loopback: HTTP requests, and receiving from a broker."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner, Result

from quire.cli.api import Api, exchange
from quire.cli.main import main
from quire.cli.messages import NOTHING_RECEIVED
from quire.client import Queue, Stream, Topic
from quire.client.sync import Connection, connect
from quire.errors import BrokerUnreachable
from quire.testing.embedded_broker import EmbeddedBroker


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


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[Connection]:
    with connect(broker.url, client_id="books") as connection:
        yield connection


def receive(broker: EmbeddedBroker, *arguments: str) -> Result:
    """Run ``quire receive``."""
    address = broker.url.removeprefix("tcp://")
    return CliRunner().invoke(main, ["receive", *arguments, "--create", "--openwire", address])


def bodies(result: Result) -> list[str]:
    """The bodies of messages that were printed one a line; the exit code says whether there is one."""
    assert result.exit_code == (0 if result.stdout else NOTHING_RECEIVED), result.stderr
    return [json.loads(line)["body"] for line in result.stdout.splitlines()]


FIRST_OF_THREE = ("--count", "3", "--timeout", "1s", "--output", "ndjson")


@pytest.mark.slow
def test_receive_leaves_messages_where_they_are_unless_it_acknowledges(
    broker: EmbeddedBroker, connection: Connection
) -> None:
    with connection.session() as session:
        for body in ("one", "two"):
            session.producer(Queue("orders.new")).send(body)
    for _ in range(8):  # more often than a message is redelivered before it becomes a dead letter
        assert bodies(receive(broker, "orders.new", "--count", "2", "--output", "ndjson")) == ["one", "two"]
    assert bodies(receive(broker, "orders.new", *FIRST_OF_THREE)) == ["one", "two"]
    seen = json.loads(receive(broker, "orders.>", "--ack", "--output", "ndjson").stdout)
    assert (seen["body"], seen["headers"]["destination"]) == ("one", "queue://orders.new")
    assert (seen["headers"]["redelivered"], seen["headers"]["persistent"]) == ("true", "true")
    assert bodies(receive(broker, "orders.*", *FIRST_OF_THREE)) == ["two"]


@pytest.mark.slow
def test_receive_as_a_durable_subscription_with_a_selector(broker: EmbeddedBroker, connection: Connection) -> None:
    durable = ("topic://prices.>", "--durable", "audit", "--client-id", "clerk", "--selector", "eur > 5")
    assert bodies(receive(broker, *durable, *FIRST_OF_THREE)) == []
    with connection.session() as session:
        for eur in (3, 7, 9):
            session.producer(Topic("prices.tea")).send(f"{eur} EUR", properties={"eur": eur})
    assert bodies(receive(broker, *durable, *FIRST_OF_THREE)) == ["7 EUR", "9 EUR"]
    assert bodies(receive(broker, *durable, "--ack", "--output", "ndjson")) == ["7 EUR"]
    assert bodies(receive(broker, *durable, *FIRST_OF_THREE)) == ["9 EUR"]


@pytest.mark.slow
def test_receive_as_a_member_of_a_group_and_as_a_reader(broker: EmbeddedBroker, connection: Connection) -> None:
    with connection.session() as session:
        for body in ("one", "two", "three"):
            session.producer(Stream("events")).send(body, properties={"partition-key": "a"})
    member = ("stream://events", "--group", "billing", "--start", "earliest")
    assert bodies(receive(broker, *member, *FIRST_OF_THREE)) == ["one", "two", "three"]
    assert bodies(receive(broker, *member, "--ack", "--output", "ndjson")) == ["one"]
    assert bodies(receive(broker, *member, *FIRST_OF_THREE)) == ["two", "three"]
    read = receive(broker, "stream://events", "--start", "earliest", *FIRST_OF_THREE)
    assert bodies(read) == ["one", "two", "three"]
    assert [json.loads(line)["headers"]["offset"] for line in read.stdout.splitlines()] == ["1", "2", "3"]
    assert bodies(receive(broker, "stream://events", *FIRST_OF_THREE)) == []


@pytest.mark.slow
def test_receive_that_the_broker_refuses_exits_with_the_code_of_its_error(
    broker: EmbeddedBroker, connection: Connection
) -> None:
    result = receive(broker, "topic://prices", "--durable", "audit", "--client-id", "books")
    assert (result.exit_code, "already connected" in result.stderr) == (2, True)


def test_receive_without_a_broker_is_an_unreachable_broker(closed_port: int) -> None:
    result = CliRunner().invoke(main, ["receive", "orders", "--create", "--openwire", f"127.0.0.1:{closed_port}"])
    assert (result.exit_code, "no broker answers at tcp://127.0.0.1:" in result.stderr) == (5, True)
