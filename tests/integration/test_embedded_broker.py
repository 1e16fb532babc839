"""The broker inside a test's process, and the fixture that users of Quire have of it."""

import socket

import pytest

from quire.client import Queue
from quire.client.sync import connect
from quire.errors import InvalidSettings
from quire.settings import split_address
from quire.testing.embedded_broker import EmbeddedBroker

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


def test_it_takes_and_gives_messages(quire_broker: EmbeddedBroker) -> None:
    with connect(quire_broker.url) as connection, connection.session() as session:
        session.producer(Queue("orders")).send("one")
        message = session.consumer(Queue("orders")).receive(5)
        assert message is not None
        assert message.body == "one"


def test_it_has_settings_and_is_empty_each_time() -> None:
    for _ in range(2):
        with (
            EmbeddedBroker({"policy.zero_expiration_override": "1h"}) as broker,
            connect(broker.url) as connection,
            connection.session() as session,
        ):
            consumer = session.consumer(Queue("orders"))
            assert consumer.receive(0.05) is None
            session.producer(Queue("orders")).send("one")
            message = consumer.receive(5)
            assert message is not None
            assert message.expiration > message.timestamp  # without the setting it never expires


def test_a_setting_that_is_none_is_an_error() -> None:
    with pytest.raises(InvalidSettings, match=r"policy\.maximum_redeliveries"):
        EmbeddedBroker({"policy.maximum_redelivery": 0})


def test_its_ports_are_closed_behind_it(quire_broker: EmbeddedBroker) -> None:
    with EmbeddedBroker() as other:
        address = split_address(other.stomp)
        assert other.url != quire_broker.url
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 1)


def test_users_find_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(quire_broker):\n    assert quire_broker.url.startswith('tcp://127.0.0.1:')\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_a_client_that_comes_back_at_once_gets_its_client_id() -> None:
    frames = b"".join([b"SEND\ndestination:/queue/q\n\n" + bytes([97]) * 10_000 + b"\0" for _ in range(100)])
    with EmbeddedBroker() as broker:
        address = split_address(broker.stomp)
        for _ in range(20):
            with socket.create_connection(address, 10) as connection:
                connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nclient-id:c\n\n\0")
                assert connection.recv(4096).startswith(b"CONNECTED")
                connection.sendall(frames)
        with socket.create_connection(address, 10) as living, socket.create_connection(address, 10) as other:
            for connection in (living, other):
                connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nclient-id:c\n\n\0")
                expected = b"CONNECTED" if connection is living else b"ERROR"
                assert connection.recv(4096).startswith(expected)
