"""The metrics: what Prometheus reads."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire.errors import StoreFull
from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings
from tests.unit.console.conftest import Api

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def scraped(api: Api) -> dict[tuple[str, str], float]:
    """All samples by name and the value of their only label."""
    answer = api.call("GET", "/metrics", base="")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_counts_of_queues_are_those_of_the_core() -> None:
    stepped = filled(5, 'a"b\\c')
    client = consumer(stepped, 'a"b\\c', prefetchSize="2")
    first, second = client.take("MESSAGE")
    client.ack(first)
    client.nack(second)
    stepped.run()
    stepped.advance(7)
    samples = scraped(Api(stepped))
    name, queue = 'a"b\\c', stepped.queue('a"b\\c')
    assert samples["quire_queue_messages", name] == 4
    assert samples["quire_queue_in_flight_messages", name] == 2
    assert samples["quire_queue_bytes", name] == queue.bytes
    assert samples["quire_queue_resident_bytes", name] == queue.memory.used
    assert samples["quire_queue_consumers", name] == 1
    assert samples["quire_queue_oldest_message_age_seconds", name] == 7
    assert samples["quire_queue_enqueued_messages_total", name] == 5
    assert samples["quire_queue_dequeued_messages_total", name] == 1
    assert samples["quire_queue_dispatched_messages_total", name] == queue.dispatched
    assert samples["quire_queue_redelivered_messages_total", name] == 1


def test_counts_of_the_broker_are_those_of_the_core() -> None:
    stepped = filled(3)
    broker = stepped.broker
    samples = scraped(Api(stepped))
    assert samples["quire_store_bytes", ""] == broker.stored_bytes
    assert samples["quire_memory_limit_bytes", ""] == broker.memory.limit
    assert samples["quire_memory_peak_bytes", ""] == broker.memory.peak
    assert samples["quire_commits_total", ""] == broker.commits_done
    assert samples["quire_store_writable", ""] == 1


def test_waits_have_their_causes_and_ages() -> None:
    stepped = filled(2, memory={"limit": 2 * MESSAGE_OVERHEAD})
    consumer(stepped, prefetchSize="2")
    stepped.broker.stored_bytes = stepped.settings.store.limit
    stepped.clients[0].send("q", b"too much")
    stepped.advance(3)
    samples = scraped(Api(stepped))
    assert samples["quire_producers_held", "store-limit"] == 1
    assert samples["quire_producers_held", "spool-limit"] == 0
    assert samples["quire_producers_held_longest_seconds", "store-limit"] == 3
    assert samples["quire_producer_holds_total", ""] == 1
    assert samples["quire_queues_blocked", "memory-limit"] == 1
    assert samples["quire_queue_blocked_seconds", "q"] == 3


def test_failure_of_the_store_shows() -> None:
    stepped = SteppedBroker(settings())
    stepped.connect().send("q", b"x")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    samples = scraped(Api(stepped))
    assert samples["quire_store_writable", ""] == 0
    assert samples["quire_commit_errors_total", ""] == 1


def test_paused_queue_shows(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    api.call("POST", "/queues/q/pause")
    samples = scraped(api)
    assert samples["quire_queue_paused", "q"] == 1
    assert samples["quire_queues_blocked", "paused"] == 1


@pytest.mark.parametrize("unit", ["bytes", "seconds"])
def test_names_end_with_their_unit(api: Api, unit: str) -> None:
    names = {name for name, _ in scraped(api)}
    assert any(name.endswith(f"_{unit}") for name in names)
    assert all(name.startswith("quire_") for name in names)


def test_page_names_every_metric(api: Api) -> None:
    api.call("PUT", "/queues/q")
    exported = {name for name, _ in scraped(api)}
    assert set(re.findall(r"`(quire_\w+)`", PAGE.read_text(encoding="utf-8"))) == exported
