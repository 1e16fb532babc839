"""Acknowledgements as JMS clients send them: types, ranges, counts, in transactions and out of them."""

from typing import Any

import pytest

from quire.broker.acknowledgement import AckType, acknowledge
from quire.errors import InvalidArgument, UnknownMessage
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import consumer, filled, numbers

DONE = [AckType.STANDARD, AckType.INDIVIDUAL, AckType.UNMATCHED]
RANGES = [type for type in AckType if type is not AckType.INDIVIDUAL]


def given(count: int, *, prefetch: int = 1000, **changes: Any) -> tuple[SteppedBroker, CoreConsumer]:
    """A broker with messages 1, 2, ... (their sequences), and a consumer that has as many as it may."""
    stepped = filled(count, **changes)
    return stepped, CoreConsumer(stepped, prefetch=prefetch)


def left(stepped: SteppedBroker) -> list[bytes]:
    """What a new consumer gets when the old one is gone."""
    stepped.run()
    return consumer(stepped).messages()


# What each type does.


@pytest.mark.parametrize("type", DONE)
def test_a_message_that_is_done_with_is_gone(type: AckType) -> None:
    stepped, receiver = given(2)
    acknowledge(receiver.subscription, type, 1, 1, count=1)
    stepped.run()
    assert (stepped.queue("q").depth, stepped.queue("q").in_flight) == (1, 1)
    receiver.leave()
    assert left(stepped) == numbers(1)


def test_unmatched_messages_do_not_count_as_consumed() -> None:
    stepped, receiver = given(3)
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 1)
    acknowledge(receiver.subscription, AckType.UNMATCHED, 2, 3)
    assert stepped.queue("q").dequeued == 1


@pytest.mark.parametrize(
    ("type", "cause"), [(AckType.POISON, "it hurts"), (AckType.EXPIRED, "expired before the consumer could process it")]
)
def test_what_the_client_gives_up_becomes_a_dead_letter(type: AckType, cause: str) -> None:
    stepped, receiver = given(3)
    acknowledge(receiver.subscription, type, 1, 2, count=2, cause="it hurts")
    stepped.run()
    letters = consumer(stepped, "ActiveMQ.DLQ").take("MESSAGE")
    assert [(letter.body, letter.headers["dlqDeliveryFailureCause"]) for letter in letters] == [
        (b"0", cause),
        (b"1", cause),
    ]
    assert stepped.queue("q").depth == 1


def test_a_dead_letter_that_the_client_gives_up_stays_where_it_is() -> None:
    stepped = filled(1, name="ActiveMQ.DLQ")
    receiver = CoreConsumer(stepped, "ActiveMQ.DLQ")
    acknowledge(receiver.subscription, AckType.POISON, 1, 1)
    stepped.run()
    (first, again) = receiver.take()
    assert (again.sequence, again.redelivered) == (first.sequence, True)
    assert stepped.queue("ActiveMQ.DLQ").depth == 1


def test_a_redelivery_by_the_client_is_counted_by_the_client() -> None:
    stepped, receiver = given(2, policy={"maximum_redeliveries": 0})
    for _ in range(2):
        acknowledge(receiver.subscription, AckType.REDELIVERED, 1, 2, count=2)
    stepped.run()
    assert stepped.queue("q").in_flight == 2
    receiver.leave(lost=False)
    stepped.run()
    first, second = CoreConsumer(stepped).take()
    assert [(message.deliveries, message.failures) for message in (first, second)] == [(1, 0), (1, 0)]


# The prefetch extension.


def test_delivered_messages_make_room_for_others() -> None:
    stepped, receiver = given(5, prefetch=2)
    assert receiver.bodies() == numbers(0, 1)
    acknowledge(receiver.subscription, AckType.DELIVERED, 1, 2, count=2)
    stepped.run()
    assert receiver.bodies() == numbers(2, 3)
    assert (stepped.queue("q").depth, receiver.subscription.credit) == (5, 0)


def test_saying_again_that_a_message_is_delivered_makes_no_more_room() -> None:
    stepped, receiver = given(5, prefetch=2)
    for _ in range(3):
        acknowledge(receiver.subscription, AckType.DELIVERED, 1, 1)
    stepped.run()
    assert receiver.bodies() == numbers(0, 1, 2)


def test_the_room_goes_with_the_messages_that_made_it() -> None:
    stepped, receiver = given(10, prefetch=2)
    acknowledge(receiver.subscription, AckType.DELIVERED, 1, 2)
    stepped.run()
    assert len(receiver.take()) == 4
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 2)
    stepped.run()
    assert (receiver.bodies(), len(receiver.subscription.in_flight)) == ([], 2)
    acknowledge(receiver.subscription, AckType.STANDARD, 3, 3)
    stepped.run()
    assert receiver.bodies() == numbers(4)


def test_the_window_is_strict_if_the_policy_says_so() -> None:
    stepped, receiver = given(5, prefetch=2, policy={"use_prefetch_extension": False})
    acknowledge(receiver.subscription, AckType.DELIVERED, 1, 2)
    stepped.run()
    assert receiver.bodies() == numbers(0, 1)
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 1, transaction=stepped.broker.begin_transaction())
    stepped.run()
    assert receiver.bodies() == []


def test_what_was_delivered_may_be_done_with_by_the_time_the_client_says_so() -> None:
    stepped, receiver = given(5, prefetch=3)
    acknowledge(receiver.subscription, AckType.INDIVIDUAL, 1, 1)
    acknowledge(receiver.subscription, AckType.DELIVERED, 1, 3, count=3)
    stepped.run()
    assert receiver.bodies() == numbers(0, 1, 2, 3, 4)
    assert receiver.subscription.extended == {2, 3}


# Ranges.


@pytest.mark.parametrize("type", RANGES)
def test_a_range_whose_end_is_not_in_flight_is_unknown(type: AckType) -> None:
    stepped, receiver = given(3)
    with pytest.raises(UnknownMessage):
        acknowledge(receiver.subscription, type, 1, 4)
    with pytest.raises(UnknownMessage):
        acknowledge(receiver.subscription, type, 7, 7)
    with pytest.raises(UnknownMessage):
        acknowledge(receiver.subscription, type, None, 9)
    assert (len(receiver.subscription.in_flight), stepped.queue("q").depth) == (3, 3)


@pytest.mark.parametrize("type", [AckType.STANDARD, AckType.POISON, AckType.REDELIVERED, AckType.EXPIRED])
def test_a_range_whose_beginning_is_not_in_flight_is_unknown(type: AckType) -> None:
    _, receiver = given(3)
    acknowledge(receiver.subscription, AckType.INDIVIDUAL, 1, 1)
    with pytest.raises(UnknownMessage) as error:
        acknowledge(receiver.subscription, type, 1, 3)
    assert error.value.data == {"sequence": 1}


@pytest.mark.parametrize("type", RANGES)
def test_a_range_that_runs_backwards_is_none(type: AckType) -> None:
    _, receiver = given(3)
    with pytest.raises(InvalidArgument):
        acknowledge(receiver.subscription, type, 3, 1)


def test_a_range_goes_by_the_order_in_which_messages_were_given_out() -> None:
    stepped, receiver = given(4, prefetch=2)
    other = CoreConsumer(stepped, prefetch=2)
    receiver.leave()
    stepped.run()
    assert other.bodies() == numbers(2, 3)
    acknowledge(other.subscription, AckType.STANDARD, 3, 3)
    acknowledge(other.subscription, AckType.STANDARD, 4, 4)
    stepped.run()
    assert [message.sequence for message in other.take()] == [1, 2]
    other.subscription.in_flight = dict(reversed(other.subscription.in_flight.items()))
    with pytest.raises(InvalidArgument):
        acknowledge(other.subscription, AckType.STANDARD, 1, 2)
    acknowledge(other.subscription, AckType.STANDARD, 2, 1, count=2)
    assert stepped.queue("q").depth == 0


def test_a_range_without_a_beginning_begins_with_the_first_message() -> None:
    stepped, receiver = given(3)
    acknowledge(receiver.subscription, AckType.STANDARD, None, 2, count=2)
    assert stepped.queue("q").depth == 1
    acknowledge(receiver.subscription, AckType.INDIVIDUAL, None, 3, count=1)
    assert stepped.queue("q").depth == 0


@pytest.mark.parametrize("type", [type for type in RANGES if type is not AckType.DELIVERED])
def test_a_range_with_another_number_of_messages_is_refused(type: AckType) -> None:
    _, receiver = given(3)
    acknowledge(receiver.subscription, AckType.INDIVIDUAL, 2, 2)
    with pytest.raises(InvalidArgument) as error:
        acknowledge(receiver.subscription, type, 1, 3, count=3)
    assert error.value.data == {"argument": "count", "found": 2}
    assert list(receiver.subscription.in_flight) == [1, 3]


def test_an_individual_acknowledgement_is_about_one_message() -> None:
    _, receiver = given(3)
    with pytest.raises(InvalidArgument):
        acknowledge(receiver.subscription, AckType.INDIVIDUAL, 1, 2)
    with pytest.raises(InvalidArgument):
        acknowledge(receiver.subscription, AckType.INDIVIDUAL, 2, 2, count=2)
    with pytest.raises(UnknownMessage):
        acknowledge(receiver.subscription, AckType.INDIVIDUAL, 9, 9)


# Transactions.


@pytest.mark.parametrize("type", DONE)
def test_in_a_transaction_a_message_is_done_with_when_that_is_committed(type: AckType) -> None:
    stepped, receiver = given(2)
    transaction = stepped.broker.begin_transaction()
    acknowledge(receiver.subscription, type, 1, 1, count=1, transaction=transaction)
    stepped.run()
    assert stepped.queue("q").depth == 2
    transaction.commit()
    stepped.run()
    assert (stepped.queue("q").depth, list(receiver.subscription.in_flight)) == (1, [2])


def test_a_range_may_cover_what_its_transaction_has_acknowledged_already() -> None:
    stepped, receiver = given(4)
    transaction = stepped.broker.begin_transaction()
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 2, count=2, transaction=transaction)
    acknowledge(receiver.subscription, AckType.STANDARD, None, 4, count=2, transaction=transaction)
    transaction.commit()
    assert stepped.queue("q").depth == 0


@pytest.mark.parametrize("type", [AckType.DELIVERED, AckType.REDELIVERED, AckType.EXPIRED])
def test_what_is_so_whatever_becomes_of_a_transaction_takes_effect_at_once(type: AckType) -> None:
    stepped, receiver = given(1)
    transaction = stepped.broker.begin_transaction()
    acknowledge(receiver.subscription, type, 1, 1, transaction=transaction)
    assert transaction.is_empty
    assert stepped.queue("q").depth == (0 if type is AckType.EXPIRED else 1)


def test_a_message_cannot_be_given_up_in_a_transaction() -> None:
    stepped, receiver = given(1)
    with pytest.raises(InvalidArgument):
        acknowledge(receiver.subscription, AckType.POISON, 1, 1, transaction=stepped.broker.begin_transaction())
    assert stepped.queue("q").in_flight == 1


def test_an_abandoned_transaction_leaves_everything_in_flight() -> None:
    stepped, receiver = given(3, prefetch=2)
    transaction = stepped.broker.begin_transaction()
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 2, transaction=transaction)
    stepped.run()
    assert len(receiver.take()) == 3
    transaction.abandon()
    stepped.run()
    assert (list(receiver.subscription.in_flight), receiver.subscription.credit) == ([1, 2, 3], -1)
    acknowledge(receiver.subscription, AckType.STANDARD, 1, 3, count=3)
    assert stepped.queue("q").depth == 0
