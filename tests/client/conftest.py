"""The brokers that the client is tested against."""

import itertools
import os
from collections.abc import Iterator

import pytest

from quire.testing.embedded_broker import EmbeddedBroker
from tests.client.activemq_broker import activemq_broker, reason_to_skip

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session", params=["quire", "activemq"])
def broker_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker: each test runs against each of them."""
    if request.param == "quire":
        with EmbeddedBroker() as broker:
            yield broker.url
        return
    if (reason := reason_to_skip()) is not None:
        pytest.skip(reason)
    with activemq_broker(tmp_path_factory.mktemp("activemq")) as url:
        yield url


@pytest.fixture
def name() -> str:
    """A name for a destination that no other test uses, nor another run."""
    return f"test.{os.getpid()}.{next(_NUMBERS)}"
