"""The process, before it listens."""

from quire.server.service import Service
from quire.testing.stepped import SteppedBroker


def test_a_broker_without_http_can_be_announced() -> None:
    stepped = SteppedBroker()
    service = Service(stepped.settings, stepped.store, clock=stepped.clock)
    assert (service.http_address, service.http_scheme) == ("", "http")
