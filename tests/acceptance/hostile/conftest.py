"""A broker with narrow limits, and what must hold whatever its peers do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.conftest import StartBroker, defects
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.hostile.peer import SECONDS, Peer, Traffic, Vitals

MEMORY = 64 << 20
"""How much a broker may grow, in bytes: twice what its limits add up to, as not all that is freed is given back."""

Connect = Callable[..., Peer]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    if sys.platform != "linux":
        pytest.skip("reads memory and connections from Linux's /proc")
    return start_broker(
        MEMORY__LIMIT="8MiB", STOMP__CONNECT_TIMEOUT="2s", STOMP__MAX_BODY="1MiB", STOMP__MAX_LINE="1KiB",
        STOMP__MAX_HEADERS="100", STOMP__MAX_CONNECTIONS="1200", OPENWIRE__MAX_FRAME_SIZE="1MiB",
        HTTP__HEADER_TIMEOUT="1s", HTTP__BODY_TIMEOUT="1s", HTTP__MAX_CONNECTIONS="50",
    )  # fmt: skip


@pytest.fixture(scope="module")
def baseline(broker: BrokerProcess) -> int:
    return Vitals(broker).anonymous_memory


@pytest.fixture(autouse=True)
def unharmed(broker: BrokerProcess, baseline: int, destination: str) -> Iterator[Vitals]:
    """During every test other clients' messages go round; after it the broker is as it was before."""
    vitals = Vitals(broker)
    vitals.wait_for_connections(0, SECONDS)
    traffic = Traffic(broker.openwire(), destination.removeprefix("/queue/") + "-traffic")
    try:
        yield vitals
    finally:
        traffic.end()
    vitals.wait_for_connections(0, SECONDS)
    assert vitals.anonymous_memory - baseline < MEMORY
    assert not defects(broker)


@pytest.fixture
def connect(broker: BrokerProcess, unharmed: Vitals) -> Iterator[Connect]:
    with ExitStack() as peers:

        def open_peer(opening: bytes = b"", receive_buffer: int = 0) -> Peer:
            return peers.enter_context(Peer(broker.port(), opening, receive_buffer))

        yield open_peer
