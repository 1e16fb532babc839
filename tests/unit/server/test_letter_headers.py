"""The headers of dead letters are the broker's: at every door they are dropped if a client writes them."""

from collections.abc import Callable

import msgspec
import pytest

from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.testing.stepped import SteppedBroker
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import letter
from tests.unit.http.conftest import Api
from tests.unit.server.openwire.rig import Rig

LETTER_HEADERS = {"original-destination", "original-expiration", "originalDeliveryMode", "dlqDeliveryFailureCause"}
FORGED = {**dict.fromkeys(sorted(LETTER_HEADERS), "/queue/secret"), "own": "kept"}


def headers_in(stepped: SteppedBroker, queue: str = "q") -> list[dict[str, str]]:
    """The headers of the messages of a queue that a client may have written."""
    page = stepped.store.page(stepped.queue(queue).lanes[0].id, 0, 1_000_000, 1000)
    own = LETTER_HEADERS | {"own"}
    return [{name: value for name, value in m.headers().items() if name in own} for m in page.messages]


def by_stomp(stepped: Rig) -> None:
    client = stepped.connect()
    for number in range(5):  # the later heads are only like the first
        client.send("q", b"m", {**FORGED, "correlation-id": str(number)})
    client.send("q", b"m", FORGED)
    client.send("q", b"m", FORGED)


def in_a_transaction(stepped: Rig) -> None:
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "x"})
    client.send("q", b"m", {**FORGED, "transaction": "x"})
    client.frame("COMMIT", {"transaction": "x"})


def by_the_schedule(stepped: Rig) -> None:
    stepped.connect().send("q", b"m", {**FORGED, "AMQ_SCHEDULED_DELAY": "1000"})
    stepped.run()
    stepped.advance(2)


def by_http(stepped: Rig) -> None:
    answer = Api(stepped).call("POST", "/queues/q/messages", json={"body": "m", "headers": FORGED})
    assert answer.status_code == 201


def in_bulk(stepped: Rig) -> None:
    api = Api(stepped)
    rows = msgspec.msgpack.encode({"destination": "q", "value": [b"m"], "headers": [FORGED]})
    api.call("POST", "/write", content=rows)
    stage = api.call("POST", "/write/stages", content=rows, params={"producer": "p"}).json()["stage"]
    api.call("POST", "/write/commit", json={"producer": "p", "sequence": 1, "stages": [stage]})


def by_openwire(rig: Rig) -> None:
    client = rig.client()
    client.done(client.message(marshalled_properties=write_map(FORGED)))
    client.done(client.message(marshalled_properties=write_map({**FORGED, "number": Typed(Tag.INT, 1)})))
    client.done(client.message(marshalled_properties=write_map({**FORGED, "nested": {"a": 1}})))


DOORS = [by_stomp, in_a_transaction, by_the_schedule, by_http, in_bulk, by_openwire]


@pytest.mark.parametrize("door", DOORS)
def test_what_a_client_writes_into_headers_of_dead_letters_is_dropped(door: Callable[[Rig], None]) -> None:
    stepped = Rig()
    door(stepped)
    stepped.run()
    found = headers_in(stepped)
    assert found
    assert all(headers == {"own": "kept"} for headers in found)


def test_an_entry_of_a_cluster_drops_them_and_writes_its_own() -> None:
    cluster = SteppedCluster(2)
    here, there = cluster.name_at(0), cluster.name_at(1)
    client = cluster.connect(0)
    for number in range(3):
        client.send(there, b"m", {**FORGED, "correlation-id": str(number)})
    for _ in range(2):
        client.send(there, b"m", FORGED)
    client.frame("SEND", {"destination": f"/queue/{here},/queue/{there}", **FORGED}, b"m")
    cluster.run()
    *single, copy = headers_in(cluster.owner(there), there)
    assert single == [{"own": "kept"}] * 5
    assert copy == {"own": "kept", "original-destination": f"/queue/{here},/queue/{there}"}
    assert headers_in(cluster.owner(here), here) == [copy]


def test_a_java_client_finds_its_other_properties() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.done(client.message(marshalled_properties=write_map({**FORGED, "nested": {"a": 1}})))
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.marshalled_properties is not None
    assert read_map(dispatch.message.marshalled_properties) == {"own": "kept", "nested": {"a": 1}}


def test_a_copy_that_an_operator_makes_keeps_them() -> None:
    api = Api(SteppedBroker())
    letter(api.stepped, "/queue/orders", own="kept")
    api.call("POST", "/queues/ActiveMQ.DLQ/copy", json={"to": "archive"})
    (headers,) = headers_in(api.stepped, "archive")
    assert headers == {"own": "kept", "original-destination": "/queue/orders", "dlqDeliveryFailureCause": "x"}
