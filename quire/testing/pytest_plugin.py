"""The fixture ``quire_broker``; pytest finds it by itself where Quire is installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from quire.testing.embedded_broker import EmbeddedBroker


@pytest.fixture
def quire_broker() -> "Iterator[EmbeddedBroker]":
    """A broker of the test's own, without any message; ``EmbeddedBroker`` says what it has."""
    from quire.testing.embedded_broker import EmbeddedBroker  # only the tests that use it need the broker's modules

    with EmbeddedBroker() as broker:
        yield broker
