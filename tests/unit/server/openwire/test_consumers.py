"""Consumers: what they are given, how much, and what becomes of it when they go."""

from typing import Any

import pytest

from quire.errors import SlowConsumer
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTopic,
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerControl,
    ConsumerId,
    MessageDispatch,
    RemoveInfo,
    Response,
    TransactionType,
)
from quire.protocols.openwire.negotiation import WireFormat
from tests.unit.server.openwire.rig import Q, Rig, T, counters, sequence_of, texts, with_messages

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


def test_a_message_larger_than_the_frames_of_a_client_concerns_that_client_alone() -> None:
    rig = Rig()
    small, large = rig.client(format=WireFormat(max_frame_size=2000)), rig.client()
    large.send("\u20ac" * 3000)
    small.tell(small.consumer_info())
    rig.run()
    large.consumer(ActiveMQQueue("other"))
    large.send("y", destination=ActiveMQQueue("other"))
    assert large.messages() == ["y"]
    assert (rig.depth(), rig.depth("ActiveMQ.DLQ")) == (0, 1)
    assert [error.exception.class_name for error in small.take(ConnectionErrorCommand) if error.exception] == [
        "javax.jms.ResourceAllocationException"
    ]


def test_a_consumer_passes_a_dead_letter_larger_than_its_frames() -> None:
    rig, letters = Rig(), ActiveMQQueue("ActiveMQ.DLQ")
    small, large = rig.client(format=WireFormat(max_frame_size=2000)), rig.client()
    large.send("\u20ac" * 3000, "1", "2", destination=letters)
    id = small.consumer(letters, prefetch=3)
    for _ in range(5):
        rig.advance(2)
        rig.run()
    assert len(small.errors()) == 1  # it is not offered again and again
    large.send("3", destination=letters)
    assert small.messages() == ["1", "2", "3"]
    assert rig.depth("ActiveMQ.DLQ") == 4
    small.remove(id)
    large.consumer(letters)
    assert large.messages() == ["\u20ac" * 3000, "1", "2", "3"]


def test_a_browser_passes_a_message_larger_than_its_frames() -> None:
    rig = Rig()
    small, large = rig.client(format=WireFormat(max_frame_size=2000)), rig.client()
    large.send("\u20ac" * 3000, "small")
    small.consumer(browser=True)
    assert small.messages() == ["small", None]
    assert (rig.depth(), len(small.errors())) == (2, 1)


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


@pytest.mark.parametrize("is_transacted", [False, True])
def test_of_messages_before_one_that_was_acknowledged_alone_any_may_have_been_seen(is_transacted: bool) -> None:
    _, client = with_messages(4)
    consumer = client.consumer()
    dispatches = client.take(MessageDispatch)
    id = client.begin() if is_transacted else None
    client.acks(dispatches[2:3], AckType.INDIVIDUAL, transaction=id)
    if id is not None:
        client.done(client.step(TransactionType.COMMIT_ONE_PHASE, id))
    client.remove(consumer, sequence_of(dispatches[2]))
    client.consumer()
    given = client.take(MessageDispatch)
    assert (texts(given), counters(given)) == (["0", "1", "3"], [1, 1, 0])


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
    subscription.session.end_consumer(subscription, SlowConsumer("too slow"))
    rig.run()
    (control,) = client.take(ConsumerControl)
    assert (control.consumer_id, control.close) == (consumer, True)
    assert client.errors() == ["slow-consumer"]
    assert not client.connection.closed
    client.consumer()
    assert client.messages() == ["0"]


# Browsers.


def test_a_browser_is_shown_nothing_that_was_sent_after_its_answer() -> None:
    rig, client = with_messages(1)
    client.send("1")
    client.tell(client.message("2"))
    rig.run_turns()
    client.tell(client.message("3"))
    client.request(client.consumer_info(browser=True))
    rig.turn()
    assert len(client.take(Response)) == 1
    client.tell(client.message("later"))
    rig.client().send("later")
    assert client.messages() == ["0", "1", "2", "3", None]
    assert rig.depth() == 6


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
