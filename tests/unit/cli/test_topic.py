"""``quire topic`` and ``quire durable``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from quire.cli import output
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


def test_queue_is_no_topic(broker: FakeBroker, run: Run) -> None:
    assert run("topic", "show", "/queue/prices").exit_code == 2
    assert broker.calls == []


def test_durable_subscriptions_are_listed_and_shown(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/durables", {"durables": [DURABLE], "next": None, "total": 1})
    assert run("durable", "ls").output.splitlines()[1].split()[:4] == ["c", "d", "prices", "-"]
    consumers = [{"connection": "c:1", "id": "0", "ack": "client"}]
    broker.answer("GET", "/durables/a%2Fb/d", {**DURABLE, "consumers": consumers})
    lines = run("durable", "show", "a/b", "d").output.splitlines()
    assert lines[lines.index("Consumer") + 2].split()[0] == "c:1"
    assert "offline_seconds             0:01:30" in lines


@pytest.mark.parametrize(
    ("arguments", "call", "answer", "sentence"),
    [
        (["topic", "create", "t"], ("PUT", "/topics/t", {}, None), {}, "created t"),
        (["topic", "delete", "t"], ("DELETE", "/topics/t", {}, None), {}, "deleted t"),
        (["topic", "delete", "t", "--force"], ("DELETE", "/topics/t", {"force": "true"}, None), {}, "deleted t"),
        (
            ["durable", "create", "c", "d", "topic://t", "--selector", "a = 1", "--retroactive"],
            (
                "PUT",
                "/durables/c/d",
                {},
                {"topic": "t", "selector": "a = 1", "no_local": False, "retroactive": True},
            ),
            {},
            "created d of c",
        ),
        (["durable", "delete", "c", "d"], ("DELETE", "/durables/c/d", {}, None), {"removed": 5}, "removed d of c"),
        (
            ["durable", "delete", "c", "d", "--force"],
            ("DELETE", "/durables/c/d", {"force": "true"}, None),
            {"removed": 5},
            "removed d of c",
        ),
        (
            ["durable", "purge", "c", "d", "--selector", "a = 1"],
            ("POST", "/durables/c/d/purge", {}, {"selector": "a = 1"}),
            {"removed": 3},
            "removed 3 messages from d of c",
        ),
    ],
)
def test_verb_makes_one_call_and_says_what_it_did(
    broker: FakeBroker,
    run: Run,
    arguments: list[str],
    call: tuple[str, str, dict[str, str], object],
    answer: dict[str, object],
    sentence: str,
) -> None:
    broker.answer(call[0], call[1], answer)
    result = run(*arguments)
    assert (result.exit_code, result.output) == (0, f"{sentence}\n")
    assert broker.calls == [call]
    assert json.loads(run(*arguments, "--output", "json").output) == answer


@pytest.mark.parametrize(
    "arguments", [["topic", "delete", "t"], ["durable", "delete", "c", "d"], ["durable", "purge", "c", "d"]]
)
def test_destruction_is_asked_about_on_a_terminal(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: True)
    broker.answer("DELETE", "/topics/t", {})
    broker.answer("DELETE", "/durables/c/d", {})
    broker.answer("POST", "/durables/c/d/purge", {"removed": 0})
    assert run(*arguments, stdin=b"n\n").exit_code == 1
    assert broker.calls == []
    assert run(*arguments, "--yes").exit_code == 0


def test_durable_subscription_is_browsed(broker: FakeBroker, run: Run) -> None:
    message = {"sequence": 7, "id": "ID:7", "size": 1, "timestamp": 0, "body": "b"}
    broker.answer("GET", "/durables/c/d/messages", {"messages": [message], "next": None})
    result = run("durable", "browse", "c", "d", "--selector", "a = 1", "--output", "ndjson")
    assert json.loads(result.output) == message
    assert broker.calls[0][2] == {"limit": "100", "selector": "a = 1"}
