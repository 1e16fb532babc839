"""When a rejected message comes again, and what passes it meanwhile."""

import pytest

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, numbers


def rejecting(
    count: int = 3, headers: dict[str, str] | None = None, **policy: object
) -> tuple[SteppedBroker, SteppedClient]:
    """A consumer that takes one message at a time has rejected the first one."""
    stepped = filled(count, policy={"initial_redelivery_delay": 10.0, **policy})
    client = consumer(stepped, prefetchSize="1")
    client.nack(client.take("MESSAGE")[0], headers)
    stepped.run()
    return stepped, client


def settle(stepped: SteppedBroker, client: SteppedClient, seconds: float = 0) -> list[bytes]:
    """Let time go by, then take and acknowledge what comes."""
    stepped.advance(seconds)
    stepped.run()
    got = []
    while frames := client.take("MESSAGE"):
        for frame in frames:
            got.append(frame.body)
            client.ack(frame)
        stepped.run()
    return got


def test_others_pass_a_message_that_waits() -> None:
    stepped, client = rejecting()
    assert settle(stepped, client) == numbers(1, 2)
    assert settle(stepped, client, 9) == []
    assert settle(stepped, client, 1) == numbers(0)


def test_a_blocking_policy_holds_back_the_queue() -> None:
    stepped, client = rejecting(blocking_redelivery=True)
    assert settle(stepped, client, 9) == []
    assert settle(stepped, client, 1) == numbers(0, 1, 2)


def test_a_consumer_may_say_how_long_in_its_nack() -> None:
    stepped, client = rejecting(1, {"redelivery-delay": "2500"})
    assert settle(stepped, client, 2) == []
    assert settle(stepped, client, 0.5) == numbers(0)


def test_at_the_tail_it_comes_behind_what_was_sent_meanwhile() -> None:
    stepped, client = rejecting(2, redelivery_at="tail", initial_redelivery_delay=0.001)
    stepped.advance(1)
    assert settle(stepped, client) == numbers(1, 0)


def test_the_delay_and_the_counts_survive_a_restart() -> None:
    stepped, _ = rejecting(1)
    stepped.advance(4)
    again = stepped.reopen()
    client = consumer(again)
    assert client.take("MESSAGE") == []
    again.advance(6)
    again.run()
    (message,) = client.take("MESSAGE")
    assert (message.headers["redelivered"], message.headers["JMSXDeliveryCount"]) == ("true", "2")


@pytest.mark.parametrize("lives", [0.5, 5.0])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_message_that_waits_holds_nothing_back_once_it_has_expired(lives: float, blocks: bool) -> None:
    stepped = filled(0, policy={"initial_redelivery_delay": 60.0, "blocking_redelivery": blocks})
    client = consumer(stepped, prefetchSize="1")
    headers = {"JMSXGroupID": "g"}
    stepped.connect().send("q", b"1", {**headers, "expires": str(stepped.clock.now_ms() + round(lives * 1000))})
    stepped.run()
    stepped.clock.advance(1)  # no timer is due: the sweep of what has expired does not come
    client.nack(client.take("MESSAGE")[0])
    stepped.connect().send("q", b"2", headers)
    stepped.run()
    assert client.messages() == ([] if lives > 1 else [b"2"])


def test_a_message_that_waits_takes_no_memory() -> None:
    stepped, _ = rejecting(1)
    assert stepped.broker.core.memory.used == 0


def test_a_message_that_waits_expires() -> None:
    stepped = filled(0, policy={"initial_redelivery_delay": 60.0})
    stepped.connect().send("q", b"late", {"expires": str(stepped.clock.now_ms() + 5000)})
    client = consumer(stepped)
    client.nack(client.take("MESSAGE")[0])
    for _ in range(8):
        stepped.advance(1)
        stepped.run()
    assert stepped.queue("q").depth == 0
    assert consumer(stepped, "ActiveMQ.DLQ").messages() == [b"late"]


def test_without_a_maximum_it_is_never_given_up() -> None:
    stepped = filled(1, policy={"maximum_redeliveries": -1})
    client = consumer(stepped)
    for _ in range(50):
        (message,) = client.take("MESSAGE")
        client.nack(message)
        stepped.run()
    assert stepped.queue("q").depth == 1
