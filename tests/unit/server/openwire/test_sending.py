"""Sends: repeated ones, windows, schedules, what a message says of itself, and groups."""

import pytest

from quire.errors import StoreFull
from quire.protocols.openwire.commands import (
    ActiveMQQueue,
    ActiveMQTopic,
    ConnectionControl,
    MessageDispatch,
    MessageId,
    ProducerAck,
    ProducerId,
    Response,
    TransactionType,
)
from quire.protocols.openwire.primitives import Tag, Typed, read_map
from tests.unit.server.openwire.rig import Q, Rig, fault_tolerant, id_of, properties, sequence_of, texts

# Sends that are repeated.


def test_a_fault_tolerant_client_that_repeats_a_send_is_answered_and_sends_once() -> None:
    rig = Rig()
    old = fault_tolerant(rig, "same")
    old.send("1", "2")
    new = fault_tolerant(rig, "same")
    new.send("2", sequence=2)
    new.send("3", sequence=3)
    new.consumer()
    assert new.messages() == ["1", "2", "3"]


def test_a_client_that_says_it_before_it_connects_is_fault_tolerant_too() -> None:
    rig = Rig()
    client = rig.negotiated()
    client.tell(ConnectionControl(fault_tolerant=True))
    client.done(client.connection_info())
    client.send("1", sequence=1)
    client.send("1", sequence=1)
    assert rig.depth() == 1


def test_a_repeated_send_is_known_after_a_restart_of_the_broker() -> None:
    rig = Rig()
    fault_tolerant(rig, "same").send("1", "2", "3")
    again = rig.reopen()
    client = fault_tolerant(again, "same")
    client.send("3", sequence=3)
    client.send("4", sequence=4)
    assert again.depth() == 4


def test_producers_are_apart() -> None:
    rig = Rig()
    client = fault_tolerant(rig)
    for value in (1, 2):
        client.send("x", sequence=1, producer=ProducerId(client.id, 1, value))
        client.send("x", sequence=1, producer=ProducerId(client.id, value, 7))
    assert rig.depth() == 4


def test_a_client_that_does_not_connect_again_by_itself_may_repeat_what_it_wants() -> None:
    rig = Rig()
    client = rig.client()
    client.send("1", sequence=1)
    client.send("1", sequence=1)
    assert rig.depth() == 2


def test_what_is_not_persistent_is_not_compared() -> None:
    rig = Rig()
    client = fault_tolerant(rig)
    client.send("1", sequence=1, persistent=False)
    client.send("1", sequence=1, persistent=False)
    assert rig.depth() == 2


def test_a_transaction_that_is_repeated_whole_is_taken_once_and_one_that_was_lost_is_taken() -> None:
    rig = Rig()
    old = fault_tolerant(rig, "same")
    id = old.begin()
    old.tell(old.message("1", transaction_id=id))
    rig.run()
    new = fault_tolerant(rig, "same")  # before the commit
    id = new.begin()
    new.tell(new.message("1", transaction_id=id, sequence=1))
    new.done(new.step(TransactionType.COMMIT_ONE_PHASE, id))
    assert rig.depth() == 1
    last = fault_tolerant(rig, "same")  # after it
    id = last.begin()
    last.tell(last.message("1", transaction_id=id, sequence=1))
    last.done(last.step(TransactionType.COMMIT_ONE_PHASE, id))
    assert rig.depth() == 1


def test_a_send_whose_commit_failed_is_taken_when_it_is_repeated() -> None:
    rig = Rig()
    old = fault_tolerant(rig, "same")
    old.producer(Q)
    old.request(old.message("1", sequence=1))
    rig.turn()
    rig.commit(StoreFull("no space left"))
    rig.run_turns()
    assert old.errors() == ["store-full"]
    rig.advance(1)
    rig.run()
    new = fault_tolerant(rig, "same")
    new.send("1", sequence=1)
    assert rig.depth() == 1


def test_a_repeated_send_is_answered_only_when_the_first_one_is_durable() -> None:
    rig = Rig()
    client = fault_tolerant(rig)
    client.producer(Q)
    client.request(client.message("1", sequence=1))
    rig.turn()
    client.request(client.message("1", sequence=1))
    rig.turn()
    assert client.take(Response) == []
    rig.run()
    assert len(client.take(Response)) == 2
    assert rig.depth() == 1


def test_a_producer_whose_id_no_store_can_keep_is_refused() -> None:
    rig = Rig()
    client, other = fault_tolerant(rig), rig.client()
    assert client.refused(client.message("1", producer=ProducerId("a\0b", 1, 1)))[1] == "invalid-header"
    other.send("2")
    assert rig.depth() == 1


# Windows.


def test_a_producer_with_a_window_is_told_when_its_bytes_are_durable() -> None:
    rig = Rig()
    client = rig.client()
    producer = client.producer(Q, window=100_000)
    client.tell(client.message("x" * 5000, producer=producer))
    rig.turn()
    assert client.take(ProducerAck) == []
    rig.run()
    (ack,) = client.take(ProducerAck)
    assert ack.producer_id == producer
    assert ack.size >= 5000


def test_a_window_is_given_back_by_no_more_than_it_has() -> None:
    rig = Rig()
    client = rig.client()
    producer = client.producer(Q, window=100)
    client.tell(client.message("x" * 5000, producer=producer))
    rig.run()
    assert [ack.size for ack in client.take(ProducerAck)] == [100]


def test_a_send_that_is_answered_or_without_a_window_is_not_told_of_besides() -> None:
    rig = Rig()
    client = rig.client()
    with_window, without = client.producer(Q, window=100), client.producer(Q)
    client.send("1", producer=with_window)
    client.tell(client.message("2", producer=without))
    rig.run()
    assert client.take(ProducerAck) == []


# Schedules.


def test_a_message_with_a_delay_comes_later() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.send("1", marshalled_properties=properties(AMQ_SCHEDULED_DELAY=Typed(Tag.LONG, 5000)))
    rig.advance(4.9)
    rig.run()
    assert client.messages() == []
    rig.advance(0.2)
    rig.run()
    assert client.messages() == ["1"]


def test_a_scheduled_message_outlives_the_broker() -> None:
    rig = Rig()
    rig.client().send("1", marshalled_properties=properties(AMQ_SCHEDULED_DELAY=Typed(Tag.LONG, 5000)))
    again = rig.reopen()
    client = again.client()
    client.consumer()
    again.advance(6)
    again.run()
    assert client.messages() == ["1"]


def test_a_message_may_be_repeated_by_its_schedule() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    schedule = properties(
        AMQ_SCHEDULED_DELAY=Typed(Tag.LONG, 1000), AMQ_SCHEDULED_PERIOD=Typed(Tag.LONG, 1000),
        AMQ_SCHEDULED_REPEAT=Typed(Tag.INT, 2), other=Typed(Tag.INT, 5),
    )  # fmt: skip
    client.send("1", marshalled_properties=schedule)
    seen: list[MessageDispatch] = []
    for _ in range(6):
        rig.advance(1)
        rig.run()
        seen += client.take(MessageDispatch)
    assert texts(seen) == ["1"] * 3
    for dispatch in seen:
        assert dispatch.message is not None
        assert dispatch.message.marshalled_properties is not None
        typed = read_map(dispatch.message.marshalled_properties, typed=True)
        assert typed["other"] == Typed(Tag.INT, 5)
        assert "AMQ_SCHEDULED_REPEAT" not in typed


def test_a_scheduled_message_of_a_transaction_waits_for_its_commit() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    id = client.begin()
    later = properties(AMQ_SCHEDULED_DELAY=Typed(Tag.LONG, 1000))
    client.tell(client.message("1", transaction_id=id, marshalled_properties=later))
    rig.advance(2)
    rig.run()
    assert client.messages() == []
    client.done(client.step(TransactionType.COMMIT_ONE_PHASE, id))
    rig.advance(2)
    rig.run()
    assert client.messages() == ["1"]


@pytest.mark.parametrize("value", [Typed(Tag.LONG, -1), Typed(Tag.STRING, "soon")])
def test_a_schedule_that_makes_no_sense_is_refused(value: Typed) -> None:
    client = Rig().client()
    message = client.message("1", marshalled_properties=properties(AMQ_SCHEDULED_DELAY=value))
    assert client.refused(message) == ("JMSException", "invalid-header")


# What a message says of itself.


def test_a_message_that_has_expired_is_not_given_out() -> None:
    rig = Rig()
    client = rig.client()
    now = rig.clock.now_ms()
    client.send("1", expiration=now + 1000)
    client.send("2", expiration=now + 100_000)
    rig.advance(2)
    rig.run()
    client.consumer()
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["2"]
    assert dispatches[0].message is not None
    assert dispatches[0].message.expiration == now + 100_000


@pytest.mark.parametrize(("said", "taken"), [(-1, 0), (12, 9), (7, 7)])
def test_a_priority_is_kept_within_what_jms_has(said: int, taken: int) -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.send("1", priority=said)
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.priority == taken


@pytest.mark.parametrize("persistent", [True, False])
def test_only_persistent_messages_outlive_the_broker(persistent: bool) -> None:
    rig = Rig()
    rig.client().send("1", persistent=persistent)
    assert rig.reopen().depth() == int(persistent)


def test_a_message_needs_a_destination_and_an_id() -> None:
    client = Rig().client()
    without = client.message("1")
    without.destination = None
    assert client.refused(without)[1] == "protocol-violation"
    without = client.message("1")
    without.message_id = None
    assert client.refused(without)[1] == "protocol-violation"


def test_properties_that_cannot_be_read_are_refused() -> None:
    client = Rig().client()
    assert client.refused(client.message("1", marshalled_properties=b"\0\0\0\5"))[1] == "protocol-violation"
    client.send("2")


def test_texts_and_ids_may_be_as_long_as_openwire_has_them() -> None:
    client = Rig().client()
    client.consumer()
    long = "x" * 65_000
    producer = ProducerId("y" * 65_535, 1, 1)
    client.send("1", correlation_id=long, type=long, group_id=long, user_id="\0" * 32_000, producer=producer)
    negative = client.message("2")
    negative.message_id = MessageId(producer, -1)
    client.done(negative)
    many = ActiveMQQueue(",".join([f"topic://{number}" for number in range(4500)]))
    client.send("3", reply_to=many)
    client.send("4", reply_to=ActiveMQTopic(",".join([f"queue://{number},{number}" for number in range(3500)])))
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["1", "2", "3", "4"]
    assert [sequence_of(dispatch) for dispatch in dispatches] == sorted(map(sequence_of, dispatches))
    assert id_of(dispatches[1]).producer_sequence_id == -1


# Groups.


def test_a_group_goes_to_one_consumer_which_is_told_with_its_first_message() -> None:
    rig = Rig()
    client = rig.client()
    first, second = client.consumer(), client.consumer()
    for text in ("1", "2", "3"):
        client.send(text, group_id="a")
    client.send("4", group_id="b")
    dispatches = client.take(MessageDispatch)
    assert [dispatch.message.group_id for dispatch in dispatches if dispatch.message] == ["a", "a", "a", "b"]
    of_a, of_b = {d.consumer_id for d in dispatches[:3]}, {d.consumer_id for d in dispatches[3:]}
    assert of_a | of_b == {first, second}
    assert len(of_a) == 1
    flags = [d.message.jmsx_group_first_for_consumer for d in dispatches if d.message]
    assert flags == [True, False, False, True]


def test_a_group_goes_to_another_consumer_when_its_own_is_closed() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.consumer()
    client.send("1", group_id="a")
    (dispatch,) = client.take(MessageDispatch)
    client.acks([dispatch])
    client.remove(dispatch.consumer_id)
    client.send("2", group_id="a")
    (after,) = client.take(MessageDispatch)
    assert after.consumer_id != dispatch.consumer_id
    assert after.message is not None
    assert after.message.jmsx_group_first_for_consumer


def test_a_group_is_closed_by_a_negative_sequence() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.send("1", group_id="a", group_sequence=1)
    client.send("2", group_id="a", group_sequence=-1)
    client.acks(client.take(MessageDispatch))
    client.send("3", group_id="a", group_sequence=1)
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.jmsx_group_first_for_consumer


def test_a_list_names_no_more_than_a_hundred_destinations() -> None:
    rig = Rig()
    client = rig.client()
    for count, is_taken in ((100, True), (101, False)):
        message = client.message("", ActiveMQQueue(",".join(f"q{number}" for number in range(count))))
        if is_taken:
            client.done(message)
        else:
            assert client.refused(message)[1] == "invalid-destination"
        assert len(rig.broker.queues) == 100
