"""Which acknowledgements a consumer sends when, in each mode: the numbers are those of ActiveMQ's Java client."""

from random import Random
from typing import Any

import pytest

from quire.client.consumer import Acknowledging, AckSettings
from quire.client.message import Delivery
from quire.client.options import RedeliveryPolicy
from quire.client.session_core import AckMode
from quire.clock import ManualClock
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTextMessage,
    ConnectionId,
    ConsumerId,
    LocalTransactionId,
    MessageAck,
    MessageDispatch,
    MessageId,
    ProducerId,
)

CONSUMER = ConsumerId("ID:c", 1, 1)
TRANSACTION = LocalTransactionId(1, ConnectionId("ID:c"))


def delivery(number: int, redeliveries: int = 0) -> Delivery:
    message = ActiveMQTextMessage(message_id=MessageId(ProducerId("ID:p", 1, 1), number, 100 + number))
    return Delivery(MessageDispatch(consumer_id=CONSUMER, destination=ActiveMQQueue("q"), message=message,
                                    redelivery_counter=redeliveries), message)  # fmt: skip


def machine(mode: AckMode, clock: ManualClock | None = None, **settings: Any) -> Acknowledging:
    given = {"prefetch": 10, **settings}
    return Acknowledging(AckSettings(mode, **given), clock or ManualClock(), Random(1))


def told(acks: list[MessageAck]) -> list[tuple[str, int | None, int | None, int]]:
    """The kind, first, last and number of messages of each acknowledgement."""
    return [
        (
            AckType(ack.ack_type).name,
            None if ack.first_message_id is None else ack.first_message_id.producer_sequence_id,
            None if ack.last_message_id is None else ack.last_message_id.producer_sequence_id,
            ack.message_count,
        )
        for ack in acks
    ]


def deliver(acks: Acknowledging, *numbers: int, transaction: LocalTransactionId | None = None) -> list[MessageAck]:
    sent = []
    for number in numbers:
        given = delivery(number)
        sent += acks.before(given, transaction)
        sent += acks.after(given)
    return sent


@pytest.mark.parametrize(("mode", "topic"), [(AckMode.AUTO, False), (AckMode.AUTO, True), (AckMode.DUPS_OK, False)])
def test_each_message_is_acknowledged_as_it_is_delivered(mode: AckMode, topic: bool) -> None:
    acks = machine(mode, topic=topic)
    assert told(deliver(acks, 1, 2)) == [("STANDARD", 1, 1, 1), ("STANDARD", 2, 2, 1)]
    assert acks.outstanding() == []
    assert acks.last_delivered == 102


def test_an_acknowledgement_names_its_consumer_and_destination() -> None:
    (ack,) = deliver(machine(AckMode.AUTO), 1)
    assert (ack.consumer_id, ack.destination, ack.transaction_id) == (CONSUMER, ActiveMQQueue("q"), None)


def test_dups_ok_of_a_topic_acknowledges_half_of_the_prefetch_at_once() -> None:
    acks = machine(AckMode.DUPS_OK, topic=True)
    assert told(deliver(acks, *range(1, 13))) == [("STANDARD", 1, 5, 5), ("STANDARD", 6, 10, 5)]
    assert told(acks.outstanding()) == [("STANDARD", 11, 12, 2)]
    assert acks.outstanding() == []


def test_client_mode_extends_the_window_and_acknowledges_the_range() -> None:
    acks = machine(AckMode.CLIENT)
    assert told(deliver(acks, *range(1, 8))) == [("DELIVERED", 1, 5, 5)]
    assert told(acks.acknowledge()) == [("STANDARD", 1, 7, 7)]
    assert acks.acknowledge() == []
    # The count begins anew: what was acknowledged extends nothing any more.
    assert told(deliver(acks, *range(8, 13))) == [("DELIVERED", 8, 12, 5)]


def test_client_mode_keeps_what_is_not_acknowledged() -> None:
    acks = machine(AckMode.CLIENT)
    deliver(acks, 1, 2)
    assert acks.outstanding() == []
    acks.forget()
    assert acks.acknowledge() == []


def test_individual_mode_acknowledges_one_once() -> None:
    acks = machine(AckMode.INDIVIDUAL)
    first, second = delivery(1), delivery(2)
    for given in (first, second):
        acks.before(given, None)
        acks.after(given)
    assert told(acks.acknowledge_one(second)) == [("INDIVIDUAL", None, 2, 1)]
    assert acks.acknowledge_one(second) == []
    assert list(acks.delivered) == [first]


def test_a_message_acknowledged_by_its_listener_is_not_counted_as_delivered() -> None:
    acks = machine(AckMode.INDIVIDUAL, prefetch=2)
    given = delivery(1)
    acks.before(given, None)
    acks.acknowledge_one(given)
    assert acks.after(given) == []


def test_a_transaction_extends_the_window_and_acknowledges_at_its_end() -> None:
    acks = machine(AckMode.SESSION_TRANSACTED, prefetch=4)
    sent = deliver(acks, 1, 2, 3, transaction=TRANSACTION)
    assert told(sent) == [("DELIVERED", 1, 2, 2)]
    assert sent[0].transaction_id == TRANSACTION
    (ack,) = acks.acknowledge(TRANSACTION)
    assert (told([ack]), ack.transaction_id) == ([("STANDARD", 1, 3, 3)], TRANSACTION)
    assert len(acks.delivered) == 3
    acks.committed()
    assert acks.acknowledge(TRANSACTION) == []


def test_messages_of_a_transaction_may_be_acknowledged_one_by_one() -> None:
    acks = machine(AckMode.SESSION_TRANSACTED, individual_in_transaction=True)
    sent = deliver(acks, 1, 2, transaction=TRANSACTION)
    assert told(sent) == [("INDIVIDUAL", None, 1, 1), ("INDIVIDUAL", None, 2, 1)]
    assert {ack.transaction_id for ack in sent} == {TRANSACTION}
    assert acks.acknowledge(TRANSACTION) == []
    assert told(acks.rollback().acks) == [("REDELIVERED", 1, 2, 2)]


def test_optimized_acknowledgements_wait_for_65_percent_of_the_prefetch() -> None:
    acks = machine(AckMode.AUTO, optimize=True, optimize_time_out=0)
    assert told(deliver(acks, *range(1, 10))) == [("STANDARD", 1, 7, 7)]
    assert told(acks.outstanding()) == [("STANDARD", 8, 9, 2)]


def test_optimized_acknowledgements_wait_no_longer_than_their_time_out() -> None:
    clock = ManualClock()
    acks = machine(AckMode.AUTO, clock, optimize=True, prefetch=1000)
    assert deliver(acks, 1, 2) == []
    clock.advance(0.3)
    assert told(deliver(acks, 3)) == [("STANDARD", 1, 3, 3)]
    assert deliver(acks, 4) == []


def test_optimizing_is_for_auto_only_and_can_be_switched_off() -> None:
    assert told(deliver(machine(AckMode.DUPS_OK, optimize=True), 1)) == [("STANDARD", 1, 1, 1)]
    acks = machine(AckMode.AUTO, optimize=True)
    deliver(acks, 1)
    assert told(acks.switch_optimizing_off()) == [("STANDARD", 1, 1, 1)]
    assert told(deliver(acks, 2)) == [("STANDARD", 2, 2, 1)]


def test_a_rollback_of_optimized_messages_keeps_what_was_processed() -> None:
    acks = machine(AckMode.AUTO, optimize=True)
    deliver(acks, 1, 2)
    failed = delivery(3)
    acks.before(failed, None)
    done = acks.rollback()
    assert told(done.acks) == [("STANDARD", 1, 2, 2), ("REDELIVERED", 3, 3, 1)]
    assert done.again == [failed]


def test_what_a_listener_is_at_work_on_is_not_acknowledged_with_what_was_processed() -> None:
    acks = machine(AckMode.AUTO, optimize=True)
    deliver(acks, 1, 2)
    at_work = delivery(3)
    acks.before(at_work, None)
    assert told(acks.change_prefetch(20)) == [("STANDARD", 1, 2, 2)]
    assert acks.processed() == []
    assert acks.reject(at_work).again == [at_work]
    plain = machine(AckMode.AUTO)
    plain.before(at_work, None)
    assert plain.change_prefetch(20) == []
    assert told(plain.outstanding()) == [("STANDARD", 3, 3, 1)]


def test_a_rollback_delivers_again_in_order_with_the_delay_of_the_policy() -> None:
    policy = RedeliveryPolicy(initial_redelivery_delay=10, redelivery_delay=50)
    acks = machine(AckMode.CLIENT, policy=policy)
    deliver(acks, 1, 2)
    done = acks.rollback()
    assert told(done.acks) == [("REDELIVERED", 1, 2, 2)]
    assert [given.message.message_id and given.message.message_id.producer_sequence_id for given in done.again] == [
        1,
        2,
    ]
    assert [given.redeliveries for given in done.again] == [1, 1]
    assert done.delay == 10
    for given in done.again:
        acks.before(given, None)
    assert acks.rollback().delay == 50
    assert acks.rollback() == ([], [], 0)


def test_beyond_the_maximum_the_whole_range_is_poison() -> None:
    acks = machine(AckMode.SESSION_TRANSACTED, policy=RedeliveryPolicy(maximum_redeliveries=2))
    first, last = delivery(1), delivery(2, redeliveries=2)
    last.cause = ValueError("bad")
    for given in (first, last):
        acks.before(given, TRANSACTION)
    done = acks.rollback()
    assert told(done.acks) == [("POISON", 1, 2, 2)]
    cause = done.acks[0].poison_cause
    assert cause is not None
    assert "maximum of redeliveries: 2" in (cause.message or "")
    assert cause.cause is not None
    assert cause.cause.message == "ValueError: bad"
    assert done.again == []
    assert not acks.delivered


def test_expired_and_poisoned_messages_are_acknowledged_by_themselves() -> None:
    acks = machine(AckMode.CLIENT)
    assert told(acks.expired(delivery(1))) == [("EXPIRED", 1, 1, 1)]
    assert told(acks.poison(delivery(2), "a duplicate")) == [("POISON", 2, 2, 1)]
    assert acks.acknowledge() == []


@pytest.mark.parametrize(("mode", "topic"), [
    (AckMode.AUTO, False), (AckMode.DUPS_OK, True), (AckMode.CLIENT, False), (AckMode.INDIVIDUAL, False),
    (AckMode.SESSION_TRANSACTED, False),
])  # fmt: skip
def test_after_a_lost_connection_nothing_is_acknowledged_that_was_delivered_before(mode: AckMode, topic: bool) -> None:
    acks = machine(mode, topic=topic, optimize=True)
    deliver(acks, 1, 2, transaction=TRANSACTION if mode is AckMode.SESSION_TRANSACTED else None)
    acks.forget()
    assert acks.outstanding() == acks.acknowledge() == []


def test_the_broker_may_change_the_prefetch() -> None:
    acks = machine(AckMode.CLIENT, prefetch=100)
    assert acks.change_prefetch(4) == []
    assert told(deliver(acks, 1, 2)) == [("DELIVERED", 1, 2, 2)]


def test_with_a_prefetch_of_zero_every_delivery_is_told() -> None:
    assert told(deliver(machine(AckMode.CLIENT, prefetch=0), 1, 2)) == [("DELIVERED", 1, 1, 1), ("DELIVERED", 2, 2, 1)]
