"""A queue whose messages cannot be given out says why, and for how long; one that flows does not."""

import pytest

from quire.broker.turns import STALLED
from quire.cursors import parking
from quire.errors import StoreCorrupt, StoreError, StoreFull
from quire.management.blocked import CAUSES
from quire.management.queues import Management
from quire.message import MESSAGE_OVERHEAD
from quire.resources import Blocked
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, settings
from tests.unit.management.managed import send

SLOW = 1.0
"""How long a consumer is full before it is seen, in seconds."""


def blocked(stepped: SteppedBroker, name: str = "q") -> Blocked | None:
    return Management(stepped.broker).queue(name).blocked


def choosy(stepped: SteppedBroker, selector: str, prefetch: int = 100) -> SteppedClient:
    """A client with a subscription that has a selector."""
    client = stepped.connect()
    client.subscribe("q", headers={"selector": selector, "activemq.prefetchSize": str(prefetch)})
    stepped.run()
    return client


def test_queue_that_flows_is_not_blocked() -> None:
    stepped = filled(3)
    assert blocked(stepped) is None  # nobody consumes
    client = consumer(stepped)
    assert blocked(stepped) is None  # all are in flight
    for message in client.take("MESSAGE"):
        client.ack(message)
    stepped.run()
    assert blocked(stepped) is None


def test_paused_comes_before_everything_else() -> None:
    stepped = filled(3)
    consumer(stepped, prefetchSize="1")
    Management(stepped.broker).pause("q")
    stepped.advance(2.5)
    assert blocked(stepped) == Blocked("paused", 2.5)


def test_queue_that_finds_no_memory_says_so() -> None:
    stepped = filled(2, memory={"limit": 2 * MESSAGE_OVERHEAD})
    consumer(stepped, prefetchSize="2")
    stepped.advance(3)
    assert blocked(stepped) == Blocked("memory-limit", 3.0)


@pytest.mark.parametrize(("error", "cause"), [(StoreCorrupt, "damaged-record"), (StoreError, "store-failed")])
def test_queue_that_cannot_be_read_says_why(
    error: type[StoreError], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = filled(1)

    def page(lane: int, *arguments: int) -> None:
        raise error("not to be read", lane=lane, sequence=1)

    monkeypatch.setattr(stepped.store, "page", page)
    consumer(stepped)
    stepped.advance(4)
    assert blocked(stepped) == Blocked(cause, 4.0)


def test_store_that_cannot_note_what_is_given_out_holds_the_queue() -> None:
    stepped = filled(1)
    stepped.clients[0].send("other", b"x")
    stepped.turn()
    consumer_client = stepped.connect()
    consumer_client.subscribe("q")
    stepped.turn()
    stepped.commit(StoreFull("full"))  # the dispatch mark was to be written
    stepped.turn()
    stepped.advance(0.5)
    assert consumer_client.messages() == []
    assert blocked(stepped) == Blocked("store-failed", 0.5)


def test_store_that_does_not_end_a_commit_holds_the_queue() -> None:
    stepped = filled(1)
    stepped.advance(100)
    stepped.clients[0].send("other", b"x")
    stepped.turn()
    stepped.connect().subscribe("q")
    stepped.turn()
    stepped.advance(STALLED - 1)
    assert blocked(stepped) is None
    stepped.advance(2)
    assert blocked(stepped) == Blocked("store-failed", STALLED + 1)


def test_queue_that_waits_for_more_consumers_says_so() -> None:
    stepped = filled(1, policy={"consumers_before_dispatch_starts": 2, "time_before_dispatch_starts": 30.0})
    consumer(stepped)
    stepped.advance(7)
    assert blocked(stepped) == Blocked("waiting-for-consumers", 7.0)
    stepped.advance(30)
    stepped.run()
    assert blocked(stepped) is None


def test_message_that_waits_for_its_redelivery_holds_the_lane_if_the_policy_says_so() -> None:
    policy = {"blocking_redelivery": True, "initial_redelivery_delay": 60.0}
    stepped = filled(2, policy=policy)
    client = consumer(stepped, prefetchSize="1")
    client.nack(client.take("MESSAGE")[0])
    stepped.run()
    stepped.advance(20)
    status = Management(stepped.broker).queue("q")
    assert status.blocked == Blocked("redelivery-delay", 20.0)
    assert (status.delayed, status.next_due) == (1, stepped.clock.now_ms() + 40_000)


def test_first_message_that_no_selector_matches_is_named_while_others_flow() -> None:
    stepped = SteppedBroker()
    for colour in ("red", "blue", "blue"):
        send(stepped, b"x", headers={"colour": colour})
    client = choosy(stepped, "colour = 'blue'")
    stepped.advance(5)
    assert len(client.messages()) == 2
    assert blocked(stepped) == Blocked("no-matching-consumer", 5.0)
    choosy(stepped, "colour = 'red'")
    assert blocked(stepped) is None


def test_first_message_that_waits_for_the_owner_of_its_group_is_named() -> None:
    stepped = SteppedBroker()
    consumer(stepped, prefetchSize="1")
    consumer(stepped)
    for group in ("a", "a", "b"):
        send(stepped, b"x", headers={"JMSXGroupID": group})
    stepped.advance(6)
    assert blocked(stepped) == Blocked("group-owner-busy", 6.0)
    status = Management(stepped.broker).queue("q")
    assert (status.grouped, status.groups, status.parked_for_groups, status.parked_for_consumers) == (True, 2, 1, 0)


def test_first_message_that_waits_for_a_busy_consumer_with_its_selector_is_named() -> None:
    stepped = SteppedBroker()
    for colour in ("red", "red", "blue"):
        send(stepped, b"x", headers={"colour": colour})
    red, blue = choosy(stepped, "colour = 'red'", prefetch=1), choosy(stepped, "colour = 'blue'")
    stepped.advance(2)
    assert len(blue.messages()) == 1
    status = Management(stepped.broker).queue("q")
    assert status.blocked == Blocked("consumer-busy", 2.0)
    assert (status.parked_for_groups, status.parked_for_consumers) == (0, 1)
    stepped.clients[-2].ack(red.take("MESSAGE")[0])
    stepped.run()
    assert blocked(stepped) is None


def test_consumers_that_are_full_are_the_cause_once_they_are_seen_to_be() -> None:
    stepped = filled(3)
    client = consumer(stepped, prefetchSize="1")
    consumer(stepped, prefetchSize="1")
    assert blocked(stepped) is None
    stepped.advance(SLOW)
    stepped.advance(4)
    status = Management(stepped.broker).queue("q")
    assert (status.blocked, status.slow_consumers) == (Blocked("consumer-busy", 4.0), 2)
    assert [consumer.slow_seconds for consumer in status.subscriptions] == [4.0, 4.0]
    client.ack(client.take("MESSAGE")[0])
    stepped.run()
    assert blocked(stepped) is None


def test_too_much_that_is_parked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "PARKED_LIMIT", 2)
    stepped = SteppedBroker()
    consumer(stepped, prefetchSize="1")
    consumer(stepped)
    for _ in range(3):
        send(stepped, b"x", headers={"JMSXGroupID": "a"})
    stepped.advance(3)
    assert blocked(stepped) == Blocked("parked-limit", 3.0)


def test_every_cause_is_one_that_metrics_know() -> None:
    assert len(set(CAUSES)) == len(CAUSES)
    stepped = filled(1, policy={"time_before_dispatch_starts": 5.0})
    consumer(stepped)
    status = blocked(stepped)
    assert status is not None
    assert status.cause in CAUSES


def test_lower_priority_is_named_when_only_it_waits() -> None:
    stepped = SteppedBroker(settings(policy={"prioritized_messages": True}))
    send(stepped, b"low", priority=1, headers={"colour": "red"})
    choosy(stepped, "colour = 'blue'")
    stepped.advance(1)
    status = Management(stepped.broker).queue("q")
    assert (status.lanes, status.prioritized) == (10, True)
    assert status.blocked == Blocked("no-matching-consumer", 1.0)
