"""Consumers: what they are given, how much, and what becomes of it when they go."""

from typing import Any

import pytest

from quire.errors import LimitExceeded, SlowConsumer
from quire.protocols.openwire.commands import AckType, ConsumerControl, MessageDispatch, MessagePull, RemoveInfo
from quire.protocols.openwire.structures import (
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTopic,
    ConnectionId,
    ConsumerId,
)
from quire.protocols.openwire.wire_format import WireFormat
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, T, counters, sequence_of, texts


def with_messages(count: int) -> tuple[Rig, OpenWireClient]:
    """A broker with messages "0", "1", ... in a queue, and a client."""
    rig = Rig(settings())
    client = rig.client()
    client.send(*map(str, range(count)))
    return rig, client


# Credit.


def test_a_consumer_is_given_as_many_as_its_prefetch() -> None:
    _, client = with_messages(5)
    client.consumer(prefetch=2)
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["0", "1"]
    client.acks(dispatches[:1])
    assert client.messages() == ["2"]


def test_a_failover_client_begins_without_a_prefetch_and_says_it_later() -> None:
    rig, client = with_messages(3)
    consumer = client.consumer(prefetch=0)
    assert client.messages() == []
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=2, destination=Q))
    rig.run()
    assert client.messages() == ["0", "1"]


@pytest.mark.parametrize("flag", ["close", "flush", "start", "stop"])
def test_other_controls_leave_the_prefetch_alone(flag: str) -> None:
    rig, client = with_messages(3)
    consumer = client.consumer(prefetch=1)
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=0, **{flag: True}))  # type: ignore[arg-type]
    rig.run()
    client.acks(client.take(MessageDispatch))
    assert client.messages() == ["1"]


def test_a_control_of_a_consumer_that_is_gone_is_ignored() -> None:
    rig, client = with_messages(1)
    client.tell(ConsumerControl(consumer_id=ConsumerId(client.id, 1, 9), prefetch=2))
    rig.run()
    assert client.errors() == []


def test_a_prefetch_below_zero_is_none() -> None:
    _, client = with_messages(1)
    client.consumer(prefetch=-1)
    assert client.messages() == []


def test_a_consumer_with_a_higher_priority_is_served_first() -> None:
    rig = Rig()
    low, high = rig.client(), rig.client()
    low.consumer(priority=0)
    high.consumer(priority=5, prefetch=1)
    low.send("0", "1")
    assert (high.messages(), low.messages()) == (["0"], ["1"])


def test_an_exclusive_consumer_is_given_everything() -> None:
    rig = Rig()
    plain, exclusive = rig.client(), rig.client()
    plain.consumer()
    exclusive.consumer(exclusive=True)
    plain.send("0", "1")
    assert (plain.messages(), exclusive.messages()) == ([], ["0", "1"])


def test_a_selector_says_which_messages_a_consumer_wants() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(selector="JMSPriority > 5 AND JMSType = 'x'")
    client.consumer(selector="  ", prefetch=0)
    client.send("0", priority=9)
    client.send("1", priority=9, type="x")
    client.send("2", priority=1, type="x")
    assert client.messages() == ["1"]


@pytest.mark.xfail(raises=LimitExceeded, reason="a frame that cannot be encoded ends the turn, not the connection")
def test_a_message_larger_than_the_frames_of_a_client_concerns_that_client_alone() -> None:
    rig = Rig()
    small, large = rig.client(format=WireFormat(max_frame_size=2000)), rig.client()
    large.send("\u20ac" * 3000)
    small.tell(small.consumer_info())
    rig.run()
    large.consumer(ActiveMQQueue("other"))
    large.send("y", destination=ActiveMQQueue("other"))
    assert large.messages() == ["y"]


# Pulls.


def pull(client: OpenWireClient, consumer: ConsumerId, timeout: int) -> None:
    client.tell(MessagePull(consumer_id=consumer, destination=Q, timeout=timeout))


def test_a_pull_brings_one_message() -> None:
    rig, client = with_messages(2)
    consumer = client.consumer(prefetch=0)
    for text in ("0", "1"):
        pull(client, consumer, 0)
        rig.run()
        assert client.messages() == [text]


def test_a_pull_that_does_not_wait_ends_without_a_message() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, -1)
    rig.run()
    (nothing,) = client.take(MessageDispatch)
    assert (nothing.message, nothing.consumer_id, nothing.destination) == (None, consumer, Q)
    client.send("late")
    assert client.messages() == []


def test_a_pull_that_does_not_wait_finds_what_was_sent_before() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    client.tell(client.message("1"), MessagePull(consumer_id=consumer, destination=Q, timeout=-1))
    rig.run()
    assert client.messages() == ["1"]


def test_a_pull_waits_as_long_as_it_says() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 500)
    rig.advance(0.49)
    rig.run()
    assert client.messages() == []
    rig.advance(0.01)
    rig.run()
    assert client.messages() == [None]
    pull(client, consumer, 500)
    client.send("1")
    assert client.messages() == ["1"]
    rig.advance(1)
    rig.run()
    assert client.messages() == []


def test_a_pull_of_zero_waits_for_ever() -> None:
    rig = Rig()
    client = rig.client(format=WireFormat(inactivity_ms=0))
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 0)
    rig.advance(100_000)
    rig.run()
    assert client.messages() == []
    rig.client().send("1")
    assert client.messages() == ["1"]


def test_a_pull_of_a_consumer_that_has_a_prefetch_or_is_gone_is_ignored() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=1)
    pull(client, consumer, -1)
    pull(client, ConsumerId(client.id, 1, 9), -1)
    rig.run()
    assert (client.messages(), client.errors()) == ([], [])


def test_a_consumer_of_a_topic_and_a_durable_one_pull_too() -> None:
    rig = Rig()
    client = rig.client()
    for fields in ({}, {"subscription_name": "s"}):
        consumer = client.consumer(T, 0, **fields)
        client.send("1", "2", destination=T)
        assert client.messages() == []
        pull(client, consumer, 0)
        rig.run()
        assert client.messages() == ["1"]
        client.remove(consumer)


def test_a_prefetch_that_is_raised_ends_a_pull() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 500)
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=5))
    rig.advance(1)
    rig.run()
    assert client.messages() == []
    client.send("1", "2")
    assert client.messages() == ["1", "2"]


def test_a_pull_takes_the_place_of_the_one_before() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 500)
    pull(client, consumer, 5000)
    rig.advance(1)
    rig.run()
    assert client.messages() == []
    client.send("1", "2")
    assert client.messages() == ["1"]


def test_a_timeout_below_minus_one_does_not_wait() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, -7)
    rig.run()
    assert (client.messages(), client.errors()) == ([None], [])


def test_a_closed_consumer_pulls_no_more() -> None:
    rig, client = with_messages(0)
    consumer = client.consumer(prefetch=0)
    pull(client, consumer, 500)
    client.remove(consumer)
    rig.advance(1)
    rig.run()
    assert client.received() == []


# How they go.


@pytest.mark.parametrize(
    ("seen", "counts"),
    [("unknown", [1, 1, 1]), ("none", [0, 0, 0]), ("first", [1, 0, 0]), ("second", [1, 1, 0]), ("last", [1, 1, 1])],
)
def test_what_the_application_has_seen_counts_as_delivered(seen: str, counts: list[int]) -> None:
    _, client = with_messages(3)
    consumer = client.consumer()
    numbers = [sequence_of(dispatch) for dispatch in client.take(MessageDispatch)]
    last = {"unknown": -2, "none": -1, "first": numbers[0], "second": numbers[1], "last": numbers[2]}[seen]
    client.remove(consumer, last)
    client.consumer()
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["0", "1", "2"]
    assert counters(dispatches) == counts
    assert [dispatch.message.redelivery_counter for dispatch in dispatches if dispatch.message] == counts


def test_of_a_message_that_was_acknowledged_nothing_behind_it_was_seen() -> None:
    _, client = with_messages(3)
    consumer = client.consumer()
    dispatches = client.take(MessageDispatch)
    client.acks(dispatches[:1])
    client.remove(consumer, sequence_of(dispatches[0]))
    client.consumer()
    assert counters(client.take(MessageDispatch)) == [0, 0]


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
def test_the_end_of_any_of_them_gives_messages_back_in_order(what: str) -> None:
    rig, client = with_messages(4)
    consumer = client.consumer(prefetch=3)
    other = rig.client()
    other.consumer(prefetch=0)
    dispatches = client.take(MessageDispatch)
    ended: Any = {"consumer": consumer, "session": client.session_id, "connection": ConnectionId(client.id)}[what]
    client.done(RemoveInfo(object_id=ended, last_delivered_sequence_id=sequence_of(dispatches[0])))
    rig.run()
    late = rig.client()
    late.consumer()
    given = late.take(MessageDispatch)
    assert texts(given) == ["0", "1", "2", "3"]
    assert counters(given) == [1, 0, 0, 0]


def test_the_end_of_a_session_leaves_other_sessions_alone() -> None:
    rig, client = with_messages(0)
    kept = client.consumer(consumer_id=ConsumerId(client.id, 2, 1))
    client.consumer()
    client.remove(client.session_id)
    assert [subscription.id for subscription in rig.queue("q").subscriptions] == [str(kept)]


def test_removing_what_is_gone_is_no_error() -> None:
    _, client = with_messages(0)
    consumer, producer = client.consumer(), client.producer(Q)
    for id in (consumer, producer, client.session_id):
        client.done(RemoveInfo(object_id=id))
        client.done(RemoveInfo(object_id=id))


def test_a_consumer_that_is_too_slow_is_ended_alone() -> None:
    rig, client = with_messages(1)
    consumer = client.consumer()
    client.take(MessageDispatch)
    (subscription,) = rig.queue("q").subscriptions
    client.session.end_consumer(subscription, SlowConsumer("too slow"))
    rig.run()
    (control,) = client.take(ConsumerControl)
    assert (control.consumer_id, control.close) == (consumer, True)
    assert client.errors() == ["slow-consumer"]
    assert not client.connection.closed
    client.consumer()
    assert client.messages() == ["0"]


# Browsers.


def test_a_browser_is_shown_everything_and_takes_nothing() -> None:
    rig, client = with_messages(3)
    browser = client.consumer(browser=True)
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["0", "1", "2", None]
    assert dispatches[-1].consumer_id == browser
    assert rig.depth() == 3
    client.acks(dispatches[:3])
    client.remove(browser)
    assert client.errors() == []
    assert rig.depth() == 3


def test_a_browser_is_shown_what_was_sent_right_before_it() -> None:
    rig, client = with_messages(0)
    client.tell(client.message("1"), client.consumer_info(browser=True))
    rig.run()
    assert client.messages() == ["1", None]


def test_consumers_that_go_leave_nothing_behind() -> None:
    _, client = with_messages(2)
    ids = [client.consumer(browser=True), client.consumer(), client.consumer(ActiveMQQueue(">")), client.consumer(T)]
    assert len(client.session.subscriptions) == 4
    for id in ids:
        client.remove(id)
    assert client.session.subscriptions == {}
    assert client.session.consumers.table.frames == {}


def test_a_browser_goes_on_when_messages_are_acknowledged() -> None:
    _, client = with_messages(5)
    client.consumer(browser=True, prefetch=2)
    seen: list[str | None] = []
    while dispatches := client.take(MessageDispatch):
        seen += texts(dispatches)
        if shown := [dispatch for dispatch in dispatches if dispatch.message is not None]:
            client.acks(shown)
    assert seen == ["0", "1", "2", "3", "4", None]


def test_a_browser_of_an_empty_queue_ends_at_once() -> None:
    _, client = with_messages(0)
    client.consumer(browser=True)
    assert client.messages() == [None]


def test_a_browser_has_a_selector() -> None:
    _, client = with_messages(2)
    client.send("x", type="x")
    client.consumer(browser=True, selector="JMSType = 'x'")
    assert client.messages() == ["x", None]


@pytest.mark.parametrize("destination", [T, ActiveMQQueue("a,b")])
def test_a_browser_is_of_one_queue(destination: ActiveMQQueue | ActiveMQTopic) -> None:
    client = Rig().client()
    assert client.refused(client.consumer_info(destination, browser=True))[1] == "invalid-argument"


# Several destinations, and topics.


@pytest.mark.parametrize("pattern", ["a.*", "a.>", "a.x,a.y"])
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


def test_a_range_of_a_consumer_of_several_queues_is_the_last_so_many() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for name in ("a.x", "a.x", "a.y", "a.x"):
        client.send(name, destination=ActiveMQQueue(name))
    dispatches = client.take(MessageDispatch)
    client.acks(dispatches[1:])
    assert client.errors() == []
    assert (rig.depth("a.x"), rig.depth("a.y")) == (1, 0)
    client.acks(dispatches[:1])
    assert client.errors() == []
    assert rig.depth("a.x") == 0


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


def test_a_consumer_of_several_queues_that_has_seen_nothing_gives_all_back_uncounted() -> None:
    rig = Rig()
    client = rig.client()
    consumer = client.consumer(ActiveMQQueue("a.>"))
    client.send("x", destination=ActiveMQQueue("a.x"))
    client.take(MessageDispatch)
    client.remove(consumer, -1)
    client.consumer(ActiveMQQueue("a.x"))
    assert counters(client.take(MessageDispatch)) == [0]


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


@pytest.mark.parametrize("kind", [ActiveMQQueue, ActiveMQTopic])
def test_a_consumer_that_cannot_have_all_its_destinations_has_none(kind: type[ActiveMQDestination]) -> None:
    rig = Rig(settings(broker={"max_destinations": 2}))
    client = rig.client()
    refusal = client.refused(client.consumer_info(kind("a,b,c")))
    assert refusal == ("ResourceAllocationException", "too-many-destinations")
    rig.run()
    assert client.session.subscriptions == {}
    named: Any = rig.broker.destinations.queues if kind is ActiveMQQueue else rig.broker.destinations.topics
    assert [found.subscriptions for found in named.values()] == [[], []]
    client.consumer(kind("a"))
    client.consumer(kind("a,b"))
    client.consumer(kind("a.>"))


def test_a_connection_consumes_a_limited_number_of_destinations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.openwire.subscription_table.MAX_CONSUMED", 2)
    client = Rig().client()
    refusal = ("ResourceAllocationException", "limit-exceeded")
    assert client.refused(client.consumer_info(ActiveMQQueue("a,b,c"))) == refusal
    client.consumer(ActiveMQQueue("a,b"))
    assert client.refused(client.consumer_info(ActiveMQQueue("c"))) == refusal


def test_destinations_that_come_beyond_the_limit_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.openwire.subscription_table.MAX_CONSUMED", 2)
    rig = Rig()
    client, sender = rig.client(), rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    for number in range(3):
        sender.send(str(number), destination=ActiveMQQueue(f"a.{number}"))
    assert client.messages() == ["0", "1"]
    assert "limit-exceeded" in client.errors()
    assert client.is_open()


def test_an_acknowledgement_of_a_consumer_of_several_queues_names_the_queue() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer(ActiveMQQueue("a.>"))
    client.send("1", destination=ActiveMQQueue("a.x"))
    dispatches = client.take(MessageDispatch)
    for wrong in (ActiveMQQueue("a.y"), None):
        assert client.refused(client.ack(dispatches, destination=wrong))[1] == "unknown-message"
    several = client.ack(dispatches, destination=ActiveMQQueue("a.x,a.y"))
    assert client.refused(several)[1] == "invalid-destination"
    client.done(client.ack(dispatches))
    assert rig.depth("a.x") == 0


def test_a_composite_is_sent_to_all_its_parts() -> None:
    rig = Rig()
    client = rig.client()
    client.send("1", destination=ActiveMQQueue("a,topic://t, b"))
    assert (rig.depth("a"), rig.depth("b")) == (1, 1)


def test_subscribers_of_a_topic_are_all_given_its_messages_but_not_earlier_ones() -> None:
    rig = Rig()
    clients = [rig.client() for _ in range(3)]
    clients[0].consumer(T)
    clients[1].consumer(ActiveMQTopic("*"))
    clients[2].send("1", destination=T)
    clients[2].consumer(T)
    assert [client.messages() for client in clients] == [["1"], ["1"], []]


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
