"""Durable subscriptions: what is sent while the consumer is away waits, in order, exactly counted, until it is done."""

import pytest

from quire.broker.core.subscription import AckMode
from quire.errors import BrokerStopping, DestinationInUse, InvalidArgument, StoreFull
from quire.selectors import selector
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import (
    Recipient,
    accept,
    durable,
    leave,
    marks,
    offline,
    publish,
    put,
    records,
    reject,
    settle,
)


def test_what_is_sent_while_the_consumer_is_away_waits_for_it() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, "1", "2", persistent=False)
    assert durable(stepped).depth == 2
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "3")
    messages = receiver.take()
    assert [(m.body, m.redelivered) for m in messages] == [(b"1", False), (b"2", False), (b"3", False)]
    accept(subscription, *messages)
    stepped.run()
    assert (durable(stepped).depth, durable(stepped).bytes, records(stepped)) == (0, 0, 0)
    assert stepped.broker.core.memory.used == 0


def test_it_begins_when_it_is_made() -> None:
    stepped = SteppedBroker()
    publish(stepped, "before")
    offline(stepped)
    publish(stepped, "after")
    receiver = Recipient(stepped)
    receiver.subscribe_durably()
    assert receiver.bodies() == [b"after"]


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_it_begins_when_it_is_made_in_the_midst_of_a_commit_too(*, prioritized: bool, fails: bool) -> None:
    stepped = SteppedBroker(settings(policy={"prioritized_messages": prioritized}))
    offline(stepped, "other")
    publish(stepped, "earlier")
    put(stepped, "under way")
    stepped.run_turns()
    put(stepped, "before")
    stepped.broker.durables.create("c", "d", stepped.broker.topic("t"))
    put(stepped, "after")
    stepped.commit()
    stepped.run_turns()
    stepped.commit(StoreFull("full") if fails else None)
    stepped.advance(1)
    stepped.run()
    publish(stepped, "later")
    lost = 2 if fails else 0
    assert [durable(stepped, name).depth for name in ("other", "d")] == [5 - lost, 2 - lost // 2]
    again = stepped.reopen()
    assert [durable(again, name).depth for name in ("other", "d")] == [5 - lost, 2 - lost // 2]
    assert durable(again).bytes == durable(stepped).bytes
    receiver = Recipient(again)
    subscription = receiver.subscribe_durably()
    messages = receiver.take()
    assert [m.body for m in messages] == ([b"later"] if fails else [b"after", b"later"])
    accept(subscription, *messages)
    again.run()
    assert (durable(again).depth, durable(again).bytes, records(again)) == (0, 0, 5 - lost)


def test_it_survives_a_restart_with_everything_unfinished() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    publish(stepped, "1", "2", "3", "4")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=3)
    _, second, _ = receiver.take()
    accept(subscription, second)
    stepped.run()
    again = stepped.reopen()
    assert (durable(again).depth, records(again)) == (3, 3)
    receiver = Recipient(again)
    receiver.subscribe_durably()
    assert [(m.body, m.redelivered) for m in receiver.take()] == [(b"1", True), (b"3", True), (b"4", True)]


def test_the_body_is_stored_once_and_goes_with_the_last_subscription() -> None:
    stepped = SteppedBroker()
    receivers = {name: Recipient(stepped, name) for name in ("a", "b", "c")}
    subscriptions = {name: receiver.subscribe_durably(name) for name, receiver in receivers.items()}
    publish(stepped, "1", "2", "3")
    assert records(stepped) == 3
    got = {name: receiver.take() for name, receiver in receivers.items()}
    for name, expected in (("a", 3), ("c", 3), ("b", 2)):
        accept(subscriptions[name], got[name][1])
        stepped.run()
        assert records(stepped) == expected
        assert durable(stepped, name).depth == 2
    assert stepped.broker.core.stored_bytes == stepped.store.lane_state(stepped.broker.topic("t").lanes[0]).bytes


def test_acknowledgements_out_of_order_remove_records_out_of_order() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, *"12345")
    messages = receiver.take()
    for message in messages[::-1]:
        accept(subscription, message)
        stepped.run()
        assert records(stepped) == durable(stepped).depth
    assert marks(stepped) == ["sub/a/1/0", "sub/c/1", "sub/h/1"]


def test_there_is_only_one_consumer_at_a_time() -> None:
    stepped = SteppedBroker()
    first = Recipient(stepped, "first").subscribe_durably()
    with pytest.raises(DestinationInUse, match="in connection first: there can be only one"):
        Recipient(stepped, "second").subscribe_durably()
    with pytest.raises(DestinationInUse):
        Recipient(stepped, "second").subscribe_durably(wanted="a = 1")
    leave(first)
    Recipient(stepped, "second").subscribe_durably()


def test_names_are_those_of_a_client() -> None:
    stepped = SteppedBroker()
    Recipient(stepped).subscribe_durably(client="c")
    Recipient(stepped).subscribe_durably(client="other")
    assert sorted(found.key for found in stepped.broker.durables) == [("c", "d"), ("other", "d")]


def test_the_same_selector_goes_on() -> None:
    stepped = SteppedBroker()
    offline(stepped, wanted="a = '1'")
    publish(stepped, "1", a="1")
    receiver = Recipient(stepped)
    receiver.subscribe_durably(wanted="a = '1'")
    assert receiver.bodies() == [b"1"]


def test_a_selector_finishes_what_it_does_not_match() -> None:
    stepped = SteppedBroker()
    offline(stepped, wanted="a = '1'")
    for number in range(6):
        publish(stepped, str(number), a=str(number % 2))
    stepped.run()
    assert (durable(stepped).depth, records(stepped)) == (3, 3)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(wanted="a = '1'")
    messages = receiver.take()
    assert [message.body for message in messages] == [b"1", b"3", b"5"]
    accept(subscription, *messages)
    stepped.run()
    assert (durable(stepped).depth, durable(stepped).finished.holes, records(stepped)) == (0, 0, 0)


def test_what_a_selector_does_not_match_is_finished_once_though_the_consumer_comes_while_it_is_stored() -> None:
    stepped = SteppedBroker()
    offline(stepped, wanted="a = '1'")
    publish(stepped, "1", a="1")
    put(stepped, "2", a="2")
    put(stepped, "3", a="1")
    stepped.turn()
    receiver = Recipient(stepped)
    topic, wanted = stepped.broker.topic("t"), selector("a = '1'")
    stepped.broker.durables.subscribe("c", "d", topic, receiver, id="r", selector=wanted)
    stepped.commit()
    stepped.run()
    assert (receiver.bodies(), durable(stepped).depth, records(stepped)) == ([b"1", b"3"], 2, 2)
    assert stepped.broker.core.stored_bytes == stepped.store.lane_state(topic.lanes[0]).bytes


def test_no_local_finishes_what_its_own_session_sends() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    receiver.subscribe_durably(no_local=True)
    publish(stepped, "own", sender=receiver)
    publish(stepped, "others")
    assert receiver.bodies() == [b"others"]
    assert (durable(stepped).depth, records(stepped)) == (1, 1)


def test_no_local_means_the_last_session_while_the_consumer_is_away() -> None:
    stepped = SteppedBroker()
    receiver, other = Recipient(stepped), Recipient(stepped, "other")
    leave(receiver.subscribe_durably(no_local=True))
    stepped.run()
    publish(stepped, "own", sender=receiver)
    publish(stepped, "others", sender=other)
    assert (durable(stepped).depth, records(stepped)) == (1, 1)
    other.subscribe_durably(no_local=True)  # a connection with the same client id: what it has sent is not its own
    assert other.bodies() == [b"others"]


def test_a_selector_leaves_in_what_its_own_session_sends() -> None:
    stepped = SteppedBroker()
    Recipient(stepped, "other").subscribe_durably("other", no_local=True)
    receiver = Recipient(stepped)
    receiver.subscribe_durably(wanted="a = 1")
    publish(stepped, "own", sender=receiver, a="1")
    assert receiver.bodies() == [b"own"]


def test_what_is_rejected_comes_back_counted_over_a_restart() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_redeliveries": 2}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1", "2")
    for _ in range(2):
        reject(subscription, receiver.take()[0])
        stepped.run()
    again = stepped.reopen()
    receiver = Recipient(again)
    subscription = receiver.subscribe_durably()
    first, second = receiver.take()
    assert (first.body, first.failures, first.deliveries) == (b"1", 2, 2)
    assert (second.failures, second.redelivered) == (0, True)
    reject(subscription, first)
    again.run()
    assert again.queue("ActiveMQ.DLQ").depth == 1
    assert (durable(again).depth, records(again)) == (1, 1)
    assert not [key for key in marks(again) if key.startswith("sub/d/")]


def test_a_delay_survives_a_restart() -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 10.0}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1")
    reject(subscription, *receiver.take())
    stepped.run()
    again = stepped.reopen()
    receiver = Recipient(again)
    receiver.subscribe_durably()
    assert receiver.bodies() == []
    again.advance(10)
    again.run()
    assert receiver.bodies() == [b"1"]


@pytest.mark.parametrize("redelivery_at", ["in-place", "tail"])
def test_a_shared_lane_keeps_its_order_whatever_fails(redelivery_at: str) -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 10.0, "redelivery_at": redelivery_at}))
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    publish(stepped, "1", "2", "3")
    reject(subscription, *receiver.take())
    stepped.run()
    (second,) = receiver.take()
    stepped.advance(10)
    accept(subscription, second)
    stepped.run()
    assert receiver.bodies() == [b"1"]


def test_its_dead_letters_have_a_destination_of_their_own_if_the_policy_says_so() -> None:
    policy = {"dead_letter_strategy": "individual", "destination_per_durable_subscriber": True}
    stepped = SteppedBroker(settings(policy={"maximum_redeliveries": 0, **policy}))
    for client, queue in (("c", "ActiveMQ.DLQ.Topic.t.c.d"), ("with,comma", "ActiveMQ.DLQ")):
        receiver = Recipient(stepped)
        subscription = receiver.subscribe_durably(client=client)
        publish(stepped, "1")
        reject(subscription, *receiver.take())
        stepped.run()
        assert stepped.queue(queue).depth == 1
        leave(subscription)


def test_expired_messages_are_finished_for_everybody() -> None:
    stepped = SteppedBroker()
    offline(stepped, "a")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably("b", prefetch=1)
    for body in ("1", "2"):
        publish(stepped, body, expiration=stepped.clock.now_ms() + 1000)
    publish(stepped, "3")
    settle(stepped, 3)
    a, b = durable(stepped, "a"), durable(stepped, "b")
    assert (a.depth, a.expired) == (1, 2)
    assert (b.depth, b.expired) == (2, 1)  # the other one is in flight
    assert records(stepped) == 2
    assert stepped.queue("ActiveMQ.DLQ").depth == 3
    accept(subscription, *receiver.take())
    stepped.run()
    assert receiver.bodies() == [b"3"]
    assert records(stepped) == 1


def test_a_clean_stop_leaves_no_flags() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1")
    leave(subscription)
    durable(stepped).stop()
    publish(stepped, "2")
    stepped.stop(BrokerStopping("down"))
    again = stepped.reopen()
    receiver = Recipient(again)
    receiver.subscribe_durably()
    assert [(message.body, message.redelivered) for message in receiver.take()] == [(b"1", True), (b"2", False)]


def test_auto_acknowledgement_finishes_on_delivery() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    receiver.subscribe_durably(ack=AckMode.AUTO)
    publish(stepped, "1", "2")
    assert receiver.bodies() == [b"1", b"2"]
    assert (durable(stepped).depth, records(stepped)) == (0, 0)


def test_its_name_is_as_long_as_a_destinations_may_be() -> None:
    stepped = SteppedBroker()
    offline(stepped, "\u20ac" * 166)  # 498 bytes
    with pytest.raises(InvalidArgument) as caught:
        Recipient(stepped).subscribe_durably("\u20ac" * 167)
    assert caught.value.data["limit"] == 500
    assert len(stepped.broker.durables) == 1
