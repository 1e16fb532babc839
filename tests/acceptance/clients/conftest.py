"""Connections of client libraries to the module's broker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.kinds import KINDS, Kind
from tests.acceptance.clients.stompjs_client import what_is_missing
from tests.acceptance.conftest import StartBroker
from tests.acceptance.crash.broker_process import BrokerProcess

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that gives up a message after two redeliveries, which come at once."""
    return start_broker(
        POLICY__MAXIMUM_REDELIVERIES="2", POLICY__INITIAL_REDELIVERY_DELAY="0s", POLICY__REDELIVERY_DELAY="0s"
    )


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of client, unless the test says which."""
    found: Kind = request.param
    return found


@pytest.fixture
def connect(kind: Kind, broker: BrokerProcess) -> Iterator[Connect]:
    """Connects clients of the kind, to the module's broker or to another port, and closes them."""
    if kind.library == "stompjs" and (missing := what_is_missing()):
        pytest.skip(missing)
    with ExitStack() as clients:

        def open_client(port: int = 0, beat: int = 0) -> Client:
            client = kind.connect(port or broker.port(), beat)
            clients.callback(client.close)
            return client

        yield open_client


@pytest.fixture
def client(connect: Connect) -> Client:
    """One client."""
    return connect()
