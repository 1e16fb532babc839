"""The brokers that the client is tested against."""

import itertools
import os
from collections.abc import Iterator

import pytest

from quire.testing.embedded_broker import EmbeddedBroker
from tests.interop.brokers import ActiveMq
from tests.interop.java_build import NoJavaTools

_NUMBERS = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, one of them has these brokers."""
    for item in items:
        if {"broker_url", "activemq_url"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("client"))


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


@pytest.fixture(scope="session", params=["quire", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a broker: each test runs against each of them."""
    if request.param == "quire":
        with EmbeddedBroker() as broker:
            yield broker.url
    else:
        yield request.getfixturevalue("activemq_url")


@pytest.fixture
def name() -> str:
    """A name for a destination that no other test uses, nor another run."""
    return f"test.{os.getpid()}.{next(_NUMBERS)}"
