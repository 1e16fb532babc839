"""Java clients, each with a broker of its own that lives as long as it does."""

from collections.abc import Iterator

import pytest

from tests.interop.brokers import ActiveMq, Broker, Quire, QuireCluster
from tests.interop.java_build import NoJavaTools
from tests.interop.java_client import JavaClient


@pytest.fixture(scope="session")
def java_client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """A client of a line, and a broker; the parameter is ``("client5", "quire")``, say."""
    client, kind = request.param
    line = int(client[-1])
    directory = tmp_path_factory.mktemp(f"{client}-{kind}")
    try:
        broker: Broker
        if kind == "cluster":
            broker = QuireCluster(request.getfixturevalue("postgresql_server"), directory)
        else:
            broker = Quire(directory) if kind == "quire" else ActiveMq(directory, line)
        try:
            broker.start()
            with JavaClient(line, broker) as java:
                yield java
        finally:
            broker.kill()
    except NoJavaTools as error:
        pytest.skip(str(error))
