"""The brokers that the client is tested against."""

import itertools
import os
from collections.abc import Iterator

import pytest

from quire.testing.embedded_broker import EmbeddedBroker
from tests.acceptance.cluster.running_cluster import running_cluster
from tests.interop.brokers import ActiveMq
from tests.interop.java_build import NoJavaTools
from tests.postgresql_server import PostgresqlServer

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def activemq_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an ActiveMQ; where it cannot be had, its tests are skipped and say so."""
    try:
        broker = ActiveMq(tmp_path_factory.mktemp("activemq"), 6)
    except NoJavaTools as error:
        pytest.skip(str(error))
    try:
        broker.start()
        yield f"tcp://{broker.address}"
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def cluster_url(postgresql_server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(postgresql_server, tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        yield cluster.brokers["athens"].openwire()


@pytest.fixture(scope="session", params=["quire", "activemq", pytest.param("cluster", marks=pytest.mark.slow)])
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a broker: each test runs against each of them."""
    if request.param == "quire":
        with EmbeddedBroker() as broker:
            yield broker.url
    else:
        yield request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def name() -> str:
    """A name for a destination that no other test uses, nor another run."""
    return f"test.{os.getpid()}.{next(_NUMBERS)}"
