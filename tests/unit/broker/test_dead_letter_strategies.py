"""Where dead letters go, which messages become some, and how long they live."""

import pytest

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings

DLQ = "ActiveMQ.DLQ"


def fail(stepped: SteppedBroker, persistent: str = "true") -> None:
    """A message fails as often as it may."""
    stepped.connect().send("orders", b"bad", {"persistent": persistent})
    receiver = consumer(stepped, "orders")
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.run()


def strategy(**policy: object) -> SteppedBroker:
    return SteppedBroker(settings(policy={"maximum_redeliveries": 0, **policy}))


def test_individual_dead_letters_go_to_a_queue_of_their_own() -> None:
    stepped = strategy(dead_letter_strategy="individual")
    fail(stepped)
    (letter,) = consumer(stepped, "ActiveMQ.DLQ.Queue.orders").take("MESSAGE")
    assert letter.headers["original-destination"] == "/queue/orders"
    assert DLQ not in stepped.broker.queues


def test_discarded_ones_are_gone_and_counted() -> None:
    stepped = strategy(dead_letter_strategy="discarding")
    fail(stepped)
    assert set(stepped.broker.queues) == {"orders"}
    assert stepped.queue("orders").depth == 0


@pytest.mark.parametrize(("policy", "letters"), [(True, 1), (False, 0)])
def test_failed_non_persistent_messages_become_dead_letters_unless_the_policy_says_no(
    policy: bool, letters: int
) -> None:
    stepped = strategy(process_non_persistent=policy)
    fail(stepped, "false")
    found = consumer(stepped, DLQ).take("MESSAGE")
    assert [letter.headers["originalDeliveryMode"] for letter in found] == ["NON_PERSISTENT"] * letters


def test_dead_letters_may_expire() -> None:
    stepped = strategy(dead_letter_expiration=60.0)
    fail(stepped)
    assert stepped.queue(DLQ).depth == 1
    for _ in range(62):
        stepped.advance(1)
        stepped.run()
    assert stepped.queue(DLQ).depth == 0


def test_the_same_message_from_two_queues_makes_two_dead_letters() -> None:
    stepped = strategy()
    fail(stepped)
    fail(stepped)
    assert len(consumer(stepped, DLQ).take("MESSAGE")) == 2
