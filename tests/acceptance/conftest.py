"""Brokers in processes of their own: on ports of their own, in directories of their own, ended whatever happens."""

from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.crash.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]


def defects(broker: BrokerProcess) -> list[str]:
    """The lines of its log that tell of an error nobody foresaw."""
    return [line for line in broker.log.splitlines() if "Traceback" in line]


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Starts brokers for a module's tests; arguments are settings, by their environment variables without ``QUIRE_``.

    At the end each must stop well, if it still runs, and must have logged no defect.
    """
    started: list[BrokerProcess] = []

    def start(**settings: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings=settings)
        broker.start()
        started.append(broker)
        broker.port()
        return broker

    try:
        yield start
        for broker in started:
            broker.stop()
            assert not defects(broker)
    finally:
        for broker in started:
            broker.kill()


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker()


@pytest.fixture
def destination(request: pytest.FixtureRequest) -> str:
    return f"/queue/{request.node.name}"
