"""Messages that come back: first, in order, flagged, counted, and in the end dead letters."""

from quire.errors import StoreFull
from quire.store.base import Delivery
from quire.testing.stepped import Frame, SteppedBroker
from tests.unit.broker.harness import bodies, consumer, filled, is_flagged, numbers, settings

DLQ = "ActiveMQ.DLQ"


def counts(frames: list[Frame]) -> list[str | None]:
    return [frame.headers.get("JMSXDeliveryCount") for frame in frames]


def fail_often(stepped: SteppedBroker, times: int, name: str = "q") -> None:
    receiver = consumer(stepped, name)
    for _ in range(times):
        (message,) = receiver.take("MESSAGE")
        receiver.nack(message)
        stepped.run()
    receiver.frame("DISCONNECT")
    stepped.run()


def test_rejected_messages_come_first_and_in_their_order() -> None:
    stepped = filled(6)
    receiver = consumer(stepped, prefetchSize="3")
    messages = receiver.take("MESSAGE")
    receiver.feed(b"".join(b"NACK\nid:%s\n\n\0" % m.headers["ack"].encode() for m in (messages[2], messages[0])))
    stepped.run()
    again = receiver.take("MESSAGE")
    assert bodies(again) == numbers(0, 2)
    assert all(is_flagged(message) for message in again)
    assert counts(again) == ["2", "2"]
    receiver.ack(messages[1])
    stepped.run()
    (fresh,) = receiver.take("MESSAGE")
    assert (fresh.body, is_flagged(fresh)) == (b"3", False)


def test_a_rejection_in_client_mode_rejects_everything_up_to_it() -> None:
    stepped = filled(4)
    receiver = consumer(stepped, ack="client", prefetchSize="4")
    receiver.nack(receiver.take("MESSAGE")[2])
    stepped.run()
    assert receiver.messages() == numbers(0, 1, 2)


def test_a_message_that_fails_a_seventh_time_becomes_a_dead_letter() -> None:
    stepped = filled(1)
    fail_often(stepped, 6)
    assert (stepped.queue("q").depth, DLQ in stepped.broker.queues) == (1, False)
    fail_often(stepped, 1)
    assert stepped.queue("q").depth == 0
    (letter,) = consumer(stepped, DLQ).take("MESSAGE")
    assert letter.body == b"0"
    assert letter.headers["original-destination"] == "/queue/q"
    assert letter.headers["dlqDeliveryFailureCause"] == (
        "delivery failed 7 times, the maximum is 6: rejected by the consumer"
    )
    assert not is_flagged(letter)


def test_a_dead_letter_that_fails_stays_where_it_is() -> None:
    stepped = filled(1, DLQ)
    fail_often(stepped, 20, DLQ)
    assert stepped.queue(DLQ).depth == 1


def test_the_message_and_its_dead_letter_change_places_in_one_commit() -> None:
    stepped = filled(1, policy={"maximum_redeliveries": 0})
    receiver = consumer(stepped)
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert batch.lanes[stepped.queue("q").lanes[0].id].removals == [1]
    assert len(batch.lanes[stepped.queue(DLQ).lanes[0].id].appends) == 1


def test_a_dead_letter_is_not_lost_with_a_failed_commit() -> None:
    stepped = filled(1, policy={"maximum_redeliveries": 0})
    receiver = consumer(stepped)
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert stepped.queue("q").depth == 0
    assert consumer(stepped, DLQ).messages() == [b"0"]
    again = stepped.reopen()
    assert again.store.lane_state(again.queue("q").lanes[0].id).count == 0
    assert consumer(again, DLQ).messages() == [b"0"]


def test_counts_survive_a_restart() -> None:
    stepped = filled(1)
    fail_often(stepped, 3)
    again = stepped.reopen()
    states = again.store.deliveries(again.queue("q").lanes[0].id, 0, 10)
    assert states == [(1, Delivery(deliveries=4, failures=3, cause="the consumer disconnected"))]
    assert counts(consumer(again).take("MESSAGE")) == ["5"]


def test_a_lost_consumer_counts_a_failure_for_its_oldest_message_only() -> None:
    stepped = filled(3)
    consumer(stepped).vanish()
    stepped.run()
    states = dict(stepped.store.deliveries(stepped.queue("q").lanes[0].id, 0, 10))
    assert {sequence: (state.deliveries, state.failures) for sequence, state in states.items()} == {
        1: (1, 1), 2: (1, 0), 3: (1, 0),
    }  # fmt: skip
    assert {state.cause for state in states.values()} == {"the consumer's connection was lost"}


def test_a_consumer_that_leaves_with_notice_counts_no_failure() -> None:
    stepped = filled(2)
    for leave in ("UNSUBSCRIBE", "DISCONNECT"):
        consumer(stepped).frame(leave, {"id": "0"})
        stepped.run()
    states = dict(stepped.store.deliveries(stepped.queue("q").lanes[0].id, 0, 10))
    assert {(state.deliveries, state.failures) for state in states.values()} == {(2, 0)}
    assert counts(consumer(stepped).take("MESSAGE")) == ["3", "3"]


def test_what_a_lost_consumer_had_goes_to_the_other_one_in_order_and_before_later_messages() -> None:
    stepped = filled(8)
    lost = consumer(stepped, prefetchSize="4")
    kept = consumer(stepped, prefetchSize="2")
    assert kept.messages() == numbers(4, 5)
    lost.vanish()
    stepped.run()
    kept.frame("UNSUBSCRIBE", {"id": "0"})
    after = consumer(stepped)
    got = after.take("MESSAGE")
    assert bodies(got) == numbers(*range(8))
    assert [is_flagged(message) for message in got] == [True] * 6 + [False] * 2


def test_a_poisonous_message_does_not_hold_up_the_others() -> None:
    stepped = filled(3, policy={"maximum_redeliveries": 1})
    for _ in range(2):
        consumer(stepped, prefetchSize="1").vanish()
        stepped.run()
    assert consumer(stepped).messages() == numbers(1, 2)
    assert consumer(stepped, DLQ).messages() == numbers(0)


def test_a_spooled_message_comes_back_flagged_and_counted() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 1}))
    for number in range(2):
        stepped.connect().send("q", b"%d" % number, {"persistent": "false"})
    stepped.run()
    assert stepped.spool.used > 0
    for count in (None, "2", "3"):
        receiver = consumer(stepped)
        (message,) = receiver.take("MESSAGE")
        assert (message.body, message.headers.get("JMSXDeliveryCount")) == (b"0", count)
        receiver.vanish()
        stepped.run()


def test_a_rejected_non_persistent_message_comes_back_flagged() -> None:
    stepped = SteppedBroker(settings())
    receiver = consumer(stepped)
    stepped.connect().send("q", b"0", {"persistent": "false"})
    stepped.run()
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.run()
    (message,) = receiver.take("MESSAGE")
    assert is_flagged(message)
    receiver.vanish()
    stepped.run()
    assert counts(consumer(stepped).take("MESSAGE")) == ["3"]
