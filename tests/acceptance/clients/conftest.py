"""Connections of client libraries to the module's broker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.clients.client import Client
from tests.acceptance.clients.kinds import KINDS, Kind
from tests.acceptance.clients.stompjs_client import what_is_missing
from tests.acceptance.cluster.running_cluster import running_cluster
from tests.acceptance.conftest import StartBroker, defects
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.postgresql_server import PostgresqlServer

Connect = Callable[..., Client]


POLICY = {
    "POLICY__MAXIMUM_REDELIVERIES": "2", "POLICY__INITIAL_REDELIVERY_DELAY": "0s", "POLICY__REDELIVERY_DELAY": "0s",
}  # fmt: skip
"""A message is given up after two redeliveries, which come at once."""


@pytest.fixture(scope="session")
def cluster_broker(
    postgresql_server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One of two brokers of a cluster."""
    with running_cluster(postgresql_server, tmp_path_factory.mktemp("cluster"), **POLICY) as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        yield cluster.brokers["athens"]
        cluster.stop()
        assert not any([defects(broker) for broker in cluster.brokers.values()])


@pytest.fixture(scope="module", params=["broker", "cluster"])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> BrokerProcess:
    """A broker, and one of a cluster."""
    if request.param == "broker":
        return start_broker(**POLICY)
    found: BrokerProcess = request.getfixturevalue("cluster_broker")
    return found


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
