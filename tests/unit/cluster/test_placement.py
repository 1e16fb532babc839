"""What one commit joins has one placement key; what every shard has its part of is spread."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.dead_letter import dead_letter_destination
from quire.cluster.cluster_map import SPREAD, Placement
from quire.destination import Destination, queue, stream, topic
from quire.settings import Composite, Forward, Policies, Settings
from quire.settings.policy import read_policies

PARTS = st.text("ab", min_size=1, max_size=2)
NAMES = st.lists(PARTS, min_size=1, max_size=3).map(".".join)


def placement(*entries: dict[str, Any], composites: tuple[Composite, ...] = (), **policy: Any) -> Placement:
    """A placement by settings with these entries of ``[[policies]]``."""
    settings = Settings(composites=composites)
    base = replace(settings.policies.base, **policy)
    return Placement(replace(settings, policies=Policies(base, read_policies(list(entries), "test"))))


def composite(source: Destination, *targets: str) -> Composite:
    return Composite(source, tuple([Forward(target) for target in targets]))


def test_a_queue_has_its_own_key() -> None:
    assert placement().key_of(queue("orders")) == "queue://orders"
    assert placement().key_of(queue("orders")) != placement().key_of(topic("orders"))


def test_a_virtual_topic_lies_together_with_its_queues() -> None:
    placed = placement()
    assert placed.key_of(queue("Consumer.A.VirtualTopic.x")) == placed.key_of(topic("VirtualTopic.x"))
    assert placed.key_of(queue("Consumer.B.VirtualTopic.x")) == placed.key_of(topic("VirtualTopic.x"))
    assert placed.key_of(queue("Consumer.A.orders")) != placed.key_of(topic("orders"))


@pytest.mark.parametrize(
    "destination",
    [queue("ActiveMQ.DLQ"), topic("ActiveMQ.Advisory.Queue"), stream("$quire.ledger"),
     Destination(queue("x").kind, "orders.>"), Destination(topic("x").kind, "*.new")],
    ids=str,
)  # fmt: skip
def test_each_shard_has_its_part_of_what_is_spread(destination: Destination) -> None:
    assert placement().key_of(destination) == SPREAD


def test_the_shared_dead_letter_queues_of_all_policies_are_spread() -> None:
    placed = placement({"destination": "orders.>", "dead_letter_queue": "orders-dlq"}, dead_letter_queue="dlq")
    assert placed.key_of(queue("orders-dlq")) == placed.key_of(queue("dlq")) == SPREAD
    assert placed.key_of(queue("ActiveMQ.DLQ")) != SPREAD


@given(NAMES, st.sampled_from(["queue", "topic", "stream"]))
def test_a_dead_letter_queue_of_its_own_lies_together_with_its_destination(name: str, kind: str) -> None:
    entry = {
        "destination": "a.>", "dead_letter_strategy": "individual", "queue_prefix": "b.", "topic_prefix": "b.b.",
    }  # fmt: skip
    placed = placement(entry, dead_letter_strategy="individual", queue_suffix=".b")
    origin = {"queue": queue, "topic": topic, "stream": stream}[kind](name)
    letters = dead_letter_destination(origin, placed._policies.of(origin))
    assert placed.key_of(letters) in (placed.key_of(origin), SPREAD)


def test_dead_letters_of_a_topic_of_which_the_name_says_too_little_are_spread() -> None:
    placed = placement(dead_letter_strategy="individual", destination_per_durable_subscriber=True)
    assert placed.key_of(queue("ActiveMQ.DLQ.Topic.news.client.sub")) == SPREAD
    certain = placement(dead_letter_strategy="individual")
    assert certain.key_of(queue("ActiveMQ.DLQ.Topic.news")) == certain.key_of(topic("news"))


def test_a_composite_lies_together_with_its_targets_whatever_the_order_of_the_entries() -> None:
    entries = (
        composite(queue("a"), "queue://b", "topic://c"), composite(queue("d"), "topic://c", "queue://ActiveMQ.DLQ")
    )  # fmt: skip
    for composites in (entries, entries[::-1]):
        placed = placement(composites=composites)
        assert {placed.key_of(place) for place in (queue("a"), queue("b"), topic("c"), queue("d"))} == {"queue://a"}
        assert placed.key_of(queue("ActiveMQ.DLQ")) == SPREAD


def test_a_composite_of_a_virtual_topic_joins_its_queues() -> None:
    placed = placement(composites=(composite(queue("a"), "topic://VirtualTopic.x"),))
    assert placed.key_of(queue("Consumer.A.VirtualTopic.x")) == placed.key_of(queue("a"))


def test_the_digest_tells_settings_apart_that_place_differently() -> None:
    assert placement().digest == placement().digest == placement(queue_prefetch=7).digest
    others = [
        placement(dead_letter_queue="dlq"), placement({"destination": "a", "dead_letter_strategy": "individual"}),
        placement(composites=(composite(queue("a"), "queue://b"),)),
    ]  # fmt: skip
    assert len({placement().digest, *[other.digest for other in others]}) == 4
