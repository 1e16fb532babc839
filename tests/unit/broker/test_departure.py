"""A consumer that goes with much in flight: it comes back in steps, before anything later is given out."""

from collections.abc import Callable

import pytest

from quire.broker.queues import queue as queue_module
from quire.errors import BrokerStopping
from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, drain, filled, is_flagged, numbers, settings

IN_T = {"transaction": "t"}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "RETURN_STEP", 2)


def unsubscribe(client: SteppedClient) -> None:
    client.frame("UNSUBSCRIBE", {"id": "0"})


def most_at_once(stepped: SteppedBroker, go: Callable[[], None]) -> int:
    """Have a consumer go; how many messages came back in one turn at the most."""
    most, before = 0, stepped.queue("q").redelivered
    go()
    while True:
        most = max(most, stepped.queue("q").redelivered - before)
        before = stepped.queue("q").redelivered
        if stepped.is_turn_wanted:
            stepped.turn()
        elif stepped.writer.batch is not None:
            stepped.commit()
        else:
            return most


@pytest.mark.parametrize("destination", ["/queue/q", "/queue/>"], ids=["one queue", "a wildcard"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_takes_a_bounded_number_of_messages_back(destination: str, lost: bool) -> None:
    stepped = filled(9)
    receiver = stepped.connect()
    receiver.frame("SUBSCRIBE", {"destination": destination, "id": "0", "ack": "client-individual"})
    stepped.run()
    assert stepped.queue("q").in_flight == 9
    assert most_at_once(stepped, receiver.vanish if lost else lambda: unsubscribe(receiver)) == 2
    assert (stepped.queue("q").redelivered, stepped.broker.core.memory.used, stepped.broker.core.leaving) == (9, 0, {})
    again = consumer(stepped).take("MESSAGE")
    assert bodies(again) == numbers(*range(9))
    assert all(is_flagged(message) for message in again)
    failures = [message.failures for message in stepped.queue("q").subscriptions[0].in_flight.values()]
    assert failures == [int(lost), *[0] * 8]


def test_other_consumers_are_given_nothing_later_before_all_of_it_is_back() -> None:
    stepped = filled(9)
    receiver = consumer(stepped, prefetchSize="7")
    other = stepped.connect()
    receiver.vanish()
    other.subscribe("q", headers={"activemq.prefetchSize": "1"})
    stepped.turn()
    assert (other.messages(), stepped.queue("q").awaited) == ([], 1)
    stepped.run()
    assert drain(stepped, other) == numbers(*range(9))


def test_what_its_transaction_has_acknowledged_is_done_with_if_it_commits_meanwhile() -> None:
    stepped = filled(9)
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    for message in receiver.take("MESSAGE")[::2]:
        receiver.ack(message, IN_T)
    unsubscribe(receiver)
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert consumer(stepped).messages() == numbers(1, 3, 5, 7)


def test_a_durable_subscription_is_free_at_once() -> None:
    stepped = SteppedBroker(settings())
    durable = {"destination": "/topic/t", "id": "0", "ack": "client-individual", "activemq.subscriptionName": "d"}
    first = stepped.connect(headers={"client-id": "c"})
    first.frame("SUBSCRIBE", durable)
    stepped.run()
    for number in range(7):
        first.frame("SEND", {"destination": "/topic/t"}, b"%d" % number)
    stepped.run()
    assert len(first.messages()) == 7
    first.vanish()
    second = stepped.connect(headers={"client-id": "c"})
    second.frame("SUBSCRIBE", durable)
    stepped.run()
    assert (second.errors(), second.messages()) == ([], numbers(*range(7)))
    second.frame("UNSUBSCRIBE", {"id": "0", "activemq.subscriptionName": "d"})
    stepped.run()
    assert (second.errors(), len(list(stepped.broker.durables))) == ([], 0)


def test_a_temporary_queue_ends_with_its_connection() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 4 * (100 + MESSAGE_OVERHEAD)}))
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/temp-queue/r", "id": "0", "ack": "client-individual"})
    for number in range(8):
        client.frame("SEND", {"destination": "/temp-queue/r"}, b"%d" % number)
    stepped.run()
    for message in client.take("MESSAGE"):
        client.ack(message)
    stepped.run()
    assert len(client.messages()) == 4  # from the spool: their memory is given back when they come back
    client.vanish()
    stepped.run()
    assert stepped.broker.routing.temporaries.queues == {}
    assert (stepped.broker.core.leaving, stepped.broker.core.stored_bytes, stepped.broker.core.memory.used) == (
        {},
        0,
        0,
    )


def test_a_clean_stop_finishes_it() -> None:
    stepped = filled(9)
    consumer(stepped)
    stepped.stop(BrokerStopping("the broker is going down"))
    assert (stepped.broker.core.leaving, stepped.queue("q").in_flight) == ({}, 0)
    again = consumer(stepped.reopen()).take("MESSAGE")
    assert (bodies(again), {message.headers["JMSXDeliveryCount"] for message in again}) == (numbers(*range(9)), {"2"})
