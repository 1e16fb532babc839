"""Consumers of several destinations, and of topics."""

import pytest

from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTopic,
    ConsumerControl,
    MessageDispatch,
    Response,
)
from tests.unit.server.openwire.rig import Rig, T, pull, sequence_of, texts


@pytest.mark.parametrize("pattern", ["a.*", "a.>", "a.*.>.>", "a.x,a.y"])
def test_a_consumer_of_several_queues_is_given_the_messages_of_all(pattern: str) -> None:
    rig = Rig()
    client = rig.client()
    consumer = client.consumer(ActiveMQQueue(pattern), prefetch=2)
    x, y = ActiveMQQueue("a.x"), ActiveMQQueue("a.y")
    for destination in (x, y, x, y):
        client.send(destination.physical_name, destination=destination)
    client.send("no", destination=ActiveMQQueue("b.x"))
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 2  # of both together
    assert {dispatch.consumer_id for dispatch in dispatches} == {consumer}
    assert [str(dispatch.destination) for dispatch in dispatches] == ["queue://a.x", "queue://a.y"]
    client.acks(dispatches)
    client.acks(client.take(MessageDispatch))
    assert client.errors() == []
    assert (rig.depth("a.x"), rig.depth("a.y"), rig.depth("b.x")) == (0, 0, 1)


def test_a_range_of_a_consumer_of_several_queues_covers_what_was_given_between() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for number in range(6):
        client.send(str(number), destination=ActiveMQQueue(f"a.{number % 2}"))
    dispatches = client.take(MessageDispatch)
    client.acks(dispatches[:4])
    client.acks(dispatches[4:])
    assert client.errors() == []
    assert (rig.depth("a.0"), rig.depth("a.1")) == (0, 0)


def test_an_individual_acknowledgement_of_a_consumer_of_several_queues_is_about_one() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for name in ("a.x", "a.y"):
        client.send("1", "2", destination=ActiveMQQueue(name))
    dispatches = client.take(MessageDispatch)
    client.acks(dispatches[3:], AckType.INDIVIDUAL, count=0)
    assert client.errors() == []
    assert (rig.depth("a.x"), rig.depth("a.y")) == (2, 1)


def test_a_consumer_of_several_queues_cannot_pull_until_it_has_a_prefetch() -> None:
    rig = Rig()
    client = rig.client()
    consumer = client.consumer(ActiveMQQueue("a.>"), prefetch=0)
    pull(client, consumer, -1)
    rig.run()
    assert client.errors() == ["invalid-argument"]
    client.send("x", destination=ActiveMQQueue("a.x"))
    assert client.messages() == []
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=1))
    rig.run()
    assert client.messages() == ["x"]


def test_destinations_that_come_beyond_the_limit_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 2)
    rig = Rig()
    client, sender = rig.client(), rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for number in range(3):
        sender.send(str(number), destination=ActiveMQQueue(f"a.{number}"))
    assert client.messages() == ["0", "1"]
    assert "limit-exceeded" in client.errors()
    assert client.is_open()


def test_messages_of_several_queues_have_different_numbers() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for name in ("a.x", "a.y"):
        client.send(name, destination=ActiveMQQueue(name))
    dispatches = client.take(MessageDispatch)
    numbers = [sequence_of(dispatch) for dispatch in dispatches]
    assert len(set(numbers)) == 2
    client.done(client.ack(dispatches[1:]))
    assert (rig.depth("a.x"), rig.depth("a.y")) == (1, 0)
    assert client.refused(client.ack(dispatches[1:]))[1] == "unknown-message"
    client.done(client.ack(dispatches[:1], destination=None))
    assert rig.depth("a.x") == 0


def test_a_subscriber_that_wants_no_local_messages_is_not_given_its_own() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    client.consumer(T, no_local=True)
    client.send("own", destination=T)
    other.send("other", destination=T)
    assert client.messages() == ["other"]


def test_a_slow_subscriber_of_a_topic_may_limit_what_waits_for_it() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(T, prefetch=1, maximum_pending_message_limit=2)
    client.send(*map(str, range(6)), destination=T)
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["0"]
    client.acks(dispatches)
    (following,) = client.messages()
    assert following == "4"


@pytest.mark.parametrize("name", ["", " ", ",", "a,,b"])
def test_a_destination_without_a_name_is_refused(name: str) -> None:
    client = Rig().client()
    answer = client.refused(client.consumer_info(ActiveMQQueue(name)))
    assert answer == ("InvalidDestinationException", "invalid-destination")


# They come in steps.


def test_a_consumer_of_many_topics_is_answered_when_it_has_them_all() -> None:
    rig = Rig()
    for number in range(250):
        rig.broker.topic(f"prices.{number}")
    rig.run()
    client = rig.client(client_id="c")
    info = client.consumer_info(ActiveMQTopic("prices.>"), subscription_name="sub", response_required=True)
    client.tell(info)
    rig.turn()
    assert (client.take(Response), len(rig.broker.durables) < 250) == ([], True)
    rig.run()
    assert (len(client.take(Response)), len(rig.broker.durables)) == (1, 250)
    client.vanish()
    rig.client().send("1", destination=ActiveMQTopic("prices.249"))
    assert sum(durable.depth for durable in rig.broker.durables) == 1


def test_a_look_at_the_rules_does_not_answer_a_consumer_of_a_pattern_again() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    rig.gate.recheck_permissions()
    rig.run()
    assert client.take(Response) == []
