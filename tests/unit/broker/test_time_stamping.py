"""Times to live by policy: ``zero_expiration_override``, ``ttl_ceiling``, ``future_only``."""

from typing import Any

import pytest

from quire.testing.stepped import Frame, SteppedBroker
from tests.unit.broker.harness import consumer, settings

SECOND = 1000


def sent(lives_ms: int | None, **policy: Any) -> tuple[int | None, Frame]:
    """Send a message under a policy.

    Args:
        lives_ms: its time to live; None for no ``expires`` header.
        **policy: keys of the policy of ``q``.

    Returns:
        How long it lives then, as its header says it, and the message.
    """
    stepped = SteppedBroker(settings(policies=[{"destination": "q", **policy}]))
    now = stepped.clock.now_ms()
    stepped.connect().send("q", b"body", {} if lives_ms is None else {"expires": str(now + lives_ms)})
    stepped.run()
    (message,) = stepped.store.page(stepped.queue("q").lanes[0].id, 0, 10_000, 9).messages
    (frame,) = consumer(stepped).take("MESSAGE")
    expires = int(frame.headers["expires"])
    assert message.expiration == expires
    return (expires - now if expires else None), frame


@pytest.mark.parametrize(
    ("lives", "policy", "expected"),
    [
        (None, {}, None),
        (5 * SECOND, {}, 5 * SECOND),
        (None, {"zero_expiration_override": "10s"}, 10 * SECOND),
        (5 * SECOND, {"zero_expiration_override": "10s"}, 5 * SECOND),
        (50 * SECOND, {"zero_expiration_override": "10s"}, 50 * SECOND),
        (None, {"ttl_ceiling": "10s"}, None),
        (5 * SECOND, {"ttl_ceiling": "10s"}, 5 * SECOND),
        (50 * SECOND, {"ttl_ceiling": "10s"}, 10 * SECOND),
        (None, {"ttl_ceiling": "10s", "zero_expiration_override": "7s"}, 7 * SECOND),
        (None, {"future_only": True, "zero_expiration_override": "10s"}, 10 * SECOND),
        (50 * SECOND, {"future_only": True, "ttl_ceiling": "10s"}, 50 * SECOND),
        (5 * SECOND, {"future_only": True, "ttl_ceiling": "10s"}, 5 * SECOND),
    ],
)
def test_a_message_lives_as_long_as_the_policy_says(
    lives: int | None, policy: dict[str, Any], expected: int | None
) -> None:
    assert sent(lives, **policy)[0] == expected


def test_nothing_else_of_the_message_changes() -> None:
    _, frame = sent(50 * SECOND, ttl_ceiling="10s")
    assert frame.body == b"body"
    assert list(frame.headers).count("expires") == 1
    assert {"message-id", "timestamp", "destination"} <= frame.headers.keys()


def test_what_had_expired_when_it_came_is_not_revived() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "q", "ttl_ceiling": "10s"}]))
    receiver = consumer(stepped)
    stepped.connect().send("q", b"", {"expires": "1"})
    stepped.run()
    assert receiver.messages() == []


def test_only_destinations_whose_policy_asks_for_it_pay_for_it() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "q", "ttl_ceiling": "10s"}]))
    assert stepped.broker.target("/queue/other") is stepped.queue("other")
    assert stepped.broker.target("/queue/q") is not stepped.queue("q")


def test_it_holds_in_transactions_and_for_every_part_of_a_list() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "q", "zero_expiration_override": "10s"}]))
    sender = stepped.connect()
    sender.frame("BEGIN", {"transaction": "t"})
    sender.send("q,other", b"", {"transaction": "t"})
    sender.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    expirations = [
        stepped.store.page(stepped.queue(name).lanes[0].id, 0, 10_000, 9).messages[0].expiration
        for name in ("q", "other")
    ]
    assert expirations == [stepped.clock.now_ms() + 10 * SECOND, 0]


def test_dead_letters_keep_their_own_time_to_live() -> None:
    stepped = SteppedBroker(
        settings(policy={"maximum_redeliveries": 0}, policies=[{"destination": ">", "zero_expiration_override": "10s"}])
    )
    stepped.connect().send("q", b"")
    stepped.run()
    receiver = consumer(stepped)
    receiver.nack(receiver.take("MESSAGE")[0])
    stepped.run()
    (letter,) = consumer(stepped, "ActiveMQ.DLQ").take("MESSAGE")
    lane = stepped.queue("ActiveMQ.DLQ").lanes[0].id
    assert stepped.store.page(lane, 0, 10_000, 9).messages[0].expiration == 0
    assert "original-expiration" in letter.headers
