"""``quire topic`` and ``quire durable``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

SUBSCRIPTION = {
    "client_id": "c", "name": "d", "connection": None, "id": None, "selector": "a = 1", "prefetch": 0, "in_flight": 0,
    "pending": 5, "discarded": 0, "slow_seconds": None,
}  # fmt: skip
PRICES = {
    "name": "prices", "depth": 5, "bytes": 2048, "consumers": 0, "durables": 1, "offline_durables": 1, "pending": 0,
    "backlog": 5, "enqueued": 7, "dispatched": 2, "subscriptions": [SUBSCRIPTION], "producers_held": [],
}  # fmt: skip
DURABLE: dict[str, object] = {
    "client_id": "c", "name": "d", "topic": "prices", "selector": None, "depth": 5, "in_flight": 0, "bytes": 2048,
    "oldest_message_age_seconds": 3.0, "offline_seconds": 90.0, "blocked": None, "consumers": [],
}  # fmt: skip


def test_topics_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/topics", {"topics": [PRICES], "next": None})
    heading, line = run("topic", "ls").output.splitlines()
    assert heading.split()[:3] == ["Topic", "Consumers", "Durable"]
    assert line.split() == ["prices", "0", "1", "1", "5", "0", "5", "2.0", "KiB", "7", "2"]
    assert json.loads(run("topic", "ls", "--output", "json").output) == [PRICES]


@pytest.mark.parametrize("name", ["prices", "topic://prices", "/topic/prices"])
def test_topic_is_shown_with_its_subscriptions(broker: FakeBroker, run: Run, name: str) -> None:
    broker.answer("GET", "/topics/prices", PRICES)
    lines = run("topic", "show", name).output.splitlines()
    assert lines[lines.index("Subscriptions") + 2].split()[:4] == ["c", "d", "-", "-"]
    lines = run("topic", "subscriptions", name).output.splitlines()
    assert lines[1].split()[:2] == ["c", "d"]
    assert json.loads(run("topic", "subscriptions", name, "--output", "json").output) == [SUBSCRIPTION]


def test_durable_subscriptions_are_listed_and_shown(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/durables", {"durables": [DURABLE], "next": None, "total": 1})
    assert run("durable", "ls").output.splitlines()[1].split()[:4] == ["c", "d", "prices", "-"]
    consumers = [{"connection": "c:1", "id": "0", "ack": "client"}]
    broker.answer("GET", "/durables/a%2Fb/d", {**DURABLE, "consumers": consumers})
    lines = run("durable", "show", "a/b", "d").output.splitlines()
    assert lines[lines.index("Consumer") + 2].split()[0] == "c:1"
    assert "offline_seconds             0:01:30" in lines


def test_durable_subscription_is_browsed(broker: FakeBroker, run: Run) -> None:
    message = {"sequence": 7, "id": "ID:7", "size": 1, "timestamp": 0, "body": "b"}
    broker.answer("GET", "/durables/c/d/messages", {"messages": [message], "next": None})
    result = run("durable", "browse", "c", "d", "--selector", "a = 1", "--output", "ndjson")
    assert json.loads(result.output) == message
    assert broker.calls[0][2] == {"limit": "100", "selector": "a = 1"}
