"""Acknowledgements of every type, of ranges, and of what is not there."""

from typing import Any

import pytest

from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTopic,
    ConsumerId,
    MessageAck,
    MessageDispatch,
    MessageId,
    ProducerId,
    Response,
    Throwable,
    TransactionType,
)
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig, id_of, sequence_of


def given(count: int, prefetch: int = 1000) -> tuple[Rig, OpenWireClient, list[MessageDispatch]]:
    """A client whose consumer was given messages "0", "1", ..."""
    rig = Rig(settings())
    client = rig.client()
    client.consumer(prefetch=prefetch)
    client.send(*map(str, range(count)))
    return rig, client, client.take(MessageDispatch)


def dead(rig: Rig) -> int:
    return rig.depth("ActiveMQ.DLQ")


# One, and ranges.


@pytest.mark.parametrize("type", [AckType.STANDARD, AckType.INDIVIDUAL, AckType.UNMATCHED])
def test_one_message_is_done_with(type: AckType) -> None:
    rig, client, dispatches = given(3)
    client.acks(dispatches[1:2], type)
    assert client.errors() == []
    assert (rig.depth(), dead(rig)) == (2, 0)
    client.vanish()
    other = rig.client()
    other.consumer()
    assert other.messages() == ["0", "2"]


def test_a_range_covers_everything_between_its_ends() -> None:
    rig, client, dispatches = given(5)
    client.acks(dispatches[1:4])
    assert client.errors() == []
    assert rig.depth() == 2


def test_a_range_without_a_first_message_begins_with_the_first_in_flight() -> None:
    rig, client, dispatches = given(5)
    client.acks(dispatches[:3], first_message_id=None)
    assert client.errors() == []
    assert rig.depth() == 2


def test_a_range_of_other_length_than_the_client_says_is_refused() -> None:
    rig, client, dispatches = given(4)
    assert client.refused(client.ack(dispatches[:3], count=2)) == ("JMSException", "invalid-argument")
    assert rig.depth() == 4
    client.done(client.ack(dispatches[:3]))
    assert rig.depth() == 1


def test_individual_is_about_one_message() -> None:
    rig, client, dispatches = given(3)
    assert client.refused(client.ack(dispatches, AckType.INDIVIDUAL))[1] == "invalid-argument"
    assert rig.depth() == 3


def test_many_acknowledgements_at_once_are_settled_together_in_any_order() -> None:
    rig, client, dispatches = given(50)
    client.tell(*[client.ack([dispatch], AckType.INDIVIDUAL) for dispatch in reversed(dispatches)])
    rig.run()
    assert client.errors() == []
    assert rig.depth() == 0


def test_acknowledgements_of_two_consumers_may_alternate() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(prefetch=5)
    client.consumer(prefetch=5)
    client.send(*map(str, range(10)))
    dispatches = client.take(MessageDispatch)
    assert len({dispatch.consumer_id for dispatch in dispatches}) == 2
    client.tell(*[client.ack([dispatch]) for dispatch in dispatches])
    rig.run()
    assert client.errors() == []
    assert rig.depth() == 0


def test_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    rig, client, dispatches = given(1)
    client.request(client.ack(dispatches))
    rig.turn()
    assert client.take(Response) == []
    rig.run()
    assert len(client.take(Response)) == 1


# What is not there.


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("type", [0, 1, 2, 3, 4, 5, 6])
def test_an_acknowledgement_of_a_message_that_is_not_in_flight_is_an_error(type: int, asks: bool) -> None:
    rig, client, dispatches = given(2)
    unknown = MessageId(ProducerId(client.id, 1, 1), 99, 99)
    ack = client.ack(dispatches[:1], type, first_message_id=unknown)
    ack.last_message_id = unknown
    if asks:
        assert client.refused(ack) == ("JMSException", "unknown-message")
    else:
        client.tell(ack)
        rig.run()
        assert client.errors() == ["unknown-message"]
    assert not client.connection.closed
    assert rig.depth() == 2


@pytest.mark.parametrize("type", [AckType.STANDARD, AckType.DELIVERED, AckType.POISON])
def test_an_acknowledgement_of_a_consumer_that_is_gone_is_ignored(type: AckType) -> None:
    rig, client, dispatches = given(2)
    consumer = dispatches[0].consumer_id
    client.remove(consumer)
    client.acks(dispatches, type)
    client.done(client.ack(dispatches, type, response_required=True))
    assert client.errors() == []
    assert rig.depth() == 2


def test_an_acknowledgement_of_a_consumer_that_never_was_is_ignored() -> None:
    rig, client, dispatches = given(1)
    dispatches[0].consumer_id = ConsumerId("ID:other", 1, 1)
    client.acks(dispatches)
    assert client.errors() == []
    assert rig.depth() == 1


def test_an_unknown_type_is_refused() -> None:
    _, client, dispatches = given(1)
    assert client.refused(client.ack(dispatches, 7))[1] == "invalid-argument"


def test_an_acknowledgement_needs_a_last_message() -> None:
    _, client, dispatches = given(1)
    assert client.refused(MessageAck(consumer_id=dispatches[0].consumer_id, ack_type=2))[1] == "protocol-violation"


# Types.


def test_delivered_moves_the_window_and_nothing_else() -> None:
    rig, client, dispatches = given(10, prefetch=4)
    assert len(dispatches) == 4
    client.acks(dispatches[:2], AckType.DELIVERED)
    more = client.take(MessageDispatch)
    assert len(more) == 2
    assert rig.depth() == 10
    client.acks(dispatches)
    assert client.errors() == []
    assert rig.depth() == 6


def test_poison_makes_a_dead_letter_with_its_cause() -> None:
    rig, client, dispatches = given(2)
    cause = Throwable("java.lang.Throwable", "Exceeded redelivery policy limit")
    client.acks(dispatches[:1], AckType.POISON, poison_cause=cause)
    assert client.errors() == []
    assert (rig.depth(), dead(rig)) == (1, 1)
    letter = rig.connect()
    letter.subscribe("ActiveMQ.DLQ", "auto")
    rig.run()
    (frame,) = letter.take("MESSAGE")
    assert frame.body == b"0"
    assert "Exceeded redelivery policy limit" in frame.headers["dlqDeliveryFailureCause"]


@pytest.mark.parametrize("destination", ["queue", "topic", "durable"])
def test_a_duplicate_that_the_client_suppressed_is_a_dead_letter_and_no_failure(destination: str) -> None:
    rig = Rig(settings())
    client = rig.client()
    target = ActiveMQQueue("q") if destination == "queue" else ActiveMQTopic("t")
    client.consumer(target, subscription_name="s" if destination == "durable" else None)
    client.send("0", "1", destination=target)
    first, second = client.take(MessageDispatch)
    suppressed = Throwable("java.lang.Throwable", "Suppressing duplicate delivery on connection, consumer ID:c:1:1:1")
    client.acks([first], AckType.POISON, poison_cause=suppressed)
    client.acks([second], AckType.POISON, poison_cause=Throwable("java.lang.Error", "broken"))
    assert client.errors() == []
    letter = rig.connect()
    letter.subscribe("ActiveMQ.DLQ", "auto")
    rig.run()
    causes = [frame.headers["dlqDeliveryFailureCause"] for frame in letter.take("MESSAGE")]
    assert causes == [
        "duplicate suppressed by the client: java.lang.Throwable: Suppressing duplicate delivery on connection, "
        "consumer ID:c:1:1:1",
        "java.lang.Error: broken",
    ]
    sources: dict[str, Any] = {"queue": rig.broker.queues.get("q"), "topic": rig.broker.topic("t"),
                               "durable": next(iter(rig.broker.durables), None)}  # fmt: skip
    source = sources[destination]
    assert (source.suppressed, source.dead_lettered) == (1, 1)


def test_expired_is_a_dead_letter_too() -> None:
    rig, client, dispatches = given(2)
    client.acks(dispatches[:1], AckType.EXPIRED)
    assert client.errors() == []
    assert (rig.depth(), dead(rig)) == (1, 1)


def test_redelivered_leaves_it_in_flight() -> None:
    rig, client, dispatches = given(2)
    client.acks(dispatches, AckType.REDELIVERED)
    assert (client.errors(), client.messages()) == ([], [])
    client.acks(dispatches)
    assert client.errors() == []
    assert rig.depth() == 0


def test_the_number_in_a_dispatch_rises() -> None:
    _, _, dispatches = given(3)
    numbers = [sequence_of(dispatch) for dispatch in dispatches]
    assert numbers == sorted(set(numbers))
    assert [id_of(dispatch).producer_sequence_id for dispatch in dispatches] == [1, 2, 3]


# After a failover.


def test_what_a_failed_over_client_had_before_comes_first_in_its_ranges() -> None:
    rig, client, dispatches = given(5)
    zero, one, two, three, _ = dispatches
    for again in (three, one):  # its application had these before, in the order 1, 3
        client.acks([again], AckType.DELIVERED, first_message_id=None)
    transaction = client.begin()
    client.acks([one, zero], transaction=transaction, count=3)  # 1, 3, and then 0
    client.done(client.step(TransactionType.COMMIT_ONE_PHASE, transaction))
    assert client.errors() == []
    client.vanish()
    other = rig.client()
    other.consumer()
    assert other.messages() == ["2", "4"]
    assert sequence_of(two) == 3
