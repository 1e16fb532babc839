"""The command line at the port of another protocol: it names the protocol, and shows no bytes of it."""

from collections.abc import Iterator

import pytest

from quire.cli.api import Api
from quire.errors import WrongProtocol
from quire.testing.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        yield found


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("protocol", ["STOMP", "OpenWire"])
def test_the_port_of_another_protocol_is_named(broker: EmbeddedBroker, scheme: str, protocol: str) -> None:
    address = broker.stomp if protocol == "STOMP" else broker.url.removeprefix("tcp://")
    api = Api(f"{scheme}://{address}")
    api.patience = 5.0
    with pytest.raises(WrongProtocol) as caught:
        api.call("GET", "/broker")
    host, port = address.split(":")
    assert str(caught.value) == f"the port {port} of {host} speaks {protocol}, not {scheme.upper()}"
