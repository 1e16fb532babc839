"""The brokers that the client is tested against."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.activemq_broker import activemq_broker, reason_to_skip

OTHER = "QUIRE_CLIENT_TEST_URL"
"""The variable with the URL of another broker that runs already and is to be tested too."""

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session", params=["activemq", *(["other"] if os.environ.get(OTHER) else [])])
def broker_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker: each test runs against each of them."""
    if request.param == "other":
        yield os.environ[OTHER]
        return
    if (reason := reason_to_skip()) is not None:
        pytest.skip(reason)
    directory: Path = tmp_path_factory.mktemp("activemq")
    with activemq_broker(directory) as url:
        yield url


@pytest.fixture
def name() -> str:
    """A name for a destination that no other test uses, nor another run."""
    return f"test.{os.getpid()}.{next(_NUMBERS)}"
