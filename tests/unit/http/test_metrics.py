"""The metrics: what Prometheus reads."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire.broker.transactions.decisions import Xid
from quire.errors import StoreError, StoreFull
from quire.message import MESSAGE_OVERHEAD
from quire.server.background import Backups
from quire.settings import BackupSettings
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings
from tests.unit.http.conftest import Api, prepare, watch_disk

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def scraped(api: Api) -> dict[tuple[str, str], float]:
    """All samples by name and the values of their labels."""
    answer = api.call("GET", "/metrics", base="")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
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
    assert samples["quire_store_bytes", ""] == broker.core.stored_bytes
    assert samples["quire_memory_limit_bytes", ""] == broker.core.memory.limit
    assert samples["quire_memory_peak_bytes", ""] == broker.core.memory.peak
    assert samples["quire_commits_total", ""] == broker.core.commits_done
    assert samples["quire_store_writable", ""] == 1


def test_waits_have_their_causes_and_ages() -> None:
    stepped = filled(2, memory={"limit": 2 * MESSAGE_OVERHEAD})
    consumer(stepped, prefetchSize="2")
    stepped.broker.core.stored_bytes = stepped.settings.store.limit
    stepped.clients[0].send("q", b"too much")
    stepped.advance(3)
    samples = scraped(Api(stepped))
    assert samples["quire_producers_held", "store-limit"] == 1
    assert samples["quire_producers_held", "spool-limit"] == 0
    assert samples["quire_producers_held_longest_seconds", "store-limit"] == 3
    assert samples["quire_producer_holds_total", ""] == 1
    assert samples["quire_queues_blocked", "memory-limit"] == 1
    assert samples["quire_queue_blocked_seconds", "memory-limit q"] == 3


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


def test_groups_and_what_is_parked_are_counted_and_no_group_is_named(api: Api) -> None:
    consumer(api.stepped, prefetchSize="1")
    consumer(api.stepped)
    for group in ("a", "a", "b"):
        api.call("POST", "/queues/q/messages", json={"body": "", "headers": {"JMSXGroupID": group}})
    api.stepped.advance(4)
    samples = scraped(api)
    assert samples["quire_queue_message_groups", "q"] == 2
    assert samples["quire_queue_parked_messages", "group-owner-busy q"] == 1
    assert samples["quire_queue_parked_messages", "consumer-busy q"] == 0
    assert samples["quire_queue_blocked_seconds", "group-owner-busy q"] == 4
    assert samples["quire_queues_blocked", "group-owner-busy"] == 1
    assert not any(label in ("a", "b") or label.startswith(("a ", "b ")) for _, label in samples)


def test_slow_consumers_and_delayed_messages_are_counted() -> None:
    stepped = filled(3, policy={"initial_redelivery_delay": 60.0})
    client = consumer(stepped, prefetchSize="1")
    client.nack(client.take("MESSAGE")[0])
    stepped.run()
    stepped.advance(1)
    samples = scraped(Api(stepped))
    assert samples["quire_queue_delayed_messages", "q"] == 1
    assert samples["quire_queue_slow_consumers", "q"] == 1
    assert samples["quire_slow_consumers_aborted_total", ""] == 0


def test_topics_are_counted_with_what_they_lost_and_what_waits(api: Api) -> None:
    client = api.stepped.connect()
    limits = {"activemq.prefetchSize": "1", "activemq.maximumPendingMessageLimit": "2"}
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", "ack": "client", **limits})
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("POST", "/topics/t/messages", json={"body": "b", "count": 10})
    api.stepped.advance(1)
    samples = scraped(api)
    assert samples["quire_topic_enqueued_messages_total", "t"] == 10
    assert samples["quire_topic_dispatched_messages_total", "t"] == 1
    assert samples["quire_topic_discarded_messages_total", "pending-limit t"] == 7
    assert samples["quire_topic_discarded_messages_total", "memory-limit t"] == 0
    assert samples["quire_topic_pending_messages", "t"] == 2
    assert samples["quire_topic_consumers", "t"] == samples["quire_topic_slow_consumers", "t"] == 1
    assert samples["quire_topic_durable_subscriptions", "t"] == 1
    assert samples["quire_topic_offline_durable_subscriptions", "t"] == 1
    assert samples["quire_topic_backlog_messages", "t"] == samples["quire_topic_messages", "t"] == 10


def test_streams_are_counted(api: Api) -> None:
    api.call("POST", "/streams/s/messages", json={"body": "b", "count": 10})
    api.call("POST", "/streams/s/groups/g/receive", json={})
    api.call("PUT", "/streams/s/pins/p", json={"time_to_live": 60})
    samples = scraped(api)
    assert (samples["quire_stream_partitions", "s"], samples["quire_stream_messages", "s"]) == (4, 10)
    assert samples["quire_stream_bytes", "s"] == api.stepped.broker.stream("s").stored_bytes
    assert samples["quire_stream_appended_messages_total", "s"] == 10
    assert samples["quire_stream_consumer_groups", "s"] == samples["quire_stream_members", "s"] == 1
    assert (samples["quire_stream_readers", "s"], samples["quire_stream_pins", "s"]) == (0, 1)


def test_schedule_is_counted_and_says_when_the_next_message_is_due(api: Api) -> None:
    assert ("quire_scheduled_next_due_timestamp_seconds", "") not in scraped(api)
    due = api.stepped.clock.now_ms() / 1000 + 5
    for delay in ("60000", "5000"):
        api.call("POST", "/queues/q/messages", json={"body": "b", "headers": {"AMQ_SCHEDULED_DELAY": delay}})
    api.call("POST", "/queues/q/messages", json={"body": "b", "expiration": api.stepped.clock.now_ms() + 1000})
    samples = scraped(api)
    assert samples["quire_scheduled_messages", ""] == 2
    assert samples["quire_scheduled_next_due_timestamp_seconds", ""] == due
    api.stepped.advance(4)
    api.stepped.run()
    assert scraped(api)["quire_scheduled_next_due_timestamp_seconds", ""] == due
    api.stepped.advance(2)
    api.stepped.run()
    samples = scraped(api)
    assert (samples["quire_scheduled_messages", ""], samples["quire_scheduled_sent_messages_total", ""]) == (1, 1)


def test_prepared_transactions_are_counted_with_the_age_of_the_oldest(api: Api) -> None:
    for number in (b"1", b"2"):
        prepare(api, Xid(1, number, b""))
        api.stepped.advance(10)
    samples = scraped(api)
    assert samples["quire_xa_prepared_transactions", ""] == 2
    assert samples["quire_xa_oldest_prepared_age_seconds", ""] == 20
    api.call("POST", f"/xa/{Xid(1, b'1', b'')}/commit")
    samples = scraped(api)
    assert samples["quire_xa_prepared_transactions", ""] == samples["quire_xa_decided_transactions", ""] == 1
    assert samples["quire_xa_oldest_prepared_age_seconds", ""] == 10


def test_store_that_cannot_be_read_does_not_silence_the_metrics(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b", "headers": {"AMQ_SCHEDULED_DELAY": "60000"}})
    api.call("POST", "/queues/q/messages", json={"body": "b"})

    def fail(*arguments: object) -> None:
        raise StoreError("not to be read")

    for name in ("links", "load", "page", "expired"):
        monkeypatch.setattr(api.stepped.store, name, fail)
    samples = scraped(api)
    assert samples["quire_queue_messages", "q"] == samples["quire_scheduled_messages", ""] == 1


def test_metrics_of_many_queues_are_made_in_pieces(api: Api) -> None:
    for number in range(1200):
        api.stepped.queue(f"q{number:04d}")
    api.service.settings = settings(metrics={"max_destinations": 1200})
    before = sum(api.stepped.broker.core.meter.counts)
    samples = scraped(api)
    assert len([name for name, _ in samples if name == "quire_queue_messages"]) == 1200
    assert sum(api.stepped.broker.core.meter.counts) - before > 1200 / 20 + 16 * 1200 / 200  # each piece is a turn


@pytest.mark.parametrize("unit", ["bytes", "seconds"])
def test_names_end_with_their_unit(api: Api, unit: str) -> None:
    names = {name for name, _ in scraped(api)}
    assert any(name.endswith(f"_{unit}") for name in names)
    assert all(name.startswith(("quire_", "process_")) for name in names)


def test_the_first_queues_have_metrics_of_their_own_and_the_others_are_added_up(api: Api) -> None:
    for name, count in (("a", 1), ("_omitted", 2), ("b", 4), ("c", 8), ("d", 16)):
        api.call("POST", f"/queues/{name}/messages", json={"body": "b", "count": count})
    api.call("POST", "/queues/c/pause")
    api.call("POST", "/queues/d/pause")
    api.stepped.advance(5)
    api.service.settings = settings(metrics={"max_destinations": 2})
    samples = scraped(api)
    depths = {labels: value for (name, labels), value in samples.items() if name == "quire_queue_messages"}
    assert depths == {"a": 1, "b": 4, "_omitted": 2 + 8 + 16}
    assert samples["quire_queue_paused", "_omitted"] == 2
    assert samples["quire_queue_oldest_message_age_seconds", "_omitted"] == 5  # the largest, not the sum
    assert samples["quire_metrics_omitted", "queue"] == 3
    assert samples["quire_metrics_omitted", "topic"] == 0
    assert samples["quire_queues_blocked", "paused"] == 2  # counts all


def test_groups_beyond_the_limit_are_added_up(api: Api) -> None:
    for stream in ("r", "s", "t"):
        api.call("POST", f"/streams/{stream}/messages", json={"body": "b", "count": 3})
        api.call("POST", f"/streams/{stream}/groups/g/receive", json={"start": "earliest", "max": 1})
    api.service.settings = settings(metrics={"max_destinations": 1})
    samples = scraped(api)
    lags = {labels: value for (name, labels), value in samples.items() if name == "quire_groups_lag_messages"}
    assert lags == {"r": 3, "_omitted": 6}
    assert samples["quire_group_lag_messages", "_omitted _omitted"] == 6
    assert samples["quire_groups_left_out", ""] == samples["quire_metrics_omitted", "group"] == 2


def test_detailed_metrics_are_those_of_one_kind_with_a_prefix(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "orders", "orders.de", "orders.fr", "ordert", "z"):
        api.call("PUT", f"/queues/{name}")
    api.service.settings = settings(metrics={"max_destinations": 0})
    answer = api.call("GET", "/metrics/detailed?family=queue&prefix=orders", base="")
    shown = re.findall(r'^quire_queue_messages\{queue="(.*)"\}', answer.text, re.MULTILINE)
    assert shown == ["orders", "orders.de", "orders.fr"]
    assert 'quire_metrics_omitted{kind="queue"} 0.0' in answer.text
    assert "quire_commits_total" not in answer.text
    monkeypatch.setattr("quire.http.metrics.DETAILED", 2)
    capped = api.call("GET", "/metrics/detailed?family=queue", base="").text
    assert re.findall(r'^quire_queue_messages\{queue="(.*)"\}', capped, re.MULTILINE) == ["a", "orders", "_omitted"]
    assert 'quire_metrics_omitted{kind="queue"} 4.0' in capped


@pytest.mark.parametrize("kind", ["topic", "stream", "group"])
def test_every_kind_has_detailed_metrics(api: Api, kind: str) -> None:
    api.call("PUT", "/topics/t")
    api.call("POST", "/streams/s/messages", json={"body": "b"})
    api.call("POST", "/streams/s/groups/g/receive", json={})
    text = api.call("GET", f"/metrics/detailed?family={kind}", base="").text
    assert set(re.findall(r"^quire_(\w+?)_", text, re.MULTILINE)) == {kind, "metrics"}
    nothing = api.call("GET", f"/metrics/detailed?family={kind}&prefix=zz", base="").text
    assert f"quire_{kind}_" in nothing  # the names are told
    assert f"quire_{kind}_messages{{" not in nothing


def test_detailed_metrics_without_a_known_kind_are_refused(api: Api) -> None:
    for query in ("", "?family=connection"):
        answer = api.call("GET", f"/metrics/detailed{query}", base="")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid-argument")


def test_no_label_is_of_a_connection_a_client_or_a_temporary_destination(api: Api) -> None:
    client = consumer(api.stepped)
    client.frame("SUBSCRIBE", {"destination": "/temp-queue/secret", "id": "9"})
    api.call("PUT", "/durables/client-of-books/d", json={"topic": "t"})
    api.stepped.run()
    text = api.call("GET", "/metrics", base="").text
    labels = set(re.findall(r'(\w+)="', text))
    assert labels <= {"queue", "topic", "stream", "group", "cause", "disk", "kind", "le", "limit", "name", "version"}
    assert "client-of-books" not in text
    assert "secret" not in text


def test_a_watched_disk_is_shown(api: Api, tmp_path: Path) -> None:
    watch_disk(api, tmp_path)
    samples = scraped(api)
    assert samples["quire_disk_free_bytes", "store"] == 500
    assert samples["quire_disk_reserve_bytes", "store"] == 62  # made after the look, of what was free
    assert samples["quire_disk_free_limit_bytes", "store"] == 1000
    assert samples["quire_producers_held", "store-disk-limit"] == 0


def test_page_names_every_metric(api: Api, tmp_path: Path) -> None:
    watch_disk(api, tmp_path, free=5000)
    api.service.backups = Backups(BackupSettings(at="03:00"), "lmdb:///s", api.stepped.clock, api.service.scheduler)
    api.service.backups.last_seconds = 1.0
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    api.call("POST", "/queues/q/pause")
    api.call("PUT", "/topics/t")
    api.call("POST", "/streams/s/messages", json={"body": "b"})
    api.call("POST", "/streams/s/groups/concurrent/receive", json={"start": "earliest"})
    received = api.call("POST", "/streams/s/groups/blocked/receive", json={"start": "earliest", "order": "orderly"})
    rejected = {"member": received.json()["member"], "handles": [received.json()["messages"][0]["handle"]], "delay": 60}
    api.call("POST", "/streams/s/groups/blocked/reject", json=rejected)
    api.call("POST", "/queues/q/messages", json={"body": "b", "headers": {"AMQ_SCHEDULED_DELAY": "60000"}})
    api.service.acceptors.tls.ends_at = 1.0
    api.service.lock.until = 3.0
    text = api.call("GET", "/metrics", base="").text  # the parser would add what a counter's name lacks
    exported = set(re.findall(r"^((?:quire|process)_\w+)", text, re.MULTILINE))
    pages = "".join([(REFERENCE / page).read_text(encoding="utf-8") for page in ("metrics.md", "resources.md")])
    assert set(re.findall(r"`((?:quire|process)_\w+)`", pages)) == exported
